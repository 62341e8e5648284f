"""The five trajectories hold what they promise, and a wrong trajectory file is refused with its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from data_builders.gold import gold_cases, gold_states
from data_builders.trajectory import Trajectory, load_trajectories, load_trajectory
from operators.errors import InputError
from operators.evidence import WEIGHTS, EvidenceType

FOLDER = Path(__file__).parents[2] / "configs" / "trajectories"
NAMES = ["browser-surface", "exec-app-server", "model-routing", "patch-guardrails", "permissions-flow"]
SMALL = """\
name: small
repository: someone/something
licence: MIT
about: A made-up history.
schema:
  entities:
    - entity: api
      slots:
        - {slot: limit, form: number}
        - {slot: hosts, form: name, cardinality: many}
sessions:
  - id: s1
    commit: 0123456789abcdef0123456789abcdef01234567
    date: 2026-01-01T10:00:00+00:00
    evidence: code-change
    note: The API limit is now 5 and host-a joins.
    claims:
      - {entity: api, slot: limit, value: 5, change: introduces}
      - {entity: api, slot: hosts, value: host-a, change: introduces}
  - id: s2
    commit: 1123456789abcdef0123456789abcdef01234567
    date: 2026-01-02T10:00:00+00:00
    evidence: code-change
    note: The API limit moved from 5 to 8, host-a leaves.
    claims:
      - {entity: api, slot: limit, value: 8, change: replaces, against: s1}
      - {entity: api, slot: hosts, value: null, retires: host-a, change: removes, against: s1}
  - id: d1
    date: 2026-01-03T10:00:00+00:00
    evidence: human-note
    trap: stale
    note: The API limit is 5.
    claims: [{entity: api, slot: limit, value: 5, change: disputes, against: s2}]
queries:
  - {id: q1, kind: current, question: "What is the limit?", required: [8], forbidden: [5]}
"""


@pytest.fixture(scope="module")
def trajectories() -> tuple[Trajectory, ...]:
    return load_trajectories(FOLDER)


def test_there_are_five_of_the_size_promised(trajectories: tuple[Trajectory, ...]) -> None:
    assert [t.name for t in trajectories] == NAMES
    for t in trajectories:
        assert len(t.commit_sessions) >= 24
        assert len(t.sessions) - len(t.commit_sessions) >= 10
        assert len(t.queries) >= 30
        assert sum(q.hops >= 2 for q in t.queries) >= 8
        assert len(Counter(q.kind for q in t.queries)) == 5
        assert all(len(s.commit or "") == 40 and s.files for s in t.commit_sessions)


def test_every_kind_of_trap_is_laid(trajectories: tuple[Trajectory, ...]) -> None:
    for t in trajectories:
        traps = Counter(s.trap for s in t.sessions if s.trap)
        assert len(traps) == 4, (t.name, traps)


def test_history_is_kept_with_reverts_and_removals(trajectories: tuple[Trajectory, ...]) -> None:
    for t in trajectories:
        changes = Counter(gold.change.value for _, gold in t.claims())
        assert changes["reverts"]
        assert changes["removes"]
        assert changes["disputes"]


def test_flipping_an_evidence_weight_changes_no_gold(
    trajectories: tuple[Trajectory, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gold() -> list[object]:
        found: list[object] = []
        for t in trajectories:
            cases = gold_cases(t)
            found += [(c.case_id, c.gold) for c in cases.compare]
            found += [(c.case_id, c.action, c.target) for c in cases.update]
            found += [(s.session_id, s.values) for s in gold_states(t)]
        return found

    before = gold()
    monkeypatch.setitem(WEIGHTS, EvidenceType.CODE_CHANGE, 1)
    monkeypatch.setitem(WEIGHTS, EvidenceType.STALE_OBSERVATION, 99)
    assert gold() == before


def test_gold_follows_the_annotations(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    small = load_trajectory(tmp_path / "small.yaml")
    cases = gold_cases(small)
    assert [(c.gold.relation.value, c.gold.winner.value) for c in cases.compare if "unrelated" not in c.case_id] == [
        ("contradicts", "incoming"), ("contradicts", "incoming"), ("contradicts", "incumbent"),
    ]  # fmt: skip
    assert [c.action.value for c in cases.update] == ["add", "add", "supersede", "supersede", "contest"]
    assert {str(k): v for (k, _), v in gold_states(small)[-1].values.items()} == {
        "api.limit": "8", "api.hosts": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("change: replaces, against: s1", "change: replaces, against: d1", 26, "held by s1, not by d1"),
        ("value: 8, change: replaces, against: s1", "value: 8, change: introduces", 26, "held by s1 already"),
        ("slot: limit, value: 8", "slot: limits, value: 8", 26, "no slot api.limits"),
        ("value: host-a", "value: host-b", 19, "does not stand in the note"),
        ("2026-01-02T10:00:00+00:00", "2026-01-02T10:00:00", 22, "timezone"),
        ("2026-01-02T10:00:00+00:00", "2025-01-02T10:00:00+00:00", 22, "older than the one before"),
        ("id: s2", "id: s1", 20, "a second session is called s1"),
        ("1123456789abcdef0123", "0123456789abcdef0123", 21, "stands in an earlier session"),
        ("trap: stale", "trap: rumour", 31, "'stale', 'branch', 'documentation' or 'hedged'"),
        ("    trap: stale\n", "", 28, "either a commit or"),
        ("change: removes", "change: replaces", 27, "`removes` goes with value null"),
        ("required: [8]", "required: []", 35, "no answer could be right"),
        ("What is the limit?", "Is the limit 8?", 35, "can be read in the question"),
        ("forbidden: [5]", "forbidden: [8]", 35, "part of a wanted token"),
        ("value: 8, change: replaces", "value: 5, change: replaces", 26, "'5' was held already"),
        ("value: 8, change: replaces", "value: 8, change: restates", 26, "'5' was held"),
        (", retires: host-a", "", 27, "in a slot of many and only there"),
        ("change: replaces, against: s1", "change: replaces", 26, "held by s1, not by None"),
        ("date: 2026-01-01T10:00:00+00:00", "date: 2026", 14, "a date has a day"),
        ("date: 2026-01-01T10:00:00+00:00", "date: 0001-01-01T00:00:00+08:00", 14, "no UTC date"),
        ("value: 5, change: disputes", "value: 5, env: prod, change: introduces", 33, "unknown env prod"),
    ],
)
def test_a_wrong_file_names_file_line_and_field(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    assert old in SMALL
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_trajectory(path)
    assert says in str(caught.value)
    assert f"small.yaml:{line} " in str(caught.value), str(caught.value)


def test_a_commit_belongs_to_one_trajectory_only(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL)
    (tmp_path / "b.yaml").write_text(SMALL.replace("name: small", "name: other"))
    with pytest.raises(InputError, match=r"stands in a\.yaml too"):
        load_trajectories(tmp_path)
    (tmp_path / "b.yaml").write_text(SMALL)
    with pytest.raises(InputError, match="a second trajectory is called small"):
        load_trajectories(tmp_path)
    with pytest.raises(InputError, match=r"no \*\.yaml here"):
        load_trajectories(tmp_path / "nowhere")
