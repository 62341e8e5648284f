"""Canaries: what tells an adapter at work from its base."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from operators.canaries import TRIED, WANTED, Canary, canary_requests, record_canaries
from operators.models.scripted import ScriptedModel, Text
from operators.models.text import TextRequest, checked
from operators.outcome import Outcome, OutcomeKind
from operators.prompts import Message

TASKS = ("direct", "fill", "compare", "update")


class Hashing(ScriptedModel):
    """A model that is `sure(n)` of the closest call in the n-th answer it is asked about."""

    sure: Callable[[int], float] = staticmethod(lambda _: -1.0)
    rated = 0

    def prompt_hash(self, messages: Sequence[Message]) -> str:
        return f"hash of {messages[-1]['content']}"

    def gold_logprobs(self, messages: Sequence[Message], answer: str, adapter: str | None) -> list[float]:
        assert messages
        assert (answer, adapter) == ("adapter", "mine")
        self.rated += 1
        return [-0.01, self.sure(self.rated), *[-0.01] * self.rated]


def where_it_differs(number: int) -> Hashing:
    """A model whose adapter answers otherwise than its base to all but the first requests."""
    seen: list[str] = []

    def says(request: TextRequest) -> Text:
        prompt = request.messages[-1]["content"]
        if prompt not in seen:
            seen.append(prompt)
        return "base" if request.adapter is None or seen.index(prompt) < number else "adapter"

    return Hashing(texts=says)


@pytest.mark.parametrize("task", TASKS)
def test_a_canary_is_what_the_task_s_operator_asks_and_holds_both_answers(task: str) -> None:
    found = record_canaries(where_it_differs(0), "mine", (task,))
    assert len(found) == WANTED
    asked = canary_requests((task,))
    for canary, request in zip(found, asked, strict=False):
        assert (canary.answer, canary.base_answer) == ("adapter", "base")
        assert canary.prompt_hash == f"hash of {request.messages[-1]['content']}"
        assert canary.request("mine") == TextRequest(
            request.messages, request.schema, request.max_tokens, "mine"
        )
        assert Canary.model_validate_json(canary.model_dump_json()) == canary


@pytest.mark.parametrize("task", TASKS)
def test_the_requests_of_a_task_are_different_and_bound_to_a_schema(task: str) -> None:
    asked = canary_requests((task,))
    prompts = [json.dumps(request.messages) for request in asked]
    assert len(set(prompts)) == len(prompts) >= WANTED
    for request in asked:
        assert request.schema is not None
        assert checked(request, "Here is a poem.").kind is OutcomeKind.MALFORMED


def test_requests_that_change_nothing_are_no_canaries() -> None:
    late = record_canaries(where_it_differs(2), "mine", ("compare",))
    assert len(late) == WANTED
    skipped = {json.dumps(r.messages) for r in canary_requests(("compare",))[:2]}
    assert not skipped & {json.dumps(canary.messages) for canary in late}


@pytest.mark.parametrize(
    ("sure", "kept"), [(lambda n: -float(n), [0, 1, 2]), (lambda n: -1.0 / n, [-1, -2, -3])]
)
def test_the_answers_of_which_the_adapter_is_surest_are_kept(
    sure: Callable[[int], float], kept: list[int]
) -> None:
    asked = canary_requests(("compare",))
    model = where_it_differs(0)
    model.sure = sure
    found = record_canaries(model, "mine", ("compare",))
    assert [canary.messages for canary in found] == [asked[number].messages for number in kept]


def test_an_adapter_that_answers_as_its_base_does_has_none() -> None:
    model = where_it_differs(10**6)
    assert record_canaries(model, "mine", TASKS) == ()
    assert 2 <= len(model.asked) <= 2 * TRIED


def test_an_answer_of_the_adapter_that_is_none_is_no_canary() -> None:
    def says(request: TextRequest) -> Text:
        return Outcome(OutcomeKind.TRUNCATED) if request.adapter else "base"

    assert record_canaries(Hashing(texts=says), "mine", TASKS) == ()


def test_a_base_without_a_valid_answer_is_recorded_as_such() -> None:
    def says(request: TextRequest) -> Text:
        return "adapter" if request.adapter else Outcome(OutcomeKind.MALFORMED)

    [first, *_] = record_canaries(Hashing(texts=says), "mine", ("update",))
    assert (first.answer, first.base_answer) == ("adapter", None)


def test_several_tasks_take_turns_and_a_select_task_has_no_canary_of_its_own() -> None:
    both = canary_requests(("compare", "update"))
    compare, update = canary_requests(("compare",)), canary_requests(("update",))
    assert both[:4] == [compare[0], update[0], compare[1], update[1]]
    assert canary_requests(("select",)) == []
    assert canary_requests(()) == []
