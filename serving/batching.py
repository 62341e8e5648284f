"""Many callers, one model in this process: what waits is answered side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

from operators.errors import LatticeMindError
from operators.models.text import ChoiceRequest, TextModel, TextRequest
from operators.outcome import Outcome, OutcomeKind

R = TypeVar("R", TextRequest, ChoiceRequest)
T = TypeVar("T")
STOPPED: Outcome[Any] = Outcome(OutcomeKind.UNAVAILABLE, None, "the model has stopped")


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: TextRequest | ChoiceRequest
    answer: Future[Outcome[Any]]


class BatchingModel:
    """Puts the requests of all threads to a model that only one thread may use at a time.

    While the model is busy requests gather; then up to `batch_size` of them are put to it together. A request
    that is not answered within `timeout_s` is unavailable, and dropped if its turn has not come.
    """

    def __init__(self, model: TextModel, *, batch_size: int = 32, timeout_s: float = 120.0) -> None:
        self.model, self.batch_size, self.timeout_s = model, batch_size, timeout_s
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._stopped = Event()
        self._worker = Thread(target=self._work, name="model", daemon=True)
        self._worker.start()

    @property
    def identity(self) -> str:
        return self.model.identity

    @property
    def alive(self) -> bool:
        """Whether the model still answers; False after a fault that nothing expected."""
        return not self._stopped.is_set()

    def waiting(self) -> int:
        """How many requests have not had their turn."""
        return self._queue.qsize()

    def close(self) -> None:
        """Answer what has been asked, then end."""
        self._queue.put(None)
        self._worker.join()

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """As the model's. Raises: what the model raises for the request itself."""
        return self._ask(requests)

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        """As the model's. Raises: what the model raises for the request itself."""
        return self._ask(requests)

    def _ask(self, requests: Sequence[R]) -> list[Outcome[Any]]:
        if not self.alive:
            return [STOPPED for _ in requests]
        waiting = [_Waiting(request, Future()) for request in requests]
        for entry in waiting:
            self._queue.put(entry)
        if not self.alive:  # it may have stopped before these were in the queue
            self._drop_waiting()
        until = time.monotonic() + self.timeout_s
        return [self._result(entry.answer, until) for entry in waiting]

    def _result(self, answer: Future[Outcome[Any]], until: float) -> Outcome[Any]:
        try:
            return answer.result(max(0.0, until - time.monotonic()))
        except Late:
            answer.cancel()
            return Outcome(OutcomeKind.UNAVAILABLE, None, f"no answer within {self.timeout_s:g} s")

    def _work(self) -> None:
        try:
            self._answer_all()
        finally:
            self._stopped.set()
            self._drop_waiting()

    def _drop_waiting(self) -> None:
        """Whoever still waits for a model that has stopped is told so."""
        with suppress(Empty):
            while True:
                entry = self._queue.get_nowait()
                if entry and entry.answer.set_running_or_notify_cancel():
                    entry.answer.set_result(STOPPED)

    def _answer_all(self) -> None:
        """Until `close`, or a fault that nothing expected."""
        going_on = True
        while going_on:
            batch = [self._queue.get()]
            while len(batch) < self.batch_size and not self._queue.empty():
                batch.append(self._queue.get())
            going_on = None not in batch
            todo = [entry for entry in batch if entry and entry.answer.set_running_or_notify_cancel()]
            self._answer(
                [entry for entry in todo if isinstance(entry.request, TextRequest)], self.model.complete
            )
            self._answer(
                [entry for entry in todo if isinstance(entry.request, ChoiceRequest)], self.model.choose
            )

    def _answer(self, batch: Sequence[_Waiting], ask: Callable[[list[Any]], list[Outcome[Any]]]) -> None:
        """Together; where one of them makes the model refuse, each by itself: nobody pays for another."""
        if not batch:
            return
        try:
            outcomes = ask([entry.request for entry in batch])
        except LatticeMindError as fault:
            if len(batch) == 1:
                batch[0].answer.set_exception(fault)
                return
            for entry in batch:
                self._answer([entry], ask)
            return
        except (RuntimeError, MemoryError) as fault:  # torch's own, out of memory among them: it may pass
            for entry in batch:
                entry.answer.set_result(Outcome(OutcomeKind.UNAVAILABLE, None, f"the model failed: {fault}"))
            return
        except BaseException as fault:
            for entry in batch:
                entry.answer.set_exception(fault)
            raise
        for entry, outcome in zip(batch, outcomes, strict=True):
            entry.answer.set_result(outcome)
