"""A small built data folder, a recipe for the tiny model, and a run on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data_builders.examples import Example, Source, examples
from data_builders.gold import gold_cases
from data_builders.splits import leave_one_out
from data_builders.trajectory import load_trajectories
from operators.models.bases import FoundBase, find_base
from operators.prompts import PROMPT_VERSIONS
from tests.support_models import tiny_base
from training.config import TrainConfig
from training.folds import Finished, Run, plan_jobs
from training.rows import DataFolder

TRAJECTORIES = Path(__file__).parents[2] / "configs" / "trajectories"
OPERATORS = ("extract-state", "compare-claims", "update-memory")
HOLDOUTS = ("browser-surface", "exec-app-server")


def recipe(**changes: Any) -> TrainConfig:
    """A recipe that trains in about a second; `changes` are dotted keys such as optim__seed=1."""
    data: dict[str, Any] = {
        "base": {
            "name": "tiny", "revision": None, "dtype": "float32", "quantization": "none",
            "compute_dtype": "float32", "double_quant": True, "attention": "eager",
            "pad_token": "<|endoftext|>", "eos_token": "<|im_end|>",
        },
        "lora": {
            "r": 4, "alpha": 8, "dropout": 0.0,
            "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        },
        "tasks": {"extract-state": ["select", "fill"], "compare-claims": ["compare"], "update-memory": ["update"]},
        "mixture": {
            "shared": {"synthetic": dict.fromkeys(OPERATORS, 6)},
            "fold": {"trajectory": dict.fromkeys(OPERATORS, 8)},
        },
        "optim": {
            "shared": {"learning_rate": 1e-3, "epochs": 1}, "fold": {"learning_rate": 1e-3, "epochs": 1},
            "batch_size": dict.fromkeys(OPERATORS, 2), "accumulation": dict.fromkeys(OPERATORS, 1),
            "length_power": 1.0, "optimizer": "adamw_torch", "scheduler": "cosine", "warmup": 0, "weight_decay": 0.0,
            "max_grad_norm": 1.0, "seed": 0,
        },
        "max_length": 4000, "batching": "prefix-tree", "pack_tokens": 3000, "autocast": False,
        "gradient_checkpointing": False, "mode": "shared-first", "multi_task": False, "threads": None,
        "save_every_steps": 2, "log_every_steps": 1, "report_to": "none",
    }  # fmt: skip
    for name, value in changes.items():
        place, *rest = name.split("__")
        if rest:
            before = data[place][rest[0]]
            data[place] = data[place] | {rest[0]: before | value if isinstance(before, dict) else value}
        else:
            data[place] = value
    return TrainConfig.model_validate(data)


def write_data(folder: Path) -> Path:
    """Rows of three trajectories, one of them under the name of a synthetic scenario, with their splits."""
    found = {t.name: t for t in load_trajectories(TRAJECTORIES)}
    rows: list[Example] = []
    for name in HOLDOUTS:
        rows += examples(gold_cases(found[name]), Source.TRAJECTORY, name, negatives=2)
    rows += examples(gold_cases(found["model-routing"]), Source.SYNTHETIC, "scenario", negatives=2)
    folder.mkdir()
    for source in Source:
        for operator in OPERATORS:
            lines = [row.json_line() for row in rows if (row.source, row.operator) == (source, operator)]
            if lines:
                path = folder / f"{source.value}-{operator}.jsonl"
                path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "splits").mkdir()
    for fold in leave_one_out(rows, near_duplicate=85):
        split = {"holdout": fold.holdout, "train": list(fold.train), "test": list(fold.test)}
        (folder / "splits" / f"{fold.holdout}.json").write_text(json.dumps(split), encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({"prompt_versions": PROMPT_VERSIONS}), encoding="utf-8")
    return folder


def base_in(folder: Path) -> FoundBase:
    return find_base(str(tiny_base(folder)))


def run(
    target: Path,
    data: Path,
    base: FoundBase,
    config: TrainConfig,
    *,
    operators: tuple[str, ...] = ("compare-claims",),
    holdouts: tuple[str, ...] = ("all",),
) -> list[Finished]:
    """Train these jobs."""
    rows = DataFolder(data)
    jobs = plan_jobs(config, rows, operators=operators, holdouts=holdouts)
    return Run(target, config, rows, base).train(jobs)
