"""Defaults in Rust: constants, tables, `impl Default`, clap and serde attributes, enum discriminants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners import defaults_shared as shared
from data_builders.mining.miners.defaults_shared import Collector, Scalar, Syntax, name_of, text_of
from operators.normal import Form

_SUFFIXES = frozenset({".rs"})
# A file without one of these words holds no construct that is read below.
_CANDIDATE = re.compile(
    r"(?<!\*)\bconst\b(?!\s+(?:fn|unsafe|extern|async)\b)|(?<!')\bstatic\b|\bDefault\b|\bdefault\b|\bdefault_value|\benum\b"
)
_NUMBERS = frozenset({"integer_literal", "float_literal"})
_SUFFIX = re.compile(r"_?(?:[iu](?:8|16|32|64|128|size)|f32|f64)$")
_UNITS = {
    "from_secs": "s", "from_secs_f64": "s", "from_secs_f32": "s", "from_millis": "ms", "from_micros": "us",
    "from_nanos": "ns", "from_mins": "m", "from_hours": "h",
}  # fmt: skip
_WRAPPERS = frozenset(
    {"Some", "String::from", "Cow::Borrowed", "Box::new", "Arc::new", "PathBuf::from", "Arc::from"}
)
_CONVERSIONS = frozenset({"to_string", "to_owned", "into"})
_EMPTY = re.compile(r"(?:new|default|empty|now)$")
_FIELD_ATTRIBUTES = frozenset({"arg", "clap", "structopt", "serde", "command", "argh", "default"})
_TEST = re.compile(r"(?<!not\()\btest\b")


class RustDefaultsMiner:
    """Reads constants and defaults from Rust source."""

    name = "defaults-rust"
    family = Family.DEFAULTS

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return shared.SLOTS

    def wants(self, path: str) -> bool:
        return shared.is_source(path, _SUFFIXES)

    def read(self, path: str, text: str) -> Sequence[Fact]:  # noqa: ARG002
        if not shared.may_hold(text, _CANDIDATE):
            return []
        root = shared.parse("rust", text)
        found = Collector()
        _read_items(found, _Scope("", _constant_functions(root)), root, depth=0)
        return found.facts()


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where an item stands: the dotted prefix of its name, and the functions that return a literal."""

    prefix: str
    functions: dict[str, Scalar]

    def named(self, name: str) -> str:
        return f"{self.prefix}.{name}" if self.prefix else name

    def inside(self, name: str) -> _Scope:
        return _Scope(self.named(name), self.functions)


def _literal(node: Node) -> Scalar | None:
    if node.type == "string_literal":
        return None if text_of(node)[0] in "bc" else shared.quoted(node, "string_content")
    if node.type == "raw_string_literal":
        return None if text_of(node)[0] != "r" else shared.quoted(node, "string_content")
    if node.type in _NUMBERS:
        return shared.number(_SUFFIX.sub("", text_of(node)))
    if node.type == "boolean_literal":
        return shared.flag(text_of(node) == "true")
    if node.type == "unary_expression" and node.named_child_count == 1 and text_of(node)[0] == "-":
        inner = node.named_children[0]
        return shared.number("-" + _SUFFIX.sub("", text_of(inner))) if inner.type in _NUMBERS else None
    if node.type == "binary_expression":
        return shared.arithmetic(node, _NUMBERS)
    if node.type == "call_expression":
        return _duration(node)
    return shared.written(node) if _is_cfg(node) else None


def _duration(node: Node) -> Scalar | None:
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None or arguments.named_child_count != 1:
        return None
    unit = _UNITS.get(text_of(function).rpartition("::")[2]) if "Duration::" in text_of(function) else None
    amount = arguments.named_children[0]
    if unit is None or amount.type not in _NUMBERS:
        return None
    return shared.number(_SUFFIX.sub("", text_of(amount)) + unit)


def _is_cfg(node: Node) -> bool:
    inner = node.named_children[0] if node.type == "unary_expression" and node.named_child_count else node
    return inner.type == "macro_invocation" and name_of(inner, "macro") == "cfg"


def _chosen(node: Node) -> Scalar | None:
    if node.type == "call_expression":
        return _called(node)
    if node.type == "if_expression":
        return _conditional(node)
    if node.type == "macro_invocation":
        return None if name_of(node, "macro") in {"vec", "format"} else shared.written(node)
    if node.type == "struct_expression":
        name = name_of(node)
        return _tail(name) if "::" in name else None
    if node.type in {"scoped_identifier", "identifier"}:
        return _tail(text_of(node)) if text_of(node) != "None" else None
    return _literal(node)


