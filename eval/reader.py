"""A reader without a model: it answers by quoting the lines of the rendered memory that fit the question."""

from __future__ import annotations

import re

import bm25s

from pipeline.memory import Memory
from pipeline.render import Line, memory_lines

_PAST = re.compile(
    r"\b(?:before|previous(?:ly)?|used to|formerly|earlier|prior|was|were|did|had|first|initially|originally"
    r"|(?:which|what) (?:commit|change|day|date)|when (?:did|was|were|had)|since when|history|changed"
    r"|replaced|introduced|reverted|removed|until)\b",
    re.IGNORECASE,
)
_STOP = frozenset(
    "a an the is are was were be to of in on at by for with and or its it as that this does do did which "
    "what when how who now currently today commit there any has have had from into than then still".split()
)


def words(text: str) -> list[str]:
    """Lower-case content words; identifiers are split at punctuation, a plural's s is dropped."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [re.sub(r"(?<=[a-z]{3})s$", "", word) for word in found if word not in _STOP]


class _Index:
    """BM25 over lines, each searched under its text and the schema's other names for what it is about."""

    def __init__(self, lines: list[Line], names: dict[str, str]) -> None:
        self._lines = lines
        corpus = [words(_searchable(line, names)) for line in lines]
        self._vocabulary = {word for document in corpus for word in document}
        self._bm25 = bm25s.BM25()
        if self._vocabulary:
            self._bm25.index(corpus, show_progress=False)

    def best(self, question: str) -> Line | None:
        """The best-scoring line, the first of equals; None when no word of the question occurs."""
        asked = [word for word in words(question) if word in self._vocabulary]
        if not asked:
            return None
        return self._lines[int(self._bm25.get_scores(asked).argmax())]


class MemoryReader:
    """Questions about the past see transitions too, others the current state alone."""

    def __init__(self, memory: Memory) -> None:
        names = {e.entity: " ".join(e.names) for e in memory.schema.entities}
        names |= {f"{e.entity}.{s.slot}": " ".join((s.about, *s.names)) for e, s in memory.schema.pairs()}
        lines = memory_lines(memory)
        current = [line for line in lines if line.section in ("Current state", "Findings")]
        transitions = [line for line in lines if line.section == "Transitions"]
        self._current = _Index(current, names)
        self._all = _Index(transitions + current, names)

    def answer(self, question: str) -> str:
        """The line that fits best; empty when none shares a word with the question.

        One line and no more: a question asks for one thing, and a neighbour may say what no longer holds.
        """
        line = (self._all if _PAST.search(question) else self._current).best(question)
        return f"{line.scope}: {line.text}" if line else ""


def _searchable(line: Line, names: dict[str, str]) -> str:
    match = re.match(r"- ([\w./-]+)", line.text)
    key = match[1] if match else ""
    entity = key.split(".")[0]
    return " ".join((line.text, line.scope, names.get(entity, ""), names.get(key, "")))
