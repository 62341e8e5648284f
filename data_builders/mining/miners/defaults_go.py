"""Defaults in Go: constants, variables, tables, the structs that `Default*` and `New*Config` return."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners import defaults_shared as shared
from data_builders.mining.miners.defaults_shared import Collector, Scalar, Syntax, name_of, text_of

_SUFFIXES = frozenset({".go"})
_FUNCTION = re.compile(r"[Dd]efault\w*|[Nn]ew\w*(?:Config|Configuration|Options|Settings)")
# A file without one of these holds no construct that is read below.
_CANDIDATE = re.compile(rf"\bconst\b|\bvar\b|\b(?:{_FUNCTION.pattern})\b")
_GENERATED = re.compile(r"^// Code generated .* DO NOT EDIT\.$", re.MULTILINE)
_NUMBERS = frozenset({"int_literal", "float_literal"})
_STRINGS = {
    "interpreted_string_literal": "interpreted_string_literal_content",
    "raw_string_literal": "raw_string_literal_content",
}
_UNITS = {
    "time.Nanosecond": "ns", "time.Microsecond": "us", "time.Millisecond": "ms",
    "time.Second": "s", "time.Minute": "m", "time.Hour": "h",
}  # fmt: skip
_ARRAYS = frozenset({"slice_type", "array_type", "implicit_length_array_type"})


class GoDefaultsMiner:
    """Reads constants and defaults from Go source."""

    name = "defaults-go"
    family = Family.DEFAULTS

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return shared.SLOTS

    def wants(self, path: str) -> bool:
        return shared.is_source(path, _SUFFIXES)

    def read(self, path: str, text: str) -> Sequence[Fact]:  # noqa: ARG002
        if not shared.may_hold(text, _CANDIDATE) or _GENERATED.search(text):
            return []
        root = shared.parse("go", text)
        found = Collector()
        for item in root.named_children:
            if item.type in {"const_declaration", "var_declaration"}:
                for spec in shared.descend(item, frozenset({"const_spec", "var_spec"}), limit=2):
                    _read_spec(found, spec)
            elif item.type in {"function_declaration", "method_declaration"}:
                _read_function(found, item)
        return found.facts()


def _inner(node: Node) -> Node:
    """Without `literal_element`, parentheses and `&`."""
    for _ in range(3):
        wrapped = node.type in {"literal_element", "parenthesized_expression"}
        if (wrapped or (node.type == "unary_expression" and text_of(node)[0] == "&")) and node.named_children:
            node = node.named_children[0]
    return node


def _literal(node: Node) -> Scalar | None:
    node = _inner(node)
    if node.type in _STRINGS:
        return shared.quoted(node, _STRINGS[node.type])
    if node.type in _NUMBERS:
        return shared.number(text_of(node))
    if node.type in {"true", "false"}:
        return shared.flag(node.type == "true")
    if node.type == "unary_expression" and text_of(node)[0] in "+-":
        inner = node.named_children[0]
        return shared.number("".join(text_of(node).split())) if inner.type in _NUMBERS else None
    if node.type == "binary_expression":
        return _duration(node) or shared.arithmetic(node, _NUMBERS)
    unit = _UNITS.get(text_of(node)) if node.type == "selector_expression" else None
    return shared.number(f"1{unit}") if unit else None


def _duration(node: Node) -> Scalar | None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None or "*" not in {child.type for child in node.children}:
        return None
    amount, unit = (left, right) if left.type in _NUMBERS else (right, left)
    name = _UNITS.get(text_of(unit)) if unit.type == "selector_expression" else None
    return shared.number(text_of(amount) + name) if name and amount.type in _NUMBERS else None


def _chosen(node: Node) -> Scalar | None:
    """`featuregate.Beta` as `Beta`, a name of the package, a call as written."""
    node = _inner(node)
    if node.type == "selector_expression":
        last = name_of(node, "field")
        return shared.named(last) if last[:1].isupper() else None
    if node.type == "identifier":
        name = text_of(node)
        return shared.named(name) if name[:1].isupper() or name.startswith("default") else None
    return shared.call(node) if node.type == "call_expression" else None


def _body(node: Node) -> Node | None:
    """The braces of a composite literal, with or without its type."""
    node = _inner(node)
    if node.type == "composite_literal":
        return node.child_by_field_name("body")
    return node if node.type == "literal_value" else None


def _fields(node: Node) -> list[tuple[str, Node]] | None:
    body = _body(node)
    if body is None or _kind(node) in _ARRAYS:
        return None
    found = []
    for element in body.named_children:
        key, value = element.child_by_field_name("key"), element.child_by_field_name("value")
        if element.type != "keyed_element" or key is None or value is None:
            continue
        name = _literal(key) if _inner(key).type in _STRINGS else shared.named(text_of(key))
        if name is not None:
            found.append((name.value, value))
    return list(dict(found).items())


def _kind(node: Node) -> str:
    typed = _inner(node).child_by_field_name("type")
    return "" if typed is None else typed.type


def _entries(node: Node) -> list[tuple[str | None, Node]] | None:
    """A slice's elements; a map's too, where its values are structs."""
    body = _body(node)
    if body is None:
        return None
    if _kind(node) in _ARRAYS:
        return [(None, child) for child in body.named_children]
    if _kind(node) != "map_type":
        return None
    entries = [
        (name.rpartition(".")[2], value) for name, value in _fields(node) or [] if _body(value) is not None
    ]
    return [*entries] or None


_SYNTAX = Syntax(literal=_literal, chosen=_chosen, fields=_fields, entries=_entries)


def _read_spec(found: Collector, spec: Node) -> None:
    values = spec.child_by_field_name("value")
    names = [text_of(name) for name in spec.children_by_field_name("name") if name.type == "identifier"]
    given = [] if values is None else values.named_children
    if len(names) == len(given):
        for name, value in zip(names, given, strict=True):
            if name != "_":
                shared.add_constant(found, _SYNTAX, name, value)


def _read_function(found: Collector, item: Node) -> None:
    """The struct literals in a function that makes defaults; two functions of one type are told apart."""
    name, body = name_of(item), item.child_by_field_name("body")
    if body is None or not _FUNCTION.fullmatch(name):
        return
    for literal in shared.descend(body, frozenset({"composite_literal", "func_literal"})):
        typed = literal.child_by_field_name("type")
        if typed is not None and typed.type in {"type_identifier", "qualified_type"}:
            prefix = text_of(typed).rpartition(".")[2]
            shared.add_object(found, _SYNTAX, literal, prefix=prefix, owner=name)
