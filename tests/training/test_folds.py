"""Runs of adapters: equal however they are cut up, never trained on what they hold out, whole or not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import get_peft_model_state_dict
from safetensors.torch import load_file

from operators.adapter_checks import verify_adapter
from operators.adapters import adapter_for, list_adapters, read_card
from operators.errors import ConfigError, InputError, PreflightError, TrainingError
from operators.models.bases import FoundBase, find_base
from tests.support_models import tiny_base
from tests.training.support import HOLDOUTS, OPERATORS, base_in, recipe, run, write_data
from training import folds, trainer
from training.config import TrainConfig
from training.folds import Job, Run, plan_jobs, selection_of
from training.pack_trainer import PackTrainer
from training.rows import DataFolder
from training.trainer import Loaded

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> FoundBase:
    return base_in(tmp_path_factory.mktemp("base") / "tiny")


def weights(folder: Path) -> Weights:
    return load_file(folder / "adapter_model.safetensors")


def assert_equal(one: Weights, other: Weights, *, atol: float = 1e-6) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], atol=atol, rtol=1e-4, msg=name)


def one(target: Path, data: Path, base: FoundBase, config: TrainConfig) -> Weights:
    """The weights of one adapter trained from scratch."""
    only = ("browser-surface",)
    (found,) = run(target, data, base, config.model_copy(update={"mode": "from-scratch"}), holdouts=only)
    return weights(found.folder)


@pytest.mark.parametrize(("hardware", "products"), [(True, "bfloat16"), (False, "float32")])
def test_products_are_bfloat16_where_the_machine_has_it_and_the_card_says_which(
    tmp_path: Path,
    data: Path,
    base: FoundBase,
    monkeypatch: pytest.MonkeyPatch,
    hardware: bool,
    products: str,
) -> None:
    monkeypatch.setattr(trainer, "has_bf16", lambda: hardware)
    only = ("browser-surface",)
    config = recipe(autocast="native", mode="from-scratch")
    (found,) = run(tmp_path / "run", data, base, config, holdouts=only)
    assert found.card.training["products"] == products
    same = one(tmp_path / "same", data, base, recipe(autocast=hardware))
    assert_equal(weights(found.folder), same)
    other = one(tmp_path / "other", data, base, recipe(autocast=not hardware))
    with pytest.raises(AssertionError):
        assert_equal(weights(found.folder), other)


def test_a_run_writes_every_adapter_whole_with_a_card_that_passes_its_check(
    tmp_path: Path, data: Path, base: FoundBase
) -> None:
    finished = run(tmp_path / "run", data, base, recipe(), operators=("all",))
    assert len(finished) == len(OPERATORS) * (1 + len(HOLDOUTS))
    for done in finished:
        card = verify_adapter(done.folder, base.card)
        assert card.training["rows"] == selection_of(done.job, recipe(), DataFolder(data)).rows
        if done.job.stage == "fold":
            assert card.parent == read_card(tmp_path / "run/adapters" / card.operator / "shared").name
    assert not (tmp_path / "run" / ".work").exists() or not list((tmp_path / "run/.work").glob("*/*"))
    folder, card = adapter_for(tmp_path / "run", operator="compare-claims", holdout="browser-surface")
    assert (card.holdout, folder.name) == ("browser-surface", "browser-surface")
    with pytest.raises(ConfigError, match="leaves out nowhere"):
        adapter_for(tmp_path / "run", operator="compare-claims", holdout="nowhere")


def test_a_finished_run_trains_nothing_again_and_another_recipe_does_not_write_over_it(
    tmp_path: Path, data: Path, base: FoundBase
) -> None:
    first = run(tmp_path / "run", data, base, recipe())
    before = {done.folder: weights(done.folder) for done in first}
    others = dict.fromkeys(("extract-state", "update-memory"), 3) | {"compare-claims": 2}
    again = run(tmp_path / "run", data, base, recipe(log_every_steps=2, optim__batch_size=others))
    assert all(done.trained is None for done in again)
    record = (tmp_path / "run/train.json").read_text()
    with pytest.raises(TrainingError, match="another recipe"):
        run(tmp_path / "run", data, base, recipe(optim__seed=5))
    assert (tmp_path / "run/train.json").read_text() == record
    assert json.loads(record)["config"]["optim"]["seed"] == 0
    for folder, kept in before.items():
        assert_equal(weights(folder), kept)


def test_batch_8_is_batch_2_with_accumulation_4(tmp_path: Path, data: Path, base: FoundBase) -> None:
    found = [
        one(
            tmp_path / str(size), data, base,
            recipe(optim__batch_size={"compare-claims": size}, optim__accumulation={"compare-claims": 8 // size}),
        )
        for size in (8, 2)
    ]  # fmt: skip
    assert_equal(*found, atol=1e-5)


def test_padded_training_comes_to_the_same_weights(tmp_path: Path, data: Path, base: FoundBase) -> None:
    found = [one(tmp_path / name, data, base, recipe(batching=name)) for name in ("prefix-tree", "padded")]
    assert_equal(*found, atol=1e-5)


def test_another_seed_gives_other_weights(tmp_path: Path, data: Path, base: FoundBase) -> None:
    found = [one(tmp_path / str(seed), data, base, recipe(optim__seed=seed)) for seed in (0, 1)]
    assert any(not torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_killed_run_goes_on_to_what_a_straight_run_gives(
    tmp_path: Path, data: Path, base: FoundBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = run(tmp_path / "straight", data, base, recipe())
    whole, calls = PackTrainer.compute_loss, iter(range(1000))

    def killed(self: PackTrainer, *args: object, **kwargs: object) -> torch.Tensor:
        if next(calls) == 6:  # in the first fold, after its first checkpoint
            raise KeyboardInterrupt
        return whole(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(PackTrainer, "compute_loss", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", data, base, recipe())
    monkeypatch.setattr(PackTrainer, "compute_loss", whole)
    assert list((tmp_path / "cut/.work").glob("*/*/checkpoint-*"))
    resumed = run(tmp_path / "cut", data, base, recipe())
    assert [done.trained is None for done in resumed] == [True, False, False]
    for cut, kept in zip(resumed, straight, strict=True):
        assert_equal(weights(cut.folder), weights(kept.folder))
        assert cut.card.training["steps"] == kept.card.training["steps"]


def test_the_second_adapter_on_one_load_of_the_base_is_the_one_trained_alone(
    tmp_path: Path, data: Path, base: FoundBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, load = [], trainer.load_base

    def counted(path: Path, config: TrainConfig) -> Loaded:
        loads.append(path)
        return load(path, config)

    monkeypatch.setattr(folds, "load_base", counted)
    config = recipe(mode="from-scratch")
    together = run(tmp_path / "both", data, base, config)
    assert len(loads) == 1
    alone = run(tmp_path / "alone", data, base, config, holdouts=("exec-app-server",))
    assert_equal(weights(together[1].folder), weights(alone[0].folder))


def test_trainable_parameters_are_those_of_the_recipe(tmp_path: Path, data: Path, base: FoundBase) -> None:
    found = one(tmp_path / "run", data, base, recipe())
    wide, narrow, layers, r = 64, 32, 2, 4
    shapes = [
        (wide, wide),
        (wide, narrow),
        (wide, narrow),
        (wide, wide),
        (wide, 128),
        (wide, 128),
        (128, wide),
    ]
    assert sum(t.numel() for t in found.values()) == layers * r * sum(a + b for a, b in shapes)


def test_one_adapter_for_all_operators(tmp_path: Path, data: Path, base: FoundBase) -> None:
    config = recipe(multi_task=True)
    finished = run(tmp_path / "run", data, base, config, operators=("all",), holdouts=("browser-surface",))
    assert [done.job.operator for done in finished] == ["multi", "multi"]
    assert finished[1].card.tasks == ("select", "fill", "compare", "update")
    folder, _ = adapter_for(tmp_path / "run", operator="update-memory", holdout="browser-surface")
    assert folder == finished[1].folder
    with pytest.raises(ConfigError, match="one adapter for all"):
        plan_jobs(config, DataFolder(data), operators=("compare-claims",), holdouts=("all",))


@pytest.mark.parametrize("mode", ["shared-first", "from-scratch"])
def test_no_held_out_row_reaches_a_fold_by_either_path(tmp_path: Path, data: Path, mode: str) -> None:
    """A synthetic row that one fold may not see must not come in through the shared stage either."""
    spoilt = tmp_path / "data"
    spoilt.mkdir()
    for path in data.rglob("*"):
        if path.is_file():
            target = spoilt / path.relative_to(data)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    barred = json.loads((data / "synthetic-compare-claims.jsonl").read_text().splitlines()[0])["id"]
    split = spoilt / "splits" / "browser-surface.json"
    fold = json.loads(split.read_text())
    split.write_text(json.dumps({**fold, "train": [row for row in fold["train"] if row != barred]}))
    config, rows = recipe(mode=mode, mixture=plenty()), DataFolder(spoilt)
    seen = []
    for job in plan_jobs(config, rows, operators=("all",), holdouts=("browser-surface",)):
        seen += [row for case in selection_of(job, config, rows).cases for row in case.examples]
    assert len(seen) > 100
    assert barred not in {row.id for row in seen}
    assert {row.origin for row in seen} == {"exec-app-server", "scenario"}
    other = Job("compare-claims", "exec-app-server", "fold" if mode == "shared-first" else "single")
    assert {case.source for case in selection_of(other, config, rows).cases} >= {"trajectory"}


def plenty() -> dict[str, dict[str, dict[str, int]]]:
    return {
        "shared": {"synthetic": dict.fromkeys(OPERATORS, 10_000)},
        "fold": {"trajectory": dict.fromkeys(OPERATORS, 10_000)},
    }


def test_a_note_of_which_one_row_may_not_train_is_left_out_as_a_whole(data: Path) -> None:
    rows = DataFolder(data)
    ids = rows.fold_ids("browser-surface")
    cases = rows.cases("trajectory", "extract-state", ("select", "fill"), ids)
    first = cases[0].examples[0].id
    fewer = rows.cases("trajectory", "extract-state", ("select", "fill"), ids - {first})
    assert [case.name for case in fewer] == [case.name for case in cases[1:]]


def test_nothing_to_train_on_and_unknown_names_are_errors(
    tmp_path: Path, data: Path, base: FoundBase
) -> None:
    empty = recipe(mixture={"shared": {"mined": {"compare-claims": 5}}, "fold": {}})
    with pytest.raises(InputError, match="has no rows"):
        run(tmp_path / "run", data, base, empty)
    for kind in ({"operators": ("compare",)}, {"holdouts": ("nowhere",)}):
        with pytest.raises(ConfigError, match=r"no (operator|holdout)"):
            run(tmp_path / "run", data, base, recipe(), **kind)
    (tmp_path / "x").mkdir()
    with pytest.raises(InputError, match=r"manifest\.json"):
        DataFolder(tmp_path / "x")
    (tmp_path / "x/manifest.json").write_text('{"prompt_versions": {}}')
    with pytest.raises(InputError, match=r"rows of prompt versions \{\}"):
        DataFolder(tmp_path / "x")
    assert not list_adapters(tmp_path / "run")


def test_an_adapter_of_another_base_of_the_same_shape_is_refused(
    tmp_path: Path, data: Path, base: FoundBase
) -> None:
    only = ("browser-surface",)
    (_, found) = run(tmp_path / "run", data, base, recipe(), holdouts=only)
    other = find_base(str(tiny_base(tmp_path / "other", seed=3)))
    with pytest.raises(PreflightError, match="T33"):
        verify_adapter(found.folder, other.card)


def test_a_quantised_base_trains_and_its_adapter_is_plain_lora(tmp_path: Path, data: Path) -> None:
    base = base_in(tmp_path / "tiny")
    config = recipe(base__quantization="nf4", mode="from-scratch")
    (done,) = run(tmp_path / "run", data, base, config, holdouts=("browser-surface",))
    verify_adapter(done.folder, base.card)
    assert done.trained is not None
    assert done.trained.last_loss < done.trained.first_loss
    loaded = trainer.load_base(base.path, config)
    again = get_peft_model_state_dict(trainer.attach(loaded, config, done.folder))
    kept = weights(done.folder)
    assert {str(tensor.dtype) for tensor in kept.values()} == {f"torch.{done.card.dtype}"}
    assert_equal({n: t.detach() for n, t in again.items()}, {n: t.float() for n, t in kept.items()}, atol=0)


def test_a_parent_that_is_not_there_yet_is_an_error(tmp_path: Path, data: Path, base: FoundBase) -> None:
    training = Run(tmp_path / "run", recipe(), DataFolder(data), base)
    with pytest.raises(TrainingError, match="not there yet"):
        training.train([Job("compare-claims", "browser-surface", "fold")])
