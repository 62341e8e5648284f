"""Runs on disk: every scored row is kept, and every number is recomputed from the rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from eval.loo import Row
from operators.artefacts import environment, new_folder, write_json
from operators.claims import content_hash
from operators.errors import InputError

_ROW = TypeAdapter(Row)


def save_run(rows: Sequence[Row], parent: Path, *, operators: str, inputs: dict[str, str]) -> Path:
    """Write rows and their origin to a folder named after their content; an equal run is there already."""
    name = f"loo-{operators.replace('=', '-').replace(',', '_')}-{content_hash([asdict(r) for r in rows])}"
    target = parent / name
    if not target.exists():
        with new_folder(target) as draft:
            lines = [json.dumps(asdict(row), ensure_ascii=False, sort_keys=True) for row in rows]
            (draft / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            facts = {"operators": operators, "inputs": inputs, "environment": environment()}
            write_json(draft / "run.json", facts)
    return target


def load_run(folder: Path) -> tuple[str, list[Row]]:
    """The operators' name and the rows of a run. Raises: InputError with file and line."""
    facts = folder / "run.json"
    if not facts.is_file():
        raise InputError("this is no run folder", file=folder, hint="give a folder that `eval loo` wrote")
    rows = []
    with (folder / "rows.jsonl").open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                rows.append(_ROW.validate_json(line))
            except ValidationError as fault:
                raise InputError("not a row of a run", file=folder / "rows.jsonl", line=number) from fault
    return str(json.loads(facts.read_text(encoding="utf-8"))["operators"]), rows
