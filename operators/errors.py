"""Every error LatticeMind raises on purpose, as one tree.

LatticeMindError                    exit code 1: something failed
└─ UserError                        exit code 2: the user can fix it
   ├─ InputError                    a file, field or note is wrong (file, line, field)
   │  ├─ SchemaError                a slot schema contradicts itself, or a claim names what it lacks
   │  └─ LeakError                  held-out material stands in training rows
   ├─ ConfigError                   an unknown or illegal setting
   ├─ RepositoryError               a git repository or commit cannot be read
   └─ PreflightError                a recipe, base or adapter that would train or serve wrongly
├─ MemoryStateError                 the memory refuses a write
│  ├─ IllegalTransition             a status move outside the table
│  └─ RevisionConflict              a writer held a stale revision of the log
├─ OperatorFailure                  an operator gave no answer and the policy is `raise`
├─ TrainingError                    a training run cannot go on
├─ EndpointError                    a model server that is not there, or is not what it should be
└─ UnscoredError                    a mean over nothing was asked for
"""

from __future__ import annotations

from pathlib import Path


class LatticeMindError(Exception):
    """Root of the tree. `hint` says in one line what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UserError(LatticeMindError):
    """Something the user gave is wrong; nothing was changed."""

    exit_code = 2


class InputError(UserError):
    """Bad input, with the place where it stands.

    `line` counts from 1; `field` is a dotted path such as `sessions.3.date`.
    """

    def __init__(
        self,
        message: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        field: str | None = None,
        hint: str = "",
    ) -> None:
        place = ":".join(str(part) for part in (file, line) if part is not None)
        where = " ".join(part for part in (place, f"[{field}]" if field else "") if part)
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.file, self.line, self.field = file, line, field


class SchemaError(InputError):
    """A slot schema contradicts itself, or a claim names an entity or slot it lacks."""


class LeakError(InputError):
    """Held-out material stands in training rows."""


class ConfigError(UserError):
    """An unknown or illegal setting."""


class RepositoryError(UserError):
    """A git repository, or a commit in it, cannot be read."""


class PreflightError(UserError):
    """A recipe, a base model or an adapter that would train or serve wrongly."""


class MemoryStateError(LatticeMindError):
    """The memory refuses a write; nothing was changed."""


class IllegalTransition(MemoryStateError):
    """A status move that the table does not hold."""


class RevisionConflict(MemoryStateError):
    """The writer's view of the log is older than the log."""


class OperatorFailure(LatticeMindError):
    """An operator gave no answer (malformed, truncated or unavailable) and the policy is `raise`."""


class TrainingError(LatticeMindError):
    """A training run cannot go on; what it finished stays."""


class EndpointError(LatticeMindError):
    """A model server does not answer, does not start, or answers as another than it should."""


class UnscoredError(LatticeMindError):
    """A score was asked for where nothing was scored."""
