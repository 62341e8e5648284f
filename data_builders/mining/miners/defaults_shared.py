"""What the miners of defaults share: parsing source, literal values, tables and configuration objects.

A language says how its literals look (`Syntax`); what counts as a fact is decided here, once for all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

import tree_sitter
import tree_sitter_go
import tree_sitter_javascript
import tree_sitter_python
import tree_sitter_rust
import tree_sitter_typescript
from tree_sitter import Node

from data_builders.mining.facts import Fact, UnreadableError
from operators.normal import Form

MAX_SIZE = 400_000  # characters of a file
MINIFIED = re.compile(r"[^\n]{20000}")
MAX_VALUE = 120  # characters; longer values are prose or data
MAX_WRITTEN = 60  # characters of an expression taken as written
NESTING = 2  # objects inside a configuration object
KEYS = ("key", "flag", "slug", "id", "name")
"""Fields that name an entry of a table; the first that holds a string wins, then the first path."""

SLOTS: dict[str, tuple[str, ...]] = {
    "value": ("value", "constant"),
    "default": ("default", "default value", "by default"),
    "default_enabled": ("enabled by default", "on by default", "off by default", "default"),
    "enabled": ("enabled", "on", "off"),
    "stage": ("stage", "maturity"),
    "status": ("status",),
    "pre_release": ("stage", "pre-release"),
}
"""The slots known in advance. A table adds one slot for each field: the field's name in snake case."""

CONFIG_NAME = re.compile(r"default|config|option|setting|flag|feature", re.IGNORECASE)
"""Names of constants whose object literals are configuration, not data."""

