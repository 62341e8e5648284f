"""The scenario families: equal arguments give equal scenarios, gold is true, nothing gives it away."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from data_builders.scenarios import Family, Vocabulary, generate, load_vocabulary
from data_builders.scenarios.vocabulary import VOCABULARY
from data_builders.trajectory import Change, GoldClaim, QueryKind, Session, Trajectory, Trap, load_trajectory
from operators.claims import ANY_SCOPE, Key
from operators.errors import ConfigError, InputError
from operators.normal import Form
from operators.schema import Cardinality

MODES = (False, True)


@cache
def vocabulary() -> Vocabulary:
    return load_vocabulary()


@cache
def scenario(family: Family, seed: int, *, long_noise: bool = False, length: int = 12) -> Trajectory:
    return generate(family, seed=seed, length=length, long_noise=long_noise, vocabulary=vocabulary())


def everything(seeds: int = 10) -> Iterator[Trajectory]:
    """Scenarios of all families in both modes."""
    for family in Family:
        for long_noise in MODES:
            for seed in range(seeds):
                yield scenario(family, seed, long_noise=long_noise)


def of_family(family: Family, seeds: int = 30) -> Iterator[Trajectory]:
    return (scenario(family, seed, long_noise=long_noise) for seed in range(seeds) for long_noise in MODES)


def place(trajectory: Trajectory, gold: GoldClaim) -> tuple[Key, str]:
    many = trajectory.slot_schema.slot(gold.entity, gold.slot).cardinality is Cardinality.MANY
    return gold.key, (gold.retires or gold.value or "") if many else ""


def moves(
    trajectory: Trajectory,
) -> Iterator[tuple[Session, GoldClaim, list[tuple[Session, GoldClaim]]]]:
    """Each claim with the claims that moved its place before it."""
    books: dict[tuple[Key, str], list[tuple[Session, GoldClaim]]] = {}
    for session, gold in trajectory.claims():
        history = books.setdefault(place(trajectory, gold), [])
        yield session, gold, list(history)
        if gold.change not in (Change.RESTATES, Change.DISPUTES):
            history.append((session, gold))


def current(trajectory: Trajectory) -> dict[tuple[Key, str], tuple[Session, GoldClaim]]:
    """Who holds each place at the end."""
    holders: dict[tuple[Key, str], tuple[Session, GoldClaim]] = {}
    for session, gold in trajectory.claims():
        if gold.change not in (Change.RESTATES, Change.DISPUTES):
            holders[place(trajectory, gold)] = (session, gold)
    return holders


# ---- determinism and the file checks


def test_equal_arguments_give_an_equal_scenario() -> None:
    for family in Family:
        for long_noise in MODES:
            again = generate(family, seed=3, long_noise=long_noise, vocabulary=load_vocabulary())
            assert again == scenario(family, 3, long_noise=long_noise)


def test_another_seed_or_mode_gives_another_scenario() -> None:
    family = Family.INCIDENT_TIMELINE
    base = scenario(family, 3)
    assert base.sessions != scenario(family, 4).sessions
    assert base.sessions != scenario(family, 3, long_noise=True).sessions
    commits = [session.commit for t in everything() for session in t.commit_sessions]
    assert len(commits) == len(set(commits))


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("long_noise", MODES)
def test_a_scenario_passes_the_checks_of_a_file(family: Family, long_noise: bool, tmp_path: Path) -> None:
    for seed in range(5):
        trajectory = scenario(family, seed, long_noise=long_noise)
        _assert_round_trip(trajectory, tmp_path / f"{seed}.yaml")


@pytest.mark.parametrize("length", [1, 2, 3, 5, 40])
def test_any_length_passes_the_checks_of_a_file(length: int, tmp_path: Path) -> None:
    for family in Family:
        trajectory = scenario(family, 11, long_noise=length < 5, length=length)
        assert len(trajectory.commit_sessions) == length
        assert trajectory.queries
        _assert_round_trip(trajectory, tmp_path / f"{family}.yaml")


def _assert_round_trip(trajectory: Trajectory, path: Path) -> None:
    data = trajectory.model_dump(by_alias=True, mode="json", exclude_defaults=True)
    path.write_text(yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True), "utf-8")
    assert load_trajectory(path) == trajectory


def test_a_length_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 sessions"):
        generate(Family.AUTHORITY_OVERWRITE, seed=1, length=0, vocabulary=vocabulary())


# ---- sessions


def test_distractors_are_a_quarter_or_outnumber_the_sessions() -> None:
    for trajectory in everything():
        expected = 18 if trajectory.name.endswith("long") else 4
        assert len(trajectory.commit_sessions) == 12
        assert len(trajectory.sessions) - 12 == expected


def test_about_one_session_in_ten_claims_nothing() -> None:
    sessions = [session for t in everything(30) for session in t.commit_sessions]
    quiet = sum(not session.claims for session in sessions)
    assert 0.05 < quiet / len(sessions) < 0.15


def test_every_trap_is_set_and_most_hedges_claim_nothing() -> None:
    distractors = [s for t in everything() for s in t.sessions if s.trap]
    assert {s.trap for s in distractors} == set(Trap)
    hedged = [s for s in distractors if s.trap is Trap.HEDGED]
    assert sum(not s.claims for s in hedged) > 0.6 * len(hedged)
    assert any(s.claims for s in hedged)


def test_stale_and_documentary_claims_are_disputes_that_contradict_something_earlier() -> None:
    for trajectory in everything():
        for session, gold, history in moves(trajectory):
            if session.trap in (Trap.STALE, Trap.DOCUMENTATION, Trap.HEDGED):
                assert gold.change is Change.DISPUTES
                assert history
                holder, held = history[-1]
                assert holder.date < session.date
                assert gold.value != held.value
            elif session.trap is Trap.BRANCH:
                assert gold.branch != ANY_SCOPE
                assert gold.change is not Change.DISPUTES


def test_the_strongest_and_then_newest_evidence_is_what_gold_holds() -> None:
    for trajectory in everything():
        best: dict[tuple[Key, str], tuple[int, str, str | None]] = {}
        for session, gold in trajectory.claims():
            claim = session.state_claim(gold, "t")
            rank = (claim.evidence.score, claim.timestamp.isoformat(), gold.value)
            where = place(trajectory, gold)
            if where not in best or rank[:2] >= best[where][:2]:
                best[where] = rank
        for where, (_, gold) in current(trajectory).items():
            assert best[where][2] == gold.value, (trajectory.name, where)


# ---- families


def test_a_reverted_value_had_been_held_before_and_a_replacement_had_not() -> None:
    for trajectory in everything():
        for _, gold, history in moves(trajectory):
            held = [past.value for _, past in history]
            if gold.change is Change.REVERTS:
                assert gold.value in held[:-1]
                assert gold.value != held[-1]
            elif gold.change is Change.REPLACES:
                assert gold.value not in held
            elif gold.change is Change.REFINES:
                assert held[-1]
                assert gold.value
                assert gold.value.startswith(f"{held[-1]} ")


def test_incidents_bring_values_back_more_often_than_the_other_families() -> None:
    share: dict[Family, float] = {}
    for family in Family:
        claims = [gold.change for t in of_family(family) for s in t.commit_sessions for gold in s.claims]
        share[family] = claims.count(Change.REVERTS) / len(claims)
    assert share[Family.INCIDENT_TIMELINE] > 2 * share[Family.AUTHORITY_OVERWRITE]
    evidence = Counter(s.evidence for t in of_family(Family.INCIDENT_TIMELINE) for s in t.commit_sessions)
    assert evidence["incident-hotfix"] > 0.08 * evidence.total()  # type: ignore[index]
    assert any(
        [past.change for _, past in history[-2:]] == [Change.REPLACES, Change.REVERTS]
        and gold.change is Change.REVERTS
        for t in of_family(Family.INCIDENT_TIMELINE)
        for _, gold, history in moves(t)
    ), "no restore after a rollback"


def test_scopes_live_side_by_side_and_never_collapse() -> None:
    for trajectory in of_family(Family.SCOPE_DIVERGENCE):
        values: dict[tuple[str, str], dict[tuple[str, str], str | None]] = {}
        backed = (session for session in trajectory.sessions if session.trap is None)
        for session in backed:
            for gold in session.claims:
                form = trajectory.slot_schema.slot(gold.entity, gold.slot)
                if form.cardinality is Cardinality.ONE and form.form is not Form.FLAG:
                    scopes = values.setdefault((gold.entity, gold.slot), {})
                    scopes[gold.branch, gold.env] = gold.value
                    living = [value for value in scopes.values() if value is not None]
                    assert len(living) == len(set(living)), (trajectory.name, gold.key)
        assert any(len(scopes) >= 2 for scopes in values.values())


def test_a_scoped_claim_names_its_scope_and_an_unscoped_one_names_none() -> None:
    for trajectory in everything():
        schema = trajectory.slot_schema
        for session in trajectory.sessions:
            for gold in session.claims:
                for name, names in ((gold.branch, schema.branches), (gold.env, schema.envs)):
                    if name != ANY_SCOPE:
                        said = session.note.casefold()
                        assert any(n.casefold() in said for n in (name, *names[name]))


def test_members_join_leave_and_come_back() -> None:
    seen: Counter[Change] = Counter()
    for trajectory in everything(40):
        for _, gold in trajectory.claims():
            if trajectory.slot_schema.slot(gold.entity, gold.slot).cardinality is Cardinality.MANY:
                seen[gold.change] += 1
    assert {Change.INTRODUCES, Change.REMOVES, Change.REVERTS, Change.DISPUTES} <= set(seen)


# ---- queries


def test_every_scenario_of_twelve_asks_all_kinds_and_a_third_over_several_hops() -> None:
    for trajectory in everything(30):
        kinds = Counter(query.kind for query in trajectory.queries)
        assert set(kinds) == set(QueryKind), trajectory.name
        assert kinds.total() >= 10
    queries = [query for t in everything(30) for query in t.queries]
    assert 0.27 < sum(query.hops >= 2 for query in queries) / len(queries) < 0.45


def test_answers_to_current_questions_are_what_the_sessions_say() -> None:
    for trajectory in everything():
        holders = {str(key): gold for (key, member), (_, gold) in current(trajectory).items() if not member}
        for query in trajectory.queries:
            name = query.id.split("-", 1)[1]
            if query.kind is QueryKind.CURRENT and name in holders:
                gold = holders[name]
                answers = (*query.required, *query.any_of)
                assert (gold.value in answers) if gold.value else ("removed" in answers)
                assert gold.value not in query.forbidden


def test_answers_to_provenance_questions_are_commits_that_moved_the_key() -> None:
    for trajectory in everything():
        commits = {(session.commit or "")[:12]: session for session in trajectory.commit_sessions}
        holders = {str(key): holder for (key, member), holder in current(trajectory).items() if not member}
        for query in trajectory.queries:
            if query.kind is QueryKind.PROVENANCE:
                name = query.id.split("-", 1)[1]
                (answer,) = query.required
                moved = [g for g in commits[answer].claims if g.change is not Change.RESTATES]
                assert name in {str(gold.key) for gold in moved}
                assert set(query.forbidden) <= set(commits)
                if query.hops == 1:
                    assert commits[answer] == holders[name][0]


def test_answers_to_temporal_questions_are_days_or_values_of_the_key() -> None:
    for trajectory in everything():
        for query in trajectory.queries:
            name = query.id.split("-", 1)[1]
            mine = [(s, g) for s, g in trajectory.claims() if str(g.key) == name and not s.trap]
            if query.kind is QueryKind.TEMPORAL and "date" in query.question.casefold():
                assert query.required[0] in {f"{session.date:%Y-%m-%d}" for session, _ in mine}
            elif query.kind is QueryKind.TEMPORAL:
                answers = {*query.required, *query.any_of}
                assert answers & {gold.value or "removed" for _, gold in mine}


# ---- nothing gives the answer away


def _noisy() -> Iterator[Trajectory]:
    for number in range(201):
        yield scenario(list(Family)[number % 3], 1000 + number, long_noise=True)


def _asked(trajectory: Trajectory) -> Iterator[tuple[Key, str | None, list[str | None]]]:
    """Each key of a current-state query: what holds, and what was said of the key, in order."""
    holders = {str(key): gold for (key, member), (_, gold) in current(trajectory).items() if not member}
    named = dict.fromkeys(q.id.split("-", 1)[1] for q in trajectory.queries if q.kind is QueryKind.CURRENT)
    for name in named:
        if name in holders:
            gold = holders[name]
            yield gold.key, gold.value, [g.value for _, g in trajectory.claims() if g.key == gold.key]


def test_neither_the_most_frequent_nor_the_last_value_is_a_good_guess() -> None:
    frequent = last = asked = 0
    for trajectory in _noisy():
        for _, value, said in _asked(trajectory):
            asked += 1
            most = max(Counter(said).values())
            favourites = [v for v in reversed(said) if said.count(v) == most]
            frequent += favourites[0] == value
            last += said[-1] == value
    assert asked > 300
    assert 0.3 < frequent / asked < 0.6
    assert 0.3 < last / asked < 0.6


def test_in_the_text_overtaken_values_are_said_more_often_than_current_ones() -> None:
    outnumbered = scenarios = 0
    for trajectory in _noisy():
        text = "\n".join(session.note for session in trajectory.sessions).casefold()
        true = overtaken = 0
        for key, value, said in _asked(trajectory):
            if trajectory.slot_schema.slot(key.entity, key.slot).form not in (Form.FLAG, Form.ENUM) and value:
                true += text.count(value.casefold())
                overtaken += sum(text.count(v.casefold()) for v in {*said} - {value} if v)
        scenarios += bool(true)
        outnumbered += overtaken > true
    assert outnumbered >= 0.5 * scenarios


def test_no_word_stands_in_true_notes_or_in_distractors_alone() -> None:
    true: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for trajectory in _noisy():
        for session in trajectory.sessions:
            if session.claims:
                words = set(re.findall(r"[a-z]+", session.note.casefold()))
                (false if session.trap else true).update(words)
    markers = {
        word: round(true[word] / (true[word] + false[word]), 2)
        for word in {*true, *false}
        if true[word] + false[word] >= 60
    }
    assert len(markers) > 100
    extreme = {word: share for word, share in markers.items() if not 0.05 <= share <= 0.95}
    assert not extreme


# ---- the vocabulary


def test_the_vocabulary_is_large() -> None:
    words = vocabulary()
    phrasings = [p for recipe in words.slots for p in {*recipe.change, *recipe.state}]
    assert len(words.entities) >= 60
    assert len(words.slots) >= 25
    assert {recipe.form for recipe in words.slots} == set(Form)
    assert len(set(phrasings)) >= 300
    assert all(len({*recipe.change, *recipe.state}) >= 12 for recipe in words.slots)
    assert sum("{slot}" not in phrasing for phrasing in phrasings) > 60
    assert len(words.irrelevant) >= 40
    assert VOCABULARY.read_text("utf-8").startswith("# latticemind data build --out DIR --seed 7\n")


def test_a_held_out_repository_lends_no_word() -> None:
    text = VOCABULARY.read_text("utf-8").casefold()
    held_out = "codex gpt- apply_patch sandbox web_search js_repl app-server skills granular"
    for word in held_out.split():
        assert word not in text


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("{entity} now listens on {value}", "{entity} now listens on {valve}", "unknown placeholder 'valve'"),
        (
            "      moved {entity} from port {old} to {value}\n      {entity}: {slot} -> {value}\n",
            "",
            "12 are needed",
        ),
        ('recipe: "{a}{b}"', 'recipe: "{a}{c}"', "name different placeholders"),
        ("aliases: [bastion, jump host]", "aliases: [bastion, broker]", "shares the name 'broker'"),
        ('{n: ["7", "14", "21", "30"', '{n: [], m: ["7", "14", "21", "30"', "different placeholders"),
    ],
)
def test_a_fault_in_the_vocabulary_is_named(old: str, new: str, fault: str, tmp_path: Path) -> None:
    text = VOCABULARY.read_text("utf-8")
    assert text.count(old) == 1
    path = tmp_path / "vocabulary.yaml"
    path.write_text(text.replace(old, new), "utf-8")
    with pytest.raises(InputError, match=fault):
        load_vocabulary(path)
