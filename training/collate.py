"""Cases to what the model runs: packs that share prefixes, or padded rows; the targets are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from operators.models.local.prefix_tree import Pack, TokenRow, pack_rows, pad_rows, unique_tokens


class Feature(TypedDict):
    """The token rows of one case: their ids, and where each row's targets begin."""

    ids: list[list[int]]
    labelled_from: list[int]


class Batch(TypedDict):
    """What one forward pass is given. The trainer counts `shift_labels`: a step's loss is divided by them.

    They are one for each unit of the rows' weight.
    """

    packs: list[Pack]
    shift_labels: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True)
class PrefixTreeCollator:
    """Packs of whole cases, each of at most `pack_tokens` unique tokens unless one case alone has more."""

    pack_tokens: int
    length_power: float

    def __call__(self, features: Sequence[Feature]) -> Batch:
        packs: list[Pack] = []
        waiting: list[TokenRow] = []
        size = 0
        for feature in features:
            rows = rows_of(feature)
            tokens = unique_tokens(rows)
            if waiting and size + tokens > self.pack_tokens:
                packs.append(pack_rows(waiting))
                waiting, size = [], 0
            waiting += rows
            size = unique_tokens(waiting)
        packs.append(pack_rows(waiting))
        return _batch(packs, self.length_power)


@dataclass(frozen=True, slots=True)
class PaddedCollator:
    """Every row by itself in one padded batch, as plain training has it."""

    pad_id: int
    length_power: float

    def __call__(self, features: Sequence[Feature]) -> Batch:
        return _batch(
            [pad_rows([row for feature in features for row in rows_of(feature)], self.pad_id)],
            self.length_power,
        )


def feature_of(rows: Sequence[TokenRow]) -> Feature:
    """One case as `datasets` holds it."""
    return {"ids": [list(row.ids) for row in rows], "labelled_from": [row.labelled_from for row in rows]}


def rows_of(feature: Feature) -> list[TokenRow]:
    """The token rows of one case."""
    return [
        TokenRow(tuple(ids), start)
        for ids, start in zip(feature["ids"], feature["labelled_from"], strict=True)
    ]


def row_weights(pack: Pack, power: float) -> tuple[Tensor, Tensor]:
    """For each row of a pack its number of targets, and its weight in the loss: that to `power`, rounded.

    Both [rows]. Weights are whole numbers, as the trainer counts a step's total weight like labels.
    """
    counts = pack.rows.bincount()
    return counts, counts.pow(power).round().long()


def _batch(packs: list[Pack], power: float) -> Batch:
    total = sum(int(row_weights(pack, power)[1].sum()) for pack in packs)
    counted = torch.ones(total, dtype=torch.long)
    return Batch(packs=packs, shift_labels=counted, labels=counted)
