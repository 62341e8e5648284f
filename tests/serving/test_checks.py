"""What a server has to pass: each way in which an adapter may not be at work is seen, a close call is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from operators.canaries import Canary, canary_requests
from operators.claims import content_hash
from operators.errors import EndpointError
from operators.models.replies import ServedModel
from operators.models.scripted import ScriptedModel, Text
from operators.models.text import TextRequest
from operators.outcome import Outcome, OutcomeKind
from serving.checks import IMPOSSIBLE, check_answers, check_models, check_tokens
from serving.registry import Registry, ServedAdapter
from tests.serving.support import adapter
from tests.support_adapters import BASE

TOKENS = (1, 5, 9)
REQUESTS = canary_requests(["compare"])[:3]
CANARIES = [
    Canary(
        messages=request.messages, answer_schema=request.schema or {}, max_tokens=request.max_tokens,
        prompt_hash=content_hash(list(TOKENS)), answer=f"adapter {number}", base_answer=f"base {number}",
    )
    for number, request in enumerate(REQUESTS)
]  # fmt: skip
ONE = adapter("compare-claims", canaries=CANARIES)
TWO = adapter("compare-claims", "two", canaries=CANARIES)
NAMED = {one.name: one for one in (ONE, TWO)}
REGISTRY = Registry((ONE, TWO))
BOUND = json.dumps({"relation": "same"})
Says = Callable[[int, str | None], Text]
"""The answer to a canary, by its number and who was asked."""


def recorded(number: int, who: str | None) -> str:
    return CANARIES[number].answer if who else f"base {number}"


def server(says: Says = recorded, *, bound: Text = BOUND, unbound: str | None = "nobody") -> ScriptedModel:
    """Says a canary's answer by its number; what no model says unless bound is `bound`, off for `unbound`."""

    def answer(request: TextRequest) -> Text:
        if request.messages == IMPOSSIBLE:
            away: Outcome[str] = Outcome(OutcomeKind.MALFORMED, None, "no JSON: 'The sea'")
            return away if request.adapter == unbound else bound
        return says(
            next(n for n, asked in enumerate(REQUESTS) if asked.messages == request.messages), request.adapter
        )

    return ScriptedModel(texts=answer)


def test_recorded_answers_pass_and_everyone_is_asked_everything() -> None:
    model = server()
    check_answers(model, REGISTRY)
    asked = [request for request in model.asked if isinstance(request, TextRequest)]
    canaries = [request for request in asked if request.messages != IMPOSSIBLE]
    assert {(r.adapter, r.messages[-1]["content"]) for r in canaries} == {
        (who, r.messages[-1]["content"]) for who in (None, ONE.name, TWO.name) for r in REQUESTS
    }
    assert {r.adapter for r in asked if r.messages == IMPOSSIBLE} == {None, ONE.name, TWO.name}
    assert all(request.schema for request in asked)


