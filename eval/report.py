"""From rows to the leave-one-out summary: numbers with intervals, a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from data_builders.mining.align import Alignment
from eval.loo import EXAMPLE_STEPS, STEPS, Row, outcome_counts
from eval.metrics import mean
from eval.stats import McNemar, bootstrap, mcnemar
from operators.errors import UnscoredError

DIGITS = 4
EXTRACT_SCORES = ("relaxed_f1", "pair_f1", "value_token_f1")
Summary = dict[str, object]


def summarise(rows: Sequence[Row], operators: str) -> Summary:
    """Every holdout's scores, and their mean over holdouts as in the paper's Table 5.

    Rows of several runs (seeds) may come together: scores are means over them, n counts examples once.
    `overall` is the mean over the examples of the three operators, `macro` the mean of the three means.
    Raises: UnscoredError when there are no rows, or a holdout lacks examples of an operator.
    """
    names = list(dict.fromkeys(row.holdout for row in rows))
    if not names:
        raise UnscoredError("a run without rows", hint="check the trajectories folder")
    holdouts = [_holdout(name, [row for row in rows if row.holdout == name]) for name in names]
    numbers = [key for key, value in holdouts[0].items() if isinstance(value, float)]
    averaged: Summary = {
        key: round(mean([value for h in holdouts if isinstance(value := h.get(key), float)]), DIGITS)
        for key in numbers
    }
    averaged["intervals"] = _intervals(rows)
    return {"operators": operators, "holdouts": holdouts, "mean": averaged}


def _holdout(name: str, rows: Sequence[Row]) -> Summary:
    by_step = {step: [row.score for row in rows if row.step == step] for step in STEPS}
    examples = [score for step in EXAMPLE_STEPS for score in by_step[step]]
    extract = [row for row in rows if row.step == "extract"]
    scores = {
        "overall": mean(examples),
        "macro": mean([mean(by_step[step]) for step in EXAMPLE_STEPS]),
        **{step: mean(found) for step, found in by_step.items() if found},
        **{f: mean([_number(row.detail[f]) for row in extract]) for f in EXTRACT_SCORES},
        **_stage_one(extract),
    }
    queries = [row for row in rows if row.step == "queries"]
    kinds = sorted({str(row.detail["kind"]) for row in queries})
    return {
        "name": name,
        "n": len({(row.step, row.example) for row in rows if row.step in EXAMPLE_STEPS}),
        **{key: round(value, DIGITS) for key, value in scores.items()},
        "outcomes": outcome_counts(rows),
        "queries_by_kind": {
            kind: round(mean([row.score for row in queries if row.detail["kind"] == kind]), DIGITS)
            for kind in kinds
        },
        "intervals": _intervals(rows),
    }


def _stage_one(extract: Sequence[Row]) -> dict[str, float]:
    """Of all gold pairs, the share that stage 1 kept; nothing for an extractor of one stage."""
    kept = asked = 0
    for row in extract:
        selected, gold = row.detail.get("selected"), row.detail["gold"]
        if isinstance(selected, list) and isinstance(gold, list):
            pairs = {str(claim[0]).partition("@")[0] for claim in gold}
            asked += len(pairs)
            kept += len(pairs & set(selected))
    return {"stage1_recall": kept / asked} if asked else {}


def _intervals(rows: Iterable[Row]) -> dict[str, list[float]]:
    """95 % bootstrap intervals over the examples given, by step and overall.

    What is resampled is the example, with its mean over runs: two seeds do not make twice the evidence.
    """
    by_example: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        by_example.setdefault((row.step, row.example), []).append(row.score)
    found: dict[str, list[float]] = {}
    for (step, _), scores in by_example.items():
        found.setdefault(step, []).append(mean(scores))
        if step in EXAMPLE_STEPS:
            found.setdefault("overall", []).append(mean(scores))
    intervals = {step: bootstrap(scores) for step, scores in sorted(found.items())}
    return {step: [round(i.low, DIGITS), round(i.high, DIGITS)] for step, i in intervals.items()}


def pool_runs(runs: Sequence[tuple[str, list[Row]]]) -> tuple[str, list[Row]]:
    """The rows of several runs of the same operators (seeds), for `summarise`; one run stays as it is.

    Raises: UnscoredError when the runs differ in operators or examples.
    """
    (name, first), *others = runs
    for other, rows in others:
        if other != name:
            raise UnscoredError(f"runs of {name} and of {other}", hint="pool runs of the same operators")
        if _scores(rows).keys() != _scores(first).keys():
            raise UnscoredError("the runs scored different examples", hint="pool runs on the same holdouts")
    title = f"{name} · {len(runs)} runs" if others else name
    return title, [row for _, rows in runs for row in rows]


def compare_runs(first: Sequence[Row], second: Sequence[Row]) -> dict[str, McNemar]:
    """Exact McNemar by step over the holdouts that both runs have; an example is right when its score is 1.

    Raises: UnscoredError when the runs share no holdout, or hold different examples of one they share.
    """
    shared = {row.holdout for row in first} & {row.holdout for row in second}
    if not shared:
        raise UnscoredError("the two runs share no holdout", hint="run both on the same trajectories")
    scores = [_scores(row for row in rows if row.holdout in shared) for rows in (first, second)]
    if scores[0].keys() != scores[1].keys():
        raise UnscoredError(
            "the two runs scored different examples", hint="run both on the same trajectories and version"
        )
    tests = {}
    for step in STEPS:
        keys = [key for key in scores[0] if key[0] == step]
        if keys:
            pair = [[found[key] == 1.0 for key in keys] for found in scores]
            tests[step] = mcnemar(pair[0], pair[1])
    return tests


def _scores(rows: Iterable[Row]) -> dict[tuple[str, str], float]:
    return {(row.step, row.example): row.score for row in rows}


def loo_table(summary: Summary) -> Table:
    """The summary as a table: scores, with the 95 % interval of `overall` and `extract` below the mean."""
    columns = ("overall", *STEPS)
    table = Table(title=f"Leave one trajectory out · operators: {summary['operators']}")
    table.add_column("holdout", no_wrap=True)
    for name in ("n", *columns):
        table.add_column(name.replace("_given_claims", "\n(gold claims)"), justify="right")
    holdouts, averaged = summary["holdouts"], summary["mean"]
    assert isinstance(holdouts, list)
    assert isinstance(averaged, dict)
    for holdout in holdouts:
        table.add_row(holdout["name"], str(holdout["n"]), *(_shown(holdout.get(c)) for c in columns))
    table.add_section()
    table.add_row("mean", str(sum(h["n"] for h in holdouts)), *(_shown(averaged.get(c)) for c in columns))
    intervals = averaged["intervals"]
    table.add_row("95 % CI", "", *(_span(intervals.get(c)) for c in columns))
    return table


def mined_table(manifest: Mapping[str, object]) -> Table:
    """What `data mine` found, by repository and miner: stated, named and silent transitions."""
    table = Table(title="Mined transitions by what the commit message says of them")
    for name in ("repository", "miner", *(kind.value for kind in Alignment)):
        table.add_column(name, justify="left" if name in ("repository", "miner") else "right")
    repositories = manifest["repositories"]
    assert isinstance(repositories, dict)
    for name, counts in repositories.items():
        for miner, found in counts["by_miner"].items():
            table.add_row(name, miner, *(f"{found.get(kind.value, 0):,}" for kind in Alignment))
        total = [sum(f.get(kind.value, 0) for f in counts["by_miner"].values()) for kind in Alignment]
        notes = f"{counts['notes']:,} notes, {counts['negatives']:,} of them negative"
        head = f"{counts['commits']:,} commits, {notes}"
        table.add_row(name, f"[bold]{head}", *(f"[bold]{number:,}" for number in total), end_section=True)
    return table


def mcnemar_table(tests: dict[str, McNemar], first: str, second: str) -> Table:
    table = Table(title=f"Exact McNemar: {first} against {second}")
    for name in ("step", f"only {first} right", f"only {second} right", "p"):
        table.add_column(name, justify="left" if name == "step" else "right")
    for step, test in tests.items():
        table.add_row(step, str(test.only_first), str(test.only_second), f"{test.p:.2g}")
    return table


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-"


def _span(value: list[float] | None) -> str:
    return f"{value[0]:.2f}–{value[1]:.2f}" if value else "-"


def _number(value: object) -> float:
    assert isinstance(value, float | int)
    return float(value)
