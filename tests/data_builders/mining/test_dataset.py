"""`data mine`: the same bytes twice, only new commits on a second run, forks and copies refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_builders.examples import Source, examples
from data_builders.mining.dataset import (
    Origin,
    mine_repositories,
    mined_cases,
    mined_repositories,
    origin_of,
    read_commits,
    read_notes,
)
from data_builders.mining.training import MinedConfig, training_cases
from eval.loo import run_mined
from eval.report import summarise
from operators.assembly import parse_choice
from operators.claims import Action
from operators.errors import InputError, LeakError
from tests.data_builders.mining.repositories import Builder
from tests.data_builders.mining.test_history import package

VERSIONS = ["17.0.1", "18.1.0", "18.2.0", "18.3.0", "19.0.0", "19.1.0"]


def history(path: Path, *, thing: str = "react", clock: int = 0) -> Builder:
    build = Builder(path)
    old = None
    for number, version in enumerate(VERSIONS):
        message = f"Bump {thing} from {old} to {version}" if old else f"Start with {thing} {version}"
        build.commit(
            {"package.json": package(**{thing: version, "vue": "3.0.0"}), "README.md": "x"},
            message,
            clock=clock + number * 60,
        )
        build.commit(
            {"package.json": package(**{thing: version, "vue": "3.0.0"}), "README.md": f"{number}"},
            f"Words about nothing, take {number}", clock=clock + number * 60 + 30,
        )  # fmt: skip
        old = version
    return build


def test_notes_state_what_the_diff_proves_and_negatives_state_nothing(tmp_path: Path) -> None:
    build = history(tmp_path / "r")
    mine_repositories(tmp_path / "out", [Origin(build.path, "one")])
    notes = list(read_notes(tmp_path / "out" / "one"))
    stated = [note for note in notes if note.claims]
    assert [claim.value for note in stated for claim in note.claims] == VERSIONS
    assert sum(not note.claims for note in notes) == len(VERSIONS) // 2
    for note in notes:
        case = note.case()
        assert all(claim.value is None or claim.value in note.text for claim in case.gold)
        assert {claim.key[:2] for claim in case.gold} <= {
            (e.entity, s.slot) for e, s in note.slot_schema.pairs()
        }


def test_chains_give_compare_and_update_gold_of_every_kind(tmp_path: Path) -> None:
    build = history(tmp_path / "r")
    mine_repositories(tmp_path / "out", [Origin(build.path, "one")])
    cases = mined_cases(tmp_path / "out" / "one", sample=100)
    assert len(cases.update) == len(VERSIONS) - 1
    assert {case.action for case in cases.update} == {Action.SUPERSEDE, Action.CONTEST, Action.MERGE}
    rows = run_mined(tmp_path / "out", parse_choice("rules"), sample=100)
    holdouts = summarise(rows, "rules")["holdouts"]
    assert isinstance(holdouts, list)
    (holdout,) = holdouts
    assert holdout["compare"] == holdout["update"] == 1.0
    assert holdout["extract"] > 0.5


def test_two_runs_have_the_same_bytes_and_a_second_run_mines_only_what_is_new(tmp_path: Path) -> None:
    build = history(tmp_path / "r")
    one = mine_repositories(tmp_path / "one", [Origin(build.path, "x")])
    two = mine_repositories(tmp_path / "two", [Origin(build.path, "x")])
    assert one["files"] == two["files"]
    build.commit({"package.json": package(react="20.0.0", vue="3.0.0")}, "Bump react from 19.1.0 to 20.0.0")
    heard: list[int] = []
    grown = mine_repositories(
        tmp_path / "grown", [Origin(build.path, "x")], previous=tmp_path / "one",
        progress=lambda _name, _done, of: heard.append(of),
    )  # fmt: skip
    assert heard == [1]
    fresh = mine_repositories(tmp_path / "fresh", [Origin(build.path, "x")])
    assert grown["files"] == fresh["files"]


def test_forks_copies_and_equal_names_are_refused_and_nothing_is_left_behind(tmp_path: Path) -> None:
    build = history(tmp_path / "r")
    with pytest.raises(LeakError, match="one is a fork"):
        mine_repositories(tmp_path / "out", [Origin(build.path, "a"), Origin(build.path, "b")])
    with pytest.raises(InputError, match="one name"):
        mine_repositories(tmp_path / "out", [Origin(build.path, "a"), Origin(build.path, "a")])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r"]


def test_a_vendored_copy_is_known_by_its_notes(tmp_path: Path) -> None:
    def many(path: Path, clock: int) -> Builder:
        build = Builder(path)
        for number in range(30):
            build.commit(
                {"package.json": package(react=f"1.{number}.0")},
                f"react to 1.{number}.0",
                clock=clock + number,
            )
        return build

    one, other = many(tmp_path / "a", 0), many(tmp_path / "b", 9999)
    with pytest.raises(LeakError, match="one is a copy"):
        mine_repositories(tmp_path / "out", [Origin(one.path, "a"), Origin(other.path, "b")])


def test_mined_notes_become_rows_of_the_usual_form(tmp_path: Path) -> None:
    build = history(tmp_path / "r")
    manifest = mine_repositories(tmp_path / "out", [Origin(build.path, "one")])
    config = MinedConfig(notes=50, max_characters=600, bot_share=0.1)
    cases = training_cases(tmp_path / "out" / "one", config)
    rows = list(examples(cases, Source.MINED, "one", negatives=3))
    assert {row.operator for row in rows} == {"extract-state", "compare-claims", "update-memory"}
    assert len({row.id for row in rows}) == len(rows)
    counts = manifest["repositories"]["one"]  # type: ignore[index]
    assert counts["stated"] == len(VERSIONS)
    assert counts["by_miner"]["package-json"]["stated"] == len(VERSIONS)


@pytest.mark.parametrize(("share", "bots"), [(0.0, 0), (0.2, 2), (0.5, 8), (1.0, 12)])
def test_bots_have_at_most_their_share_of_the_training_notes(tmp_path: Path, share: float, bots: int) -> None:
    build = Builder(tmp_path / "r")
    for number in range(20):
        author = "renovate[bot]" if number < 12 else "Ann"
        build.commit(
            {"package.json": package(react=f"1.{number}.0")}, f"react to 1.{number}.0", author=author
        )
    mine_repositories(tmp_path / "out", [Origin(build.path, "one")])
    config = MinedConfig(notes=100, max_characters=600, bot_share=share)
    cases = training_cases(tmp_path / "out" / "one", config)
    by_bots = {f"one/{n.sha[:12]}/extract" for n in read_notes(tmp_path / "out" / "one") if n.by_bot}
    assert len(by_bots) == 12
    assert sum(case.case_id in by_bots for case in cases.extract) == bots


def test_an_empty_repository_is_mined_to_nothing(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    manifest = mine_repositories(tmp_path / "out", [Origin(build.path, "none")])
    assert manifest["repositories"]["none"]["commits"] == 0  # type: ignore[index]
    assert list(read_commits(tmp_path / "out" / "none")) == []


def test_wrong_folders_and_rows_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no mined repository"):
        mined_repositories(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "notes.jsonl").write_text(json.dumps({"id": 1}) + "\n")
    with pytest.raises(InputError, match=r"notes\.jsonl:1"):
        list(read_notes(tmp_path / "x"))


def test_a_repository_goes_by_its_remotes_name_unless_named(tmp_path: Path) -> None:
    build = Builder(tmp_path / "r")
    assert origin_of(str(build.path)).name == "r"
    build.repository.remotes.create("origin", "https://example.org/someone/thing.git")
    assert origin_of(str(build.path)).name == "someone-thing"
    assert origin_of(f"mine={build.path}") == Origin(build.path, "mine")
