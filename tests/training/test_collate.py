"""Batches: whole cases, bounded packs, and a count that the loss is divided by."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from operators.models.local.prefix_tree import Pack, TokenRow, unique_tokens
from training.collate import Feature, PaddedCollator, PrefixTreeCollator, feature_of, rows_of

TAILS = [(20, 21), (20, 22, 23), (24, 21)]


def case(note: int, length: int) -> list[TokenRow]:
    """Three rows that share a prefix of `length` tokens."""
    prefix = (1, *[note] * (length - 1))
    return [TokenRow((*prefix, *tail, 2), length) for tail in TAILS]


def cases() -> st.SearchStrategy[list[list[TokenRow]]]:
    return st.lists(st.builds(case, st.integers(3, 19), st.integers(2, 30)), min_size=1, max_size=8)


def targets(packs: list[Pack]) -> list[int]:
    return [token for pack in packs for token in pack.targets.tolist()]


@given(found=cases(), bound=st.integers(8, 120))
def test_packs_hold_every_case_whole_in_order_and_within_the_bound(
    found: list[list[TokenRow]], bound: int
) -> None:
    batch = PrefixTreeCollator(bound, 1.0)([feature_of(rows) for rows in found])
    wanted = [token for rows in found for row in rows for token in row.ids[row.labelled_from :]]
    assert targets(batch["packs"]) == wanted
    assert batch["shift_labels"].numel() == len(wanted)
    for pack in batch["packs"]:
        whole, rest = divmod(len(pack.rows.unique()), len(TAILS))
        assert rest == 0
        assert pack.input_ids.numel() <= bound or whole == 1
    assert sum(pack.row_tokens for pack in batch["packs"]) == sum(
        len(row.ids) for rows in found for row in rows
    )


@given(found=cases())
def test_a_pack_is_closed_only_when_the_next_case_does_not_fit(found: list[list[TokenRow]]) -> None:
    everything = [row for rows in found for row in rows]
    roomy = sum(unique_tokens(rows) for rows in found)
    (pack,) = PrefixTreeCollator(roomy, 1.0)([feature_of(rows) for rows in found])["packs"]
    assert pack.input_ids.numel() == unique_tokens(everything)


@pytest.mark.parametrize("collator", [PrefixTreeCollator, PaddedCollator])
def test_a_step_counts_targets_rows_or_what_lies_between(
    collator: type[PrefixTreeCollator] | type[PaddedCollator],
) -> None:
    features = [feature_of(case(note, 5)) for note in (3, 4)]
    assert collator(4000, 0.0)(features)["shift_labels"].numel() == 6
    assert collator(4000, 1.0)(features)["shift_labels"].numel() == 2 * (3 + 4 + 3)
    assert collator(4000, 0.5)(features)["shift_labels"].numel() == 2 * (2 + 2 + 2)  # roots, rounded
    (pack,) = collator(4000, 0.0)(features)["packs"]
    assert torch.equal(pack.rows.bincount(), torch.tensor([3, 4, 3] * 2))


def test_a_feature_is_its_rows_again() -> None:
    rows = case(7, 4)
    feature: Feature = feature_of(rows)
    assert rows_of(feature) == rows
