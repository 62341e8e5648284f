"""Scripted answers come as the script says; what is remembered is asked once."""

from __future__ import annotations

import pytest

from operators.models.memo import Memo
from operators.models.scripted import ScriptedModel
from operators.models.text import ChoiceRequest, JsonSchema, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import Message


def asks(
    text: str, schema: JsonSchema | None = None, *, adapter: str | None = None, room: int = 9
) -> TextRequest:
    return TextRequest(_messages(text), schema, room, adapter)


def picks(
    text: str, choices: tuple[str, ...] = ("yes", "no"), *, adapter: str | None = None
) -> ChoiceRequest:
    return ChoiceRequest(_messages(text), choices, adapter)


def _messages(text: str) -> tuple[Message, ...]:
    return ({"role": "system", "content": "s"}, {"role": "user", "content": text})


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_a_script_gives_every_kind_of_outcome(kind: OutcomeKind) -> None:
    given = Outcome(kind, "x" if kind in (OutcomeKind.VALID, OutcomeKind.EMPTY) else None, "why")
    assert ScriptedModel({"port": given}).complete([asks("the port?")]) == [given]


def test_the_first_key_in_the_last_message_decides_and_nothing_else_is_answered() -> None:
    model = ScriptedModel({"port": "a", "the port": "b", "mode": ""}, {"port": (3, 1), "mode": "no"})
    found = model.complete([asks("the port"), asks("mode"), asks("flag")])
    assert found[:2] == [valid("a"), valid("")]
    assert found[2].kind is OutcomeKind.UNAVAILABLE
    chosen = model.choose([picks("port"), picks("mode"), picks("flag")])
    assert chosen[:2] == [valid((0.75, 0.25)), valid((0.0, 1.0))]
    assert chosen[2].kind is OutcomeKind.UNAVAILABLE
    assert [request.messages[-1]["content"] for request in model.asked] == [
        "the port",
        "mode",
        "flag",
        "port",
        "mode",
        "flag",
    ]


def test_a_script_may_be_a_function() -> None:
    model = ScriptedModel(lambda r: f"{r.adapter}:{r.max_tokens}", lambda r: r.choices[-1])
    assert model.complete([asks("q", adapter="a")]) == [valid("a:9")]
    assert model.choose([picks("q")]) == [valid((0.0, 1.0))]


@pytest.mark.parametrize("scores", [(1,), (0, 0), (2, -1), (), "maybe"])
def test_scores_that_do_not_fit_the_choices_are_an_error(scores: tuple[float, ...] | str) -> None:
    with pytest.raises(ValueError, match="does not weigh"):
        ScriptedModel(choices={"q": scores}).choose([picks("q")])


def test_equal_requests_are_asked_once_and_answered_in_order() -> None:
    model = ScriptedModel({"a": "1", "b": "2"}, {"a": "yes", "b": "no"})
    memo: TextModel = Memo(model)
    assert memo.identity == "scripted"
    assert memo.complete([asks("a"), asks("b"), asks("a")]) == [valid("1"), valid("2"), valid("1")]
    assert memo.complete([asks("b")]) == [valid("2")]
    assert memo.choose([picks("b"), picks("a"), picks("b")]) == [
        valid((0.0, 1.0)),
        valid((1.0, 0.0)),
        valid((0.0, 1.0)),
    ]
    assert len(model.asked) == 4


def test_requests_that_differ_in_anything_are_told_apart() -> None:
    model = ScriptedModel(lambda _: "x", lambda _: "no")
    memo = Memo(model)
    requests = [
        asks("q"),
        asks("q", {}),
        asks("q", {"enum": [1]}),
        asks("q", adapter="a"),
        asks("q", room=8),
        asks("r"),
    ]
    chosen = [picks("q"), picks("q", ("no", "yes")), picks("q", adapter="a")]
    for _ in range(2):
        memo.complete(requests)
        memo.choose(chosen)
    assert model.asked == [*requests, *chosen]


def test_what_was_unavailable_is_asked_again_and_other_failures_are_kept() -> None:
    truncated: Outcome[str] = Outcome(OutcomeKind.TRUNCATED, None, "cut")
    script: dict[str, Outcome[str]] = {"b": truncated}
    memo = Memo(ScriptedModel(script))
    assert memo.complete([asks("a")])[0].kind is OutcomeKind.UNAVAILABLE
    script |= {"a": valid("1"), "b": valid("2")}
    assert memo.complete([asks("a")]) == [valid("1")]
    script["a"] = valid("other")
    assert memo.complete([asks("a")]) == [valid("1")]
    kept = Memo(ScriptedModel({"b": truncated}))
    assert kept.complete([asks("b")]) == kept.complete([asks("b")]) == [truncated]
