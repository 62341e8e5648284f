"""What goes over the wire: the seam's contracts as bodies, and each answer with its outcome."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from operators.claims import Decision, MemoryItem, Note, Relation, StateClaim, UtcDatetime, Winner
from operators.errors import InputError
from operators.items import LiveItems
from operators.outcome import OutcomeKind
from operators.schema import FrozenModel, SlotSchema
from operators.status import Status

ItemT = TypeVar("ItemT")
MAX_BATCH = 256


def _without_id(data: object) -> object:
    """`claim_id` is computed from the fields: an answer can be sent back as it came."""
    return {k: v for k, v in data.items() if k != "claim_id"} if isinstance(data, dict) else data


def unicode_only(data: object) -> object:
    """A half of a surrogate pair is no text: no tokenizer takes it, and it cannot be given back."""
    try:
        json.dumps(data, ensure_ascii=False, default=lambda _: None).encode()
    except UnicodeEncodeError:
        raise ValueError("a text holds half a surrogate pair, which is no Unicode") from None
    return data


Claim = Annotated[StateClaim, BeforeValidator(_without_id)]


class Body(BaseModel):
    """Common to all requests. `adapter` names who answers; left out, the operator's own does."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    slots: SlotSchema = Field(alias="schema", description="Which entity.slot pairs there are.")
    adapter: str | None = Field(default=None, description="Who answers; default: the operator's own.")

    _unicode = model_validator(mode="before")(unicode_only)


class ExtractBody(Body):
    note: Note


class CompareBody(Body):
    incumbent: Claim
    incoming: Claim

    def pair(self) -> tuple[StateClaim, StateClaim]:
        """Both claims. Raises: SchemaError for a pair or value that the schema lacks."""
        for claim in (self.incumbent, self.incoming):
            self.slots.normal(claim)
        return self.incumbent, self.incoming


class Item(FrozenModel):
    """A live item of the key: Confirmed and at the top, or Contested."""

    item_id: str = Field(min_length=1)
    claim: Claim
    status: Literal[Status.CONFIRMED, Status.CONTESTED]
    support: int = Field(default=1, ge=1)
    first_seen: UtcDatetime | None = Field(default=None, description="Default: the claim's own time.")
    reason: str = ""


class UpdateBody(Body):
    incoming: Claim
    items: tuple[Item, ...] = Field(default=(), description="The live items of the incoming claim's key.")

    def live_items(self) -> LiveItems:
        """The items as the seam has them: holders are the Confirmed one, or the strongest Contested ones.

        Raises: SchemaError for a pair that the schema lacks, InputError for two items of one value or id, two
        Confirmed ones, or an item of another key.
        """
        items = LiveItems()
        confirmed = [item for item in self.items if item.status is Status.CONFIRMED]
        if len(confirmed) > 1:
            raise InputError("a key has at most one Confirmed item")
        best = max((item.claim.rank for item in self.items), default=None)
        names: set[str] = set()
        for item in self.items:
            normal = self.slots.normal(item.claim)
            if item.claim.key != self.incoming.key:
                raise InputError(f"item {item.item_id} is of {item.claim.key}, not {self.incoming.key}")
            if item.item_id in names:
                raise InputError(f"two items have the item_id {item.item_id}")
            names.add(item.item_id)
            if items.with_value(normal) is not None:
                raise InputError(f"item {item.item_id} has the value of another")
            seen: datetime = item.first_seen or item.claim.timestamp
            whole = MemoryItem(item.item_id, item.claim, normal, item.status, item.support, seen, item.reason)
            items.put(whole, holds=item in confirmed or (not confirmed and item.claim.rank == best))
        return items


class Batch(BaseModel, Generic[ItemT]):
    """Several requests in one; answers come in the same order, each with its own outcome."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: Annotated[Sequence[ItemT], Field(min_length=1, max_length=MAX_BATCH)]


class Answer(FrozenModel):
    """Only `valid` and `empty` are answers; `detail` says why there is none. `adapter` is who was asked."""

    outcome: OutcomeKind
    detail: str
    adapter: str


class ExtractAnswer(Answer):
    claims: tuple[StateClaim, ...] | None


class CompareAnswer(Answer):
    relation: Relation | None
    winner: Winner | None


class UpdateAnswer(Answer):
    decision: Decision | None


class Answers(BaseModel, Generic[ItemT]):
    """One answer for each item of a batch, in order."""

    answers: Sequence[ItemT]


class AdapterInfo(FrozenModel):
    """One adapter as it is served; `scores` is what `eval loo` wrote beside it, `threshold` of two-stage."""

    name: str
    operator: str
    tasks: tuple[str, ...]
    base: str
    revision: str
    prompt_version: str
    holdout: str
    stage: str
    threshold: float | None
    scores: dict[str, object]


class OperatorInfo(FrozenModel):
    """One operator: who answers where a request names no adapter, and everyone who can."""

    operator: str
    default: str | None
    adapters: tuple[AdapterInfo, ...]


class Health(FrozenModel):
    """`ready`, `starting` or `unavailable`, with the reason."""

    status: str
    detail: str = ""


class Fault(FrozenModel):
    """What is wrong with a request, and what to do."""

    error: str
    hint: str = ""
