"""go.mod: required modules, the Go language and toolchain, replacements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from data_builders.mining.facts import Fact, Family, UnreadableError
from data_builders.mining.miners.manifests import (
    DEPENDENCY,
    LANGUAGES,
    PACKAGE,
    REQUIRED_VERSION,
    SOURCE,
    Facts,
    SlotKind,
    base_name,
    package_aliases,
    read_lines,
    words_of,
)
from operators.normal import Form

_SLOTS = {
    "module_path": SlotKind(Form.NAME, ("module path", "module")),
    "go_version": REQUIRED_VERSION,
    "toolchain": SlotKind(Form.VERSION, ("toolchain",)),
    "dependency": DEPENDENCY,
    "indirect": SlotKind(Form.FLAG, ("indirect",)),
    "replacement": SOURCE,
    "replacement_version": SlotKind(Form.VERSION, ("replacement", "replace", "version")),
    "excluded_version": SlotKind(Form.VERSION, ("exclude", "excluded version"), many=True),
    "retracted_version": SlotKind(Form.VERSION, ("retract", "retracted version"), many=True),
    "tool": SlotKind(Form.NAME, ("tool",), many=True),
    "setting": SlotKind(Form.NAME, ("godebug", "setting")),
    "package": PACKAGE,
}
_TOKEN = re.compile(r'"[^"\\]*"|`[^`]*`|//.*|=>|[(),\[\]]|[^\s"`(),\[\]]+|["`]')
_VERBS = frozenset("module go toolchain godebug require exclude replace retract tool ignore".split())


@dataclass(frozen=True, slots=True)
class _Line:
    """A directive with its block undone: `require (\\n a v1 \\n)` reads as `require a v1`."""

    verb: str
    words: tuple[str, ...]
    comment: str


class GoModMiner:
    """Reads `go.mod`.

    No maintained parser of it is published for Python, nor a grammar as a wheel for Linux
    (tree-sitter-gomod-orchard is source only), so the lines are read here. The grammar is one of lines:
    a verb and its words, or a block of such (https://go.dev/ref/mod#go-mod-file-grammar).
    """

    name: ClassVar[str] = "go-mod"
    family: ClassVar[Family] = Family.VERSIONS
    slots: ClassVar[dict[str, tuple[str, ...]]] = words_of(_SLOTS)

    def wants(self, path: str) -> bool:
        return base_name(path) == "go.mod"

    def read(self, path: str, text: str) -> list[Fact]:  # noqa: ARG002
        """Raises: UnreadableError."""
        facts = Facts(_SLOTS)
        for line in _lines(text):
            _add(facts, line)
        return list(facts)


def _add(facts: Facts, line: _Line) -> None:
    match line.verb, line.words:
        case "module", (path,):
            facts.add("module", "module_path", path)
        case "go", (version,):
            facts.add("go", "go_version", version, LANGUAGES["go"])
        case "toolchain", (version,):
            facts.add("go", "toolchain", version, (*LANGUAGES["go"], "toolchain", "go toolchain"))
        case "require", (module, version):
            facts.add("require", "package", module, ("dependencies", "dependency"))
            facts.add(module, "dependency", version, package_aliases(module))
            if line.comment.partition(";")[0].strip() == "indirect":
                facts.add(module, "indirect", value=True, aliases=package_aliases(module))
        case "replace", words if "=>" in words:
            _add_replacement(facts, words)
        case "ignore", (_,):
            pass
        case _:
            _add_rarer(facts, line)


def _add_rarer(facts: Facts, line: _Line) -> None:
    match line.verb, line.words:
        case "exclude", (module, version):
            facts.add(module, "excluded_version", version, package_aliases(module))
        case "retract", (version,):
            facts.add("module", "retracted_version", version)
        case "retract", ("[", low, ",", high, "]"):
            facts.add("module", "retracted_version", f"[{low}, {high}]")
        case "tool", (path,):
            facts.add("tools", "tool", path, ("tool", "go tool"))
        case "godebug", (setting,) if "=" in setting:
            key, _, value = setting.partition("=")
            facts.add(key, "setting", value)
        case verb, words:
            raise UnreadableError(f"no such directive: {verb} {' '.join(words)[:80]}")


def _add_replacement(facts: Facts, words: tuple[str, ...]) -> None:
    """`old [v1] => new [v2]`."""
    arrow = words.index("=>")
    old, new = words[:arrow], words[arrow + 1 :]
    if not (1 <= len(old) <= 2 and 1 <= len(new) <= 2):
        raise UnreadableError(f"no such replacement: {' '.join(words)[:80]}")
    aliases = (old[0], *package_aliases(old[0]))
    facts.add("@".join(old), "replacement", new[0], aliases)
    if len(new) == 2:
        facts.add("@".join(old), "replacement_version", new[1], aliases)


def _lines(text: str) -> Iterator[_Line]:
    block = ""
    for line in read_lines(text):
        words, comment = _words(line)
        if not words:
            continue
        if block and words == (")",):
            block = ""
        elif block:
            yield _Line(block, words, comment)
        elif words[0] not in _VERBS:
            raise UnreadableError(f"no such directive: {words[0][:80]}")
        elif words[1:] == ("(",):
            block = words[0]
        elif words[1:] != ("(", ")"):
            yield _Line(words[0], words[1:], comment)
    if block:
        raise UnreadableError(f"the block of {block} has no end")


def _words(line: str) -> tuple[tuple[str, ...], str]:
    """The words without their quotes, and the comment's text. Raises: UnreadableError for a lone quote."""
    words: list[str] = []
    for token in _TOKEN.findall(line):
        if token.startswith("//"):
            return tuple(words), token[2:].strip()
        if token in {'"', "`"}:
            raise UnreadableError(f"an open quote: {line[:80]}")
        words.append(token[1:-1] if token[0] in '"`' else token)
    return tuple(words), ""
