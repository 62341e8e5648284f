"""Scores and tests are what their definitions say, and nothing is scored over nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders.trajectory import Query, QueryKind, contains
from eval.metrics import answers, extract_score, f1, mean
from eval.stats import bootstrap, mcnemar
from operators.claims import StateClaim
from operators.errors import UnscoredError
from operators.evidence import Evidence, EvidenceType
from operators.normal import Form
from operators.schema import Entity, Slot, SlotSchema

SCHEMA = SlotSchema(
    entities=(
        Entity(
            entity="api", slots=(Slot(slot="limit", form=Form.NUMBER), Slot(slot="state", form=Form.FLAG))
        ),
    )
)
LIMIT = StateClaim(
    "api", "limit", "5", Evidence(EvidenceType.HUMAN_NOTE, "n"), datetime(2026, 1, 1, tzinfo=UTC)
)
STATE = replace(LIMIT, slot="state", value="on")


def test_nothing_to_find_and_nothing_found_is_right_and_anything_else_wrong() -> None:
    assert extract_score([], [], SCHEMA).claim_f1 == 1
    assert extract_score([LIMIT], [], SCHEMA).claim_f1 == 0
    assert extract_score([], [LIMIT], SCHEMA).claim_f1 == 0


def test_a_right_pair_with_a_wrong_value_counts_as_a_pair_only() -> None:
    score = extract_score([replace(LIMIT, value="6")], [LIMIT], SCHEMA)
    assert (score.claim_f1, score.pair_f1, score.value_token_f1) == (0, 1, 0)


def test_values_are_compared_in_normal_form_and_scopes_count() -> None:
    assert extract_score([replace(STATE, value="Enabled")], [STATE], SCHEMA).claim_f1 == 1
    assert extract_score([replace(STATE, env="prod")], [STATE], SCHEMA).claim_f1 == 0


def test_saying_a_claim_twice_is_no_better_than_once() -> None:
    assert extract_score([LIMIT, LIMIT], [LIMIT], SCHEMA).claim_f1 == pytest.approx(2 / 3)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_f1_is_symmetric_and_one_exactly_for_equal_multisets(a: list[int], b: list[int]) -> None:
    assert f1(a, b) == f1(b, a)
    assert (f1(a, b) == 1) == (sorted(a) == sorted(b))


def test_a_mean_an_interval_and_a_test_over_nothing_are_errors() -> None:
    with pytest.raises(UnscoredError):
        mean([])
    with pytest.raises(UnscoredError):
        bootstrap([])
    with pytest.raises(UnscoredError):
        mcnemar([], [])
    with pytest.raises(UnscoredError):
        mcnemar([True], [True, False])


def test_the_bootstrap_brackets_the_mean_and_repeats_itself() -> None:
    scores = [1.0] * 73 + [0.0] * 2
    found = bootstrap(scores)
    assert found == bootstrap(scores)
    # The paper reports [0.93, 1.00] for 73 of 75 (Table 9).
    assert (round(found.low, 2), round(found.high, 2)) == (0.93, 1.0)


@pytest.mark.parametrize(
    ("n01", "n10", "p"), [(27, 1, 2.2e-7), (49, 0, 3.6e-15), (40, 1, 3.8e-11), (8, 1, 0.04)]
)
def test_mcnemar_gives_the_papers_p_values(n01: int, n10: int, p: float) -> None:
    """Tables 9 and 10 of the paper, from their discordant pairs."""
    first = [False] * n01 + [True] * n10 + [True] * 5
    second = [True] * n01 + [False] * n10 + [True] * 5
    found = mcnemar(first, second)
    assert (found.only_second, found.only_first) == (n01, n10)
    assert math.isclose(found.p, p, rel_tol=0.06)


def test_runs_that_never_differ_have_p_one() -> None:
    assert mcnemar([True, False], [True, False]).p == 1


def query(**tokens: tuple[str, ...]) -> Query:
    return Query(id="q", kind=QueryKind.CURRENT, question="?", **tokens)


@pytest.mark.parametrize(
    ("text", "tokens", "right"),
    [
        ("limit = 8 since 0adcd8aa8613", {"required": ("8", "0adcd8aa8613")}, True),
        ("limit = 80", {"required": ("8",)}, False),
        ("it is `Live` now", {"any_of": ("live", "cached")}, True),
        ("it was live, now cached", {"required": ("cached",), "forbidden": ("live",)}, False),
        ("version 1.2.0", {"required": ("1.2",)}, False),
        ("set to 12 (human-note, 2026-01-06)", {"required": ("12",), "forbidden": ("06",)}, True),
        ("on 2026-01-06", {"required": ("2026-01-06",)}, True),
        ("Größe", {"required": ("gr",)}, False),
        ("", {"required": ("x",)}, False),
    ],
)
def test_tokens_are_matched_as_whole_words(
    text: str, tokens: dict[str, tuple[str, ...]], right: bool
) -> None:
    assert answers(text, query(**tokens)) is right


def test_token_matching_takes_no_patterns() -> None:
    assert contains("flag a.b (x)", "a.b")
    assert not contains("flag aXb", "a.b")
