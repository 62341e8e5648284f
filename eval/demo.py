"""The demo: the package's main job on its real input, in one go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from data_builders.build import DataConfig, build_data
from data_builders.scenarios import load_vocabulary
from data_builders.trajectory import load_trajectories
from eval.loo import run_loo
from eval.report import compare_runs, loo_table, mcnemar_table, summarise
from eval.runs import save_run
from operators.artefacts import sha256_of
from operators.assembly import parse_choice
from operators.config import load_config
from pipeline.decide import FailurePolicy
from pipeline.loop import open_loop
from pipeline.render import render

SEED = 7
MEMORY_BUDGET = 1700
"""Characters of the rendered memory that the demo writes (the paper's writer budget, A.3)."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    lines: tuple[str, ...]
    table: Table
    tests: tuple[Table, ...]


def run_demo(out: Path, *, configs: Path, progress: Callable[[str], None] = lambda _: None) -> DemoResult:
    """Build the data, replay one trajectory into a memory, run the leave-one-out table for two choices.

    The demo owns `out`: what an earlier demo wrote there is replaced.
    """
    folder = configs / "trajectories"
    trajectories = load_trajectories(folder)
    inputs = {path.name: sha256_of(path) for path in sorted(folder.glob("*.yaml"))}
    shutil.rmtree(out, ignore_errors=True)
    manifest = build_data(
        out / "data", config=load_config(configs / "data.yaml", DataConfig), seed=SEED,
        trajectories=trajectories, vocabulary=load_vocabulary(), inputs=inputs, progress=progress,
    )  # fmt: skip
    progress("update loop")
    shown = trajectories[0]
    loop = open_loop(shown.slot_schema, parse_choice("rules"), policy=FailurePolicy.PROPOSE)
    for session in shown.sessions:
        loop.ingest(session.as_note(shown.name))
    memory_file = out / f"memory-{shown.name}.md"
    memory_file.write_text(render(loop.memory, budget=MEMORY_BUDGET), encoding="utf-8")
    runs = {}
    for choice in (parse_choice("rules"), parse_choice("compare=latest")):
        rows = run_loo(trajectories, choice, progress=progress)
        runs[str(choice)] = rows, save_run(rows, out, operators=str(choice), inputs=inputs)
    (first, (rows, run)), (second, (others, _)) = runs.items()
    commits = sum(len(t.commit_sessions) for t in trajectories)
    sessions = sum(len(t.sessions) for t in trajectories)
    lines = (
        f"{len(trajectories)} trajectories: {sessions} sessions ({commits} commits, "
        f"{sessions - commits} distractors), "
        f"{sum(len(list(t.claims())) for t in trajectories)} gold claims, "
        f"{sum(len(t.queries) for t in trajectories)} queries",
        f"{manifest.examples:,} examples: "
        + ", ".join(f"{name} {count:,}" for name, count in manifest.counts.items()),
        f"examples and splits: {out}/data    scored rows: {run}/rows.jsonl",
        f"rendered memory of {shown.name} ({MEMORY_BUDGET} characters): {memory_file}",
    )
    table = loo_table(summarise(rows, first))
    return DemoResult(lines, table, (mcnemar_table(compare_runs(rows, others), first, second),))
