"""`data mine`: repositories become a folder of mined commits, notes and a manifest."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pygit2
from pydantic import TypeAdapter, ValidationError

from data_builders.gold import GoldCases
from data_builders.mining.align import Aligned, Alignment, align
from data_builders.mining.history import MinedCommit, PlannedCommit, RepositoryMiner, Transition, mine_history
from data_builders.mining.notes import MAX_NOTE, MinedNote, chain_cases, chains, mined_note
from data_builders.mining.scrub import scrub
from operators.artefacts import environment, new_folder, sha256_of, write_json
from operators.claims import content_hash
from operators.errors import InputError, LeakError

MAX_CHAINS = 400
POOL = 400
COPIED_SHARE = 0.2
"""Share of equal stated notes from which one repository counts as a copy of another."""

T = TypeVar("T")
_COMMIT = TypeAdapter(MinedCommit)
_NOTE = TypeAdapter(MinedNote)


@dataclass(frozen=True, slots=True)
class Origin:
    """One repository to mine: its folder and the name its rows go by."""

    path: Path
    name: str


@dataclass(slots=True)
class _Mined:
    """What one repository came to, before it is written out."""

    origin: Origin
    commits: list[MinedCommit]
    aligned: dict[str, list[Aligned]]
    texts: dict[str, str]


def origin_of(text: str) -> Origin:
    """`PATH`, or `NAME=PATH`; without a name the remote's owner-name, else the folder's name."""
    name, equals, path = text.partition("=")
    if equals:
        return Origin(Path(path), name)
    return Origin(Path(text), _remote_name(Path(text)) or Path(text).resolve().name)


def mine_repositories(
    out: Path,
    origins: Sequence[Origin],
    *,
    processes: int = 1,
    limit: int | None = None,
    previous: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda _name, _done, _of: None,
) -> dict[str, object]:
    """Write `out`, whole or not at all; returns the manifest.

    `previous` is an earlier folder: commits found there are taken over and only new ones mined. `progress`
    hears the repository, commits done and commits in all.
    Raises: InputError for an existing `out` or two origins of one name, RepositoryError, and LeakError when
    one repository is a fork or copy of another.
    """
    if len({o.name for o in origins}) < len(origins):
        raise InputError("two repositories have one name", hint="name them: --repo NAME=PATH")
    counted: dict[str, object] = {}
    notes: dict[str, set[str]] = {}
    shas: dict[str, set[str]] = {}
    with new_folder(out) as draft:
        for origin in origins:
            mined = _mine(origin, processes, limit, previous, progress)
            shas[origin.name] = {commit.sha for commit in mined.commits}
            counted[origin.name] = _write(draft / origin.name, mined)
            notes[origin.name] = set(_stated_texts(mined))
        _refuse_copies(shas, notes)
        files = {str(p.relative_to(draft)): sha256_of(p) for p in sorted(draft.rglob("*")) if p.is_file()}
        manifest = {"repositories": counted, "files": files, "environment": environment()}
        write_json(draft / "manifest.json", manifest)
    return manifest


def read_notes(folder: Path) -> Iterator[MinedNote]:
    """A mined repository's notes. Raises: InputError with file and line."""
    return _read_lines(folder / "notes.jsonl", _NOTE, "a mined note")


def read_commits(folder: Path) -> Iterator[MinedCommit]:
    """A mined repository's commits. Raises: InputError with file and line."""
    return _read_lines(folder / "commits.jsonl", _COMMIT, "a mined commit")


def _read_lines(path: Path, adapter: TypeAdapter[T], what: str) -> Iterator[T]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield adapter.validate_json(line)
            except ValidationError as fault:
                raise InputError(f"not {what}", file=path, line=number) from fault


def mined_repositories(folder: Path) -> list[Path]:
    """The repositories of a folder that `data mine` wrote, by name. Raises: InputError when there is none."""
    found = sorted(path.parent for path in folder.glob("*/notes.jsonl"))
    if not found or not (folder / "manifest.json").is_file():
        raise InputError("no mined repository here", file=folder, hint="give a folder that `data mine` wrote")
    return found


def mined_cases(folder: Path, *, sample: int) -> GoldCases:
    """A repository's extract cases (at most `sample`, drawn by hash) with its chain cases."""
    notes = sorted(read_notes(folder), key=lambda note: content_hash(note.id))[:sample]
    links = list(islice(chains(list(read_commits(folder))), MAX_CHAINS))
    cases = chain_cases(folder.name, links)
    return GoldCases(cases.schema, tuple(note.case() for note in notes), cases.compare, cases.update)


def _mine(
    origin: Origin,
    processes: int,
    limit: int | None,
    previous: Path | None,
    progress: Callable[[str, int, int], None],
) -> _Mined:
    miner = RepositoryMiner(origin.path)
    planned = miner.plan(limit=limit)
    known: dict[str, MinedCommit] = {}
    if previous is not None and (previous / origin.name / "commits.jsonl").is_file():
        known = {commit.sha: commit for commit in read_commits(previous / origin.name)}
    todo = [p for p in planned if p.sha not in known]
    fresh: dict[str, MinedCommit] = {}
    for commit in mine_history(origin.path, todo, processes=processes):
        fresh[commit.sha] = commit
        progress(origin.name, len(fresh), len(todo))
    mined = _Mined(origin, [_placed(known.get(p.sha) or fresh[p.sha], p) for p in planned], {}, {})
    for commit in mined.commits:
        text = scrub(commit.message)[:MAX_NOTE]
        mined.texts[commit.sha] = text
        mined.aligned[commit.sha] = align(text, commit.transitions)
    return mined


