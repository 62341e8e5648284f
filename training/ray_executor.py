"""Jobs over Ray workers: each loads the base once and takes the next job that is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import ray

from operators.models.bases import FoundBase
from training.config import TrainConfig
from training.folds import SHARED, Finished, Job, Run
from training.rows import DataFolder


@ray.remote
class Worker:
    """One process (on a GPU where there is one) with its own load of the base."""

    def __init__(self, target: Path, config: TrainConfig, data: Path, base: FoundBase) -> None:
        self.run = Run(target, config, DataFolder(data), base)

    def train(self, job: Job) -> tuple[list[Finished], list[str]]:
        """The finished adapter and what was said on the way."""
        said: list[str] = []
        return self.run.train([job], progress=said.append), said


def train_on_ray(
    target: Path,
    config: TrainConfig,
    data: Path,
    base: FoundBase,
    jobs: Sequence[Job],
    *,
    workers: int,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Finished]:
    """Every job on so many workers, the shared stages before the folds that continue them.

    Workers on other machines need `target`, `data` and the base under the same paths. A cluster that is
    running is used (RAY_ADDRESS), else one is started here.
    Raises: what a job raises; adapters finished before stay.
    """
    ray.init(ignore_reinit_error=True, include_dashboard=False, log_to_driver=False)
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    pool = ray.util.ActorPool(
        [Worker.options(num_gpus=gpus).remote(target, config, data, base) for _ in range(workers)]  # type: ignore[attr-defined]
    )
    finished: list[Finished] = []
    try:
        for wave in ([j for j in jobs if j.stage == SHARED], [j for j in jobs if j.stage != SHARED]):
            for found, said in pool.map(lambda worker, job: worker.train.remote(job), wave):
                finished += found
                for line in said:
                    progress(line)
    finally:
        ray.shutdown()
    return finished
