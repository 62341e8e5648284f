"""Operator examples: prompt and completion messages with a content-hash id and where they come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from data_builders.gold import GoldCases
from operators.claims import StateClaim, content_hash
from operators.errors import InputError
from operators.normal import CLOSED_FORMS, normal_text
from operators.prompts import (
    PROMPT_VERSION,
    Message,
    compare_completion,
    compare_messages,
    extract_completion,
    extract_messages,
    update_completion,
    update_messages,
)
from operators.schema import SlotSchema


class Source(StrEnum):
    TRAJECTORY = "trajectory"
    SYNTHETIC = "synthetic"
    MINED = "mined"


class Example(BaseModel):
    """One training or test row; a line of JSONL that `datasets` loads and TRL trains on.

    `note` (extract rows) and `open_values` (values of open forms, normalised) are what the leak check reads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    operator: str
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


def examples(cases: GoldCases, source: Source, origin: str) -> Iterator[Example]:
    """Every extract-state, compare-claims and update-memory row of one origin's cases, in order."""
    schema = cases.schema
    for extract in cases.extract:
        yield _example(
            "extract-state", source, origin, extract.case_id, extract.schema,
            extract_messages(extract.note, extract.schema), extract_completion(extract.gold),
            list(extract.gold), note=extract.note.text,
            commits=[extract.note.git_commit] if extract.note.git_commit else [],
        )  # fmt: skip
    for compare in cases.compare:
        yield _example(
            "compare-claims", source, origin, compare.case_id, schema,
            compare_messages(compare.incumbent, compare.incoming, schema), compare_completion(compare.gold),
            [compare.incumbent, compare.incoming],
        )  # fmt: skip
    for update in cases.update:
        yield _example(
            "update-memory", source, origin, update.case_id, schema,
            update_messages(update.items, update.incoming, schema),
            update_completion(update.action, update.target, update.items),
            [update.incoming, *(item.claim for item in update.items)],
        )  # fmt: skip


def read_examples(path: Path) -> Iterator[Example]:
    """The rows of a JSONL file. Raises: InputError with file and line."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield Example.model_validate_json(line)
            except ValueError as fault:
                hint = str(fault)[:200]
                raise InputError("not an example row", file=path, line=number, hint=hint) from fault


def _example(
    operator: str,
    source: Source,
    origin: str,
    case: str,
    schema: SlotSchema,
    prompt: list[Message],
    answer: str,
    claims: list[StateClaim],
    *,
    note: str = "",
    commits: list[str] | None = None,
) -> Example:
    completion: list[Message] = [{"role": "assistant", "content": answer}]
    values = {value for claim in claims for value in _open_values(claim, schema)}
    return Example(
        id=content_hash(operator, PROMPT_VERSION, prompt, completion, origin, case),
        operator=operator,
        source=source,
        origin=origin,
        case=case,
        prompt_version=PROMPT_VERSION,
        prompt=prompt,
        completion=completion,
        note=note,
        commits=commits if commits is not None else [c.evidence.commit for c in claims if c.evidence.commit],
        open_values=sorted(values),
    )


def _open_values(claim: StateClaim, schema: SlotSchema) -> list[str]:
    """The claim's value, normalised, where its form is open (text, name, version); none otherwise."""
    if schema.slot(claim.entity, claim.slot).form in CLOSED_FORMS:
        return []
    return [normal_text(value) for value in (claim.value, claim.retires) if value]
