"""Sharing prefixes changes the cost and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from operators.models.local.prefix_tree import TokenRow, pack_rows, pad_rows, target_logits, unique_tokens
from tests.support_models import tiny_base

Model = torch.nn.Module


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    base = tiny_base(tmp_path_factory.mktemp("tiny") / "base")
    found = AutoModelForCausalLM.from_pretrained(base, attn_implementation=request.param)
    assert isinstance(found, torch.nn.Module)
    found.eval()
    return found


def row_lists() -> st.SearchStrategy[list[TokenRow]]:
    ids = st.lists(st.integers(3, 9), min_size=2, max_size=12).map(tuple)
    rows = ids.flatmap(lambda i: st.integers(1, len(i) - 1).map(lambda at: TokenRow(i, at)))
    return st.lists(rows, min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(rows=row_lists())
def test_each_target_is_predicted_as_if_its_row_stood_alone(model: Model, rows: list[TokenRow]) -> None:
    with torch.no_grad():
        together = target_logits(model, pack_rows(rows))
        padded = target_logits(model, pad_rows(rows, 0))
        alone = torch.cat(
            [model(torch.tensor([row.ids])).logits[0, row.labelled_from - 1 : -1] for row in rows]
        )
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(padded, alone, atol=1e-5, rtol=1e-4)


@given(rows=row_lists())
def test_a_pack_holds_every_target_of_every_row_once_and_each_shared_token_once(rows: list[TokenRow]) -> None:
    pack = pack_rows(rows)
    wanted = [(n, row.ids[at]) for n, row in enumerate(rows) for at in range(row.labelled_from, len(row.ids))]
    assert list(zip(pack.rows.tolist(), pack.targets.tolist(), strict=True)) == wanted
    prefixes = {row.ids[:end] for row in rows for end in range(1, len(row.ids))}
    assert pack.input_ids.shape == (1, len(prefixes))
    assert unique_tokens(rows) == len(prefixes)
    assert pack.row_tokens == sum(len(row.ids) for row in rows)


def test_gradients_are_those_of_padded_rows(model: Model) -> None:
    shared = (5, 6, 7, 8)
    rows = [TokenRow((*shared, 9, 10, 2), 5), TokenRow((*shared, 9, 11, 2), 6), TokenRow((*shared, 2), 4)]
    gradients = []
    for pack in (pack_rows(rows), pad_rows(rows, 0)):
        model.zero_grad()
        torch.nn.functional.cross_entropy(target_logits(model, pack), pack.targets).backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) > 10
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("rows", [[], [TokenRow((1, 2), 0)], [TokenRow((1, 2), 2)]])
def test_rows_without_a_target_after_their_first_token_are_refused(rows: list[TokenRow]) -> None:
    for pack in (pack_rows, lambda found: pad_rows(found, 0)):
        with pytest.raises(ValueError, match="each with a target"):
            pack(rows)


def test_the_tiny_model_is_on_disk_whole(tmp_path: Path) -> None:
    names = {path.name for path in tiny_base(tmp_path / "b").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
