"""Defaults in TypeScript and JavaScript: exported constants, tables, configuration objects, enum members."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from tree_sitter import Node

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners import defaults_shared as shared
from data_builders.mining.miners.defaults_shared import Collector, Scalar, Syntax, name_of, text_of

_GRAMMARS = {
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx",
    ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascript",
}  # fmt: skip
_SUFFIXES = frozenset(_GRAMMARS)
# A file without one of these words holds no construct that is read below.
_CANDIDATE = re.compile(r"\bconst\b|\benum\b|\bstatic\b")
_NUMBERS = frozenset({"number"})
_WRAPPERS = frozenset(
    {"as_expression", "satisfies_expression", "parenthesized_expression", "non_null_expression"}
)
_CLASSES = frozenset({"class_declaration", "abstract_class_declaration"})
_QUOTES = "'\""
_PASSED_ON = re.compile(r"(?:^|\.)(?:freeze|defineConfig|seal)$")


class ScriptDefaultsMiner:
    """Reads constants and defaults from TypeScript and JavaScript source."""

    name = "defaults-script"
    family = Family.DEFAULTS

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return shared.SLOTS

    def wants(self, path: str) -> bool:
        return shared.is_source(path, _SUFFIXES)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        if not shared.may_hold(text, _CANDIDATE):
            return []
        root = shared.parse(_GRAMMARS.get(PurePosixPath(path).suffix, "typescript"), text)
        found = Collector()
        for statement in root.named_children:
            exported = statement.type == "export_statement"
            item = statement.child_by_field_name("declaration") if exported else statement
            if item is not None:
                _read_item(found, item, exported=exported)
        return found.facts()


def _bare(node: Node) -> Node:
    """Without `as const`, `satisfies T`, parentheses and `Object.freeze(…)`."""
    for _ in range(4):
        if node.type in _WRAPPERS and node.named_children:
            node = node.named_children[0]
        elif node.type == "call_expression" and _PASSED_ON.search(name_of(node, "function")):
            arguments = node.child_by_field_name("arguments")
            if arguments is None or arguments.named_child_count != 1:
                return node
            node = arguments.named_children[0]
    return node


def _literal(node: Node) -> Scalar | None:
    node = _bare(node)
    if node.type in {"string", "template_string"}:
        return shared.quoted(node, "string_fragment")
    if node.type == "number":
        return shared.number(text_of(node).removesuffix("n"))
    if node.type in {"true", "false"}:
        return shared.flag(node.type == "true")
    if node.type == "unary_expression" and text_of(node)[0] in "+-":
        inner = node.named_children[-1]
        return shared.number("".join(text_of(node).split())) if inner.type in _NUMBERS else None
    return shared.arithmetic(node, _NUMBERS) if node.type == "binary_expression" else None


def _chosen(node: Node) -> Scalar | None:
    """`Stage.Beta` as `Beta`, a constant's name, a call as written."""
    node = _bare(node)
    if node.type == "member_expression":
        last = name_of(node, "property")
        return shared.named(last) if last[:1].isupper() else None
    if node.type == "identifier":
        name = text_of(node)
        return shared.named(name) if shared.is_constant_name(name) and len(name) > 1 else None
    return shared.call(node) if node.type == "call_expression" else None


def _fields(node: Node) -> list[tuple[str, Node]] | None:
    node = _bare(node)
    if node.type != "object":
        return None
    found = []
    for pair in node.named_children:
        key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
        if pair.type != "pair" or key is None or value is None:
            continue
        name = _literal(key) if key.type == "string" else shared.named(text_of(key))
        if name is not None and key.type in {"string", "property_identifier", "number"}:
            found.append((name.value, value))
    return list(dict(found).items())


def _entries(node: Node) -> list[tuple[str | None, Node]] | None:
    node = _bare(node)
    return [(None, child) for child in node.named_children] if node.type == "array" else None


_SYNTAX = Syntax(literal=_literal, chosen=_chosen, fields=_fields, entries=_entries)


def _read_item(found: Collector, item: Node, *, exported: bool) -> None:
    if item.type == "lexical_declaration" and name_of(item, "kind") == "const":
        for declarator in item.named_children:
            name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
            if name is not None and value is not None and name.type == "identifier":
                _read_constant(found, text_of(name), value, exported=exported)
    elif item.type == "enum_declaration":
        _read_enum(found, item)
    elif item.type in _CLASSES:
        _read_class(found, item)


def _read_constant(found: Collector, name: str, value: Node, *, exported: bool) -> None:
    if exported or shared.is_constant_name(name):
        shared.add_constant(found, _SYNTAX, name, value)
    elif not shared.add_table(found, _SYNTAX, value, owner=name) and shared.CONFIG_NAME.search(name):
        shared.add_object(found, _SYNTAX, value, prefix=name)


def _read_enum(found: Collector, item: Node) -> None:
    body = item.child_by_field_name("body")
    for member in [] if body is None else body.named_children:
        value = member.child_by_field_name("value") if member.type == "enum_assignment" else None
        if value is not None:
            found.add(f"{name_of(item)}.{name_of(member).strip(_QUOTES)}", "value", _literal(value))


def _read_class(found: Collector, item: Node) -> None:
    body = item.child_by_field_name("body")
    for field in [] if body is None else body.named_children:
        value = field.child_by_field_name("value")
        if field.type not in {"public_field_definition", "field_definition"} or value is None:
            continue
        words = {child.type for child in field.children}
        name = name_of(field) or name_of(field, "property")
        if "static" in words and ("readonly" in words or shared.is_constant_name(name)):
            shared.add_constant(found, _SYNTAX, f"{name_of(item)}.{name}", value)