def test_the_base_is_never_asked_together_with_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    model, mixed = server(), []
    complete = model.complete

    def noting(requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        mixed.append(len({request.adapter is None for request in requests}))
        return complete(requests)

    monkeypatch.setattr(model, "complete", noting)
    check_answers(model, REGISTRY)
    assert set(mixed) == {1}


def only(name: str, says: Says) -> Says:
    """That adapter alone says otherwise."""
    return lambda number, who: says(number, who) if who == name else recorded(number, who)


def _unavailable(_number: int, _who: str | None) -> Outcome[str]:
    return Outcome(OutcomeKind.UNAVAILABLE, None, "out of memory")


FAULTS: dict[str, tuple[Says, str]] = {
    "answers as the base": (lambda number, _: f"base {number}", "no effect"),
    "answers as the base, which answers as the adapter": (lambda number, _: CANARIES[number].answer, ""),
    "other weights": (lambda number, who: f"other {number}" if who else f"base {number}", "0 of 3"),
    "two answers of three are others": (lambda number, _: "other" if number else "adapter 0", "1 of 3"),
    "gives no answer": (_unavailable, "out of memory"),
    "gives one no answer": (
        lambda number, who: recorded(number, who) if number else _unavailable(number, who),
        "out of memory",
    ),
    "keeps to no schema": (lambda *_: Outcome(OutcomeKind.MALFORMED, None, "prose"), "0 of 3"),
}


@pytest.mark.parametrize("fault", [name for name, (_, says) in FAULTS.items() if says])
@pytest.mark.parametrize("faulty", [ONE, TWO], ids=["first", "last"])
def test_an_adapter_that_is_not_at_work_is_named(fault: str, faulty: ServedAdapter) -> None:
    answers, says = FAULTS[fault]
    with pytest.raises(EndpointError, match=says) as found:
        check_answers(server(only(faulty.name, answers)), REGISTRY)
    assert faulty.name in str(found.value)
    [other] = NAMED.keys() - {faulty.name}
    assert other not in str(found.value)


def test_a_base_and_an_adapter_that_answer_the_same_are_refused_even_if_it_is_as_recorded() -> None:
    with pytest.raises(EndpointError, match="no effect"):
        check_answers(server(lambda number, _: CANARIES[number].answer), REGISTRY)


def test_what_other_answers_were_is_shown_beside_what_was_recorded() -> None:
    with pytest.raises(EndpointError) as found:
        check_answers(server(only(ONE.name, lambda number, _: f"odd {number}")), REGISTRY)
    assert all(f"recorded adapter {n}\n  answered odd {n}" in str(found.value) for n in range(3))


def test_one_answer_of_three_may_fall_the_other_way() -> None:
    for flipped in range(3):
        check_answers(
            server(only(ONE.name, lambda n, who, f=flipped: f"base {n}" if n == f else recorded(n, who))),  # type: ignore[misc]
            REGISTRY,
        )


def test_an_adapter_without_a_canary_cannot_be_told_from_its_base() -> None:
    bare = adapter("update-memory")
    with pytest.raises(EndpointError, match=f"{bare.name} has no canary"):
        check_answers(server(), Registry((ONE, bare)))


@pytest.mark.parametrize("unbound", [None, ONE.name, TWO.name])
def test_a_server_that_ignores_schemas_is_seen_whoever_answers(unbound: str | None) -> None:
    with pytest.raises(EndpointError, match=f"{unbound or 'the base'} does not keep to a schema"):
        check_answers(server(unbound=unbound), REGISTRY)


@pytest.mark.parametrize("kind", [OutcomeKind.TRUNCATED, OutcomeKind.UNAVAILABLE])
def test_no_answer_under_a_schema_is_none_that_keeps_to_it(kind: OutcomeKind) -> None:
    with pytest.raises(EndpointError, match=f"does not keep to a schema .{kind.value}"):
        check_answers(server(bound=Outcome(kind, None, "why")), REGISTRY)


def listed(**parents: str | None) -> list[ServedModel]:
    base = ServedModel(id=BASE.id)
    return [base, *(ServedModel(id=name, parent=parents.get(name, BASE.id)) for name in NAMED)]


def test_a_server_lists_every_adapter_on_its_base() -> None:
    check_models(listed(), REGISTRY)
    check_models(listed(**{ONE.name: None}), REGISTRY)  # a server that says nothing of parents
    with pytest.raises(EndpointError, match=r"runs on org/other, it was trained on org/small"):
        check_models(listed(**{ONE.name: "org/other"}), REGISTRY)
    for name in NAMED:
        with pytest.raises(EndpointError, match=f"does not list {name}"):
            check_models([entry for entry in listed() if entry.id != name], REGISTRY)


def test_a_prompt_has_to_become_the_tokens_it_was_trained_with() -> None:
    check_tokens(CANARIES[0], TOKENS, BASE)
    for tokens in (1, 5), (1, 9, 5), ():
        with pytest.raises(EndpointError, match=f"other tokens of a prompt than {BASE.id}"):
            check_tokens(CANARIES[0], tokens, BASE)
