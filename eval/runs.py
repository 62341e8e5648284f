"""Runs on disk: every scored row is kept, and every number is recomputed from the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from eval.loo import Row
from eval.metrics import mean
from eval.sources import STEP_OPERATORS
from operators.artefacts import environment, new_folder, write_json
from operators.assembly import ModelSource, OperatorChoice
from operators.claims import content_hash
from operators.errors import InputError

SCORES = "scores.json"
"""Beside a run's adapters; `serve` shows it."""

_ROW = TypeAdapter(Row)


def save_run(
    rows: Sequence[Row],
    parent: Path,
    *,
    operators: str,
    inputs: dict[str, str],
    sources: Mapping[str, ModelSource] | None = None,
) -> Path:
    """Write rows and their origin to a folder named after their content; an equal run is there already.

    `sources` says which model, adapters and threshold answered for each holdout.
    """
    name = f"loo-{operators.replace('=', '-').replace(',', '_')}-{content_hash([asdict(r) for r in rows])}"
    target = parent / name
    if not target.exists():
        with new_folder(target) as draft:
            lines = [json.dumps(asdict(row), ensure_ascii=False, sort_keys=True) for row in rows]
            (draft / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            models = {
                holdout: {
                    "model": source.model.identity,
                    "adapters": dict(source.adapters),
                    "threshold": source.threshold,
                }
                for holdout, source in (sources or {}).items()
            }
            facts = {
                "operators": operators, "inputs": inputs, "models": models, "environment": environment(),
            }  # fmt: skip
            write_json(draft / "run.json", facts)
    return target


def record_scores(
    run: Path, rows: Sequence[Row], choice: OperatorChoice, sources: Mapping[str, ModelSource]
) -> None:
    """Write what each adapter scored on the holdout it has not seen to the run's scores.json, for `serve`."""
    path = run / SCORES
    scores = json.loads(path.read_bytes()) if path.is_file() else {}
    for step, operator in STEP_OPERATORS.items():
        for holdout, source in sources.items():
            name = source.adapters.get(operator)
            found = [row.score for row in rows if (row.holdout, row.step) == (holdout, step)]
            if name is not None and found:
                facts = {
                    "operator": choice.model_dump()[step],
                    "score": round(mean(found), 4),
                    "n": len(found),
                }
                if step == "extract":
                    facts["threshold"] = source.threshold
                scores[name] = facts | {"holdout": holdout}
    draft = path.with_suffix(".part")
    write_json(draft, scores)
    draft.replace(path)


def load_run(folder: Path) -> tuple[str, list[Row]]:
    """The operators' name and the rows of a run. Raises: InputError with file and line."""
    try:
        operators = str(json.loads((folder / "run.json").read_text(encoding="utf-8"))["operators"])
        lines = (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError, KeyError, TypeError) as fault:
        hint = "give a folder that `eval loo` wrote"
        raise InputError("this is no run folder", file=folder, hint=hint) from fault
    rows: list[Row] = []
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines, 1):
        try:
            row = _ROW.validate_json(line)
        except ValidationError as fault:
            raise InputError("not a row of a run", file=folder / "rows.jsonl", line=number) from fault
        if not 0 <= row.score <= 1 or (row.step, row.example) in seen:
            what = "a score is from 0 to 1" if not 0 <= row.score <= 1 else "this example was scored above"
            raise InputError(what, file=folder / "rows.jsonl", line=number, hint="run the evaluation again")
        seen.add((row.step, row.example))
        rows.append(row)
    return operators, rows
