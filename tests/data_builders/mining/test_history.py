"""Mined history: along the mainline it composes to HEAD, and a hostile repository is a message or a count."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygit2.enums import FileMode

from data_builders.mining.history import MinedCommit, RepositoryMiner, mine_history
from eval.repository import check_head, replay_mined
from operators.assembly import OperatorChoice
from operators.errors import RepositoryError
from tests.data_builders.mining.repositories import Builder


def package(**deps: str) -> str:
    return json.dumps(
        {"name": "app", "private": True, "files": list("abcdefgh"), "dependencies": deps}, indent=1
    )


def mined(path: Path) -> list[MinedCommit]:
    return list(mine_history(path, RepositoryMiner(path).plan()))


def changes(commit: MinedCommit) -> set[tuple[str, str | None, str | None]]:
    return {(t.thing, t.before, t.after) for t in commit.transitions if t.slot == "dependency"}


def test_a_commit_gives_what_its_diff_changed(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    build.commit({"package.json": package(react="17.0.1", vue="3.0.0")}, "start")
    build.commit({"package.json": package(react="18.2.0")}, "bump")
    first, second = mined(build.path)
    assert changes(first) == {("react", None, "17.0.1"), ("vue", None, "3.0.0")}
    assert changes(second) == {("react", "17.0.1", "18.2.0"), ("vue", "3.0.0", None)}


def test_a_rename_moves_facts_and_says_so(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    build.commit({"package.json": package(react="17.0.1", vue="3.0.0")})
    build.commit({"web/package.json": package(react="18.2.0", vue="3.0.0")})
    _, second = mined(build.path)
    vue = [t for t in second.transitions if t.thing == "vue"]
    assert {(t.path, t.after, t.moved) for t in vue} == {
        ("package.json", None, True), ("web/package.json", "3.0.0", True),
    }  # fmt: skip
    react = [t for t in second.transitions if t.thing == "react" and t.after]
    assert [(t.before, t.after, t.moved) for t in react] == [("17.0.1", "18.2.0", False)]


def test_a_merge_is_mined_on_the_mainline_and_its_branch_beside_it(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    root = build.commit({"package.json": package(react="17.0.1")})
    side = build.commit({"package.json": package(react="18.0.0")}, "side", parents=[root], head=False)
    build.commit({"package.json": package(react="18.0.0")}, "merge", parents=[root, side])
    by_message = {commit.message: commit for commit in mined(build.path)}
    assert [by_message[m].mainline for m in ("change", "side", "merge")] == [True, False, True]
    assert changes(by_message["side"]) == changes(by_message["merge"]) == {("react", "17.0.1", "18.0.0")}


VERSIONS = st.sampled_from(["1.0.0", "^1.0.0", "2.1.0", "~2.1.0", "3.0.0"])
TREE = st.dictionaries(
    st.sampled_from(["package.json", "web/package.json", "api/package.json"]),
    st.dictionaries(st.sampled_from(["react", "vue", "left-pad"]), VERSIONS, max_size=3),
    max_size=2,
)
STEP = st.tuples(TREE, st.integers(-500, 500), st.sampled_from(["linear", "merge", "revert"]))


def files_of(tree: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {"README.md": "x", **{path: package(**deps) for path, deps in tree.items()}}


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8))
def test_the_state_from_history_equals_the_heads_tree(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, dict[str, str]], int, str]]
) -> None:
    """Merges, reverts, renames, removals, and committers' clocks that run backwards."""
    build = Builder(tmp_path_factory.mktemp("r") / "r")
    trees: list[dict[str, str]] = [{"README.md": "x"}]
    build.commit(trees[0], clock=0)
    for tree, clock, kind in steps:
        base = str(build.repository.head.target)
        files = trees[-2] if kind == "revert" and len(trees) > 1 else files_of(tree)
        if kind == "merge":
            side = build.commit(files, "side", parents=[base], clock=clock, head=False)
            build.commit(files, "merge", parents=[base, side], clock=clock - 7)
        else:
            build.commit(files, f"set react to {clock}", clock=clock)
        trees.append(files)
    replay = replay_mined(build.path, OperatorChoice())
    assert check_head(build.path, replay.memory).differences == ()


