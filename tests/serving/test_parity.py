"""Parity: the same gold tokens and the same questions on both sides, and every difference told."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx2
import pytest

from operators.errors import ConfigError, EndpointError, InputError, UnscoredError
from operators.models.scripted import ScriptedModel
from operators.outcome import Outcome, OutcomeKind
from operators.prompts import Message
from serving.parity import ParityExample, measure_parity, read_examples, vllm_logprobs
from serving.registry import Registry
from tests.serving.support import COMPARE, REGISTRY, UPDATE


def example(name: str, operator: str = "compare-claims") -> ParityExample:
    return ParityExample.model_validate(
        {
            "id": name,
            "operator": operator,
            "task": "compare",
            "prompt": [{"role": "user", "content": f"ask {name}"}],
            "completion": [{"role": "assistant", "content": "gold"}],
        }
    )


class Reference(ScriptedModel):
    """Prompts of two tokens, answers of three, each token of log-probability -0.5."""

    def gold_row(self, _messages: Sequence[Message], answer: str) -> tuple[list[int], int]:
        assert answer == "gold"
        return [1, 2, 30, 31, 32], 2

    def gold_logprobs(self, _messages: Sequence[Message], _answer: str, _adapter: str) -> list[float]:
        return [-0.5, -0.5, -0.5]


def says(**answers: str) -> ScriptedModel:
    return ScriptedModel(texts={f"ask {name}": answer for name, answer in answers.items()})


def test_gold_tokens_are_compared_from_where_the_answer_begins() -> None:
    asked: list[tuple[str, list[int]]] = []

    def served(name: str, ids: list[int]) -> list[float]:
        asked.append((name, ids))
        return [-99.0, -99.0, -0.5, -0.7, -0.4]

    both = [example("a"), example("b", "update-memory")]
    found = measure_parity(both, REGISTRY, Reference(says(a="x", b="y").texts), says(a="x", b="y"), served)
    assert (found.examples, found.tokens) == (2, 6)
    assert found.logprob_max == pytest.approx(0.2)
    assert found.logprob_mean == pytest.approx(0.1)
    assert found.differences == found.flips == ()
    assert asked == [(COMPARE.name, [1, 2, 30, 31, 32]), (UPDATE.name, [1, 2, 30, 31, 32])]


def test_an_answer_that_differs_is_told_with_both_texts_and_a_failure_is_no_text() -> None:
    local = Reference(says(a="one", b="two", c="three").texts)
    served = ScriptedModel(
        texts={"ask a": "one", "ask b": "2", "ask c": Outcome(OutcomeKind.TRUNCATED, None, "long")}
    )
    rows = [example(name) for name in "abc"]
    found = measure_parity(rows, REGISTRY, local, served, lambda *_: [-0.5] * 5)
    told = [(one.example, one.local, one.served) for one in found.differences]
    assert told == [("b", "two", "2"), ("c", "three", "(truncated: long)")]
    assert found.flips == ()
    assert {one.adapter for one in found.differences} == {COMPARE.name}


def test_a_server_that_answers_otherwise_the_second_time_flips() -> None:
    turns = iter(["x", "z"])
    served = ScriptedModel(texts=lambda _: next(turns))
    found = measure_parity(
        [example("a")], REGISTRY, Reference(says(a="x").texts), served, lambda *_: [-0.5] * 5
    )
    assert [(one.local, one.served) for one in found.flips] == [("x", "z")]
    assert found.differences == ()


def test_nothing_compared_is_no_parity_and_a_missing_adapter_is_told() -> None:
    with pytest.raises(UnscoredError):
        measure_parity([], REGISTRY, Reference(), ScriptedModel(), lambda *_: [])
    with pytest.raises(ConfigError, match="update-memory"):
        measure_parity(
            [example("a", "update-memory")],
            Registry((COMPARE,)),
            Reference(),
            ScriptedModel(),
            lambda *_: [-0.5] * 5,
        )


@pytest.mark.parametrize(
    ("limit", "taken"), [(3, [0, 3, 6]), (10, list(range(10))), (1, [0]), (50, list(range(10)))]
)
def test_rows_are_spread_over_the_file(tmp_path: Path, limit: int, taken: list[int]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(example(str(n)).model_dump_json() for n in range(10)), encoding="utf-8")
    assert [row.id for row in read_examples(path, limit=limit)] == [str(n) for n in taken]


def test_a_row_that_is_none_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(example("a").model_dump_json() + "\n" + json.dumps({"id": "b"}), encoding="utf-8")
    with pytest.raises(InputError) as fault:
        read_examples(path, limit=5)
    assert str(path) in str(fault.value)
    assert "2" in str(fault.value)


def scoring(
    answer: Callable[[dict[str, object]], httpx2.Response],
) -> Callable[[str, list[int]], list[float]]:
    def reply(request: httpx2.Request) -> httpx2.Response:
        return answer(json.loads(request.content))

    return vllm_logprobs(httpx2.Client(base_url="http://server", transport=httpx2.MockTransport(reply)))


def test_the_server_scores_the_prompt_s_tokens_and_the_first_counts_nothing() -> None:
    def answer(body: dict[str, object]) -> httpx2.Response:
        assert (body["model"], body["prompt"]) == ("mine", [5, 6, 7])
        scored = [None, {"6": {"logprob": -1.0}, "9": {"logprob": -0.1}}, {"7": {"logprob": -2.0}}]
        return httpx2.Response(200, json={"choices": [{"prompt_logprobs": scored}]})

    assert scoring(answer)("mine", [5, 6, 7]) == [0.0, -1.0, -2.0]


@pytest.mark.parametrize(
    "reply",
    [
        httpx2.Response(404, json={}),
        httpx2.Response(200, json={"choices": []}),
        httpx2.Response(200, json={"choices": [{}]}),
        httpx2.Response(200, content=b"<html>"),
        httpx2.Response(200, json={"choices": [{"prompt_logprobs": None}]}),
        httpx2.Response(200, json={"choices": [{"prompt_logprobs": [None, {"9": {"logprob": -1.0}}]}]}),
        httpx2.Response(200, json={"choices": [{"prompt_logprobs": [None]}]}),
        httpx2.Response(200, json=[]),
    ],
    ids=lambda reply: reply.text[:50],
)
def test_a_server_that_scores_no_prompts_is_told(reply: httpx2.Response) -> None:
    with pytest.raises(EndpointError, match="does not score prompts"):
        scoring(lambda _: reply)("mine", [5, 6])