def _tail(path: str) -> Scalar | None:
    last = path.rpartition("::")[2]
    return shared.named(last) if last[:1].isupper() and len(last) <= shared.MAX_VALUE else None


def _called(node: Node) -> Scalar | None:
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return None
    if function.type == "field_expression":  # "x".to_string()
        inner = function.child_by_field_name("value")
        if inner is not None and name_of(function, "field") in _CONVERSIONS:
            return _literal(inner) if inner.type != "call_expression" else None
        return shared.written(node)
    called, given = text_of(function), arguments.named_children
    if called in _WRAPPERS and len(given) == 1:
        wrapped = given[0]
        return _literal(wrapped) or (
            _called(wrapped) if called == "Some" and _is_conversion(wrapped) else _path(wrapped)
        )
    if not given and _EMPTY.search(called):
        return None
    variant = _tail(called) if "::" in called else None
    return variant or shared.written(node)


def _is_conversion(node: Node) -> bool:
    return node.type == "call_expression" and name_of(node, "function") != "Some"


def _path(node: Node) -> Scalar | None:
    return _tail(text_of(node)) if node.type in {"scoped_identifier", "identifier"} else None


def _conditional(node: Node) -> Scalar | None:
    """`if cfg!(…) { A } else { B }` as `A/B`: neither holds everywhere."""
    condition, then = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
    other = node.child_by_field_name("alternative")
    if (
        condition is None
        or then is None
        or other is None
        or not _is_cfg(condition)
        or not other.named_children
    ):
        return None
    values = []
    for block in (then, other.named_children[0]):
        last = block.named_children[-1] if block.type == "block" and block.named_children else None
        values.append(
            None if last is None or last.type == "if_expression" else _literal(last) or _chosen(last)
        )
    first, second = values
    return Scalar(f"{first.value}/{second.value}", Form.TEXT) if first and second else None


def _fields(node: Node) -> list[tuple[str, Node]] | None:
    if node.type == "call_expression" and name_of(node, "function") in {"Some", "Box::new"}:
        arguments = node.child_by_field_name("arguments")
        if arguments is not None and arguments.named_child_count == 1:
            node = arguments.named_children[0]
    body = node.child_by_field_name("body") if node.type == "struct_expression" else None
    if body is None:
        return None
    found = []
    for child in body.named_children:
        value = child.child_by_field_name("value") if child.type == "field_initializer" else None
        if value is not None:
            found.append((name_of(child, "field"), value))
    return found


def _entries(node: Node) -> list[tuple[str | None, Node]] | None:
    for _ in range(2):
        inner = node.child_by_field_name("value") if node.type == "reference_expression" else None
        node = inner or node
    return [(None, child) for child in node.named_children] if node.type == "array_expression" else None


_SYNTAX = Syntax(literal=_literal, chosen=_chosen, fields=_fields, entries=_entries)


def _constant_functions(root: Node) -> dict[str, Scalar]:
    """Functions that only return a literal: serde names them as defaults."""
    found = {}
    for item in root.named_children:
        body = item.child_by_field_name("body") if item.type == "function_item" else None
        if body is not None and body.named_child_count == 1:
            scalar = _literal(body.named_children[0]) or _chosen(body.named_children[0])
            if scalar:
                found[name_of(item)] = scalar
    return found


def _with_attributes(node: Node) -> Iterator[tuple[Node, list[Node]]]:
    """The children with the attributes that stand before them."""
    pending: list[Node] = []
    for child in node.named_children:
        if child.type == "attribute_item":
            pending.extend(child.named_children[:1])
        elif "comment" not in child.type:
            yield child, pending
            pending = []


def _condition(attributes: list[Node]) -> str | None:
    """`[windows]` for `#[cfg(windows)]`, empty without a cfg; None for what only tests see."""
    for attribute in attributes:
        name, text = (attribute.named_children or [attribute])[0], text_of(attribute)
        if text_of(name) == "cfg" or text.endswith("::test") or text == "test":
            condition = "".join(text.split())[len("cfg(") : -1]
            if text_of(name) != "cfg" or _TEST.search(condition) or len(condition) > shared.MAX_WRITTEN:
                return None
            return "" if condition == "not(test)" else f"[{condition}]"
    return ""


def _read_items(found: Collector, scope: _Scope, node: Node, *, depth: int) -> None:
    for item, attributes in _with_attributes(node):
        condition = _condition(attributes)
        if condition is not None:
            _read_item(found, scope, item, condition=condition, depth=depth)


