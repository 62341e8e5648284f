"""Training and test rows: prompt and completion messages with a content-hash id and where they come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from data_builders.gold import ExtractCase, GoldCases
from operators.claims import StateClaim, content_hash
from operators.errors import InputError
from operators.normal import CLOSED_FORMS, normal_text
from operators.prompts import (
    SELECT_CHOICES,
    Message,
    compare_completion,
    compare_messages,
    direct_completion,
    direct_messages,
    fill_completion,
    fill_messages,
    prompt_version,
    select_messages,
    update_completion,
    update_messages,
)
from operators.rules.mentions import NameMatcher
from operators.schema import Entity, Slot, SlotSchema

TASKS = {
    "extract-state": ("direct", "select", "fill"),
    "compare-claims": ("compare",),
    "update-memory": ("update",),
}
"""What each operator is asked: extract-state whole (direct) or in two stages (select, then fill)."""
Pair = tuple[Entity, Slot]


class Source(StrEnum):
    TRAJECTORY = "trajectory"
    SYNTHETIC = "synthetic"
    MINED = "mined"


class Example(BaseModel):
    """One training or test row; a line of JSONL that `datasets` loads and TRL trains on.

    `case` is shared by all rows of one note. `note` (extract rows) and `open_values` (values of open forms,
    normalised) are what the leak check reads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    operator: str
    task: str
    source: Source
    origin: str
    case: str
    prompt_version: str
    prompt: list[Message]
    completion: list[Message]
    note: str
    commits: list[str]
    open_values: list[str]

    def json_line(self) -> str:
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False)


def examples(cases: GoldCases, source: Source, origin: str, *, negatives: int) -> Iterator[Example]:
    """Every row of one origin's cases, in order; `negatives` bounds a note's select rows that say no."""
    schema = cases.schema
    for extract in cases.extract:
        make = _Maker("extract-state", source, origin, extract.case_id, extract.schema)
        yield from _extract_rows(make, extract, negatives)
    for compare in cases.compare:
        make = _Maker("compare-claims", source, origin, compare.case_id, schema)
        prompt = compare_messages(compare.incumbent, compare.incoming, schema)
        claims = (compare.incumbent, compare.incoming)
        yield make("compare", prompt, compare_completion(compare.gold.relation), claims)
    for update in cases.update:
        make = _Maker("update-memory", source, origin, update.case_id, schema)
        prompt = update_messages(update.items, update.incoming, schema)
        answer = update_completion(update.action, update.target, update.items)
        yield make("update", prompt, answer, (update.incoming, *(item.claim for item in update.items)))


def hard_negatives(case: ExtractCase, *, count: int) -> list[Pair]:
    """Pairs that the note does not state, the most tempting first.

    Half of them come from the entities it does speak of; then those whose entity's name it holds, then
    others, in an order that the case's id fixes.
    """
    stated = {(claim.entity, claim.slot) for claim in case.gold}
    spoken = {entity for entity, _ in stated}
    others = [pair for pair in case.schema.pairs() if (pair[0].entity, pair[1].slot) not in stated]
    others.sort(key=lambda pair: content_hash(case.case_id, pair[0].entity, pair[1].slot))
    near = [pair for pair in others if pair[0].entity in spoken][: count // 2]
    rest = [pair for pair in others if pair not in near]
    rest.sort(key=lambda pair: not NameMatcher.of(pair[0].names).find(case.note.text))
    return [*near, *rest][:count]


def read_examples(path: Path) -> Iterator[Example]:
    """The rows of a JSONL file. Raises: InputError with file and line."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield Example.model_validate_json(line)
            except ValueError as fault:
                hint = str(fault)[:200]
                raise InputError("not an example row", file=path, line=number, hint=hint) from fault


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the rows of one case."""

    operator: str
    source: Source
    origin: str
    case: str
    schema: SlotSchema

    def __call__(
        self,
        task: str,
        prompt: list[Message],
        answer: str,
        claims: tuple[StateClaim, ...],
        *,
        note: str = "",
        commits: list[str] | None = None,
    ) -> Example:
        completion: list[Message] = [{"role": "assistant", "content": answer}]
        values = {value for claim in claims for value in _open_values(claim, self.schema)}
        version = prompt_version(self.operator)
        named = [claim.evidence.commit for claim in claims if claim.evidence.commit]
        return Example(
            id=content_hash(self.operator, version, prompt, completion, self.origin, self.case),
            operator=self.operator,
            task=task,
            source=self.source,
            origin=self.origin,
            case=self.case,
            prompt_version=version,
            prompt=prompt,
            completion=completion,
            note=note,
            commits=commits if commits is not None else named,
            open_values=sorted(values),
        )


def _extract_rows(make: _Maker, case: ExtractCase, negatives: int) -> Iterator[Example]:
    """Direct, then select and fill by pair; each carries the whole note's values and commits (leak check)."""
    note = case.note
    commits = [note.git_commit] if note.git_commit else []
    by_pair: dict[tuple[str, str], list[StateClaim]] = {}
    for claim in case.gold:
        by_pair.setdefault((claim.entity, claim.slot), []).append(claim)

    def row(task: str, prompt: list[Message], answer: str) -> Example:
        return make(task, prompt, answer, case.gold, note=note.text, commits=commits)

    yield row("direct", direct_messages(note, case.schema), direct_completion(note, case.schema, case.gold))
    yes, no = SELECT_CHOICES
    for entity, slot in case.schema.pairs():
        claims = by_pair.get((entity.entity, slot.slot))
        if claims:
            yield row("select", select_messages(note, entity, slot), yes)
            answer = fill_completion(note, case.schema, claims)
            yield row("fill", fill_messages(note, case.schema, entity, slot), answer)
    for entity, slot in hard_negatives(case, count=negatives):
        yield row("select", select_messages(note, entity, slot), no)


def _open_values(claim: StateClaim, schema: SlotSchema) -> list[str]:
    """The claim's value, normalised, where its form is open (text, name, version); none otherwise."""
    if schema.slot(claim.entity, claim.slot).form in CLOSED_FORMS:
        return []
    return [normal_text(value) for value in (claim.value, claim.retires) if value]
