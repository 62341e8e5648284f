"""When an operator fails: the write happens whole or not at all, and reopening asks nobody again."""

from __future__ import annotations

import pytest

from operators.claims import Action, Decision, Policy, StateClaim, Winner
from operators.items import LiveItems
from operators.outcome import Outcome, OutcomeKind, valid
from operators.seam import UpdateOperator
from pipeline.decide import FailurePolicy
from pipeline.loop import UpdateLoop
from tests.support import claim, key, open_loop, values_of

PORT, POLICY = key("api", "port"), key("app", "policy")


class Script:
    """Answers by rule, except at the calls it is told to spoil."""

    identity = "script/1"
    pure = False

    def __init__(self, **spoiled: object) -> None:
        self.rules: UpdateOperator = open_loop().memory.decider._rules
        self.spoiled = {int(name.removeprefix("call_")): what for name, what in spoiled.items()}
        self.calls = 0

    def update(self, items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        self.calls += 1
        what = self.spoiled.get(self.calls)
        if isinstance(what, Exception):
            raise what
        if isinstance(what, Outcome):
            return what
        return self.rules.update(items, incoming)


def test_an_exception_of_the_operators_own_leaves_nothing_half_written() -> None:
    loop = open_loop(update=Script(call_2=KeyError("boom")))
    with pytest.raises(KeyError):
        loop.ingest_claims([claim(PORT, "8080"), claim(POLICY, "ask first")])
    assert (loop.memory.state(), loop.memory.log.revision) == ({}, 0)
    loop.ingest_claims([claim(PORT, "8080")])
    assert open_loop(log=loop.memory.log).memory.state() == loop.memory.state() != {}


DOWN: Outcome[Decision] = Outcome(OutcomeKind.UNAVAILABLE, None, "down")


@pytest.mark.parametrize("policy", [FailurePolicy.PROPOSE, FailurePolicy.RULES])
def test_a_memory_reopened_after_a_failure_is_the_same_and_asks_nobody(policy: FailurePolicy) -> None:
    script = Script(call_2=DOWN)
    loop = open_loop(update=script, policy=policy)
    loop.ingest_claims([claim(PORT, "8080", at=1)])
    loop.ingest_claims([claim(PORT, "9090", at=2)])
    assert values_of(loop.memory, PORT) == (["8080"] if policy is FailurePolicy.PROPOSE else ["9090"])
    asked = script.calls
    again = open_loop(update=script, policy=policy, log=loop.memory.log)
    assert again.memory.state() == loop.memory.state()
    assert script.calls == asked


class Merger:
    """Merges everything into whatever is there."""

    identity = "merger/1"
    pure = False

    def update(self, items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        del incoming
        target = items.holder.item_id if items.holder else None
        action = Action.MERGE if target else Action.ADD
        return valid(Decision(action, target, Winner.BOTH, Policy.ACCUMULATION, "merger/1", "as told"))


@pytest.mark.parametrize("other", ["9090", None])
def test_a_model_cannot_merge_two_different_values(other: str | None) -> None:
    loop: UpdateLoop = open_loop(update=Merger(), policy=FailurePolicy.RULES)
    loop.ingest_claims([claim(PORT, "8080", at=1)])
    loop.ingest_claims([claim(PORT, other, at=2)])
    assert values_of(loop.memory, PORT) == ([other] if other else [])
    assert loop.memory.decider.outcomes[OutcomeKind.MALFORMED] == 1


def test_a_model_may_merge_two_wordings_of_free_text() -> None:
    loop = open_loop(update=Merger(), policy=FailurePolicy.RULES)
    loop.ingest_claims([claim(POLICY, "ask before writing", at=1)])
    loop.ingest_claims([claim(POLICY, "needs consent to write", at=2)])
    assert values_of(loop.memory, POLICY) == ["ask before writing"]
    assert loop.memory.decider.outcomes[OutcomeKind.MALFORMED] == 0


def test_looking_at_the_past_changes_no_count() -> None:
    loop = open_loop()
    loop.ingest_claims([claim(PORT, "8080", at=1)])
    before = dict(loop.memory.decider.outcomes)
    loop.memory.as_of(valid=claim(PORT, "1", at=5).timestamp)
    assert loop.memory.decider.outcomes == before


@pytest.mark.parametrize("texts", [("утром", "вечером"), ("use cache before db", "use db before cache")])
def test_values_in_any_script_and_order_of_words_stay_apart(texts: tuple[str, str]) -> None:
    loop = open_loop()
    for at, text in enumerate(texts, 1):
        loop.ingest_claims([claim(POLICY, text, at=at)])
    assert values_of(loop.memory, POLICY) == [texts[1]]


class Partial:
    """Supersedes or contests as it was made to; two of these judge one sight differently."""

    pure = False
    identity = "partial/1"

    def __init__(self, action: Action, winner: Winner) -> None:
        self.action, self.winner = action, winner

    def update(self, items: LiveItems, incoming: StateClaim) -> Outcome[Decision]:
        del incoming
        holder = items.holder
        action = self.action if holder else Action.ADD
        target = holder.item_id if holder else None
        return valid(Decision(action, target, self.winner, Policy.SLOT_FIRST, self.identity, "as made"))


def test_memories_whose_models_disagreed_agree_once_they_exchange_logs() -> None:
    one = open_loop(update=Partial(Action.SUPERSEDE, Winner.INCOMING)).memory
    two = open_loop(update=Partial(Action.CONTEST, Winner.INCUMBENT)).memory
    for memory in (one, two):
        memory.write([claim(PORT, "8080", at=1)])
        memory.write([claim(PORT, "9090", at=2)])
    assert one.state() != two.state()
    records = list(one.log)
    one.absorb(two.log)
    two.absorb(records)
    assert one.state() == two.state()
    for memory in (one, two):
        assert (
            open_loop(update=Partial(Action.MERGE, Winner.BOTH), log=memory.log).memory.state()
            == memory.state()
        )
