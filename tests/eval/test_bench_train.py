"""The training benchmark counts the same rows on both sides and divides like by like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trl.trainer.sft_config import SFTConfig

from eval.bench import train as bench
from eval.bench.train import TrainBench, run_train_bench
from operators.errors import InputError
from tests.training.support import base_in, recipe, write_data
from training.folds import Job, selection_of
from training.rows import DataFolder, tokenise
from training.trainer import load_tokenizer


def test_both_sides_train_every_adapter_on_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, base = DataFolder(write_data(tmp_path / "data")), base_in(tmp_path / "tiny")
    config, seen = recipe(), list[list[str]]()
    plain = bench._plain

    def watched(*args: object) -> None:
        seen.append([row.id for case in args[3] for row in case.examples])  # type: ignore[attr-defined]
        plain(*args)  # type: ignore[arg-type]

    steps = list[tuple[int, int]]()

    class Watched(SFTConfig):
        def __init__(self, **settings: Any) -> None:
            steps.append((settings["per_device_train_batch_size"], settings["gradient_accumulation_steps"]))
            super().__init__(**settings)

    monkeypatch.setattr(bench, "SFTConfig", Watched)
    monkeypatch.setattr(bench, "PLAIN_BATCH", 1)
    monkeypatch.setattr(bench, "_plain", watched)
    said: list[str] = []
    found = run_train_bench(
        config, data, base, operator="compare-claims", cases=4, folds=2, progress=said.append
    )
    scratch = config.model_copy(update={"mode": "from-scratch"})
    wanted = [
        [
            row
            for case in selection_of(Job("compare-claims", holdout, "single"), scratch, data).cases[:4]
            for row in case.examples
        ]
        for holdout in list(data.splits)[:2]
    ]
    assert seen == [[row.id for row in rows] for rows in wanted]
    assert (found.rows, found.folds) == (4, 2)
    assert steps == [(1, 2)] * 2  # a step of ours has two cases of one row
    rows = tokenise(load_tokenizer(base.path, config), wanted[0], max_length=config.max_length)
    assert found.row_tokens == sum(len(row.ids) for row in rows)
    assert min(found.single_ours, found.single_plain, found.folds_ours, found.folds_plain) > 0
    assert len(said) == 2
    with pytest.raises(InputError, match="has no rows"):
        run_train_bench(
            recipe(mixture={"shared": {}, "fold": {}}),
            data,
            base,
            operator="compare-claims",
            cases=4,
            folds=1,
        )


def test_a_ratio_above_one_says_that_ours_is_faster() -> None:
    found = TrainBench(
        rows=1, row_tokens=10, single_ours=300, single_plain=200, folds=5, folds_ours=100, folds_plain=80
    )
    assert (found.single_ratio, found.folds_ratio) == (1.5, 1.25)
