"""YAML, TOML and JSON files as one kind of tree, whose leaves keep the text that stands in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import pyjson5
import tomli
import yaml

from data_builders.mining.facts import UnreadableError

MAX_DEPTH = 60
"""Hand-kept files nest ten levels at most; deeper ones are attacks on recursion."""
MAX_NODES = 100_000
"""Bound on a tree after aliases are expanded (a YAML bomb has billions)."""
MAX_CHARS = 1_000_000
_MAX_NOTE_CHARS = 200
_FLAGS = {"true": "on", "True": "on", "TRUE": "on", "false": "off", "False": "off", "FALSE": "off"}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class Kind(StrEnum):
    """How a leaf is written."""

    FLAG = "flag"  # text is `on` or `off`
    NUMBER = "number"  # a number of TOML or JSON
    PLAIN = "plain"  # YAML without quotes: text or number
    TEXT = "text"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar: `text` as in the file, without quotes; `note` is the comment behind it (YAML only)."""

    text: str
    kind: Kind
    note: str = ""


Tree: TypeAlias = "Leaf | list[Tree] | dict[str, Tree]"


def table(tree: Tree | None) -> dict[str, Tree]:
    """The tree if it is a table, else an empty one: a wrong shape holds nothing."""
    return tree if isinstance(tree, dict) else {}


def items(tree: Tree | None) -> list[Tree]:
    """The tree if it is a list, else an empty one."""
    return tree if isinstance(tree, list) else []


def tables(tree: Tree | None) -> Iterator[tuple[str, dict[str, Tree]]]:
    """The entries of a table that are themselves tables, by name."""
    return ((key, value) for key, value in table(tree).items() if isinstance(value, dict))


def leaf(tree: Tree | None) -> Leaf | None:
    """The tree if it is a scalar other than null."""
    return tree if isinstance(tree, Leaf) and tree.kind is not Kind.NULL else None


def text_of(tree: Tree | None) -> str:
    """The text of a scalar, else an empty one."""
    found = leaf(tree)
    return found.text if found else ""


def members(tree: Tree | None) -> list[Leaf]:
    """A scalar, or the scalars of a list: many formats let people write one for a list of one."""
    whole = [tree] if isinstance(tree, Leaf) else items(tree)
    return [found for found in map(leaf, whole) if found]


def read_yaml(text: str) -> Tree:
    """The first document of a YAML text. Raises: UnreadableError."""
    _check_size(text)
    text = text.removeprefix("\ufeff")
    try:
        loader = yaml.CBaseLoader(text)
        try:
            return _YamlTree(text, loader).document()
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise UnreadableError(f"not YAML: {error}") from error


class _YamlTree:
    """Turns the events of one document into a tree, within the bounds on size and depth.

    Events, because PyYAML's own composer refuses an anchor that is set twice, which YAML allows.
    """

    def __init__(self, text: str, loader: yaml.CBaseLoader) -> None:
        self.text = text
        self.loader = loader
        self.left = MAX_NODES
        self.anchors: dict[str, Tree] = {}

    def document(self) -> Tree:
        self._event()  # the start of the stream
        if isinstance(self._event(), yaml.StreamEndEvent):
            return {}
        tree = self._next(self._event(), 0)
        # The rest is parsed too, so that a syntax error further down is one.
        while not isinstance(self._event(), yaml.StreamEndEvent):
            pass
        return tree

    def _event(self) -> yaml.Event:
        event = self.loader.get_event()
        if event is None:
            raise UnreadableError("the YAML ends too early")
        return event

    def _next(self, event: yaml.Event, depth: int) -> Tree:
        self._spend(depth)
        if isinstance(event, yaml.AliasEvent):
            found = self.anchors.get(event.anchor or "")
            if found is None:
                raise UnreadableError("an alias of nothing")
            self._spend_tree(found, depth)
            return found
        tree: Tree
        if isinstance(event, yaml.ScalarEvent):
            tree = self._leaf(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            tree = []
            while not isinstance(inner := self._event(), yaml.SequenceEndEvent):
                tree.append(self._next(inner, depth + 1))
        else:
            tree = self._mapping(depth)
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            self.anchors[event.anchor] = tree
        return tree

    def _mapping(self, depth: int) -> Tree:
        found: dict[str, Tree] = {}
        merged: dict[str, Tree] = {}
        while not isinstance(event := self._event(), yaml.MappingEndEvent):
            key = self._next(event, depth + 1)
            value = self._next(self._event(), depth + 1)
            if not isinstance(key, Leaf):
                continue
            name = event.value if isinstance(event, yaml.ScalarEvent) else key.text
            if name == "<<":
                for source in reversed([value, *items(value)]):
                    merged.update(table(source))
            else:
                found[name] = value
        return merged | found

    def _spend(self, depth: int) -> None:
        self.left -= 1
        if depth > MAX_DEPTH or self.left < 0:
            raise UnreadableError("not a file that people keep: nested too deep, or aliases of aliases")

    def _spend_tree(self, tree: Tree, depth: int) -> None:
        """An alias costs what it stands for."""
        self._spend(depth)
        for inner in tree.values() if isinstance(tree, dict) else items(tree):
            self._spend_tree(inner, depth + 1)

    def _leaf(self, event: yaml.ScalarEvent) -> Leaf:
        value = event.value
        if event.style in {"|", ">"}:
            return Leaf(value, Kind.TEXT)
        start = event.end_mark.index if event.end_mark else len(self.text)
        end = self.text.find("\n", start, start + _MAX_NOTE_CHARS)
        rest = self.text[start : end if end >= 0 else start + _MAX_NOTE_CHARS].strip()
        note = rest[1:].strip() if rest.startswith("#") else ""
        if event.style in {"'", '"'}:
            return Leaf(value, Kind.TEXT, note)
        if value in _FLAGS:
            return Leaf(_FLAGS[value], Kind.FLAG, note)
        return Leaf(value, Kind.NULL if value in _NULLS else Kind.PLAIN, note)


def read_toml(text: str) -> Tree:
    """A TOML text, 1.1 too (which uv, ruff and pip read). Raises: UnreadableError."""
    _check_size(text)
    try:
        return _plant(tomli.loads(text), 0)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not TOML: {error}") from error


def read_json(text: str) -> Tree:
    """A JSON text, where comments, trailing commas and all of JSON5 are fine. Raises: UnreadableError."""
    _check_size(text)
    try:
        return _plant(json.loads(text), 0)
    except RecursionError as error:
        raise UnreadableError("JSON nested too deep") from error
    except ValueError:
        pass
    try:
        return _plant(pyjson5.decode(text, MAX_DEPTH), 0)
    except (pyjson5.Json5Exception, ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {error}") from error


def _plant(value: object, depth: int) -> Tree:
    if depth > MAX_DEPTH:
        raise UnreadableError("nested too deep")
    if isinstance(value, dict):
        return {str(key): _plant(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_plant(each, depth + 1) for each in value]
    if isinstance(value, bool):
        return Leaf("on" if value else "off", Kind.FLAG)
    if value is None:
        return Leaf("", Kind.NULL)
    return Leaf(str(value), Kind.NUMBER if isinstance(value, int | float) else Kind.TEXT)


def _check_size(text: str) -> None:
    if len(text) > MAX_CHARS:
        raise UnreadableError(f"{len(text)} characters are more than a file kept by hand has")
