"""Intervals and tests over per-example scores (paper, A.11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from operators.errors import UnscoredError

RESAMPLES = 10_000
SEED = 20260807


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % bootstrap interval; n examples."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class McNemar:
    """Discordant pairs and the exact two-sided p. `only_first` counts what only the first got right."""

    only_first: int
    only_second: int
    p: float


def bootstrap(scores: Sequence[float]) -> Interval:
    """Percentile bootstrap of the mean: 10,000 resamples, fixed seed. Raises: UnscoredError on nothing."""
    if not scores:
        raise UnscoredError("an interval over nothing", hint="check that the run has examples of this kind")
    values = np.asarray(scores, dtype=np.float64)
    rng = np.random.default_rng(SEED)
    picks = rng.integers(0, len(values), size=(RESAMPLES, len(values)), dtype=np.int32)
    low, high = np.quantile(values[picks].mean(axis=1), [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high), len(values))


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """Exact McNemar test on paired right/wrong outcomes; p is 1 without discordant pairs.

    Raises: UnscoredError when the two are not paired or are empty.
    """
    if not first or len(first) != len(second):
        raise UnscoredError(
            f"{len(first)} and {len(second)} outcomes are not pairs", hint="compare runs on the same examples"
        )
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    discordant = only_first + only_second
    p = binomtest(only_first, discordant).pvalue if discordant else 1.0
    return McNemar(only_first, only_second, float(p))
