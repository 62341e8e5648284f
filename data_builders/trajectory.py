"""Trajectories: a real repository's dated sessions with gold claims, distractors and queries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from operators.claims import ANY_SCOPE, Key, Note, StateClaim, UtcDatetime
from operators.errors import InputError
from operators.evidence import EvidenceType
from operators.normal import CLOSED_FORMS, Form, normal_text
from operators.schema import Cardinality, FrozenModel, Slot, SlotSchema
from operators.sources import Located, load_yaml


class Change(StrEnum):
    """What a claim did to its key in the repository's real history."""

    INTRODUCES = "introduces"
    RESTATES = "restates"
    REFINES = "refines"
    REPLACES = "replaces"
    REVERTS = "reverts"
    REMOVES = "removes"
    DISPUTES = "disputes"


class Trap(StrEnum):
    """Why a distractor misleads."""

    STALE = "stale"
    BRANCH = "branch"
    DOCUMENTATION = "documentation"
    HEDGED = "hedged"


class QueryKind(StrEnum):
    CURRENT = "current"
    SCOPED = "scoped"
    PROVENANCE = "provenance"
    TEMPORAL = "temporal"
    STALE = "stale"


class GoldClaim(FrozenModel):
    """A claim the note makes, and what history really did: the source of all gold."""

    entity: str
    slot: str
    value: str | None
    retires: str | None = None
    branch: str = ANY_SCOPE
    env: str = ANY_SCOPE
    change: Change
    against: str | None = None

    @property
    def key(self) -> Key:
        return Key(self.entity, self.slot, self.branch, self.env)


class Session(FrozenModel):
    """One dated note. A commit session has a commit; a distractor has a trap instead.

    `subject` is the commit's real subject line; it is not written down but read from a clone.
    """

    id: str = Field(min_length=1)
    commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{12,40}$")
    date: UtcDatetime
    files: tuple[str, ...] = ()
    evidence: EvidenceType
    trap: Trap | None = None
    subject: str | None = None
    note: str = Field(min_length=1)
    claims: tuple[GoldClaim, ...] = ()

    def as_note(self, source_prefix: str) -> Note:
        """The note as the update loop receives it."""
        return Note(
            source_id=f"{source_prefix}/{self.id}",
            text=f"{self.subject}\n\n{self.note.strip()}" if self.subject else self.note.strip(),
            observed_at=self.date,
            evidence_type=self.evidence,
            git_commit=self.commit,
            files=self.files,
        )

    def state_claim(self, gold: GoldClaim, source_prefix: str) -> StateClaim:
        """The gold claim with this session's evidence and time."""
        return StateClaim(
            entity=gold.entity, slot=gold.slot, value=gold.value, retires=gold.retires,
            branch=gold.branch, env=gold.env,
            evidence=self.as_note(source_prefix).evidence, timestamp=self.date,
        )  # fmt: skip


class Query(FrozenModel):
    """A question about the end of the trajectory, scored by tokens."""

    id: str = Field(min_length=1)
    kind: QueryKind
    hops: int = Field(default=1, ge=1)
    question: str = Field(min_length=1)
    required: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


