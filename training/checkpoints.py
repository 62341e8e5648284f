"""Checkpoints of a training that is not finished: which is whole, and what had been run up to it."""

from __future__ import annotations

import os
from pathlib import Path

from operators.schema import FrozenModel

SEAL = "latticemind.json"
"""Written into a checkpoint after everything else: without it the checkpoint is only part of one."""


class Tally(FrozenModel):
    """What a training has run so far, over all its processes.

    row_tokens: tokens of the rows when each stands by itself; run_tokens: tokens the model was run on;
    seconds: wall time, that of earlier tries included.
    """

    row_tokens: int = 0
    run_tokens: int = 0
    seconds: float = 0.0


def seal(checkpoint: Path, tally: Tally) -> None:
    """Mark a checkpoint as whole."""
    draft = checkpoint / f".{SEAL}"
    draft.write_text(tally.model_dump_json() + "\n", encoding="utf-8")
    os.replace(draft, checkpoint / SEAL)


def newest_whole(work: Path) -> tuple[Path, Tally] | None:
    """The latest sealed checkpoint under `work` with its tally; None where there is none."""
    sealed = [path.parent for path in work.glob(f"checkpoint-*/{SEAL}")]
    if not sealed:
        return None
    last = max(sealed, key=lambda path: int(path.name.rpartition("-")[2]))
    return last, Tally.model_validate_json((last / SEAL).read_bytes())
