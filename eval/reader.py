"""A reader without a model: it answers from the rendered memory by quoting the lines that fit the question."""

from __future__ import annotations

import re

import bm25s

from pipeline.memory import Memory
from pipeline.render import Line, memory_lines

_PAST = re.compile(
    r"\b(?:before|previous(?:ly)?|used to|formerly|earlier|was|were|did|had|prior|first|initially|originally|when|since when"
    r"|which commit|what commit|commit|who|history|changed?|replaced|introduced|reverted|removed|date|day|until|after)\b",
    re.IGNORECASE,
)
_STOP = frozenset(
    ["a", "an", "the", "is", "are", "was", "were", "be", "to", "of", "in", "on", "at", "by", "for", "with", "and", "or", "its", "it", "as", "that", "this", "does", "do", "did", "which", "what", "when", "how", "who", "now", "currently", "today", "commit", "there", "any", "has", "have", "had", "from", "into", "than", "then", "still"]
)
QUOTED_LINES = 2


def words(text: str) -> list[str]:
    """Lower-case content words; identifiers are split at dots, underscores, hyphens; a plural's s is dropped."""
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

    def best(self, question: str, count: int) -> list[Line]:
        """The best-scoring lines in document order; none when no word of the question occurs."""
        asked = [word for word in words(question) if word in self._vocabulary]
        if not asked:
            return []
        scores = self._bm25.get_scores(asked)
        ranked = sorted(range(len(self._lines)), key=lambda i: (-scores[i], i))[:count]
        return [self._lines[i] for i in sorted(ranked) if scores[i] > 0]


class MemoryReader:
    """Questions about the past see transitions too, others the current state alone."""

    def __init__(self, memory: Memory) -> None:
        names = {e.entity: " ".join(e.names) for e in memory.schema.entities}
        names |= {f"{e.entity}.{s.slot}": " ".join((s.about, *s.names)) for e, s in memory.schema.pairs()}
        lines = memory_lines(memory)
        current = [line for line in lines if line.section in ("Current state", "Findings")]
        self._current = _Index(current, names)
        self._all = _Index([line for line in lines if line.section == "Transitions"] + current, names)

    def answer(self, question: str) -> str:
        """The best two lines for a question about the past, the best one otherwise; empty when nothing fits."""
        past = _PAST.search(question) is not None
        lines = self._all.best(question, QUOTED_LINES) if past else self._current.best(question, 1)
        return "\n".join(f"{line.scope}: {line.text}" for line in lines)


def _searchable(line: Line, names: dict[str, str]) -> str:
    match = re.match(r"- ([\w./-]+)", line.text)
    key = match[1] if match else ""
    entity = key.split(".")[0]
    return " ".join((line.text, line.scope, names.get(entity, ""), names.get(key, "")))
