"""Which rows a stage trains on, and what every row of tokens has to be."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from data_builders.examples import Example
from operators.errors import InputError
from operators.models.local.render import prompt_ids
from tests.support_models import tiny_base
from tests.training.support import recipe, write_data
from training.folds import Job, selection_of
from training.rows import DataFolder, Selection, select, tokenise

OPERATORS = ("extract-state", "compare-claims", "update-memory")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return DataFolder(write_data(tmp_path_factory.mktemp("rows") / "data"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    found = AutoTokenizer.from_pretrained(tiny_base(tmp_path_factory.mktemp("rows") / "tiny"))
    assert isinstance(found, PreTrainedTokenizerBase)
    return found


def rows_of(selection: Selection) -> list[Example]:
    return [row for case in selection.cases for row in case.examples]


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_row_becomes_one_token_row_whose_answer_ends_the_turn(
    data: DataFolder, tokenizer: PreTrainedTokenizerBase, operator: str
) -> None:
    rows = rows_of(select(data, recipe(), [operator], stage="fold", holdout="browser-surface"))
    found = tokenise(tokenizer, rows, max_length=4000)
    assert len(found) == len(rows) > 5
    for row, tokens in zip(rows, found, strict=True):
        prompt = prompt_ids(tokenizer, row.prompt)
        assert list(tokens.ids[: tokens.labelled_from]) == prompt
        assert tokens.ids[-1] == tokenizer.eos_token_id != tokenizer.pad_token_id
        assert tokenizer.decode(list(tokens.ids[tokens.labelled_from : -1])) == row.completion[0]["content"]


def test_a_row_that_is_too_long_or_says_nothing_is_named_and_never_cut(
    data: DataFolder, tokenizer: PreTrainedTokenizerBase
) -> None:
    rows = rows_of(select(data, recipe(), ["compare-claims"], stage="fold", holdout="browser-surface"))
    lengths = [len(row.ids) for row in tokenise(tokenizer, rows, max_length=4000)]
    longest = rows[lengths.index(max(lengths))]
    assert len(tokenise(tokenizer, rows, max_length=max(lengths))) == len(rows)
    with pytest.raises(InputError, match=f"{longest.id}.*{max(lengths)} tokens"):
        tokenise(tokenizer, [longest], max_length=max(lengths) - 1)
    silent = longest.model_copy(update={"completion": [{"role": "assistant", "content": ""}]})
    with pytest.raises(InputError, match=f"{longest.id}.*no answer"):
        tokenise(tokenizer, [silent], max_length=4000)


def test_the_mixture_counts_cases_and_a_drawn_note_comes_with_all_its_rows(data: DataFolder) -> None:
    found = select(data, recipe(), ["extract-state"], stage="fold", holdout="browser-surface")
    assert len(found.cases) == 8
    whole = data.cases("trajectory", "extract-state", ("select", "fill"), data.fold_ids("browser-surface"))
    every = {case.name: case.examples for case in whole}
    assert len(every) > 8
    assert all(case.examples == every[case.name] for case in found.cases)
    assert {row.task for row in rows_of(found)} == {"select", "fill"}
    assert found.rows == len(rows_of(found))


def test_the_seed_decides_the_draw_and_the_order_and_the_hash_tells_them_apart(data: DataFolder) -> None:
    drawn = [
        select(data, recipe(optim__seed=seed), ["compare-claims"], stage="fold", holdout="browser-surface")
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0].data_hash != drawn[2].data_hash
    backwards = Selection(tuple(reversed(drawn[0].cases)))
    assert backwards.data_hash != drawn[0].data_hash


def test_a_single_job_trains_on_what_both_stages_would(data: DataFolder) -> None:
    config = recipe()
    apart = [
        {row.id for row in rows_of(selection_of(Job("update-memory", holdout, stage), config, data))}
        for holdout, stage in (("none", "shared"), ("browser-surface", "fold"))
    ]
    single = rows_of(selection_of(Job("update-memory", "browser-surface", "single"), config, data))
    assert {row.id for row in single} == apart[0] | apart[1]
    assert len(single) == len(apart[0]) + len(apart[1])


def test_a_count_of_zero_leaves_a_source_out_and_a_source_that_is_not_there_is_no_fault(
    data: DataFolder,
) -> None:
    mixture = {"shared": {}, "fold": {"trajectory": {"compare-claims": 3}, "synthetic": {"compare-claims": 0},
                                      "mined": {"compare-claims": 9}}}  # fmt: skip
    found = select(data, recipe(mixture=mixture), ["compare-claims"], stage="fold", holdout="browser-surface")
    assert [case.source for case in found.cases] == ["trajectory"] * 3


def test_a_single_job_needs_no_shared_rows(data: DataFolder) -> None:
    mixture = {"shared": {}, "fold": {"trajectory": {"compare-claims": 3}}}
    found = select(
        data, recipe(mixture=mixture), ["compare-claims"], stage="single", holdout="browser-surface"
    )
    assert [case.source for case in found.cases] == ["trajectory"] * 3
