"""A git repository's commits as notes, read-only, oldest first, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from pathlib import Path

import pygit2
from pygit2.enums import DeltaStatus, SortMode

from data_builders.trajectory import Session, Trajectory
from operators.claims import Note
from operators.errors import RepositoryError
from operators.evidence import EvidenceType

MAX_MESSAGE = 20_000
MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What history records of a commit. `files` holds at most 100 paths, `message` 20,000 characters."""

    sha: str
    date: datetime
    author: str
    message: str
    files: tuple[str, ...]

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0].strip()

    def as_note(self) -> Note:
        """The message as a note with commit evidence."""
        return Note(
            source_id=f"git:{self.sha[:12]}",
            text=self.message,
            observed_at=self.date,
            evidence_type=EvidenceType.CODE_CHANGE,
            git_commit=self.sha,
            files=self.files,
            author=self.author or None,
        )


class GitHistory:
    """One repository, opened for reading; a bare one will do, no work tree is touched."""

    def __init__(self, path: Path) -> None:
        """Raises: RepositoryError when there is no repository at the path."""
        try:
            self._repository = pygit2.Repository(str(path))
        except pygit2.GitError as fault:
            raise RepositoryError(f"{path}: not a git repository", hint="give a clone's folder") from fault
        self.path = path

    def commits(self, *, since: datetime | None = None, limit: int | None = None) -> Iterator[CommitFacts]:
        """Commits reachable from HEAD, parents before children; the newest `limit` of them, from `since` on.

        Nothing for an empty repository. Commits whose objects are missing (a shallow or partial clone)
        raise RepositoryError.
        """
        for oid in self._walk(since, limit):
            yield self._facts(self._commit(oid))

    def count(self, *, since: datetime | None = None, limit: int | None = None) -> int:
        """How many commits `commits` will give."""
        return len(self._walk(since, limit))

    def facts(self, sha: str) -> CommitFacts:
        """One commit by full or abbreviated sha. Raises: RepositoryError when it is not in the clone."""
        try:
            found = self._repository.revparse_single(sha)
        except (KeyError, ValueError) as fault:
            raise RepositoryError(
                f"{self.path}: no commit {sha}", hint="fetch the whole history, or drop that session"
            ) from fault
        return self._facts(found.peel(pygit2.Commit))

    def _walk(self, since: datetime | None, limit: int | None) -> list[pygit2.Oid]:
        """Ids of the commits to read, oldest first: 20 bytes each, so that any history fits."""
        if self._repository.head_is_unborn:
            return []
        walker = self._repository.walk(self._repository.head.target, SortMode.TOPOLOGICAL | SortMode.TIME)
        kept: list[pygit2.Oid] = []
        try:
            for commit in walker:
                if since is None or commit.commit_time >= since.timestamp():
                    kept.append(commit.id)
                    if limit is not None and len(kept) == limit:
                        break
        except (KeyError, pygit2.GitError) as fault:
            raise RepositoryError(
                f"{self.path}: history breaks off after {len(kept)} commits ({fault})",
                hint="a shallow or partial clone: fetch the rest, or set --limit",
            ) from fault
        return kept[::-1]

    def _commit(self, oid: pygit2.Oid) -> pygit2.Commit:
        found = self._repository[oid]
        assert isinstance(found, pygit2.Commit)
        return found

    def _facts(self, commit: pygit2.Commit) -> CommitFacts:
        zone = timezone(timedelta(minutes=commit.author.offset))
        return CommitFacts(
            sha=str(commit.id),
            date=datetime.fromtimestamp(commit.commit_time, zone).astimezone(UTC),
            author=commit.author.name,
            message=commit.raw_message.decode("utf-8", "replace")[:MAX_MESSAGE],
            files=self._files(commit),
        )

    def _files(self, commit: pygit2.Commit) -> tuple[str, ...]:
        """The paths a commit touched against its first parent; none where a tree is missing."""
        try:
            if commit.parents:
                diff = commit.tree.diff_to_tree(commit.parents[0].tree, swap=True)
            else:
                diff = commit.tree.diff_to_tree(swap=True)
        except (KeyError, pygit2.GitError):
            return ()  # a partial clone has the commit but not its trees; the message alone is the note
        touched = (d.old_file if d.status == DeltaStatus.DELETED else d.new_file for d in diff.deltas)
        return tuple(file.raw_path.decode("utf-8", "replace") for file in islice(touched, MAX_FILES))


def with_repository(trajectory: Trajectory, history: GitHistory) -> Trajectory:
    """The trajectory with each commit session's real subject and touched files, read by sha.

    Raises: RepositoryError for a commit that is not in the clone.
    """

    def enriched(session: Session) -> Session:
        if session.commit is None:
            return session
        facts = history.facts(session.commit)
        return session.model_copy(update={"subject": facts.subject, "files": facts.files})

    return trajectory.model_copy(update={"sessions": tuple(map(enriched, trajectory.sessions))})
