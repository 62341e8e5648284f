"""Base models: what the aliases stand for, and where a base lies on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from operators.adapters import BaseCard, base_card
from operators.errors import ConfigError

ORIGIN = "latticemind-base.json"
"""Stands in a folder that `models fetch` wrote: id and revision of what it holds."""


@dataclass(frozen=True, slots=True)
class KnownBase:
    """A base with an alias; `licence` is its SPDX name."""

    alias: str
    id: str
    licence: str


@dataclass(frozen=True, slots=True)
class FoundBase:
    """A base on disk with what identifies it."""

    path: Path
    card: BaseCard


KNOWN = {
    base.alias: base
    for base in (
        KnownBase("qwen2.5-14b", "Qwen/Qwen2.5-14B-Instruct", "Apache-2.0"),
        KnownBase("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct", "Apache-2.0"),
        KnownBase("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct", "Apache-2.0"),
        KnownBase("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct", "Apache-2.0"),
    )
}


def cache_folder(alias: str) -> Path:
    """Where `models fetch` puts a base: $LATTICEMIND_CACHE, else the user's cache folder."""
    own = os.environ.get("LATTICEMIND_CACHE")
    root = (
        Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "latticemind"
    )
    return root / "models" / alias


def find_base(name: str, revision: str | None = None) -> FoundBase:
    """The base of that name: a folder, an alias, or a hub id that is in the hub's cache.

    Raises: ConfigError for a folder that lacks a part, or a base that is nowhere here.
    """
    if Path(name).is_dir():
        return _in_folder(Path(name))
    known = KNOWN.get(name) or next((base for base in KNOWN.values() if base.id == name), None)
    if known is not None and cache_folder(known.alias).is_dir():
        return _in_folder(cache_folder(known.alias))
    found = _in_hub_cache(known.id if known else name, revision)
    if found is not None:
        return found
    if known is None and "/" not in name:
        raise ConfigError(f"no base {name!r}", hint=f"a folder, a hub id, or one of {', '.join(KNOWN)}")
    raise ConfigError(f"the base {name} is not on this machine", hint=f"latticemind models fetch {name}")


def _in_folder(path: Path) -> FoundBase:
    if not any(path.glob("*.safetensors")):
        raise ConfigError(f"{path} holds no *.safetensors", hint="give a folder with a whole base model")
    origin = path / ORIGIN
    facts = json.loads(origin.read_text(encoding="utf-8")) if origin.is_file() else {}
    card = base_card(path, id=facts.get("id", path.resolve().name), revision=facts.get("revision", "local"))
    return FoundBase(path, card)


def _in_hub_cache(hub_id: str, revision: str | None) -> FoundBase | None:
    """The newest whole snapshot in the hub's cache, or the one of that revision."""
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return None
    snapshots = [
        snapshot
        for repository in cache.repos
        if repository.repo_id == hub_id and repository.repo_type == "model"
        for snapshot in repository.revisions
        if (revision is None or revision == snapshot.commit_hash or revision in snapshot.refs)
        and any(file.file_name.endswith(".safetensors") for file in snapshot.files)
    ]
    if not snapshots:
        return None
    newest = max(snapshots, key=lambda snapshot: snapshot.last_modified)
    card = base_card(newest.snapshot_path, id=hub_id, revision=newest.commit_hash)
    return FoundBase(newest.snapshot_path, card)
