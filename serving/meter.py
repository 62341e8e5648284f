"""What the service counts, in Prometheus' text form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from serving.wire import Answer

LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Seconds; the upper bounds of the histogram."""


class Meter:
    """Requests and their outcomes by operator, latency, and what waits."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "latticemind_requests",
            "Requests by HTTP status.",
            ["operator", "status"],
            registry=self._registry,
        )
        self._outcomes = Counter(
            "latticemind_outcomes",
            "Answers by kind of outcome.",
            ["operator", "kind"],
            registry=self._registry,
        )
        self._latency = Histogram(
            "latticemind_latency_seconds", "From the request read to its answer.", ["operator"],
            buckets=LATENCIES, registry=self._registry,
        )  # fmt: skip
        self._in_flight = Gauge(
            "latticemind_in_flight", "Requests under way.", ["operator"], registry=self._registry
        )
        queue = Gauge("latticemind_queue", "Model requests waiting for their turn.", registry=self._registry)
        queue.set_function(waiting)

    @contextmanager
    def watch(self, operator: str) -> Iterator[None]:
        """Time what happens within and count it as under way."""
        with self._in_flight.labels(operator).track_inprogress(), self._latency.labels(operator).time():
            yield

    def count(self, operator: str, status: int, answers: Iterable[Answer] = ()) -> None:
        """One request with its status, and the outcome of each of its answers."""
        self._requests.labels(operator, str(status)).inc()
        for answer in answers:
            self._outcomes.labels(operator, answer.outcome.value).inc()

    def text(self) -> bytes:
        """All figures, as Prometheus scrapes them."""
        return generate_latest(self._registry)
