"""A repository's history as transitions: for each commit, the facts its diff changed. Read-only, no checkout.

The mainline is the first-parent chain of HEAD: along it the transitions compose to exactly the facts of
HEAD's tree. Other commits are mined against their own first parent: wording to learn from, not state.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pygit2
from pygit2.enums import DeltaStatus, FileMode, ObjectType, SortMode

from data_builders.mining.facts import Fact, Family, Miner, UnreadableError
from data_builders.mining.miners import MINERS
from operators.errors import RepositoryError
from operators.normal import Form

MAX_BLOB = 1_000_000
MAX_MESSAGE = 20_000
CHUNK = 100
CACHED_FILES = 2_000
TICK = timedelta(seconds=1)
_BOT = re.compile(
    r"\[bot\]|\b(?:renovate|dependabot|greenkeeper|pre-commit-ci|github-actions|snyk)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Transition:
    """One place's change in one commit. `before` None: it appeared; `after` None: it went.

    In a `many` place a member comes (`after`) or goes (`before`). `moved` says that the file was only
    renamed and the value came along: nothing about the thing itself changed.
    """

    path: str
    thing: str
    slot: str
    form: Form
    many: bool
    aliases: tuple[str, ...]
    miner: str
    family: Family
    before: str | None
    after: str | None
    moved: bool = False

    @property
    def entity(self) -> str:
        """`PATH#thing`, without white space."""
        return entity_of(self.path, self.thing)


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """A commit to mine. `time` never runs backwards along the mainline, whatever the authors' clocks did."""

    sha: str
    time: datetime
    mainline: bool


@dataclass(frozen=True, slots=True)
class MinedCommit:
    """A commit with its message (at most 20,000 characters) and transitions.

    `by_bot` tells messages that a program wrote; `skipped` counts what could not be read.
    """

    sha: str
    time: datetime
    mainline: bool
    by_bot: bool
    message: str
    transitions: tuple[Transition, ...]
    skipped: dict[str, int] = field(default_factory=dict)


Place = tuple[str, str, str]
"""Thing, slot and, in a slot of cardinality many, the value (empty otherwise)."""


def entity_of(path: str, thing: str) -> str:
    return "_".join(f"{path}#{thing}".split())


