"""Configuration files in TOML, YAML and JSON: every scalar under its dotted path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners.config_paths import wants_json, wants_toml, wants_yaml
from data_builders.mining.miners.config_slots import CONFIG_SLOTS, list_slot, scalar_slot
from data_builders.mining.miners.stated import Stated, distinctive, dotted, form_of, settle
from data_builders.mining.miners.trees import (
    Kind,
    Leaf,
    Tree,
    leaf,
    read_json,
    read_toml,
    read_yaml,
    table,
    text_of,
)
from operators.normal import Form

MAX_CONFIG_CHARS = 200_000
"""Larger files are data, not configuration kept by hand."""
_IDENTITIES = (
    "id",
    "name",
    "package-ecosystem",
    "repo",
    "package",
    "key",
    "crate",
    "from",
    "source",
    "matchManagers",
    "path",
    "pattern",
    "filter",
    "glob",
)
_SKIPPED_KEYS = frozenset({"$schema", "nav", "words", "//", "_comment", "integrity", "hash", "checksum"})
_DEPENDENCY_KEYS = frozenset(
    """dependencies dev-dependencies dependency-groups extras overrides constraint-dependencies
    override-dependencies build-constraint-dependencies optional-dependencies packageExtensions
    resolutions catalog catalogs imports sources index patch replace scripts requires engines""".split()
)
_CARGO_TABLES = frozenset({"profile", "lints"})
_PACKAGE_JSON_KEYS = frozenset(
    """type private license main module types sideEffects jest prettier eslintConfig browserslist
    lint-staged simple-git-hooks husky nyc ava c8 files exports""".split()
)


@dataclass(frozen=True, slots=True)
class TomlConfigMiner:
    """Reads `[tool.*]` of pyproject, profiles and lints of Cargo, and TOML configuration files."""

    name: str = "toml-config"
    family: Family = Family.CONFIG

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return CONFIG_SLOTS

    def wants(self, path: str) -> bool:
        return wants_toml(path)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        if len(text) > MAX_CONFIG_CHARS:
            return ()
        found = table(read_toml(text))
        last = path.rpartition("/")[2].lower()
        if last == "pyproject.toml":
            found = {"tool": table(found.get("tool"))}
        elif last == "cargo.toml":
            workspace = table(found.get("workspace"))
            kept = {key: value for key, value in workspace.items() if key in {"lints", "resolver"}}
            found = {key: value for key, value in found.items() if key in _CARGO_TABLES} | {"workspace": kept}
        return settle(_settings(found, ()))


@dataclass(frozen=True, slots=True)
class YamlConfigMiner:
    """Reads YAML configuration: mkdocs, dependabot, linters, documentation hosts."""

    name: str = "yaml-config"
    family: Family = Family.CONFIG

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return CONFIG_SLOTS

    def wants(self, path: str) -> bool:
        return wants_yaml(path)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        return settle(_settings(read_yaml(text), ())) if len(text) <= MAX_CONFIG_CHARS else ()


@dataclass(frozen=True, slots=True)
class JsonConfigMiner:
    """Reads JSON configuration (with comments too): tsconfig, renovate, tools' keys of package.json."""

    name: str = "json-config"
    family: Family = Family.CONFIG

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return CONFIG_SLOTS

    def wants(self, path: str) -> bool:
        return wants_json(path)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        if len(text) > MAX_CONFIG_CHARS:
            return ()
        found = read_json(text)
        if path.rpartition("/")[2] == "package.json":
            found = {key: value for key, value in table(found).items() if key in _PACKAGE_JSON_KEYS}
        return settle(_settings(found, ()))


def _settings(tree: Tree, path: tuple[str, ...]) -> Iterator[Stated]:
    """The scalars below a tree. Tables in a list go by what names them, those without a name are skipped."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key not in _SKIPPED_KEYS and key not in _DEPENDENCY_KEYS and not key.startswith("$"):
                yield from _settings(value, (*path, key))
    elif isinstance(tree, list):
        yield from _listed(tree, path)
    elif path and (found := leaf(tree)):
        yield _setting(found, path)


def _listed(entries: list[Tree], path: tuple[str, ...]) -> Iterator[Stated]:
    seen: Counter[str] = Counter()
    for entry in entries:
        if found := leaf(entry):
            if path:
                yield _member(found, path)
            continue
        inner = table(entry)
        identity = _identity(inner)
        name = text_of(inner.get(identity))
        if name and path:
            seen[name] += 1
            label = name if seen[name] == 1 else f"{name}#{seen[name]}"
            yield _member(Leaf(name, Kind.TEXT), path)
            rest = {key: value for key, value in inner.items() if key != identity}
            yield from _settings(rest, (*path[:-1], f"{path[-1]}[{label}]"))
        elif len(inner) == 1 and path:
            ((key, value),) = inner.items()
            if isinstance(value, dict | list):
                yield _member(Leaf(key, Kind.TEXT), path)
                yield from _settings(value, (*path, key))


def _identity(inner: dict[str, Tree]) -> str:
    """The key that names a table among others of its list, or nothing."""
    return next((key for key in _IDENTITIES if 0 < len(text_of(inner.get(key))) <= 80), "")


def _setting(found: Leaf, path: tuple[str, ...]) -> Stated:
    looks = form_of(found, key=path[-1], decimals=Form.NUMBER)
    slot, form = scalar_slot(path, looks)
    if slot == "lint-level" and path[-1] == "level":
        path = path[:-1]
    return Stated(dotted(*path), slot, found.text, form, aliases=_aliases(path))


def _member(found: Leaf, path: tuple[str, ...]) -> Stated:
    form = form_of(found, key=path[-1], decimals=Form.NUMBER)
    return Stated(dotted(*path), list_slot(path), found.text, form, aliases=_aliases(path), many=True)


def _aliases(path: tuple[str, ...]) -> tuple[str, ...]:
    """Shorter names: the last key where it is distinctive, and the path without its `tool`."""
    short = distinctive(path[-1])
    without_tool = (dotted(*path[1:]),) if path[0] == "tool" and len(path) > 2 else ()
    tail = (dotted(*path[-2:]),) if len(path) > 2 else ()
    return tuple(dict.fromkeys((*short, *without_tool, *tail)))
