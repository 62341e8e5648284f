"""One training, cut up, checkpointed and restarted in every way that must not matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from operators.adapters import read_card
from operators.errors import ConfigError, TrainingError
from operators.models.bases import FoundBase
from tests.training.support import base_in, recipe, run, write_data
from training.checkpoints import SEAL, Tally, newest_whole, seal
from training.config import TrainConfig
from training.folds import Finished
from training.pack_trainer import PackTrainer
from training.trainer import attach, detach, load_base

ROOT = Path(__file__).parents[2]
ONLY = ("browser-surface",)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> FoundBase:
    return base_in(tmp_path_factory.mktemp("base") / "tiny")


def one(
    target: Path, data: Path, base: FoundBase, config: TrainConfig, operator: str = "compare-claims"
) -> Finished:
    (found,) = run(target, data, base, config, operators=(operator,), holdouts=ONLY)
    return found


def assert_equal(one: Path, other: Path, *, atol: float = 1e-5) -> None:
    found, wanted = (load_file(folder / "adapter_model.safetensors") for folder in (one, other))
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, atol=atol, rtol=1e-4, msg=name)


def killed(
    monkeypatch: pytest.MonkeyPatch, target: Path, data: Path, base: FoundBase, config: TrainConfig
) -> None:
    """A training that dies in its sixth forward pass, after two checkpoints."""
    whole, calls = PackTrainer.compute_loss, iter(range(1000))

    def dying(self: PackTrainer, *args: object, **kwargs: object) -> torch.Tensor:
        if next(calls) == 5:
            raise KeyboardInterrupt
        return whole(self, *args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(PackTrainer, "compute_loss", dying)
        with pytest.raises(KeyboardInterrupt):
            one(target, data, base, config)


SCRATCH = {"mode": "from-scratch"}


@pytest.mark.parametrize(
    "change",
    [
        {"gradient_checkpointing": True},
        {"pack_tokens": 16},
        {"base__attention": "sdpa"},
        {"report_to": "tensorboard"},
        {"log_every_steps": 3},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_only_costs_or_watches_does_not_change_the_weights(
    tmp_path: Path, data: Path, base: FoundBase, change: dict[str, object]
) -> None:
    if "report_to" in change:
        pytest.importorskip("tensorboard")
    found = [
        one(tmp_path / str(n), data, base, recipe(**SCRATCH, **more), "extract-state")
        for n, more in enumerate([{}, change])
    ]
    assert_equal(found[1].folder, found[0].folder)


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_rows_of_any_weight_make_one_mean_over_the_whole_step(
    tmp_path: Path, data: Path, base: FoundBase, power: float
) -> None:
    operator = "extract-state"
    found = [
        one(
            tmp_path / f"{size}-{share}", data, base,
            recipe(
                **SCRATCH, optim__length_power=share, optim__batch_size={operator: size},
                optim__accumulation={operator: 4 // size},
            ),
            operator,
        )
        for size, share in ((4, power), (1, power), (4, 1.0))
    ]  # fmt: skip
    assert_equal(found[1].folder, found[0].folder)
    with pytest.raises(AssertionError):
        assert_equal(found[2].folder, found[0].folder)


def test_a_restart_counts_what_was_run_before_it_died(
    tmp_path: Path, data: Path, base: FoundBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(**SCRATCH)
    straight = one(tmp_path / "straight", data, base, config)
    killed(monkeypatch, tmp_path / "cut", data, base, config)
    resumed = one(tmp_path / "cut", data, base, config)
    assert_equal(resumed.folder, straight.folder)
    for figure in ("steps", "row_tokens", "run_tokens", "first_loss", "rows"):
        assert resumed.card.training[figure] == pytest.approx(straight.card.training[figure])
    logs = [(done.folder / "train_log.jsonl").read_text().count("\n") for done in (resumed, straight)]
    assert logs[0] == logs[1] == straight.card.training["steps"]


def test_a_checkpoint_that_was_cut_off_is_passed_over(
    tmp_path: Path, data: Path, base: FoundBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(**SCRATCH)
    straight = one(tmp_path / "straight", data, base, config)
    killed(monkeypatch, tmp_path / "cut", data, base, config)
    (last,) = {path.parent.parent for path in (tmp_path / "cut").glob(f".work/*/*/*/{SEAL}")}
    partial = last / "checkpoint-99"
    partial.mkdir()
    (partial / "trainer_state.json").write_text("{")
    resumed = one(tmp_path / "cut", data, base, config)
    assert_equal(resumed.folder, straight.folder)
    assert not last.exists()


def test_what_another_recipe_left_unfinished_is_not_gone_on_with(
    tmp_path: Path, data: Path, base: FoundBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(monkeypatch, tmp_path / "cut", data, base, recipe(**SCRATCH))
    other = recipe(**SCRATCH, optim__seed=4)
    found = one(tmp_path / "cut", data, base, other)
    assert_equal(found.folder, one(tmp_path / "straight", data, base, other).folder)


def test_a_checkpoint_counts_once_it_is_sealed(tmp_path: Path) -> None:
    assert newest_whole(tmp_path / "nowhere") is None
    for step in (2, 10, 9):
        (tmp_path / f"checkpoint-{step}").mkdir()
    assert newest_whole(tmp_path) is None
    for step in (2, 10):
        seal(tmp_path / f"checkpoint-{step}", Tally(row_tokens=step, run_tokens=1, seconds=0.5))
    assert newest_whole(tmp_path) == (
        tmp_path / "checkpoint-10",
        Tally(row_tokens=10, run_tokens=1, seconds=0.5),
    )


def test_weights_that_were_damaged_since_are_neither_reused_nor_gone_on_from(
    tmp_path: Path, data: Path, base: FoundBase
) -> None:
    run(tmp_path / "run", data, base, recipe(), holdouts=ONLY)
    path = tmp_path / "run/adapters/compare-claims/shared/adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(TrainingError, match="not as they were written"):
        run(tmp_path / "run", data, base, recipe(), holdouts=ONLY)


def test_a_run_with_checkpoints_asks_the_hub_for_nothing_and_names_no_place_of_this_machine(
    tmp_path: Path, data: Path, base: FoundBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(name: str, *_: object, **__: object) -> None:
        raise AssertionError(f"the hub was asked for {name}")

    monkeypatch.setattr("peft.utils.save_and_load.check_file_exists_on_hf_hub", asked)
    for done in run(tmp_path / "run", data, base, recipe(), holdouts=ONLY):
        written = [path.read_text() for path in done.folder.iterdir() if path.suffix in (".json", ".md")]
        assert len(written) >= 2
        assert not any(str(base.path) in text for text in written)


def test_a_loss_that_is_no_number_leaves_no_adapter(tmp_path: Path, data: Path, base: FoundBase) -> None:
    wild = recipe(**SCRATCH, optim__fold={"learning_rate": 1e30, "epochs": 3})
    with pytest.raises(TrainingError, match="nan at step"):
        one(tmp_path / "run", data, base, wild)
    assert not list((tmp_path / "run").glob("adapters/*/*"))


def test_the_last_step_is_logged_and_held_to_be_a_number_whatever_the_interval(
    tmp_path: Path, data: Path, base: FoundBase
) -> None:
    done = one(tmp_path / "run", data, base, recipe(**SCRATCH, log_every_steps=50))
    logged = [json.loads(line)["step"] for line in (done.folder / "train_log.jsonl").read_text().splitlines()]
    assert logged == [1, done.card.training["steps"]]
    assert done.card.training["last_loss"] != done.card.training["first_loss"]
    wild = recipe(**SCRATCH, log_every_steps=50, optim__fold={"learning_rate": 1e30, "epochs": 1})
    with pytest.raises(TrainingError, match="nan at step"):
        one(tmp_path / "wild", data, base, wild)
    assert not list((tmp_path / "wild").glob("adapters/*/*"))


def test_weights_that_the_very_last_step_spoils_are_not_kept(
    tmp_path: Path, data: Path, base: FoundBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PackTrainer.train

    def spoiling(self: PackTrainer, *args: object, **kwargs: object) -> object:
        done = whole(self, *args, **kwargs)  # type: ignore[arg-type]
        assert self.model is not None
        next(p for p in self.model.parameters() if p.requires_grad).data[0, 0] = torch.inf
        return done

    monkeypatch.setattr(PackTrainer, "train", spoiling)
    with pytest.raises(TrainingError, match="weights are no numbers"):
        one(tmp_path / "run", data, base, recipe(**SCRATCH))
    assert not list((tmp_path / "run").glob("adapters/*/*"))


def test_what_tensorboard_shows_outlives_the_checkpoints(tmp_path: Path, data: Path, base: FoundBase) -> None:
    pytest.importorskip("tensorboard")
    run(tmp_path / "run", data, base, recipe(report_to="tensorboard"), holdouts=ONLY)
    shown = {path.parent.name for path in (tmp_path / "run/tensorboard/compare-claims").glob("*/events.*")}
    assert shown == {"shared", *ONLY}


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_board_that_is_not_installed_is_named_before_anything_is_loaded(
    tmp_path: Path, data: Path, base: FoundBase, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("training.trainer.find_spec", lambda _: None)
    monkeypatch.setattr("training.folds.load_base", lambda *_: pytest.fail("loaded"))
    with pytest.raises(ConfigError, match=f"{name}, which is not installed"):
        one(tmp_path / "run", data, base, recipe(**SCRATCH, report_to=name))


def test_a_base_is_as_loaded_when_its_adapter_is_off_again(base: FoundBase) -> None:
    loaded = load_base(base.path, recipe())
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    model = attach(loaded, recipe(), None)
    assert any("lora" in name for name in loaded.model.state_dict())
    detach(model)
    after = loaded.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_vocabulary_without_the_recipes_tokens_is_named(base: FoundBase) -> None:
    with pytest.raises(TrainingError, match=r"<\|stop\|>"):
        load_base(base.path, recipe(base__eos_token="<|stop|>"))


@pytest.mark.slow
def test_two_processes_train_what_one_trains_on_batches_twice_as_large(
    tmp_path: Path, data: Path, base: FoundBase
) -> None:
    """What `accelerate launch` does on GPUs, with gloo: gradients are shared, one process writes."""
    operator = "extract-state"
    size = {"optim__batch_size": {operator: 1}, "optim__accumulation": {operator: 2}, "pack_tokens": 700}
    shared = {
        "gradient_checkpointing": True,
        "base__name": str(base.path),
        "tasks": {operator: ["select", "fill"]},
    }
    config = recipe(
        **SCRATCH,
        **size,
        **shared,
        mixture={"shared": {"synthetic": {operator: 4}}, "fold": {"trajectory": {operator: 4}}},
    )
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        "latticemind",
        "train",
    ]
    options = [
        "--data",
        str(data),
        "--out",
        str(tmp_path / "two"),
        "--operator",
        operator,
        "--holdout",
        ONLY[0],
    ]
    done = subprocess.run(
        [*command, str(path), *options], cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    alone = one(
        tmp_path / "one", data, base,
        config.model_copy(update={"optim": config.optim.model_copy(update={"batch_size": {operator: 2}})}),
        operator,
    )  # fmt: skip
    two = tmp_path / "two" / "adapters" / operator / ONLY[0]
    assert_equal(two, alone.folder)
    figures = read_card(two).training
    for figure in ("steps", "row_tokens", "first_loss", "last_loss"):
        assert figures[figure] == pytest.approx(alone.card.training[figure], rel=1e-4), figure