class RepositoryMiner:
    """One repository with the miners that read it."""

    def __init__(self, path: Path, miners: Sequence[Miner] = MINERS) -> None:
        """Raises: RepositoryError when there is no repository at the path."""
        try:
            self._repository = pygit2.Repository(str(path))
        except pygit2.GitError as fault:
            raise RepositoryError(f"{path}: not a git repository", hint="give a clone's folder") from fault
        self.path = path
        self._miners = miners
        self._cache: OrderedDict[tuple[str, pygit2.Oid], dict[Place, tuple[Miner, Fact]]] = OrderedDict()
        self._skipped: Counter[str] = Counter()

    @property
    def is_shallow(self) -> bool:
        """Whether older history was cut off: then the oldest commit there is seems to have set everything."""
        return self._repository.is_shallow

    def plan(self, *, limit: int | None = None) -> list[PlannedCommit]:
        """Every commit reachable from HEAD, parents first; the newest `limit` of them.

        Empty for a repository without commits. Raises: RepositoryError where history breaks off.
        """
        repository = self._repository
        if repository.head_is_unborn:
            return []
        head = repository.head.peel(pygit2.Commit)
        times = self._mainline_times(head)
        walker = repository.walk(head.id, SortMode.TOPOLOGICAL | SortMode.TIME)
        planned: list[PlannedCommit] = []
        try:
            for commit in walker:
                own = datetime.fromtimestamp(commit.commit_time, UTC)
                time = times.get(commit.id)
                planned.append(PlannedCommit(str(commit.id), time or own, time is not None))
                if limit is not None and len(planned) == limit:
                    break
        except (KeyError, pygit2.GitError) as fault:
            raise self._broken(fault) from fault
        return planned[::-1]

    def _mainline_times(self, head: pygit2.Commit) -> dict[pygit2.Oid, datetime]:
        """The first-parent chain with times that strictly grow along it."""
        chain = [head]
        try:
            while chain[-1].parent_ids:
                chain.append(chain[-1].parents[0])
        except (KeyError, pygit2.GitError) as fault:
            raise self._broken(fault) from fault
        times: dict[pygit2.Oid, datetime] = {}
        last = datetime.min.replace(tzinfo=UTC)
        for commit in reversed(chain):
            last = max(datetime.fromtimestamp(commit.commit_time, UTC), last + TICK if times else last)
            times[commit.id] = last
        return times

    def _broken(self, fault: Exception) -> RepositoryError:
        return RepositoryError(
            f"{self.path}: history breaks off ({fault})", hint="a shallow or partial clone: fetch the rest"
        )

    def mine(self, planned: PlannedCommit) -> MinedCommit:
        """The commit's transitions against its first parent (against nothing for a root)."""
        commit = self._repository[planned.sha]
        assert isinstance(commit, pygit2.Commit)
        self._skipped.clear()
        transitions = tuple(self._transitions(commit))
        message = commit.raw_message.decode("utf-8", "replace")[:MAX_MESSAGE]
        return MinedCommit(
            planned.sha,
            planned.time,
            planned.mainline,
            _BOT.search(commit.author.name) is not None,
            message,
            transitions,
            dict(self._skipped),
        )

    def head_facts(self) -> dict[tuple[str, Place], str]:
        """What the miners read from HEAD's tree alone: entity and place, to the value as it stands."""
        if self._repository.head_is_unborn:
            return {}
        found: dict[tuple[str, Place], str] = {}
        for path, oid, mode in self._files(self._repository.head.peel(pygit2.Commit).tree, ""):
            if self._wanted(path):
                for place, (_, fact) in self._facts(path, oid, mode).items():
                    found[entity_of(path, fact.thing), place] = fact.value
        return found

    def _files(self, tree: pygit2.Tree, prefix: str) -> Iterator[tuple[str, pygit2.Oid, int]]:
        for entry in tree:
            path = f"{prefix}{(entry.raw_name or b'').decode('utf-8', 'replace')}"
            if entry.type == ObjectType.TREE:
                assert isinstance(entry, pygit2.Tree)
                yield from self._files(entry, f"{path}/")
            else:
                yield path, entry.id, int(entry.filemode)

    def _wanted(self, path: str) -> bool:
        return any(miner.wants(path) for miner in self._miners)

    def _transitions(self, commit: pygit2.Commit) -> Iterator[Transition]:
        try:
            if commit.parent_ids:
                diff = commit.parents[0].tree.diff_to_tree(commit.tree)
            else:
                diff = commit.tree.diff_to_tree(swap=True)
        except (KeyError, pygit2.GitError):
            self._skipped["missing tree"] += 1
            return
        deltas = [
            d for d in diff.deltas if self._wanted(_path(d.old_file)) or self._wanted(_path(d.new_file))
        ]
        kinds = {delta.status for delta in deltas}
        if DeltaStatus.ADDED in kinds and DeltaStatus.DELETED in kinds:
            try:
                diff.find_similar()
            except (KeyError, pygit2.GitError):
                self._skipped["missing blob"] += 1
            deltas = [
                d for d in diff.deltas if self._wanted(_path(d.old_file)) or self._wanted(_path(d.new_file))
            ]
        for delta in deltas:
            yield from self._file_transitions(delta)

    def _file_transitions(self, delta: pygit2.DiffDelta) -> Iterator[Transition]:
        old, new = _path(delta.old_file), _path(delta.new_file)
        before = {} if delta.status == DeltaStatus.ADDED else self._side(old, delta.old_file)
        after = {} if delta.status == DeltaStatus.DELETED else self._side(new, delta.new_file)
        moved = delta.status == DeltaStatus.RENAMED
        for place in [*before, *(place for place in after if place not in before)]:
            was, now = before.get(place), after.get(place)
            old_value, new_value = was[1].value if was else None, now[1].value if now else None
            if moved:
                if was:
                    yield _transition(old, was, old_value, None, moved=now is not None)
                if now:
                    yield _transition(new, now, old_value, new_value, moved=old_value == new_value)
            elif old_value != new_value:
                source = now or was
                assert source is not None
                yield _transition(new if now else old, source, old_value, new_value)

    def _side(self, path: str, file: pygit2.DiffFile) -> dict[Place, tuple[Miner, Fact]]:
        return self._facts(path, file.id, int(file.mode)) if self._wanted(path) else {}

    def _facts(self, path: str, oid: pygit2.Oid, mode: int) -> dict[Place, tuple[Miner, Fact]]:
        """The facts of one version of a file, by place; what cannot be read is counted and has none."""
        if mode not in (int(FileMode.BLOB), int(FileMode.BLOB_EXECUTABLE)):
            return {}  # links and submodules state nothing of their own
        known = self._cache.get((path, oid))
        if known is not None:
            self._cache.move_to_end((path, oid))
            return known
        found: dict[Place, tuple[Miner, Fact]] = {}
        text = self._text(oid)
        for miner in self._miners if text is not None else ():
            if not miner.wants(path):
                continue
            try:
                facts = miner.read(path, text or "")
            except UnreadableError:
                self._skipped[f"unreadable {miner.name}"] += 1
                continue
            for fact in facts:
                found[fact.thing, fact.slot, fact.value if fact.many else ""] = (miner, fact)
        self._cache[path, oid] = found
        if len(self._cache) > CACHED_FILES:
            self._cache.popitem(last=False)
        return found

    def _text(self, oid: pygit2.Oid) -> str | None:
        try:
            blob = self._repository[oid]
        except KeyError:
            self._skipped["missing blob"] += 1
            return None
        assert isinstance(blob, pygit2.Blob)
        if blob.size > MAX_BLOB:
            self._skipped["larger than 1 MB"] += 1
            return None
        data = blob.data
        if b"\0" in data:
            self._skipped["binary"] += 1
            return None
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self._skipped["not UTF-8"] += 1
            return None


