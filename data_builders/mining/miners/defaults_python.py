"""Defaults in Python: constants, tables, fields of data classes, enum members, command-line options."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tree_sitter import Node

from data_builders.mining.facts import Fact, Family
from data_builders.mining.miners import defaults_shared as shared
from data_builders.mining.miners.defaults_shared import Collector, Scalar, Syntax, name_of, text_of

_SUFFIXES = frozenset({".py", ".pyi"})
_CLI_CALL = re.compile(r"add_argument|\boption\b|\bargument\b|\bOption\b|\bArgument\b")
# A file without one of these holds no construct that is read below.
_CANDIDATE = re.compile(
    rf"(?:^|[\r\f\ufeff]|;[\s\\]*)[^\W\d]\w*[\s\\]*[:=]|\bclass\b|{_CLI_CALL.pattern}", re.MULTILINE
)
_NUMBERS = frozenset({"integer", "float"})
_ENUM_BASE = re.compile(r"(?:Enum|Flag|Choices)$")
_CONTAINERS = frozenset({"list", "tuple", "set"})
_WRAPPERS = frozenset({"frozenset", "tuple", "list", "MappingProxyType"})


class PythonDefaultsMiner:
    """Reads constants and defaults from Python source."""

    name = "defaults-python"
    family = Family.DEFAULTS

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return shared.SLOTS

    def wants(self, path: str) -> bool:
        return shared.is_source(path, _SUFFIXES)

    def read(self, path: str, text: str) -> Sequence[Fact]:  # noqa: ARG002
        if not shared.may_hold(text, _CANDIDATE):
            return []
        root = shared.parse("python", text)
        found = Collector()
        _read_block(found, root, prefix="", depth=0)
        if _CLI_CALL.search(text):
            _read_options(found, root, function="")
        return found.facts()


def _literal(node: Node) -> Scalar | None:
    if node.type == "string":
        opening = text_of(node.named_children[0]) if node.named_children else ""
        plain = "\\" not in text_of(node) or opening[:1] in "rR"
        return shared.quoted(node, "string_content") if plain and opening[:1] in "\"'uUrR" else None
    if node.type in _NUMBERS:
        return shared.number(text_of(node))
    if node.type in {"true", "false"}:
        return shared.flag(node.type == "true")
    if node.type == "unary_operator" and text_of(node)[0] in "+-":
        inner = node.named_children[-1]
        return shared.number("".join(text_of(node).split())) if inner.type in _NUMBERS else None
    return shared.arithmetic(node, _NUMBERS) if node.type == "binary_operator" else None


def _chosen(node: Node) -> Scalar | None:
    """`Stage.BETA` as `BETA`, a constant's name, `timedelta(seconds=30)` as written."""
    if node.type == "attribute":
        last = name_of(node, "attribute")
        return shared.named(last) if last[:1].isupper() and last != "SUPPRESS" else None
    if node.type == "identifier":
        name = text_of(node)
        return shared.named(name) if shared.is_constant_name(name) and len(name) > 1 else None
    if node.type == "call" and _arguments(node):
        return shared.written(node)
    return None


def _arguments(call: Node) -> list[Node]:
    arguments = call.child_by_field_name("arguments")
    return [] if arguments is None else [node for node in arguments.named_children if node.type != "comment"]


def _keywords(call: Node) -> dict[str, Node]:
    pairs = (
        (name_of(a), a.child_by_field_name("value")) for a in _arguments(call) if a.type == "keyword_argument"
    )
    return {name: value for name, value in pairs if value is not None}


def _called(node: Node) -> str:
    """The last part of the name of the function that is called; empty for another expression."""
    function = node.child_by_field_name("function") if node.type == "call" else None
    if function is None:
        return ""
    return name_of(function, "attribute") if function.type == "attribute" else text_of(function)


def _fields(node: Node) -> list[tuple[str, Node]] | None:
    """A dictionary with string keys, or a call with keyword arguments only."""
    if node.type == "dictionary":
        found = []
        for pair in node.named_children:
            key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
            name = _literal(key) if pair.type == "pair" and key is not None and key.type == "string" else None
            if name is not None and value is not None:
                found.append((name.value, value))
        return list(dict(found).items())
    if node.type == "call":
        given, named = _arguments(node), _keywords(node)
        return list(named.items()) if given and len(named) == len(given) else None
    return None


def _entries(node: Node) -> list[tuple[str | None, Node]] | None:
    if node.type == "call" and _called(node) in _WRAPPERS and len(_arguments(node)) == 1:
        node = _arguments(node)[0]
    return [(None, child) for child in node.named_children] if node.type in _CONTAINERS else None


_SYNTAX = Syntax(literal=_literal, chosen=_chosen, fields=_fields, entries=_entries)


def _read_block(found: Collector, block: Node, *, prefix: str, depth: int, is_enum: bool = False) -> None:
    """The assignments and classes of a module or a class body."""
    for statement in block.named_children:
        item = statement
        if item.type == "decorated_definition":
            item = item.child_by_field_name("definition") or item
        if item.type == "class_definition" and depth < 8:
            bases, body = item.child_by_field_name("superclasses"), item.child_by_field_name("body")
            enum = bases is not None and any(
                _ENUM_BASE.search(text_of(base)) for base in bases.named_children
            )
            if body is not None:
                name = prefix + name_of(item)
                _read_block(found, body, prefix=f"{name}.", depth=depth + 1, is_enum=enum)
        elif item.type == "expression_statement":
            for part in item.named_children:
                if part.type == "assignment":
                    _read_assignment(found, part, prefix=prefix, is_enum=is_enum)