_LANGUAGES: dict[str, Callable[[], object]] = {
    "go": tree_sitter_go.language,
    "javascript": tree_sitter_javascript.language,
    "python": tree_sitter_python.language,
    "rust": tree_sitter_rust.language,
    "tsx": tree_sitter_typescript.language_tsx,
    "typescript": tree_sitter_typescript.language_typescript,
}
_SKIPPED_FOLDERS = frozenset(
    "test tests testing testdata test_data testutil testutils __tests__ __mocks__ mocks spec specs e2e "
    "fixture fixtures __fixtures__ snapshots __snapshots__ playground examples benches benchmarks docs_src "
    "vendor vendored third_party third-party thirdparty node_modules go_templates "
    "dist build out target generated gen __generated__".split()
)
_SKIPPED_FILE = re.compile(
    r"(?:^|[._-])tests?[._-]|(?:^|[._-])spec\.|^conftest\.|[._-]bench\.|\.min\.|\.d\.[cm]?ts$|\.pb\.|_pb2|(?:[._-]|^)generated[._-]|\.gen\."
    r"|(?:^|_)mocks?\.|bundle\.",
    re.IGNORECASE,
)
_VERSION = re.compile(r"(?:[\^~=<>!]{1,3} ?)?v?\d+(?:\.\d+)+(?:[-+.]?[0-9A-Za-z.*]+)*")
_QUANTITY = re.compile(r"[+-]?\d[\d_]*(?:\.\d+)?\s?(?:%|[a-zA-Z]{1,3})?")
_NAME = re.compile(r"[\w@~$][\w./:@~+$-]*|[./-][\w./:@~+$-]+")
_SECRET = re.compile(
    r"[0-9a-fA-F]{20,}|(?:sha\d+|md5)[-:].+|(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/=_-]{32,}"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_SLOT = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value and its form."""

    value: str
    form: Form


@dataclass(frozen=True, slots=True)
class Syntax:
    """How one language writes what the shared code looks for; each answers None for another construct."""

    literal: Callable[[Node], Scalar | None]
    """A literal: string, number, boolean."""
    chosen: Callable[[Node], Scalar | None]
    """What else a default may be: a path such as `Stage::Beta`, or a call as written."""
    fields: Callable[[Node], list[tuple[str, Node]] | None]
    """The named fields of an object or struct literal; a name twice only by conditional compilation."""
    entries: Callable[[Node], list[tuple[str | None, Node]] | None]
    """The elements of an array literal, with their keys where the language keeps structs in a map."""

    def value(self, node: Node) -> Scalar | None:
        return self.literal(node) or self.chosen(node)


def is_source(path: str, suffixes: frozenset[str]) -> bool:
    """Whether the path has one of the suffixes and is no test, fixture, generated or vendored file."""
    pure = PurePosixPath(path)
    if pure.suffix not in suffixes or _SKIPPED_FILE.search(pure.name):
        return False
    stem = pure.stem.casefold()
    return (
        stem not in {"test", "tests"}
        and not stem.endswith(("_test", "_tests"))
        and not any(
            part.casefold() in _SKIPPED_FOLDERS or part.endswith(("_tests", "-tests", "_test"))
            for part in pure.parts[:-1]
        )
    )


@lru_cache(maxsize=len(_LANGUAGES))
def language(grammar: str) -> tree_sitter.Language:
    """The grammar of that name, loaded once for each process."""
    return tree_sitter.Language(_LANGUAGES[grammar]())


@lru_cache(maxsize=len(_LANGUAGES))
def _parser(grammar: str) -> tree_sitter.Parser:
    return tree_sitter.Parser(language(grammar))


def may_hold(text: str, candidate: re.Pattern[str]) -> bool:
    """Whether a file is worth parsing: of bearable size, not minified, with a word that every fact needs."""
    return len(text) <= MAX_SIZE and candidate.search(text) is not None and not MINIFIED.search(text)


def parse(grammar: str, text: str) -> Node:
    """The root of the syntax tree. Raises: UnreadableError."""
    root = _parser(grammar).parse(text.encode("utf-8", "replace")).root_node
    if root.has_error:
        raise UnreadableError(f"not valid {grammar}")
    return root


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def name_of(node: Node, field: str = "name") -> str:
    """The text of a named field; empty if there is none."""
    child = node.child_by_field_name(field)
    return "" if child is None else text_of(child)


def flag(on: bool) -> Scalar:
    return Scalar("on" if on else "off", Form.FLAG)


def number(text: str) -> Scalar | None:
    return Scalar(text, Form.NUMBER) if len(text) <= 40 else None


def string(text: str) -> Scalar | None:
    """A string by what it looks like; None where it is empty, long, several lines or secret-like."""
    if not text.strip() or len(text) > MAX_VALUE or len(text.splitlines()) > 1 or not text.isprintable():
        return None
    if _SECRET.fullmatch(text):
        return None
    if _VERSION.fullmatch(text):
        return Scalar(text, Form.VERSION)
    if _QUANTITY.fullmatch(text):
        return Scalar(text, Form.NUMBER)
    return Scalar(text, Form.NAME if _NAME.fullmatch(text) else Form.TEXT)


def quoted(node: Node, content: str) -> Scalar | None:
    """A string node whose plain parts have the type `content`; None where it has more than plain escapes."""
    parts = []
    for child in node.named_children:
        piece = text_of(child)
        if child.type == content:
            parts.append(piece)
        elif child.type == "escape_sequence" and piece in {'\\"', "\\'", "\\\\"}:
            parts.append(piece[1])
        elif child.type not in {"string_start", "string_end"}:
            return None
    return string("".join(parts))


def named(text: str) -> Scalar:
    return Scalar(text, Form.NAME)


def written(node: Node) -> Scalar | None:
    """An expression as it stands, on one line; None where it is long."""
    if node.end_byte - node.start_byte > 4 * MAX_WRITTEN:
        return None
    text = " ".join(text_of(node).split())
    return Scalar(text, Form.TEXT) if text.isprintable() and 0 < len(text) <= MAX_WRITTEN else None


def call(node: Node) -> Scalar | None:
    """A call as written; without arguments it makes something empty or unknown, which is no value."""
    arguments = node.child_by_field_name("arguments")
    return written(node) if arguments is not None and arguments.named_child_count else None


def arithmetic(node: Node, numbers: frozenset[str]) -> Scalar | None:
    """`4 * 1024` as written: operators over numbers only, not nested deeply."""
    operands = [node]
    for _ in range(8):
        if not operands:
            return written(node)
        inner = operands.pop()
        if inner.type in {"binary_expression", "binary_operator", "parenthesized_expression"}:
            operands.extend(inner.named_children)
        elif inner.type not in numbers:
            return None
    return None


def snake(name: str) -> str:
    """`defaultEnabled`, `DefaultEnabled` and `default-enabled` as `default_enabled`."""
    return _HUMP.sub("_", name).replace("-", "_").replace(" ", "_").casefold()


def is_constant_name(name: str) -> bool:
    return name.upper() == name and any(map(str.isalpha, name))


def spellings(thing: str, *more: str) -> tuple[str, ...]:
    """Other names of a thing: the last part of its path where distinctive, also in kebab and snake case."""
    found: dict[str, None] = dict.fromkeys(name for name in more if name)
    last = re.sub(r"\[[^\]]*\]$", "", thing).rpartition(".")[2].lstrip("-")
    low = snake(last)
    if "_" in low.strip("_") and len(low) >= 6:
        found.update(dict.fromkeys((last, low, low.strip("_").replace("_", "-"))))
    found.pop(thing, None)
    return tuple(found)


class Collector:
    """Facts of one file in its order. A thing that two owners claim is called after its owner in both."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[Scalar, tuple[str, ...]]] = {}

    def add(
        self, thing: str, slot: str, scalar: Scalar | None, *, owner: str = "", names: tuple[str, ...] = ()
    ) -> None:
        """Nothing where there is no value; the last of equal owner, thing and slot stands."""
        if scalar is not None and len(thing) <= MAX_VALUE and _SLOT.fullmatch(slot):
            self._found[owner, thing, slot] = (scalar, names)

    def facts(self) -> list[Fact]:
        """Each with a (thing, slot) of its own."""
        owners = Counter(thing for _, thing in {(owner, thing) for owner, thing, _ in self._found})
        facts: dict[tuple[str, str], Fact] = {}
        for (owner, thing, slot), (scalar, names) in self._found.items():
            shared = owner and owners[thing] > 1
            full = f"{owner}.{thing}" if shared else thing
            aliases = spellings(full, *names, thing) if shared else spellings(full, *names)
            facts[full, slot] = Fact(full, slot, scalar.value, scalar.form, aliases=aliases)
        return list(facts.values())


def add_table(found: Collector, syntax: Syntax, node: Node, *, owner: str) -> bool:
    """The entries of an array of objects that name themselves. Returns whether the node is an array."""
    entries = syntax.entries(node)
    if entries is None:
        return False
    for key, entry in entries:
        fields = syntax.fields(entry)
        if fields:
            _add_entry(found, syntax, fields, key=key, owner=owner)
    return True


def _add_entry(
    found: Collector, syntax: Syntax, fields: list[tuple[str, Node]], *, key: str | None, owner: str
) -> None:
    values = {snake(name): _value(syntax, nodes) for name, nodes in _grouped(fields).items()}
    keyed = [(name, values[name]) for name in KEYS if name in values]
    strings = [
        (name, scalar)
        for name, scalar in keyed
        if scalar and scalar.form in {Form.NAME, Form.TEXT, Form.VERSION}
    ]
    literal = {snake(name) for name, node in fields if syntax.literal(node)}
    naming = next((pair for pair in strings if pair[0] in literal), strings[0] if strings else None)
    if key is None and naming is None:
        return
    field, thing = ("", key) if key is not None or naming is None else (naming[0], naming[1].value)
    others = tuple(scalar.value for name, scalar in strings if name != field and scalar.form is Form.NAME)
    names = (*kebab_and_snake(thing or ""), *others)
    for slot, scalar in values.items():
        if slot != field:
            found.add(thing or "", slot, scalar, owner=owner, names=names)


def _grouped(fields: list[tuple[str, Node]]) -> dict[str, list[Node]]:
    groups: dict[str, list[Node]] = {}
    for name, node in fields:
        groups.setdefault(name, []).append(node)
    return groups


def _value(syntax: Syntax, nodes: list[Node]) -> Scalar | None:
    """The value; `A/B` where conditional compilation gives a field several."""
    scalars = [scalar for node in nodes if (scalar := syntax.value(node)) is not None]
    values = dict.fromkeys(scalar.value for scalar in scalars)
    if len(values) <= 1:
        return scalars[0] if scalars else None
    joined = "/".join(values)
    return Scalar(joined, Form.TEXT) if len(joined) <= MAX_VALUE else None


def kebab_and_snake(name: str) -> tuple[str, ...]:
    low = snake(name)
    return tuple(other for other in (low, low.replace("_", "-")) if other != name)


def add_object(
    found: Collector, syntax: Syntax, node: Node, *, prefix: str, owner: str = "", depth: int = NESTING
) -> bool:
    """The values of a configuration object, `prefix.field.field`. Returns whether the node is an object."""
    fields = syntax.fields(node)
    if fields is None:
        return False
    for name, nodes in _grouped(fields).items():
        thing, last = f"{prefix}.{name}", nodes[-1]
        nested = depth > 0 and add_object(found, syntax, last, prefix=thing, owner=owner, depth=depth - 1)
        if not nested and not add_table(found, syntax, last, owner=thing):
            found.add(thing, "default", _value(syntax, nodes), owner=owner)
    return True


def add_constant(
    found: Collector, syntax: Syntax, thing: str, node: Node, *, names: tuple[str, ...] = ()
) -> None:
    """A constant: its literal, the entries of its table, or the fields of its configuration object."""
    scalar = syntax.literal(node)
    if scalar is not None:
        found.add(thing, "value", scalar, names=names)
    elif not add_table(found, syntax, node, owner=thing) and CONFIG_NAME.search(thing):
        add_object(found, syntax, node, prefix=thing)


def descend(node: Node, types: frozenset[str], limit: int = 400) -> Iterator[Node]:
    """The outermost nodes of those types below `node`, in order; at most `limit` levels deep."""
    stack = [(child, 0) for child in reversed(node.named_children)]
    while stack:
        inner, depth = stack.pop()
        if inner.type in types:
            yield inner
        elif depth < limit:
            stack.extend((child, depth + 1) for child in reversed(inner.named_children))