def test_a_wrong_memory_is_found_out(tmp_path: Path) -> None:
    one, other = Builder(tmp_path / "one"), Builder(tmp_path / "other")
    one.commit({"package.json": package(react="17.0.1", vue="1.0.0")})
    other.commit({"package.json": package(react="18.2.0", vue="1.0.0")})
    check = check_head(one.path, replay_mined(other.path, OperatorChoice()).memory)
    assert check.differences == ("package.json#react.dependency: HEAD '17.0.1', memory '18.2.0'",)


def test_message_and_diff_disagree_in_sight_and_the_diff_holds(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    build.commit({"package.json": package(react="17.0.1")}, "start")
    build.commit({"package.json": package(react="18.2.0")}, "Bump react from 17.0.1 to 18.3.0")
    memory = replay_mined(build.path, OperatorChoice()).memory
    (key,) = [key for key in memory.known_keys() if key.entity.endswith("#react")]
    assert [item.claim.value for item in memory.current(key)] == ["18.2.0"]
    assert "18.3.0" in {v.item.claim.value for v in memory.versions(key)}


def test_several_processes_give_what_one_gives(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    for number in range(230):
        build.commit({"package.json": package(react=f"1.{number}.0")})
    planned = RepositoryMiner(build.path).plan()
    assert list(mine_history(build.path, planned, processes=2)) == list(mine_history(build.path, planned))


def test_an_empty_repository_gives_nothing_and_no_repository_an_error(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    assert mined(build.path) == []
    with pytest.raises(RepositoryError, match="not a git repository"):
        RepositoryMiner(tmp_path)


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_what_cannot_be_read_is_counted_and_the_repository_is_left_as_it_was(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    sub = build.commit({"x": "y"}, head=False, parents=[])
    hostile: dict[str, bytes | str] = {
        "package.json": b"\0\1\2",
        "a/package.json": b'{"dependencies": {"caf\xe9": "1.0.0"}}',
        "b/package.json": b" " * (50 * 1024 * 1024),
        "c/package.json": "{not json",
        "d/package.json": package(react="1.0.0"),
        "loop/package.json": "package.json",
        "sub": sub,
    }
    modes = {"loop/package.json": FileMode.LINK, "sub": FileMode.COMMIT}
    build.commit(hostile, "x" * 1_000_000, modes=modes, parents=[])
    build.commit({"d/package.json": package(react="2.0.0")}, "caf\udce9 " * 10)
    before = snapshot(build.path)
    first, second = mined(build.path)
    assert changes(first) == {("react", None, "1.0.0")}
    assert {"binary", "not UTF-8", "larger than 1 MB"} <= set(first.skipped)
    assert any(kind.startswith("unreadable") for kind in first.skipped)
    assert len(first.message) <= 20_000
    assert changes(second) == {("react", "1.0.0", "2.0.0")}
    assert snapshot(build.path) == before


def test_a_missing_blob_is_counted_and_a_shallow_clone_is_known_as_one(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    build.commit({"package.json": package(react="1.0.0")})
    build.commit({"package.json": package(react="2.0.0")})
    partial = tmp_path / "partial"
    shutil.copytree(build.path, partial)
    blob = str(build.repository.create_blob(package(react="1.0.0").encode()))
    (partial / "objects" / blob[:2] / blob[2:]).unlink()
    assert [commit.skipped.get("missing blob", 0) for commit in mined(partial)] == [1, 0]
    shallow = tmp_path / "shallow"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", f"file://{build.path}", str(shallow)],
        check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
    )  # fmt: skip
    assert RepositoryMiner(shallow).is_shallow
    assert not RepositoryMiner(build.path).is_shallow
    assert [changes(commit) for commit in mined(shallow)] == [{("react", None, "2.0.0")}]
