"""Base models: what the aliases stand for, and where a base lies on this machine."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants, scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from operators.adapters import BaseCard, base_card, json_object
from operators.errors import ConfigError

ORIGIN = "latticemind-base.json"
"""Stands in a folder that `models fetch` wrote: id and revision of what it holds."""

NOT_HERE = "is not on this machine"
PAGES, PAGE_BYTES = 64, 4096
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


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


def known_base(name: str) -> KnownBase | None:
    """The base with this alias or hub id, if it is one of ours."""
    return KNOWN.get(name) or next((base for base in KNOWN.values() if base.id == name), None)


def hub_id_of(name: str) -> str | None:
    """The hub id that an alias stands for, or a name that has the form of one."""
    known = known_base(name)
    if known is not None:
        return known.id
    return name if _HUB_ID.fullmatch(name) else None


def cache_folder(alias: str) -> Path:
    """Where `models fetch` puts a base: $LATTICEMIND_CACHE, else the user's cache folder."""
    own = os.environ.get("LATTICEMIND_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(own) if own else home / "latticemind") / "models" / alias


def find_base(name: str, revision: str | None = None) -> FoundBase:
    """The base of that name: a folder, an alias, or a hub id that is in the hub's cache.

    A folder that does not say where it comes from is taken for any revision, and told from others by a hash
    of its weights. Raises: ConfigError for a folder that lacks a part or is of another revision, or a base
    that is nowhere here.
    """
    if name and Path(name).is_dir():
        return _checked(_in_folder(Path(name)), revision)
    known, hub_id = known_base(name), hub_id_of(name)
    if hub_id is None:
        raise ConfigError(f"no base {name!r}", hint=f"a folder, a hub id, or one of {', '.join(KNOWN)}")
    if known is not None and cache_folder(known.alias).is_dir():
        found = _in_cache(known)
        if revision in (None, found.card.revision):
            return found
    there = _in_hub_cache(hub_id, revision)
    if there is not None:
        return there
    what = name if revision is None else f"{name} of revision {revision}"
    raise ConfigError(f"the base {what} {NOT_HERE}", hint=_fetching(name, revision))


def missing_part(folder: Path) -> str | None:
    """The first file that a base model's folder lacks; None when it is whole."""
    index = folder / "model.safetensors.index.json"
    shards = json_object(index).get("weight_map", {}) if index.is_file() else {}
    names = sorted(set(map(str, shards.values()))) if isinstance(shards, dict) else []
    for name in ("config.json", "tokenizer.json", *names):
        if not (folder / name).is_file():
            return name
    if names or (folder / "model.safetensors").is_file():
        return None
    return index.name if any(folder.glob("model-*.safetensors")) else "model.safetensors"


def _in_folder(path: Path) -> FoundBase:
    part = missing_part(path)
    if part is not None:
        raise ConfigError(f"{path} holds no {part}", hint="give a folder with a whole base model")
    hub_id, revision = _origin(path.resolve())
    return FoundBase(path, base_card(path, id=hub_id, revision=revision))


def _origin(path: Path) -> tuple[str, str]:
    """Id and revision: as `models fetch` noted them, as the hub's cache names its folders, or by content."""
    if (path / ORIGIN).is_file():
        facts = json_object(path / ORIGIN)
        if isinstance(facts.get("id"), str) and isinstance(facts.get("revision"), str):
            return str(facts["id"]), str(facts["revision"])
        raise ConfigError(f"{path / ORIGIN} says no id and revision", hint="remove that file, or fetch again")
    kind, _, hub_id = path.parent.parent.name.partition("--")
    if path.parent.name == "snapshots" and kind == "models":
        return hub_id.replace("--", "/"), path.name
    return path.name, f"local-{_fingerprint(path)}"


def _fingerprint(path: Path) -> str:
    """16 hex digits of the sizes of the weight files and of 64 pages of each: quick at any size."""
    digest = hashlib.sha256()
    for file in sorted(path.glob("*.safetensors")):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as handle:
            for page in range(PAGES):
                handle.seek(max(0, size - PAGE_BYTES) * page // (PAGES - 1))
                digest.update(handle.read(PAGE_BYTES))
    return digest.hexdigest()[:16]


def _checked(found: FoundBase, revision: str | None) -> FoundBase:
    there = found.card.revision
    if revision is None or there == revision or there.startswith("local-"):
        return found
    raise ConfigError(
        f"{found.path} is of revision {there}, asked for is {revision}",
        hint="give the folder of that revision, or change the revision in the recipe",
    )


def _in_cache(known: KnownBase) -> FoundBase:
    folder = cache_folder(known.alias)
    part = missing_part(folder)
    if part is not None:
        raise ConfigError(
            f"{folder} holds no {part}",
            hint=f"remove that folder, then: latticemind models fetch {known.alias}",
        )
    return _in_folder(folder)


def _in_hub_cache(hub_id: str, revision: str | None) -> FoundBase | None:
    """The newest whole snapshot in the hub's cache, or the one of that revision.

    Raises: ConfigError when only part of one is there, as after a download that was stopped.
    """
    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return None
    snapshots = [
        snapshot
        for repository in cache.repos
        if repository.repo_id == hub_id and repository.repo_type == "model"
        for snapshot in repository.revisions
        if revision is None or revision == snapshot.commit_hash or revision in snapshot.refs
    ]
    whole = [snapshot for snapshot in snapshots if missing_part(snapshot.snapshot_path) is None]
    if whole:
        newest = max(whole, key=lambda snapshot: snapshot.last_modified)
        card = base_card(newest.snapshot_path, id=hub_id, revision=newest.commit_hash)
        return FoundBase(newest.snapshot_path, card)
    if snapshots:
        part = missing_part(snapshots[0].snapshot_path)
        raise ConfigError(
            f"only part of {hub_id} is in the hub's cache: {part} is missing",
            hint=_fetching(hub_id, revision),
        )
    return None


def _fetching(name: str, revision: str | None) -> str:
    return f"latticemind models fetch {name}" + (f" --revision {revision}" if revision else "")