class Trajectory(FrozenModel):
    """A repository area's history, written down by hand from its real commits."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    repository: str
    licence: str
    about: str
    slot_schema: SlotSchema = Field(alias="schema")
    sessions: tuple[Session, ...] = Field(min_length=1)
    queries: tuple[Query, ...] = ()

    @cached_property
    def commit_sessions(self) -> tuple[Session, ...]:
        return tuple(session for session in self.sessions if session.trap is None)

    def claims(self) -> Iterator[tuple[Session, GoldClaim]]:
        return ((session, gold) for session in self.sessions for gold in session.claims)


class Holder(NamedTuple):
    """The session whose claim holds a key, and the normal value."""

    session: str
    normal: str | None


def load_trajectory(path: Path) -> Trajectory:
    """Read and check one trajectory file. Raises: InputError with file, line and field."""
    located = load_yaml(path, Trajectory)
    _check_sessions(located)
    _check_changes(located)
    _check_queries(located)
    return located.value


def trajectory_files(folder: Path) -> list[Path]:
    """Every `*.yaml` and `*.yml` of a folder, by name."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def load_trajectories(folder: Path) -> tuple[Trajectory, ...]:
    """Every trajectory of a folder, by file name.

    Raises: InputError if there is none, two share a name, or a commit stands in two of them.
    """
    files = trajectory_files(folder)
    if not files:
        raise InputError("no *.yaml here", file=folder, hint="give a folder of trajectory files")
    trajectories: list[Trajectory] = []
    commits: dict[str, Path] = {}
    for path in files:
        trajectory = load_trajectory(path)
        if trajectory.name in {t.name for t in trajectories}:
            raise InputError(f"a second trajectory is called {trajectory.name}", file=path, field="name")
        for session in trajectory.commit_sessions:
            commit = (session.commit or "")[:12]
            if commit in commits:
                raise InputError(
                    f"commit {commit} stands in {commits[commit].name} too", file=path, field=session.id,
                    hint="a commit belongs to one trajectory, or holding one out would leak it",
                )  # fmt: skip
            commits[commit] = path
        trajectories.append(trajectory)
    return tuple(trajectories)


def _check_sessions(located: Located[Trajectory]) -> None:
    seen: set[str] = set()
    commits: set[str] = set()
    previous = None
    for number, session in enumerate(located.value.sessions):
        field = ("sessions", number)
        if session.id in seen:
            raise located.fault(f"a second session is called {session.id}", (*field, "id"))
        if (session.commit is None) != (session.trap is not None):
            raise located.fault(
                "a session has either a commit or, as a distractor, a trap", field, hint="give one of the two"
            )
        if session.commit and session.commit[:12] in commits:
            raise located.fault("this commit stands in an earlier session", (*field, "commit"))
        if previous is not None and session.date < previous:
            raise located.fault(
                "this session is older than the one before it", (*field, "date"), hint="keep true order"
            )
        seen.add(session.id)
        commits |= {session.commit[:12]} if session.commit else set()
        previous = session.date


def _check_changes(located: Located[Trajectory]) -> None:
    """Each claim fits the schema, stands in its note, and names the true holder of its key."""
    schema = located.value.slot_schema
    holders: dict[tuple[Key, str], Holder] = {}
    for number, session in enumerate(located.value.sessions):
        met: set[tuple[Key, str]] = set()
        for position, gold in enumerate(session.claims):
            field = ("sessions", number, "claims", position)
            try:
                slot = schema.slot(gold.entity, gold.slot)
            except InputError as fault:
                raise located.fault(str(fault), field, hint=fault.hint) from fault
            for scope, names in (("branch", schema.branches), ("env", schema.envs)):
                name = getattr(gold, scope)
                if name != ANY_SCOPE and name not in names:
                    raise located.fault(f"unknown {scope} {name}", field, hint="name it under `schema`")
            many = slot.cardinality is Cardinality.MANY
            _check_value(located, session, gold, slot, field)
            member = gold.retires or gold.value or ""
            where = (gold.key, schema.normal_of(gold.entity, gold.slot, member) if many else "")
            if where in met:
                raise located.fault("a second claim on the same key in one session", field)
            met.add(where)
            holder = holders.get(where)
            _check_against(located, session, gold, holder, field)
            normal = None if gold.value is None else schema.normal_of(gold.entity, gold.slot, gold.value)
            if holder is not None:
                _check_kept_or_changed(located, gold, slot.form, (holder.normal, normal), field)
            if gold.change not in (Change.RESTATES, Change.DISPUTES):
                holders[where] = Holder(session.id, normal)


