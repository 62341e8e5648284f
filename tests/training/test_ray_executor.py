"""Folds over Ray workers come to the adapters of a run in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from operators.errors import InputError
from tests.training.support import HOLDOUTS, base_in, recipe, run, write_data
from training.folds import plan_jobs
from training.rows import DataFolder

ray_executor = pytest.importorskip("training.ray_executor")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # ray leaves sockets and files open when it stops
]


def test_two_workers_train_what_one_process_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, base = write_data(tmp_path / "data"), base_in(tmp_path / "tiny")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    config, rows = recipe(threads=1), DataFolder(data)
    jobs = plan_jobs(config, rows, operators=("compare-claims",), holdouts=("all",))
    said: list[str] = []
    finished = ray_executor.train_on_ray(
        tmp_path / "ray", config, data, base, jobs, workers=2, progress=said.append
    )
    assert [done.job for done in finished] == jobs
    assert all(done.trained is not None for done in finished)
    alone = run(tmp_path / "alone", data, base, config)
    for spread, kept in zip(finished, alone, strict=True):
        found, wanted = (load_file(done.folder / "adapter_model.safetensors") for done in (spread, kept))
        for name, tensor in wanted.items():
            torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=1e-4, msg=name)
    assert said[0].startswith("2 Ray workers")
    for holdout in HOLDOUTS:
        assert any(line.startswith(f"compare-claims/{holdout}: step 1/4") for line in said)

    refused = recipe(max_length=20)
    with pytest.raises(InputError, match="max_length is 20"):
        ray_executor.train_on_ray(tmp_path / "long", refused, data, base, jobs, workers=1)
