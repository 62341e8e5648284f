"""`latticemind train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from operators.config import load_config
from operators.errors import ConfigError
from operators.models.bases import FoundBase, find_base
from training.config import TrainConfig
from training.preflight import preflight as run_preflight

out = Console(soft_wrap=True)
if not out.is_terminal:
    out.width = 120  # tables in files and pipes
err = Console(stderr=True, soft_wrap=True)


class Executor(StrEnum):
    LOCAL = "local"
    RAY = "ray"


def train(
    config: Annotated[Path, typer.Argument(help="A train config (configs/train/*.yaml).")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value over the config.")] = None,
    data: Annotated[Path, typer.Option(help="A folder that `data build` wrote.")] = Path("runs/data"),
    target: Annotated[Path, typer.Option("--out", help="Folder of adapters; what is there is kept.")] = Path(
        "runs/adapters"
    ),
    operator: Annotated[str, typer.Option(help="`all`, or operators with commas between.")] = "all",
    holdout: Annotated[str, typer.Option(help="`all`, or trajectories with commas between.")] = "all",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    gpu: Annotated[str, typer.Option(help="With --dry-run: the GPU the plan is for.")] = "H100-80GB",
    executor: Annotated[Executor, typer.Option(help="Folds one by one here, or over Ray workers.")] = (
        Executor.LOCAL
    ),
    workers: Annotated[int, typer.Option(min=1, help="With --executor ray.")] = 2,
) -> None:
    """Train an adapter for each operator and holdout, the shared stages first, on one load of the base."""
    run_preflight(config, overrides=overrides or []).refuse()
    settings = load_config(config, TrainConfig, overrides or [])
    folds = needs("training.folds", "train")
    rows = folds.DataFolder(data)
    operators, holdouts = operator.split(","), holdout.split(",")
    jobs = folds.plan_jobs(settings, rows, operators=operators, holdouts=holdouts)
    if dry_run:
        _print_plan(settings, rows, operators, holdouts, gpu)
        return
    base = find_base(settings.base.name, settings.base.revision)
    if settings.threads is not None:
        needs("torch", "train").set_num_threads(settings.threads)
    err.print(f"{len(jobs)} adapters on {base.card.id}, {base.card.revision}", highlight=False)
    with _progress() as progress:
        if executor is Executor.RAY:
            finished = needs("training.ray_executor", "ray").train_on_ray(
                target, settings, data, base, jobs, workers=workers, progress=progress
            )
        else:
            finished = folds.Run(target, settings, rows, base).train(jobs, progress=progress)
    fresh = sum(done.trained is not None for done in finished)
    out.print(f"{target}: {len(finished)} adapters, {fresh} of them trained now", highlight=False)


def _print_plan(
    settings: TrainConfig, rows: object, operators: list[str], holdouts: list[str], gpu: str
) -> None:
    planning, tables = needs("training.dry_run", "train"), needs("training.plan", "train")
    try:
        base: FoundBase | None = find_base(settings.base.name, settings.base.revision)
    except ConfigError:
        base = None  # the plan counts by a pattern then, and says so
    tokenise = planning.tokeniser(base.path, settings) if base else None
    plan = planning.dry_run(
        settings, rows, operators=operators, holdouts=holdouts, gpu=gpu, tokenise=tokenise
    )
    out.print(tables.plan_table(plan))


def needs(module: str, extra: str) -> ModuleType:
    """A module of an optional extra. Raises: ConfigError where the extra is not installed."""
    try:
        return import_module(module)
    except ImportError as fault:
        hint = f"pip install 'latticemind[{extra}]'"
        raise ConfigError(f"this needs the extra `{extra}` ({fault.name})", hint=hint) from fault


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line for each thing said; on a terminal one line that changes, behind a spinner."""
    if not err.is_terminal:
        yield lambda step: err.print(step, markup=False, highlight=False)
        return
    with err.status("") as status:
        yield lambda step: status.update(Text(step))
