"""Mechanical conflicts between findings, and what becomes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from operators.claims import Finding, FindingType, Policy
from operators.evidence import Evidence, EvidenceType
from operators.status import Status
from pipeline.checker import ViolationKind, check
from pipeline.reconciler import RuleReconciler, settle

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def finding(name: str, kind: FindingType, text: str, evidence: str = "human-note") -> Finding:
    return Finding(
        finding_id=name,
        type=kind,
        text=text,
        evidence=Evidence(type=EvidenceType(evidence), source=name),
        timestamp=DAY,
    )


def needs(name: str, text: str) -> Finding:
    return finding(name, FindingType.DEPENDENCY, text)


def books(name: str, resource: str, start: int, end: int, evidence: str = "human-note") -> Finding:
    text = f"deploy resource:{resource} time:{start}-{end}"
    return finding(name, FindingType.CONSTRAINT, text, evidence)


def test_a_cycle_is_one_violation_with_just_its_own_edges() -> None:
    report = check([needs("a", "x -> y"), needs("b", "y -> z"), needs("c", "z -> x"), needs("d", "z -> w")])
    (violation,) = report.violations
    assert (violation.kind, violation.finding_ids) == (ViolationKind.CYCLE, ("a", "b", "c"))
    assert report.edges == 4


def test_a_thing_that_needs_itself_is_a_cycle_and_a_chain_is_none() -> None:
    assert len(check([needs("a", "x -> x")]).violations) == 1
    assert check([needs("a", "x -> y"), needs("b", "y -> z"), needs("c", "x -> z")]).violations == ()


def test_adjacent_ends_do_not_collide_and_overlaps_group_by_resource() -> None:
    adjacent = [books("a", "db", 0, 5), books("b", "db", 5, 9)]
    assert check(adjacent).violations == ()
    report = check([*adjacent, books("c", "db", 4, 6), books("d", "gpu", 4, 6)])
    (violation,) = report.violations
    assert (violation.subject, violation.finding_ids) == ("db", ("a", "b", "c"))
    assert report.intervals == 4


INTERVALS = st.lists(st.tuples(st.sampled_from("rs"), st.integers(0, 9), st.integers(0, 9)), max_size=8)


@given(INTERVALS)
def test_the_sweep_finds_what_comparing_all_pairs_finds(intervals: list[tuple[str, int, int]]) -> None:
    found = [books(f"f{n}", r, s, e) for n, (r, s, e) in enumerate(intervals)]
    colliding = {
        i
        for a, b in permutations(range(len(intervals)), 2)
        if intervals[a][0] == intervals[b][0]
        and intervals[a][1] < intervals[b][2]
        and intervals[b][1] < intervals[a][2]
        and all(start < end for _, start, end in (intervals[a], intervals[b]))
        for i in (f"f{a}", f"f{b}")
    }
    assert {i for violation in check(found).violations for i in violation.finding_ids} == colliding


def test_a_check_says_how_much_it_looked_at() -> None:
    report = check([finding("a", FindingType.FACT, "resource:db time:1-2"), needs("b", "no arrow here")])
    assert (report.edges, report.intervals, report.violations) == (0, 0, ())


def test_coordination_keeps_both_sides_and_asks_for_a_new_plan() -> None:
    board = settle([books("a", "db", 0, 5), books("b", "db", 3, 9)], RuleReconciler())
    assert board.statuses == {"a": Status.CONTESTED, "b": Status.CONTESTED}
    assert board.needs_replanning
    assert [r.policy for r in board.resolutions] == [Policy.COORDINATION]


def test_a_stale_side_loses_and_the_rest_is_confirmed() -> None:
    board = settle([books("a", "db", 0, 5, "stale-observation"), books("b", "db", 3, 9)], RuleReconciler())
    assert board.statuses == {"a": Status.SUPERSEDED, "b": Status.CONFIRMED}
    assert not board.needs_replanning
    assert board.resolutions[0].losers == ("a",)


def test_findings_without_conflict_are_confirmed_in_any_order() -> None:
    found = [finding("a", FindingType.FACT, "x"), needs("b", "x -> y"), books("c", "db", 1, 2)]
    boards = [settle(order, RuleReconciler()).statuses for order in permutations(found)]
    assert all(board == dict.fromkeys("abc", Status.CONFIRMED) for board in boards)
    assert settle([], RuleReconciler()).statuses == {}