def _check_kept_or_changed(
    located: Located[Trajectory],
    gold: GoldClaim,
    form: Form,
    values: tuple[str | None, str | None],
    field: tuple[str | int, ...],
) -> None:
    """A restated value is the same (free text apart, where words may differ); any other change changes it."""
    old, new = values
    if gold.change is Change.RESTATES and old != new and form not in (Form.TEXT, Form.NAME):
        raise located.fault(f"`restates`, yet {old!r} was held", (*field, "change"))
    if gold.change not in (Change.RESTATES, Change.INTRODUCES) and old == new:
        raise located.fault(f"`{gold.change}`, yet {old!r} was held already", (*field, "change"))


def _check_value(
    located: Located[Trajectory], session: Session, gold: GoldClaim, slot: Slot, field: tuple[str | int, ...]
) -> None:
    schema, form = located.value.slot_schema, slot.form
    if (gold.retires is not None or gold.value is None) and (
        (slot.cardinality is Cardinality.MANY) != (gold.retires is not None)
    ):
        raise located.fault("`retires` names the member that goes, in a slot of many and only there", field)
    if (gold.value is None) != (gold.change is Change.REMOVES):
        raise located.fault("`removes` goes with value null, and only with it", field)
    if gold.retires is not None and gold.value is not None:
        raise located.fault("`retires` goes with value null", field)
    if gold.value is None:
        return
    normal = schema.normal_of(gold.entity, gold.slot, gold.value)
    if form is Form.FLAG and normal not in ("on", "off"):
        raise located.fault(f"a flag is on or off, not {gold.value!r}", (*field, "value"))
    if form is Form.ENUM and normal not in schema.slot(gold.entity, gold.slot).values:
        raise located.fault(f"{gold.value!r} is not one of the slot's values", (*field, "value"))
    if form not in CLOSED_FORMS and normal_text(gold.value) not in normal_text(session.note):
        raise located.fault(
            f"{gold.value!r} does not stand in the note", (*field, "value"),
            hint="a value is a verbatim span of its note",
        )  # fmt: skip


def _check_against(
    located: Located[Trajectory],
    session: Session,
    gold: GoldClaim,
    holder: Holder | None,
    field: tuple[str | int, ...],
) -> None:
    if gold.change is Change.DISPUTES and session.trap is None:
        raise located.fault("only a distractor disputes", (*field, "change"))
    if gold.change is Change.INTRODUCES:
        if holder is not None:
            raise located.fault(f"{gold.key} is held by {holder.session} already", (*field, "change"))
        if gold.against is not None:
            raise located.fault("`introduces` meets nothing: leave `against` out", (*field, "against"))
    elif holder is None or gold.against != holder.session:
        what = f"held by {holder.session}" if holder else "not held by any session yet"
        raise located.fault(f"{gold.key} is {what}, not by {gold.against}", (*field, "against"))


def _check_queries(located: Located[Trajectory]) -> None:
    seen: set[str] = set()
    for number, query in enumerate(located.value.queries):
        field = ("queries", number)
        if query.id in seen:
            raise located.fault(f"a second query is called {query.id}", (*field, "id"))
        seen.add(query.id)
        if not query.required and not query.any_of:
            raise located.fault("no answer could be right or wrong: give required or any_of", field)
        wanted = (*query.required, *query.any_of)
        clash = [t for t in query.forbidden if any(contains(r, t) for r in wanted)]
        if clash:
            raise located.fault(f"{clash[0]!r} is forbidden, yet part of a wanted token", field)
        readable = [t for t in query.required if contains(query.question, t)]
        if readable:
            raise located.fault(f"{readable[0]!r} can be read in the question", field)


def contains(text: str, token: str) -> bool:
    """Whether the token stands in the text as whole words, case and quotes apart.

    A number does not stand in a longer version (`1.2` in `1.2.0`) or in a date (`06` in `2026-01-06`).
    """
    plain = normal_text(token)
    before = r"(?<![\w.])" + (r"(?<!\d-)" if plain[:1].isdigit() else "")
    after = r"(?!\w|\.\d)" + (r"(?!-\d)" if plain[-1:].isdigit() else "")
    return re.search(f"{before}{re.escape(plain)}{after}", normal_text(text)) is not None
