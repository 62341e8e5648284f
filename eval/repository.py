"""Replay of any git repository into a memory: what its messages say and, mined, what its diffs prove."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from data_builders.git_replay import GitHistory
from data_builders.mining.history import MinedCommit, RepositoryMiner, mine_history
from data_builders.mining.notes import schema_of
from data_builders.mining.scrub import scrub
from operators.assembly import OperatorChoice, build_operators
from operators.claims import ANY_SCOPE, Note, StateClaim
from operators.evidence import Evidence, EvidenceType
from operators.schema import Cardinality, SlotSchema
from pipeline.decide import FailurePolicy
from pipeline.loop import open_loop
from pipeline.memory import Memory

PAIRS_READ = 50
"""A commit that changed more pairs than this is a sweep; its message is not read for each of them."""


@dataclass(frozen=True, slots=True)
class RepositoryReplay:
    """The memory after a replay, with what went in and what came out of it."""

    memory: Memory
    commits: int
    speaking_commits: int
    claims: int


def replay_repository(
    history: GitHistory,
    schema: SlotSchema,
    choice: OperatorChoice,
    *,
    since: datetime | None = None,
    limit: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> RepositoryReplay:
    """Feed every commit message, oldest first; `progress` is called once a commit.

    An empty repository gives an empty memory. Raises: RepositoryError for history that breaks off.
    """
    loop = open_loop(schema, choice, policy=FailurePolicy.PROPOSE)
    commits = speaking = claims = 0
    for facts in history.commits(since=since, limit=limit):
        report = loop.ingest(facts.as_note())
        commits += 1
        speaking += bool(report.extracted)
        claims += len(report.extracted)
        progress()
    return RepositoryReplay(loop.memory, commits, speaking, claims)


def replay_mined(
    path: Path,
    choice: OperatorChoice,
    *,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> RepositoryReplay:
    """Mine the mainline and feed what its diffs changed, beside what the extractor reads in the messages.

    A diff is code-change evidence; what a message says is a human note with a commit behind it, so where the
    two disagree both stay visible and the diff holds. Messages are read for slots of cardinality one only.
    The whole mainline is read: a state has no shorter history.
    Raises: RepositoryError for history that breaks off.
    """
    planned = [commit for commit in RepositoryMiner(path).plan() if commit.mainline]
    mined: list[MinedCommit] = []
    for commit in mine_history(path, planned, processes=processes):
        mined.append(commit)
        progress(len(mined), len(planned))
    schema = schema_of([t for commit in mined for t in commit.transitions])
    loop = open_loop(schema, choice, policy=FailurePolicy.PROPOSE)
    extractor = build_operators(choice, loop.memory.schema).extract
    speaking = claims = 0
    for commit in mined:
        note = _note(commit)
        proven = list(mined_claims(commit))
        said: list[StateClaim] = []
        single = [t for t in commit.transitions if not t.many]  # a wrong member would contradict nothing
        if note.text and 0 < len(single) <= PAIRS_READ:
            said = extractor.extract(note, schema_of(single)).value or []
        loop.memory.write([*proven, *said], note=note if proven or said else None)
        speaking += bool(said)
        claims += len(proven) + len(said)
    return RepositoryReplay(loop.memory, len(mined), speaking, claims)


@dataclass(frozen=True, slots=True)
class HeadCheck:
    """The memory's current state held against HEAD's tree: facts that agree, and each that does not."""

    agree: int
    differences: tuple[str, ...]


def check_head(path: Path, memory: Memory) -> HeadCheck:
    """Compare what mined history left current with what the same miners read from HEAD's tree alone."""
    head = RepositoryMiner(path).head_facts()
    wanted = {(entity, slot, member): value for (entity, (_, slot, member)), value in head.items()}
    held: dict[tuple[str, str, str], str] = {}
    for key in memory.known_keys():
        if key.branch != ANY_SCOPE or key.env != ANY_SCOPE:
            continue  # what a message says of another branch; HEAD's tree is the mainline
        many = memory.schema.slot(key.entity, key.slot).cardinality is Cardinality.MANY
        for item in memory.current(key):
            value = item.claim.value or ""
            held[key.entity, key.slot, value if many else ""] = value
    places = sorted(set(wanted) | set(held))
    wrong = [place for place in places if wanted.get(place) != held.get(place)]
    differences = tuple(f"{p[0]}.{p[1]}: HEAD {wanted.get(p)!r}, memory {held.get(p)!r}" for p in wrong)
    return HeadCheck(len(places) - len(wrong), differences)


def mined_claims(commit: MinedCommit) -> Iterable[StateClaim]:
    """What the commit's diff proves, as code-change claims."""
    evidence = Evidence(EvidenceType.CODE_CHANGE, f"diff:{commit.sha[:12]}", commit.sha)
    for t in commit.transitions:
        retires = t.before if t.many and t.after is None else None
        yield StateClaim(t.entity, t.slot, t.after, evidence, commit.time, retires=retires)


def _note(commit: MinedCommit) -> Note:
    return Note(
        source_id=f"git:{commit.sha[:12]}",
        text=scrub(commit.message),
        observed_at=commit.time,
        evidence_type=EvidenceType.HUMAN_NOTE,
        git_commit=commit.sha,
    )
