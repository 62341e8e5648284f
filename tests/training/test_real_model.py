"""The real 135M base end to end: NF4 and LoRA train on the CPU, the adapter answers under a schema."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from data_builders.gold import gold_cases
from data_builders.trajectory import load_trajectories
from operators.adapter_checks import verify_adapter
from operators.claims import Relation
from operators.config import load_config
from operators.learned.judge import LearnedCompare
from operators.models.bases import FoundBase
from operators.models.local.model import LocalModel
from operators.models.local.prefix_tree import pack_rows, target_logits
from operators.outcome import OutcomeKind
from tests.training.support import TRAJECTORIES, run, write_data
from training.config import TrainConfig
from training.rows import DataFolder, tokenise
from training.trainer import load_base, load_tokenizer

pytestmark = pytest.mark.real_model
RECIPE = TRAJECTORIES.parents[0] / "train" / "smollm2-135m-cpu.yaml"
TRAINABLE = 30 * 16 * (2 * (576 + 576) + 2 * (576 + 192) + 3 * (576 + 1536))
"""30 layers, rank 16: query and output, key and value, three MLP projections, each r times (in + out)."""


def config(*changes: str) -> TrainConfig:
    return load_config(RECIPE, TrainConfig, changes)


def test_an_adapter_trained_on_the_nf4_base_loads_again_and_answers_under_the_schema(
    tmp_path: Path, smollm2: FoundBase
) -> None:
    settings = config(
        "base.quantization=nf4", "mode=from-scratch", "threads=1", "optim.fold.epochs=1", "optim.warmup=0",
        "save_every_steps=100", "log_every_steps=1",
    )  # fmt: skip
    mixture = settings.mixture.model_copy(
        update={"shared": {}, "fold": {"trajectory": {"compare-claims": 24}}}
    )
    settings = settings.model_copy(update={"mixture": mixture})
    (done,) = run(
        tmp_path / "run", write_data(tmp_path / "data"), smollm2, settings, holdouts=("browser-surface",)
    )
    card = verify_adapter(done.folder, smollm2.card)
    assert done.trained is not None
    assert done.trained.last_loss < done.trained.first_loss
    assert card.training["rows"] == 24
    counts = [math.prod(shape) for shape in _shapes(done.folder)]
    assert sum(counts) == TRAINABLE
    model = LocalModel.load(smollm2.path, identity="smollm2", adapters={"a": done.folder})
    (trajectory,) = (t for t in load_trajectories(TRAJECTORIES) if t.name == "browser-surface")
    cases = gold_cases(trajectory)
    compare = LearnedCompare(cases.schema, model, "a")
    outcomes = compare.compare_batch([(case.incumbent, case.incoming) for case in cases.compare[:8]])
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.VALID] * 8
    assert all(outcome.value and outcome.value.relation in Relation for outcome in outcomes)


def test_every_trajectory_row_is_kept_whole_with_a_labelled_end_of_turn(
    tmp_path: Path, smollm2: FoundBase
) -> None:
    settings = config()
    data = DataFolder(write_data(tmp_path / "data"))
    tokenizer = load_tokenizer(smollm2.path, settings)
    ids = data.fold_ids("browser-surface")
    cases = data.cases("trajectory", "extract-state", ("direct", "select", "fill"), ids)
    examples = [row for case in cases for row in case.examples]
    rows = tokenise(tokenizer, examples, max_length=settings.max_length)
    assert len(rows) == len(examples) > 200
    for row, example in zip(rows, examples, strict=True):
        answer = tokenizer.decode(list(row.ids[row.labelled_from :]))
        assert answer == example.completion[0]["content"] + "<|im_end|>"
        assert row.ids.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 3


def _shapes(folder: Path) -> list[list[int]]:
    data = (folder / "adapter_model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return [entry["shape"] for name, entry in header.items() if name != "__metadata__"]


def test_nf4_loss_is_near_the_fp32_loss(tmp_path: Path, smollm2: FoundBase) -> None:
    """The gap on the base before any training; printed for the log."""
    data = DataFolder(write_data(tmp_path / "data"))
    found = {}
    for kind in ("none", "nf4"):
        loaded = load_base(smollm2.path, config(f"base.quantization={kind}", "autocast=false"))
        cases = data.cases("trajectory", "compare-claims", ("compare",), data.fold_ids("browser-surface"))[
            :16
        ]
        rows = tokenise(loaded.tokenizer, [case.examples[0] for case in cases], max_length=1000)
        with torch.no_grad():
            pack = pack_rows(rows)
            logits = target_logits(loaded.model, pack).float()
            found[kind] = float(torch.nn.functional.cross_entropy(logits, pack.targets))
    print(f"fp32 {found['none']:.3f}, nf4 {found['nf4']:.3f}")  # noqa: T201 - the figure of docs/LOG.md
    assert abs(found["nf4"] - found["none"]) < 0.3 * found["none"]
