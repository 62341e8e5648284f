"""Small real git repositories, made in memory: files, merges, renames, and clocks that run backwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pygit2
from pygit2.enums import FileMode

EPOCH = 1_700_000_000


class Builder:
    """A bare repository that grows commit by commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.repository = pygit2.init_repository(str(path), bare=True)
        self.count = 0

    def commit(
        self,
        files: Mapping[str, bytes | str],
        message: str = "change",
        *,
        parents: Sequence[str] | None = None,
        clock: int | None = None,
        author: str = "A",
        modes: Mapping[str, FileMode] | None = None,
        head: bool = True,
    ) -> str:
        """Commit exactly these files on top of `parents` (default: HEAD); `clock` is seconds after the epoch."""
        index = pygit2.Index()
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            mode = (modes or {}).get(name, FileMode.BLOB)
            oid = pygit2.Oid(hex=content) if mode is FileMode.COMMIT and isinstance(content, str) else None
            index.add(pygit2.IndexEntry(name, oid or self.repository.create_blob(data), mode))
        tree = index.write_tree(self.repository)
        self.count += 1
        when = EPOCH + (clock if clock is not None else self.count * 60)
        signature = pygit2.Signature(author, "a@example.org", when, 0)
        if parents is None:
            parents = [] if self.repository.head_is_unborn else [str(self.repository.head.target)]
        raw = message.encode("utf-8", "surrogateescape")
        oid = self.repository.create_commit(
            None,
            signature,
            signature,
            raw.decode("utf-8", "replace"),
            tree,
            [pygit2.Oid(hex=p) for p in parents],
        )
        if head:
            self.repository.references.create("refs/heads/master", oid, force=True)
            self.repository.set_head("refs/heads/master")
        return str(oid)