def _placed(commit: MinedCommit, planned: PlannedCommit) -> MinedCommit:
    """The commit at its place in today's plan: what was mined earlier may have become mainline since."""
    return replace(commit, time=planned.time, mainline=planned.mainline)


def _write(folder: Path, mined: _Mined) -> dict[str, object]:
    """The repository's files; returns its counts."""
    folder.mkdir()
    notes = list(_notes(mined))
    links = list(islice(chains(mined.commits), MAX_CHAINS))
    chained = chain_cases(mined.origin.name, links)
    with (folder / "commits.jsonl").open("wb") as lines:
        for commit in mined.commits:
            lines.write(_COMMIT.dump_json(commit) + b"\n")
    with (folder / "notes.jsonl").open("w", encoding="utf-8") as text:
        text.writelines(note.model_dump_json(by_alias=True, exclude_defaults=True) + "\n" for note in notes)
    schema = {key: list(names) for key, names in sorted(_discovered(mined.commits).items())}
    (folder / "schema.json").write_text(
        json.dumps(schema, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return _counts(mined, notes, chained)


def _notes(mined: _Mined) -> Iterator[MinedNote]:
    """Every note that states something, and half as many that state nothing: hard negatives."""
    pool = _pool(mined.commits)
    speaking = [c for c in mined.commits if _count(mined.aligned[c.sha], Alignment.STATED)]
    silent = [
        c
        for c in mined.commits
        if mined.texts[c.sha] and all(a.alignment is Alignment.SILENT for a in mined.aligned[c.sha])
    ]
    silent.sort(key=lambda commit: content_hash(commit.sha))
    if pool:
        for commit in [*speaking, *silent[: len(speaking) // 2]]:
            yield mined_note(
                mined.origin.name, commit, mined.texts[commit.sha], mined.aligned[commit.sha], pool
            )


def _pool(commits: Sequence[MinedCommit]) -> list[Transition]:
    """Up to 400 transitions of different keys, drawn by hash: the neighbours that fill schemas up."""
    by_key = {(t.entity, t.slot): t for commit in commits for t in commit.transitions}
    return [by_key[key] for key in sorted(by_key, key=lambda key: content_hash(*key))[:POOL]]


def _discovered(commits: Sequence[MinedCommit]) -> dict[str, tuple[str, ...]]:
    """Every pair the history speaks of, with the names texts may use for its entity."""
    return {f"{t.entity}.{t.slot}": (t.thing, *t.aliases) for commit in commits for t in commit.transitions}


def _counts(mined: _Mined, notes: Sequence[MinedNote], chained: GoldCases) -> dict[str, object]:
    by_miner: dict[str, Counter[str]] = {}
    slots: set[tuple[str, str]] = set()
    for found in mined.aligned.values():
        for a in found:
            by_miner.setdefault(a.transition.miner, Counter())[a.alignment.value] += 1
            if a.alignment is Alignment.STATED:
                slots.add((a.transition.thing, a.transition.slot))
    skipped: Counter[str] = Counter()
    for commit in mined.commits:
        skipped.update(commit.skipped)
    return {
        "commits": len(mined.commits),
        "first": mined.commits[0].sha if mined.commits else None,
        "last": mined.commits[-1].sha if mined.commits else None,
        "licence": _licence(mined.origin.path),
        "by_miner": {name: dict(sorted(counts.items())) for name, counts in sorted(by_miner.items())},
        "stated": sum(counts["stated"] for counts in by_miner.values()),
        "stated_slots": len({slot for _, slot in slots}),
        "stated_things": len(slots),
        "notes": len(notes),
        "notes_by_bots": sum(note.by_bot for note in notes),
        "negatives": sum(not note.claims for note in notes),
        "chain_cases": len(chained.compare),
        "skipped": dict(sorted(skipped.items())),
    }


def _count(aligned: Sequence[Aligned], kind: Alignment) -> int:
    return sum(a.alignment is kind for a in aligned)


def _stated_texts(mined: _Mined) -> Iterator[str]:
    for sha, found in mined.aligned.items():
        if _count(found, Alignment.STATED):
            yield mined.texts[sha]


def _refuse_copies(shas: dict[str, set[str]], notes: dict[str, set[str]]) -> None:
    """Forks share commits; vendored copies share what their messages state."""
    names = sorted(shas)
    for position, one in enumerate(names):
        for other in names[position + 1 :]:
            if shas[one] & shas[other]:
                common = len(shas[one] & shas[other])
                raise LeakError(
                    f"{one} and {other} share {common} commits: one is a fork", hint="leave one out"
                )
            smaller = min(len(notes[one]), len(notes[other]))
            if smaller >= 20 and len(notes[one] & notes[other]) > COPIED_SHARE * smaller:
                raise LeakError(f"{one} and {other} share their notes: one is a copy", hint="leave one out")


def _licence(path: Path) -> str | None:
    """The licence file in HEAD's root and its first words; None when there is none."""
    repository = pygit2.Repository(str(path))
    if repository.head_is_unborn:
        return None
    for entry in repository.head.peel(pygit2.Commit).tree:
        if re.match(r"(?i)^(?:licen[cs]e|copying)", entry.name or "") and isinstance(entry, pygit2.Blob):
            words = entry.data[:400].decode("utf-8", "replace").split()
            return f"{entry.name}: {' '.join(words[:8])}"
    return None


def _remote_name(path: Path) -> str | None:
    try:
        remotes = pygit2.Repository(str(path)).remotes
        url = str(remotes["origin"].url)
    except (pygit2.GitError, KeyError):
        return None
    match = re.search(r"([^/:]+)/([^/]+?)(?:\.git)?/?$", url)
    return f"{match[1]}-{match[2]}" if match else None
