"""The GPU smoke script's own code, in miniature on a CPU: NF4 layers, LoRA, steps, figures."""

from __future__ import annotations

import random

import pytest
import torch
import typer
from bitsandbytes.nn.modules import Params4bit
from typer.testing import CliRunner

from training.config import PROJECTIONS
from training.gpu_smoke import Measured, main, prepare, random_notes, report, run_steps, smoke_config
from training.shapes import measure_shape

CPU = torch.device("cpu")


def test_the_tiny_shape_trains_on_a_cpu() -> None:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--shape", "tiny", "--steps", "2", "--notes", "1"])
    assert done.exit_code == 0, done.output
    for told in ("2 layers", "trainable parameters", "tokens/s", "peak memory", "no plan to compare with"):
        assert told in done.output


def test_the_full_shape_asks_for_a_gpu() -> None:
    app = typer.Typer()
    app.command()(main)
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    done = CliRunner().invoke(app, ["--steps", "2"])
    assert done.exit_code == 2
    assert "--shape tiny" in done.output


@pytest.mark.parametrize("wrong", [["--shape", "no-such-base"], ["--shape", "tiny", "--gpu", "RTX-1"]])
def test_a_shape_or_gpu_that_is_not_known_is_refused_before_anything_is_built(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, wrong)
    assert done.exit_code == 2
    assert "there are" in done.output or "or use one of" in done.output


@pytest.mark.parametrize("base", ["qwen2.5-14b", "qwen2.5-0.5b"])
def test_projections_are_nf4_and_only_lora_learns(base: str) -> None:
    config = smoke_config(base, layers=1, tiny=True)
    model = prepare(config, CPU, seed=7, checkpointing=True)
    shape = measure_shape(config, rank=16, targets=PROJECTIONS)
    packed = [p for p in model.parameters() if isinstance(p, Params4bit)]
    assert len(packed) == len(PROJECTIONS)
    assert sum(p.numel() for p in packed) * 2 == shape.projections
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    batches = list(random_notes(512, steps=3, notes=1, tail_tokens=45, chance=random.Random(1)))
    measured = run_steps(model, batches, CPU)
    assert measured.trainable == shape.adapter
    assert len(measured.losses) == 3
    assert measured.run_tokens < measured.row_tokens
    moved = [p for name, p in model.named_parameters() if "lora_B" in name]
    assert all(p.abs().sum() > 0 for p in moved)


def test_figures_are_put_beside_the_plan() -> None:
    config = smoke_config("qwen2.5-14b", tiny=True)
    batches = list(random_notes(512, steps=3, notes=1, tail_tokens=45, chance=random.Random(1)))
    measured = Measured(
        trainable=1, losses=(2.0, 1.0), seconds=0.5, run_tokens=100, row_tokens=300, peak_bytes=2**30
    )
    lines = report(measured, config, batches, gpu="H100-80GB", checkpointing=True)
    assert "200 tokens/s run" in lines[1]
    assert lines[-1].startswith("ratio to the plan: speed ")
