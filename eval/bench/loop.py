"""How fast the update loop takes claims in, and whether its cost grows with the log."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from operators.assembly import OperatorChoice
from operators.claims import StateClaim
from operators.evidence import Evidence, EvidenceType
from operators.normal import Form
from operators.schema import Entity, Slot, SlotSchema
from pipeline.decide import FailurePolicy
from pipeline.loop import open_loop

KEYS = 200
VALUES = 40
WINDOW = 10_000
SHORT_RUNS = 5
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LoopBench:
    """Claims a second with a short and a long log, and the long log's cost a claim over the short one's."""

    claims: int
    short_log: int
    short_per_s: float
    long_per_s: float
    cost_ratio: float


def bench_schema() -> SlotSchema:
    slot = (Slot(slot="value", form=Form.NAME),)
    return SlotSchema(entities=tuple(Entity(entity=f"entity_{n}", slots=slot) for n in range(KEYS)))


def bench_claims(count: int, *, seed: int, start: int = 0) -> list[StateClaim]:
    """In-order claims over 200 keys and 40 values, with every kind of evidence."""
    rng = random.Random(f"{seed}/{start}")
    types = list(EvidenceType)
    return [
        StateClaim(
            entity=f"entity_{rng.randrange(KEYS)}", slot="value", value=f"v{rng.randrange(VALUES)}",
            evidence=Evidence(type=rng.choice(types), source=f"note-{number}"),
            timestamp=START + timedelta(seconds=number),
        )
        for number in range(start, start + count)
    ]  # fmt: skip


def run_loop_bench(claims: int, *, seed: int = 7) -> LoopBench:
    """Feed claims one by one in order; making a claim is not timed, deciding on and logging it is.

    The short log is the median of five fresh memories of 10,000 claims, in the same process as the long one,
    so that a slow or busy machine does not matter. Collection of garbage is timed as it falls.
    """
    short = statistics.median(_seconds_per_claim(WINDOW, seed) for _ in range(SHORT_RUNS))
    long = _seconds_per_claim(claims, seed)
    return LoopBench(claims, WINDOW, 1 / short, 1 / long, long / short)


def _seconds_per_claim(claims: int, seed: int) -> float:
    loop = open_loop(bench_schema(), OperatorChoice(), policy=FailurePolicy.RAISE)
    spent = 0.0
    for start in range(0, claims, WINDOW):
        window = bench_claims(min(WINDOW, claims - start), seed=seed, start=start)
        begin = time.perf_counter()
        for claim in window:
            loop.ingest_claims([claim])
        spent += time.perf_counter() - begin
    return spent / claims