def _read_item(found: Collector, scope: _Scope, item: Node, *, condition: str, depth: int) -> None:
    name, body = name_of(item), item.child_by_field_name("body")
    value = item.child_by_field_name("value")
    if item.type in {"const_item", "static_item"} and value is not None and name != "_":
        shared.add_constant(found, _SYNTAX, scope.named(name) + condition, value)
    elif body is None or depth > 8:
        return
    elif item.type in {"mod_item", "trait_item"}:
        _read_items(found, scope.inside(name), body, depth=depth + 1)
    elif item.type == "impl_item":
        _read_impl(found, scope, item, body, condition=condition)
    elif item.type == "struct_item":
        _read_fields(found, scope.inside(name), body)
    elif item.type == "enum_item":
        _read_enum(found, scope.inside(name), body)


def _read_impl(found: Collector, scope: _Scope, item: Node, body: Node, *, condition: str) -> None:
    owner = scope.inside("".join(name_of(item, "type").split()) + condition)
    if name_of(item, "trait").rpartition("::")[2] != "Default":
        _read_items(found, owner, body, depth=8)
        return
    for function in body.named_children:
        block = function.child_by_field_name("body")
        if name_of(function) != "default" or block is None or not block.named_children:
            continue
        last = block.named_children[-1]
        if last.type == "call_expression" and name_of(last, "function") in {"Self", name_of(item, "type")}:
            continue
        if not shared.add_object(found, _SYNTAX, last, prefix=owner.prefix):
            found.add(owner.prefix, "default", _SYNTAX.value(last))


def _read_enum(found: Collector, scope: _Scope, body: Node) -> None:
    for variant, attributes in _with_attributes(body):
        name, value = name_of(variant), variant.child_by_field_name("value")
        if value is not None:
            found.add(scope.named(name), "value", _literal(value))
        if any(text_of(attribute) == "default" for attribute in attributes):
            found.add(scope.prefix, "default", shared.named(name))
        fields = variant.child_by_field_name("body")
        if fields is not None:
            _read_fields(found, scope.inside(name), fields)


def _read_fields(found: Collector, scope: _Scope, body: Node) -> None:
    for field, attributes in _with_attributes(body):
        if field.type != "field_declaration":
            continue
        name = name_of(field)
        names: tuple[str, ...] = ()
        default: Scalar | None = None
        for attribute in attributes:
            kind = text_of(attribute.named_children[0]) if attribute.named_children else ""
            arguments = attribute.child_by_field_name("arguments")
            if kind not in _FIELD_ATTRIBUTES or arguments is None:
                continue
            options = dict(_options(arguments))
            if "long" in options and kind != "serde":
                given = _one(options["long"])
                names = ("--" + (given.value if given else name.replace("_", "-")),)
            default = _default(options, kind, scope.functions) or default
        found.add(scope.named(name), "default", default, names=names)


def _options(arguments: Node) -> Iterator[tuple[str, list[Node]]]:
    """`long, default_value_t = 3` as its names with the tokens after each `=`."""
    tokens: list[Node] = []
    for token in [*arguments.children[1:-1], None]:
        if token is not None and token.type != ",":
            tokens.append(token)
            continue
        if tokens and tokens[0].type == "identifier":
            yield text_of(tokens[0]), tokens[2:]
        elif tokens and text_of(tokens[0]) == "default":  # a keyword of the grammar
            yield "default", tokens[2:]
        tokens = []


def _one(tokens: list[Node]) -> Scalar | None:
    return _literal(tokens[0]) if len(tokens) == 1 else None


def _default(options: dict[str, list[Node]], kind: str, functions: dict[str, Scalar]) -> Scalar | None:
    if kind == "serde":
        given = _one(options.get("default", []))
        return functions.get(given.value, given) if given else None
    for key in ("default_value_t", "default_value", "default_missing_value"):
        tokens = options.get(key, [])
        if tokens:
            scalar = _one(tokens) or _joined(tokens)
            quoted_flag = scalar is not None and key == "default_value" and scalar.value in {"true", "false"}
            return shared.flag(scalar.value == "true") if scalar and quoted_flag else scalar
    return None


def _joined(tokens: list[Node]) -> Scalar | None:
    text = "".join(map(text_of, tokens))
    if re.fullmatch(r"\w+(?:::\w+)*", text):
        return _tail(text)
    number = re.fullmatch(r"-\d[\d_.]*", text)
    return (
        shared.number(text)
        if number
        else Scalar(text, Form.TEXT)
        if len(text) <= shared.MAX_WRITTEN
        else None
    )
