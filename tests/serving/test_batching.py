"""Many threads and one model: every caller gets the answer to what he asked, whatever happens to others."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TypeVar

import pytest

from operators.errors import InputError
from operators.models.text import ChoiceRequest, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind, valid
from serving.batching import BatchingModel

R = TypeVar("R", TextRequest, ChoiceRequest)
AWAY = OutcomeKind.UNAVAILABLE


def text(prompt: str) -> TextRequest:
    return TextRequest(({"role": "user", "content": prompt},), None, 9)


def choice(prompt: str) -> ChoiceRequest:
    return ChoiceRequest(({"role": "user", "content": prompt},), ("yes", "no"))


def prompt_of(request: TextRequest | ChoiceRequest) -> str:
    return request.messages[0]["content"]


def weights(prompt: str) -> tuple[float, ...]:
    """Two weights that tell the prompt from every other."""
    share = random.Random(prompt).random()
    return (share, 1 - share)


@dataclass
class Recording:
    """Echoes its prompts; keeps every batch and the most calls that were under way at once."""

    delay_s: float = 0.0
    identity: str = "recording"
    batches: list[list[str]] = field(default_factory=list)
    most: int = 0
    under_way: int = 0
    let_go: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        return [valid(f"said {prompt}") for prompt in self._heard(requests)]

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        return [valid(weights(prompt)) for prompt in self._heard(requests)]

    def _heard(self, requests: Sequence[R]) -> list[str]:
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        prompts = [prompt_of(request) for request in requests]
        self.batches.append(prompts)
        try:
            time.sleep(self.delay_s)
            self._act(prompts)
        finally:
            with self.lock:
                self.under_way -= 1
        return prompts

    def _act(self, prompts: list[str]) -> None:
        if "wait" in prompts:
            assert self.let_go.wait(20)
        for fault in (InputError("too long"), RuntimeError("out of memory"), ZeroDivisionError("a fault")):
            if type(fault).__name__ in prompts:
                raise fault


@contextmanager
def batching(model: TextModel, *, batch_size: int = 32, timeout_s: float = 20.0) -> Iterator[BatchingModel]:
    found = BatchingModel(model, batch_size=batch_size, timeout_s=timeout_s)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def busy(recording: Recording, model: BatchingModel, pool: ThreadPoolExecutor) -> Iterator[None]:
    """The model does not come to its next batch before the block ends."""
    pool.submit(model.complete, [text("wait")])
    _until(lambda: bool(recording.batches))
    yield
    recording.let_go.set()


def _until(holds: object, within_s: float = 10.0) -> None:
    assert callable(holds)
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_thousands_of_requests_of_64_threads_are_each_answered_once_and_by_their_own_answer() -> None:
    recording = Recording()

    def ask(thread: int) -> bool:
        draw, right = random.Random(thread), True
        for number in range(16):
            prompts = [f"{thread}/{number}/{n}" for n in range(draw.randint(0, 6))]
            if draw.random() < 0.5:
                right &= model.complete(list(map(text, prompts))) == [valid(f"said {p}") for p in prompts]
            else:
                right &= model.choose(list(map(choice, prompts))) == [valid(weights(p)) for p in prompts]
        return right

    with batching(recording, batch_size=16) as model, ThreadPoolExecutor(64) as pool:
        assert all(pool.map(ask, range(64)))
        assert model.waiting() == 0
    heard = [prompt for batch in recording.batches for prompt in batch]
    assert len(heard) == len(set(heard)) > 2000
    assert recording.most == 1
    assert max(map(len, recording.batches)) <= 16


def test_what_comes_while_the_model_is_busy_is_answered_together() -> None:
    recording = Recording()
    with batching(recording, batch_size=4) as model, ThreadPoolExecutor(16) as pool:
        with busy(recording, model, pool):
            asked = [pool.submit(model.complete, [text(str(number))]) for number in range(10)]
            _until(lambda: model.waiting() == 10)
        answers = [one.result() for one in asked]
    assert answers == [[valid(f"said {number}")] for number in range(10)]
    assert [len(batch) for batch in recording.batches] == [1, 4, 4, 2]


def test_a_refused_request_costs_its_neighbours_nothing() -> None:
    recording = Recording()
    with batching(recording) as model, ThreadPoolExecutor(16) as pool:
        with busy(recording, model, pool):
            before = [pool.submit(model.complete, [text(str(number))]) for number in range(3)]
            refused = pool.submit(model.complete, [text("InputError")])
            after = [pool.submit(model.choose, [choice(str(number))]) for number in range(3)]
            _until(lambda: model.waiting() == 7)
        with pytest.raises(InputError, match="too long"):
            refused.result()
        assert [one.result() for one in before] == [[valid(f"said {number}")] for number in range(3)]
        assert [one.result() for one in after] == [[valid(weights(str(number)))] for number in range(3)]
        assert model.alive
    assert any(len(batch) == 4 for batch in recording.batches)


def test_a_model_that_runs_out_of_memory_is_unavailable_for_that_batch_alone() -> None:
    recording = Recording()
    with batching(recording) as model, ThreadPoolExecutor(16) as pool:
        with busy(recording, model, pool):
            asked = [pool.submit(model.complete, [text(word)]) for word in ("RuntimeError", "beside")]
            _until(lambda: model.waiting() == 2)
        outcomes = [one.result()[0] for one in asked]
        assert [(one.kind, "out of memory" in one.detail) for one in outcomes] == [(AWAY, True)] * 2
        assert model.complete([text("next")]) == [valid("said next")]
        assert model.alive


@pytest.fixture
def uncaught(monkeypatch: pytest.MonkeyPatch) -> list[threading.ExceptHookArgs]:
    """What threads ended by, which is then no failure of the test."""
    found: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def test_a_fault_that_nobody_expected_reaches_its_callers_and_ends_the_model(
    uncaught: list[threading.ExceptHookArgs],
) -> None:
    recording = Recording()
    with batching(recording) as model, ThreadPoolExecutor(16) as pool:
        with busy(recording, model, pool):
            asked = [pool.submit(model.complete, [text(word)]) for word in ("ZeroDivisionError", "beside")]
            _until(lambda: model.waiting() == 2)
        for one in asked:
            with pytest.raises(ZeroDivisionError, match="a fault"):
                one.result()
        _until(lambda: not model.alive)
        start = time.monotonic()
        [later] = model.complete([text("later")])
        assert (later.kind, time.monotonic() - start < 2) == (AWAY, True)
        assert model.choose([choice("later"), choice("later")]) == [Outcome(AWAY, None, later.detail)] * 2
    assert [one.exc_type for one in uncaught] == [ZeroDivisionError]


@pytest.mark.usefixtures("uncaught")
def test_what_waits_while_the_model_dies_is_told_so_at_once() -> None:
    recording = Recording()
    with batching(recording, batch_size=1, timeout_s=8) as model, ThreadPoolExecutor(16) as pool:
        with busy(recording, model, pool):
            dying = pool.submit(model.complete, [text("ZeroDivisionError")])
            _until(lambda: model.waiting() == 1)
            waiting = pool.submit(model.complete, [text("behind it")])
            _until(lambda: model.waiting() == 2)
        with pytest.raises(ZeroDivisionError):
            dying.result()
        start = time.monotonic()
        with suppress(ZeroDivisionError):  # told either way: by the fault, or as unavailable
            assert waiting.result()[0].kind is AWAY
        assert time.monotonic() - start < 4


def test_no_answer_within_the_time_is_unavailable_and_what_waited_is_dropped() -> None:
    recording = Recording()
    with ThreadPoolExecutor(4) as pool, batching(recording, timeout_s=0.3) as model:
        with busy(recording, model, pool):
            [late] = model.complete([text("late")])
        assert (late.kind, "0.3 s" in late.detail) == (AWAY, True)
        model.timeout_s = 20
        assert model.complete([text("next")]) == [valid("said next")]
    assert "late" not in [prompt for batch in recording.batches for prompt in batch]


def test_many_requests_of_one_call_wait_no_longer_than_one() -> None:
    recording = Recording()
    with (
        ThreadPoolExecutor(4) as pool,
        batching(recording, timeout_s=0.5) as model,
        busy(recording, model, pool),
    ):
        start = time.monotonic()
        outcomes = model.complete([text(str(number)) for number in range(16)])
        took_s = time.monotonic() - start
    assert {outcome.kind for outcome in outcomes} == {AWAY}
    assert took_s < 5


def test_close_answers_what_was_asked_and_nothing_after_it() -> None:
    recording = Recording()
    model = BatchingModel(recording, batch_size=2, timeout_s=20)
    with ThreadPoolExecutor(16) as pool:
        with busy(recording, model, pool):
            asked = [pool.submit(model.complete, [text(str(number))]) for number in range(5)]
            _until(lambda: model.waiting() == 5)
            closing = pool.submit(model.close)
            _until(lambda: model.waiting() == 6)
        closing.result()
        assert [one.result() for one in asked] == [[valid(f"said {number}")] for number in range(5)]
    assert not model.alive
    assert model.complete([text("late")])[0].kind is AWAY
    model.close()


def test_it_is_called_what_its_model_is_called_and_nothing_asked_is_nothing_answered() -> None:
    recording = Recording()
    with batching(recording) as model:
        assert (model.identity, model.complete([]), model.choose([])) == ("recording", [], [])
    assert recording.batches == []