def _read_assignment(found: Collector, node: Node, *, prefix: str, is_enum: bool) -> None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None or left.type != "identifier":
        return
    name = text_of(left)
    thing = prefix + name
    typed = node.child_by_field_name("type")
    if right.type == "call" and (default := _field_default(right)) is not None and prefix:
        found.add(thing, "default", _SYNTAX.value(default))
    elif shared.is_constant_name(name) or name == "__version__":
        shared.add_constant(found, _SYNTAX, thing, right)
    elif is_enum and not name.startswith("_"):
        found.add(thing, "value", _literal(right))
    elif prefix and typed is not None:
        simple = right.type != "call" or not _is_machinery(right)
        found.add(thing, "default", _SYNTAX.value(right) if simple else None)
    elif not prefix:
        _read_lower_case(found, thing, right)


def _read_lower_case(found: Collector, thing: str, right: Node) -> None:
    """A module's lower-case name holds a table or a configuration, or nothing of ours."""
    if right.type in {"list", "tuple"}:
        shared.add_table(found, _SYNTAX, right, owner=thing)
    elif right.type == "dictionary" and shared.CONFIG_NAME.search(thing):
        shared.add_object(found, _SYNTAX, right, prefix=thing)


def _field_default(call: Node) -> Node | None:
    """What `Field(default=3)`, `Field(3)` or `CharField(default="x")` give."""
    default = _keywords(call).get("default")
    given = _arguments(call)
    if default is None and _called(call) == "Field" and given and given[0].type != "keyword_argument":
        return given[0]
    return default


def _is_machinery(call: Node) -> bool:
    """`Field(alias=…)`, `relationship(…)` describe the field; `timedelta(…)` is a value."""
    return _called(call) not in {"timedelta", "Decimal", "Path", "SecretStr"}


def _read_options(found: Collector, root: Node, *, function: str, depth: int = 0) -> None:
    """argparse, click and typer; each option is called after the function it stands in."""
    for node in shared.descend(root, frozenset({"call", "decorated_definition", "function_definition"})):
        if node.type == "call":
            _read_argparse(found, node, function=function)
            continue
        definition = node.child_by_field_name("definition") if node.type == "decorated_definition" else node
        if definition is None or depth > 8:
            continue
        name = function
        if definition.type == "function_definition":
            name = name_of(definition)
            _read_decorators(found, node, function=name)
            _read_typer(found, definition, function=name)
        body = definition.child_by_field_name("body")
        if body is not None:
            _read_options(found, body, function=name, depth=depth + 1)


def _read_decorators(found: Collector, node: Node, *, function: str) -> None:
    for decorator in node.named_children:
        if decorator.type == "decorator" and decorator.named_children:
            _read_click(found, decorator.named_children[0], function=function)


def _flags(call: Node) -> list[str]:
    """The option strings, long ones first; `--a/--no-a` as `--a`."""
    strings = [_literal(a) for a in _arguments(call) if a.type == "string"]
    names = [scalar.value.partition("/")[0] for scalar in strings if scalar is not None]
    return sorted(names, key=lambda name: not name.startswith("--"))


def _add_option(found: Collector, scope: str, flags: list[str], default: Node | None) -> None:
    if default is not None and flags:
        bare = flags[0].lstrip("-")
        names = (*flags, bare, *shared.kebab_and_snake(bare)) if len(bare) > 3 else tuple(flags)
        found.add(
            f"{scope}.{flags[0]}" if scope else flags[0], "default", _SYNTAX.value(default), names=names
        )


def _read_argparse(found: Collector, call: Node, *, function: str) -> None:
    method = call.child_by_field_name("function")
    if method is None or _called(call) != "add_argument":
        return
    receiver = name_of(method, "object").rpartition(".")[2]
    own = receiver if receiver.isidentifier() and receiver not in {"parser", "self", "p"} else ""
    scope = ".".join(part for part in (function, own) if part)
    _add_option(found, scope, _flags(call), _keywords(call).get("default"))


def _read_click(found: Collector, call: Node, *, function: str) -> None:
    if _called(call) in {"option", "argument"}:
        _add_option(found, function, _flags(call), _keywords(call).get("default"))


def _read_typer(found: Collector, definition: Node, *, function: str) -> None:
    parameters = definition.child_by_field_name("parameters")
    for parameter in [] if parameters is None else parameters.named_children:
        value, typed = parameter.child_by_field_name("value"), parameter.child_by_field_name("type")
        if value is None:
            continue
        call, default = _typer_call(value, typed), value
        if call is None:
            continue
        if call.id == value.id:
            given = [a for a in _arguments(call) if a.type != "keyword_argument"]
            named = _keywords(call).get("default")
            if named is None and not given:
                continue
            default = named or given[0]
        flags = [name for name in _flags(call) if name.startswith("-")]
        spelt = name_of(parameter).replace("_", "-")
        own = f"--{spelt}" if _called(call) == "Option" else name_of(parameter)
        _add_option(found, function, flags or [own], default)


def _typer_call(value: Node, typed: Node | None) -> Node | None:
    """`Option(…)` or `Argument(…)`, as the default itself or inside `Annotated`."""
    if _called(value) in {"Option", "Argument"}:
        return value
    calls = [] if typed is None else shared.descend(typed, frozenset({"call"}), limit=6)
    return next((call for call in calls if _called(call) in {"Option", "Argument"}), None)
