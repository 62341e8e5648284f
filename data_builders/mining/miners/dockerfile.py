"""Dockerfiles: base images, their tags, and the defaults of build arguments and environment."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from dockerfile_parse import DockerfileParser  # type: ignore[import-untyped]
from dockerfile_parse.util import extract_key_values  # type: ignore[import-untyped]

from data_builders.mining.facts import Fact, Family, UnreadableError
from data_builders.mining.miners.paths import is_kept_by_hand
from data_builders.mining.miners.stated import IMAGE_SLOTS, Stated, distinctive, form_of, image_facts, settle
from data_builders.mining.miners.trees import Kind, Leaf

_MAX_CHARS = 100_000  # the library joins continued lines in quadratic time
_MAX_INSTRUCTION_CHARS = 4_000
_NAMES = ("dockerfile", "containerfile")


@dataclass(frozen=True, slots=True)
class DockerfileMiner:
    """Reads Dockerfile, Dockerfile.NAME, NAME.Dockerfile and the same of Containerfile."""

    name: str = "dockerfile"
    family: Family = Family.CONTAINERS_CI

    @property
    def slots(self) -> dict[str, tuple[str, ...]]:
        return {
            **IMAGE_SLOTS,
            "build-arg": ("build argument", "arg", "default", "version"),
            "env": ("environment variable", "env", "variable"),
            "port": ("port", "exposed port"),
        }

    def wants(self, path: str) -> bool:
        last = path.rpartition("/")[2].lower()
        named = any(
            last == name or last.startswith(f"{name}.") or last.endswith(f".{name}") for name in _NAMES
        )
        return named and is_kept_by_hand(path)

    def read(self, path: str, text: str) -> Sequence[Fact]:
        del path
        if len(text) > _MAX_CHARS or "\0" in text:
            raise UnreadableError("not a Dockerfile: binary, or too long")
        reader = _Stages()
        for word, value in _instructions(text):
            reader.take(word, value)
        return settle(reader.found)


class _Stages:
    """Follows the stages of one Dockerfile from top to bottom."""

    def __init__(self) -> None:
        self.found: list[Stated] = []
        self.stage = ""
        self.stages: set[str] = set()
        self.count = 0
        self.args: dict[str, str] = {}

    def take(self, word: str, value: str) -> None:
        if word == "FROM":
            self._start(value)
        elif word in {"ARG", "ENV"}:
            for key, default in _pairs(value):
                self._set(word, key, default)
        elif word == "EXPOSE":
            for port in value.split():
                self._state(Stated("EXPOSE", "port", port, form_of(Leaf(port, Kind.PLAIN)), many=True))
        elif word in {"COPY", "ADD", "RUN"}:
            self._copy(value)

    def _start(self, value: str) -> None:
        words = [each for each in value.split() if not each.startswith("--")]
        if not words:
            return
        self.count += 1
        named = len(words) >= 3 and words[1].upper() == "AS"
        self.stage = words[2] if named else f"FROM[{self.count}]"
        image = self._filled(words[0])
        if image and image.lower() not in self.stages:
            place = self.stage if named or self.count > 1 else "FROM"
            self.found += image_facts(image, place=place, scopes=(f"FROM[{self.count}]",))
        self.stages.add(self.stage.lower())

    def _copy(self, value: str) -> None:
        for option in value.split():
            if not option.startswith("--"):
                break
            key, _, source = option.partition("=")
            image = self._filled(source) if key == "--from" else ""
            if image and not image.isdigit() and image.lower() not in self.stages:
                place = f"{self.stage}.copy.{image.partition('@')[0].partition(':')[0]}"
                self.found += [each for each in image_facts(image, place=place) if each.slot == "image-tag"]

    def _set(self, word: str, key: str, default: str) -> None:
        filled = self._filled(default)
        if word == "ARG" and not self.stage and filled:
            self.args[key] = filled
        slot = "build-arg" if word == "ARG" else "env"
        form = form_of(Leaf(default, Kind.TEXT), key=key)
        if key and "$" not in default:
            self._state(
                Stated(
                    key, slot, default, form, (f"{self.stage or 'global'}.{key}",), distinctive(key.lower())
                )
            )

    def _state(self, stated: Stated) -> None:
        self.found.append(stated)

    def _filled(self, value: str) -> str:
        """The value with the defaults of global arguments, or nothing if it needs more than those."""
        try:
            return Template(value.strip("\"'")).substitute(self.args)
        except (KeyError, ValueError):
            return ""


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction and its value; the bodies of here-documents are left out."""
    try:
        parser = DockerfileParser(fileobj=io.BytesIO(text.encode("utf-8", "replace")))
        parsed: list[dict[str, Any]] = parser.structure
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UnreadableError(f"not a Dockerfile: {error}") from error
    ends: list[str] = []
    lines = text.split("\n")
    skip_to = 0
    for each in parsed:
        word, value = str(each["instruction"]), str(each["value"])
        if each["startline"] < skip_to or word == "COMMENT":
            continue
        if word in {"RUN", "COPY", "ADD"} and "<<" in value:
            ends = [part[2:].lstrip("-").strip("\"'") for part in value.split() if part.startswith("<<")]
            skip_to = _after_documents(lines, start=each["endline"] + 1, ends=[end for end in ends if end])
        if len(value) <= _MAX_INSTRUCTION_CHARS:
            yield word, value


def _after_documents(lines: list[str], *, start: int, ends: list[str]) -> int:
    """The first line behind the here-documents that begin at `start`; `start` if one is not closed."""
    line = start
    for end in ends:
        while line < len(lines) and lines[line].strip() != end:
            line += 1
        if line >= len(lines):
            return start
        line += 1
    return line


def _pairs(value: str) -> list[tuple[str, str]]:
    """The names and values of ARG or ENV; without a value, nothing."""
    if not value.strip() or ("=" not in value and len(value.split()) < 2):
        return []
    try:
        return [(str(key), str(set_to)) for key, set_to in extract_key_values(False, {}, {}, value)]
    except (ValueError, IndexError):
        return []
