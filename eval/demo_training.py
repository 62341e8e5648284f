"""The demo's second half: three small adapters for one holdout, in the loop beside the rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from rich.table import Table

from data_builders.gold import ExtractCase, gold_cases
from data_builders.trajectory import Trajectory, load_trajectories
from eval.loo import run_holdout
from eval.report import compare_runs, loo_table, mcnemar_table, summarise
from eval.runs import save_run
from eval.sources import ModelOptions, best_threshold, pair_scores, sources_for
from operators.artefacts import sha256_of
from operators.assembly import parse_choice
from operators.claims import content_hash
from operators.config import load_config
from operators.errors import ConfigError
from training.config import TrainConfig

LEARNED = "extract=two-stage,compare=learned,update=learned"
HOLDOUT = "browser-surface"
VALIDATION_NOTES = 24


@dataclass(frozen=True, slots=True)
class TrainingDemo:
    """Lines that say what was trained, and the comparison with the rules on the holdout."""

    lines: tuple[str, ...]
    tables: tuple[Table, ...]


def run_training_demo(
    out: Path, *, configs: Path, progress: Callable[[str], None] = lambda _: None
) -> TrainingDemo:
    """Fetch the embedded base, train its adapters on what `out`/data holds, score them on the holdout.

    Raises: ConfigError where the extra `train` is not installed or the base cannot be fetched.
    """
    try:
        bases, folds = import_module("training.bases"), import_module("training.folds")
    except ImportError as fault:
        hint = "pip install 'latticemind[train]', or run `latticemind demo --quick`"
        raise ConfigError(
            f"the demo trains adapters and needs the extra `train` ({fault.name})", hint=hint
        ) from fault
    config = load_config(configs / "train" / "smollm2-135m-demo.yaml", TrainConfig)
    base = bases.fetch_base(config.base.name, progress=progress)
    data = folds.DataFolder(out / "data")
    jobs = folds.plan_jobs(config, data, operators=("all",), holdouts=(HOLDOUT,))
    finished = folds.Run(out / "adapters", config, data, base).train(jobs, progress=progress)
    trajectories = load_trajectories(configs / "trajectories")
    (held_out,) = (t for t in trajectories if t.name == HOLDOUT)
    options = ModelOptions(adapters=out / "adapters", threshold=0.5)
    learned = parse_choice(LEARNED)
    trained_on = {case.name for job in jobs for case in folds.selection_of(job, config, data).cases}
    validation = _validation_cases(trajectories, trained_on)
    with sources_for((), learned, options, holdouts=[HOLDOUT], progress=progress) as sources:
        progress(f"stage 1's threshold on {len(validation)} notes of the other trajectories")
        source = sources[HOLDOUT]
        source = replace(source, threshold=best_threshold(pair_scores(validation, source), default=0.5))
        progress(f"{HOLDOUT} through the loop, threshold {source.threshold:.2f}")
        found = {
            "rules": run_holdout(held_out, parse_choice("rules")),
            LEARNED: run_holdout(held_out, learned, source),
        }
    path = configs / "trajectories" / f"{HOLDOUT}.yaml"
    for text, rows in found.items():
        asked = {HOLDOUT: source} if text == LEARNED else None
        save_run(rows, out, operators=text, inputs={path.name: sha256_of(path)}, sources=asked)
    tables = [loo_table(summarise(rows, name)) for name, rows in found.items()]
    tests = compare_runs(found["rules"], found[LEARNED])
    seconds = sum(done.trained.seconds for done in finished if done.trained)
    lines = (
        f"{len(finished)} adapters on {base.card.id} in {seconds:.0f} s of training: {out}/adapters",
        f"{HOLDOUT} was held out of all of them",
    )
    return TrainingDemo(lines, (*tables, mcnemar_table(tests, "rules", "learned")))


def _validation_cases(trajectories: Sequence[Trajectory], trained_on: Collection[str]) -> list[ExtractCase]:
    """Notes of the other trajectories that no adapter was trained on, drawn by hash."""
    cases = [
        case
        for trajectory in trajectories
        if trajectory.name != HOLDOUT
        for case in gold_cases(trajectory).extract
        if case.case_id not in trained_on
    ]
    return sorted(cases, key=lambda case: content_hash(case.case_id))[:VALIDATION_NOTES]
