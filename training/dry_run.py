"""From a recipe and a data folder to a plan: the jobs of both modes, their cases, their token rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from operators.models.local.prefix_tree import TokenRow
from training.config import TrainConfig
from training.folds import MULTI, Job, plan_jobs, selection_of
from training.plan import Plan, describe
from training.rows import Case, DataFolder, tokenise
from training.trainer import load_tokenizer
from training.workload import Workload, rough_rows, workload

Tokenise = Callable[[Case], list[TokenRow]]
ROUGH = (
    "the base's tokenizer is not at hand: tokens are counted by a pattern, within a tenth of a real "
    "tokenizer's, labelled ones up to 15 % low"
)


def dry_run(
    config: TrainConfig,
    data: DataFolder,
    *,
    operators: Sequence[str],
    holdouts: Sequence[str],
    gpu: str,
    tokenise: Tokenise | None = None,
) -> Plan:
    """The plan of a run, and in mode shared-first what each fold from scratch would take instead.

    `tokenise` gives a case's rows by the base's tokenizer; without it they are counted by a pattern.
    Raises: as `plan_jobs`, `select` and `describe`.
    """
    rows = _Rows(tokenise or (lambda case: rough_rows(case.examples)))
    works = [
        _work(job, config, data, rows)
        for job in plan_jobs(config, data, operators=operators, holdouts=holdouts)
    ]
    scratch: list[Workload] = []
    if config.mode == "shared-first":
        other = config.model_copy(update={"mode": "from-scratch"})
        jobs = plan_jobs(other, data, operators=operators, holdouts=holdouts)
        scratch = [_work(job, other, data, rows) for job in jobs]
    notes = () if tokenise else (ROUGH,)
    return describe(config, works, gpu, from_scratch=scratch, notes=notes)


def tokeniser(path: Path, config: TrainConfig) -> Tokenise:
    """Counts rows by the tokenizer of the base in `path`. Raises: as `tokenise` of training.rows."""
    tokenizer = load_tokenizer(path, config)
    return lambda case: tokenise(tokenizer, case.examples, max_length=config.max_length)


class _Rows:
    """Token rows of cases, each counted once however many folds train on it."""

    def __init__(self, tokenise: Tokenise) -> None:
        self._tokenise, self._known = tokenise, dict[tuple[str, str], list[TokenRow]]()

    def of(self, case: Case) -> list[TokenRow]:
        key = (case.operator, case.name)
        if key not in self._known:
            self._known[key] = self._tokenise(case)
        return self._known[key]


def _work(job: Job, config: TrainConfig, data: DataFolder, rows: _Rows) -> Workload:
    cases = [rows.of(case) for case in selection_of(job, config, data).cases]
    first = next(iter(config.tasks)) if job.operator == MULTI else job.operator
    size = config.optim.batch_size[first]  # type: ignore[index]
    stage = config.optim.shared if job.stage == "shared" else config.optim.fold
    return workload(
        job.name,
        [cases[at : at + size] for at in range(0, len(cases), size)],
        pack_tokens=config.pack_tokens if config.batching == "prefix-tree" else None,
        epochs=stage.epochs,
        accumulation=config.optim.accumulation[first],  # type: ignore[index]
    )