def mine_history(
    path: Path, planned: Iterable[PlannedCommit], *, processes: int = 1
) -> Iterator[MinedCommit]:
    """Every planned commit mined, in order; several processes share the work, chunk by chunk.

    Holds at most a few chunks of 100 commits at a time.
    """
    commits = list(planned)
    chunks = [(path, commits[start : start + CHUNK]) for start in range(0, len(commits), CHUNK)]
    if processes == 1 or len(chunks) < 2:
        for chunk in chunks:
            yield from _mine_chunk(chunk)
        return
    with get_context("spawn").Pool(processes) as pool:
        for mined in pool.imap(_mine_chunk, chunks):
            yield from mined


_open: dict[Path, RepositoryMiner] = {}
"""The repositories that this worker process has open, with their caches."""


def _mine_chunk(chunk: tuple[Path, list[PlannedCommit]]) -> list[MinedCommit]:
    path, commits = chunk
    if path not in _open:
        _open[path] = RepositoryMiner(path)
    return [_open[path].mine(commit) for commit in commits]


def _path(file: pygit2.DiffFile) -> str:
    return file.raw_path.decode("utf-8", "replace")


def _transition(
    path: str, read: tuple[Miner, Fact], before: str | None, after: str | None, *, moved: bool = False
) -> Transition:
    miner, fact = read
    return Transition(
        path, fact.thing, fact.slot, fact.form, fact.many, fact.aliases, miner.name, miner.family,
        before, after, moved,
    )  # fmt: skip
