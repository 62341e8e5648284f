"""Artefact folders: written whole or not at all, never over an existing one."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pygit2

from operators.errors import InputError

_PACKAGES = (
    "latticemind",
    "pydantic",
    "numpy",
    "scipy",
    "rapidfuzz",
    "bm25s",
    "networkx",
    "pygit2",
    "PyYAML",
    "torch",
    "transformers",
    "peft",
    "trl",
    "bitsandbytes",
    "accelerate",
    "xgrammar",
)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` when the block ends without an error.

    Raises: InputError when the target exists already.
    """
    if target.exists():
        raise InputError(
            "this exists already and is not written over", file=target, hint="choose another place"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield draft
        for path in draft.rglob("*"):
            if path.is_file():
                with path.open("rb") as handle:
                    os.fsync(handle.fileno())
        draft.chmod(0o755)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_json(path: Path, data: Mapping[str, object]) -> None:
    """Pretty, sorted, newline-ended JSON: equal data, equal bytes."""
    path.write_text(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def environment() -> dict[str, object]:
    """What made an artefact: Python, package versions and, from a checkout, the git revision."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {"python": platform.python_version(), "packages": versions, "git": _revision()}


def _revision() -> str | None:
    found = pygit2.discover_repository(str(Path(__file__).parent))
    if found is None:
        return None
    repository = pygit2.Repository(found)
    return None if repository.head_is_unborn else str(repository.head.target)
