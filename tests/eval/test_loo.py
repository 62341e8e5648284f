"""Leave-one-out: the same bytes twice, every number recomputed from rows, foreign trajectories welcome."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data_builders.trajectory import load_trajectories
from eval.loo import STEPS, Row, run_loo
from eval.replay import replay
from eval.report import compare_runs, pool_runs, summarise
from eval.runs import load_run, save_run
from operators.assembly import ModelSource, parse_choice
from operators.errors import InputError, UnscoredError
from operators.models.scripted import ScriptedModel
from tests.data_builders.test_trajectories import FOLDER, NAMES, SMALL


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run_loo(load_trajectories(FOLDER), parse_choice("rules"))


def test_the_summary_has_every_holdout_and_measure(rows: list[Row]) -> None:
    summary = summarise(rows, "rules")
    holdouts = summary["holdouts"]
    assert isinstance(holdouts, list)
    assert [h["name"] for h in holdouts] == NAMES
    for holdout in holdouts:
        assert {"name", "n", "overall", "macro", "outcomes", *STEPS} <= set(holdout)
        counted = sum(n for kinds in holdout["outcomes"].values() for n in kinds.values())
        assert counted == holdout["n"]


def test_two_evaluations_give_the_same_bytes(rows: list[Row]) -> None:
    again = run_loo(load_trajectories(FOLDER), parse_choice("rules"))
    assert json.dumps(summarise(rows, "rules")) == json.dumps(summarise(again, "rules"))


def test_history_fed_as_claims_gives_back_the_true_state(rows: list[Row]) -> None:
    """What the update rules lose on true claims is theirs alone; on this history it is next to nothing."""
    scores = [row.score for row in rows if row.step == "state_given_claims"]
    assert sum(scores) / len(scores) > 0.97


def test_last_write_wins_is_worse_on_the_same_examples(rows: list[Row]) -> None:
    others = run_loo(load_trajectories(FOLDER), parse_choice("compare=latest"))
    tests = compare_runs(rows, others)
    assert tests["update"].only_first > 10 * max(1, tests["update"].only_second)
    assert tests["update"].p < 1e-6
    assert tests["extract"].p == 1


def test_a_run_is_kept_and_every_number_comes_back_from_its_rows(rows: list[Row], tmp_path: Path) -> None:
    folder = save_run(rows, tmp_path, operators="rules", inputs={})
    assert save_run(rows, tmp_path, operators="rules", inputs={}) == folder
    asked = {"one": ModelSource(ScriptedModel(), {"update-memory": "mine"}, 0.4)}
    other = save_run(rows, tmp_path / "asked", operators="update=learned", inputs={}, sources=asked)
    told = json.loads((other / "run.json").read_bytes())["models"]
    assert told == {"one": {"model": "scripted", "adapters": {"update-memory": "mine"}, "threshold": 0.4}}
    name, loaded = load_run(folder)
    assert summarise(loaded, name) == summarise(rows, "rules")
    with pytest.raises(InputError, match="no run folder"):
        load_run(tmp_path)
    lines = (folder / "rows.jsonl").read_text().splitlines()
    (folder / "rows.jsonl").write_text(f"{lines[0]}\n{lines[0]}\n")
    with pytest.raises(InputError, match=r"rows\.jsonl:2: this example was scored above"):
        load_run(folder)
    (folder / "rows.jsonl").write_text(json.dumps({**json.loads(lines[0]), "score": 7}) + "\n")
    with pytest.raises(InputError, match=r"rows\.jsonl:1: a score is from 0 to 1"):
        load_run(folder)
    (folder / "rows.jsonl").write_text('{"holdout": 1}\n')
    with pytest.raises(InputError, match=r"rows\.jsonl:1"):
        load_run(folder)


def test_runs_on_different_examples_are_not_compared(rows: list[Row]) -> None:
    with pytest.raises(UnscoredError):
        compare_runs(rows, rows[1:])
    with pytest.raises(UnscoredError):
        summarise([], "rules")


def test_a_run_over_fewer_holdouts_is_compared_on_those(rows: list[Row]) -> None:
    fewer = [row for row in rows if row.holdout in NAMES[:2]]
    wrong = [replace(row, score=0.0) for row in fewer]
    tests = compare_runs(rows, wrong)
    for step, test in tests.items():
        assert (test.only_first, test.only_second) == (sum(r.score == 1 for r in fewer if r.step == step), 0)
    assert tests == compare_runs(fewer, wrong)
    with pytest.raises(UnscoredError, match="share no holdout"):
        compare_runs(fewer, [row for row in rows if row.holdout not in NAMES[:2]])


def test_two_seeds_give_the_mean_score_and_no_more_certainty_than_their_examples(rows: list[Row]) -> None:
    zero = [replace(row, score=0.0) for row in rows]
    name, both = pool_runs([("rules", rows), ("rules", zero)])
    one, two = summarise(rows, "rules"), summarise(both, name)
    assert two["operators"] == "rules · 2 runs"
    first, second = one["mean"], two["mean"]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert second["extract"] == pytest.approx(first["extract"] / 2, abs=1e-4)
    assert second["relaxed_f1"] == first["relaxed_f1"]
    for step, (low, high) in second["intervals"].items():
        assert [low, high] == pytest.approx([end / 2 for end in first["intervals"][step]], abs=2e-4)
    counted, doubled = one["holdouts"], two["holdouts"]
    assert isinstance(counted, list)
    assert isinstance(doubled, list)
    assert [h["n"] for h in doubled] == [h["n"] for h in counted]
    with pytest.raises(UnscoredError, match="runs of rules and of compare=latest"):
        pool_runs([("rules", rows), ("compare=latest", rows)])
    with pytest.raises(UnscoredError, match="different examples"):
        pool_runs([("rules", rows), ("rules", rows[1:])])


def test_a_worse_row_lowers_its_holdout_only(rows: list[Row]) -> None:
    worse = [replace(row, score=0.0) if row.holdout == NAMES[0] else row for row in rows]
    before, after = summarise(rows, "rules")["holdouts"], summarise(worse, "rules")["holdouts"]
    assert isinstance(before, list)
    assert isinstance(after, list)
    assert after[0]["overall"] == 0 < before[0]["overall"]
    assert after[1:] == before[1:]


def test_a_trajectory_by_someone_else_works_without_touching_code(tmp_path: Path) -> None:
    (tmp_path / "small.yml").write_text(SMALL)
    (small,) = load_trajectories(tmp_path)
    summary = summarise(run_loo([small], parse_choice("rules")), "rules")
    (holdout,) = summary["holdouts"] if isinstance(summary["holdouts"], list) else []
    assert holdout["name"] == "small"
    assert holdout["state_given_claims"] == 1.0


def test_the_state_is_scored_after_every_session() -> None:
    trajectory = load_trajectories(FOLDER)[0]
    result = replay(trajectory, parse_choice("rules"), gold_claims=True)
    assert [s.session_id for s in result.sessions] == [s.id for s in trajectory.sessions]
    assert all(0 <= s.right <= s.places for s in result.sessions)
