"""Jobs over Ray workers: each loads the base once and takes the next job that is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import ray
import torch
from ray.exceptions import RayTaskError
from ray.util.queue import Empty, Queue

from operators.errors import LatticeMindError
from operators.models.bases import FoundBase
from training.config import TrainConfig
from training.folds import SHARED, Finished, Job, Run
from training.rows import DataFolder

Progress = Callable[[str], None]
LISTEN_S = 1.0
"""Seconds between two looks at what the workers say."""


@ray.remote
class Worker:
    """One process (on a GPU where there is one) with its own load of the base."""

    def __init__(self, target: Path, config: TrainConfig, data: Path, base: FoundBase, said: Queue) -> None:
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.run = Run(target, config, DataFolder(data), base)
        self.said = said

    def train(self, job: Job) -> Finished:
        """The finished adapter; what there is to say goes to the queue."""
        (finished,) = self.run.train([job], progress=self.said.put)
        return finished


def train_on_ray(
    target: Path,
    config: TrainConfig,
    data: Path,
    base: FoundBase,
    jobs: Sequence[Job],
    *,
    workers: int,
    progress: Progress = lambda _: None,
) -> list[Finished]:
    """Every job, in the order given, on so many workers (at most one a GPU); shared stages before folds.

    Workers on other machines need `target`, `data` and the base under the same paths. A cluster that is
    running is used (RAY_ADDRESS), else one is started here.
    Raises: what a job raises; adapters finished before stay.
    """
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    try:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        count = min(workers, gpus or workers, len(jobs))
        progress(f"{count} Ray workers" + (f" on {gpus} GPUs" if gpus else ""))
        said = Queue(actor_options={"num_cpus": 0})
        start = partial(
            Worker.options(num_gpus=1 if gpus else 0).remote,  # type: ignore[attr-defined]
            target.resolve(), config, data.resolve(), base, said,
        )  # fmt: skip
        pool = ray.util.ActorPool([start() for _ in range(count)])
        finished: list[Finished] = []
        for wave in ([j for j in jobs if j.stage == SHARED], [j for j in jobs if j.stage != SHARED]):
            for job in wave:
                pool.submit(lambda worker, job: worker.train.remote(job), job)
            while pool.has_next():
                finished += _next(pool)
                _tell(said, progress)
    finally:
        ray.shutdown()
    return sorted(finished, key=lambda done: jobs.index(done.job))


def _next(pool: ray.util.ActorPool) -> list[Finished]:
    """The next job that is done, or none when there is none yet. Raises: what the job raised."""
    try:
        return [pool.get_next_unordered(timeout=LISTEN_S)]
    except TimeoutError:
        return []
    except RayTaskError as fault:
        if isinstance(fault.cause, LatticeMindError):
            raise fault.cause from None
        raise


def _tell(said: Queue, progress: Progress) -> None:
    """Pass on what the workers have said since."""
    while True:
        try:
            progress(said.get_nowait())
        except Empty:
            return
