"""Rows that begin alike, run once: a batch of token rows becomes a trie laid out as one sequence.

Every row of an operator opens with the same system message, and all rows of one note with the same note. In
a causal model a token's state depends on the tokens before it alone, so a shared prefix can be computed once:
a tree attention mask lets each token see its ancestors only, and its position is its depth. The result is
that of the rows run one by one (up to rounding); only the cost differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Token ids of one row; those from `labelled_from` (1 or more) on are targets."""

    ids: tuple[int, ...]
    labelled_from: int


@dataclass(frozen=True, slots=True)
class Pack:
    """N trie nodes, depth first, and M targets; or, from `pad_rows`, B padded rows of length T.

    input_ids, position_ids: [1, N] or [B, T]. attention_mask: [1, 1, N, N], True where the query (row) may
    attend, or [B, T], True where a token is no padding. sources: [M], the flat index of the node whose
    hidden state predicts `targets` [M]; rows: [M], whose target it is. row_tokens: how many tokens the rows
    have when each stands by itself (the nodes are what they cost here).
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor
    sources: Tensor
    targets: Tensor
    rows: Tensor
    row_tokens: int

    def to(self, device: torch.device | str) -> Pack:
        return Pack(
            self.input_ids.to(device), self.position_ids.to(device), self.attention_mask.to(device),
            self.sources.to(device), self.targets.to(device), self.rows.to(device), self.row_tokens,
        )  # fmt: skip


def pack_rows(rows: Sequence[TokenRow]) -> Pack:
    """The rows as one pack. Raises: ValueError for no rows, or a row without a target that has a source."""
    if not rows or any(not 1 <= row.labelled_from < len(row.ids) for row in rows):
        raise ValueError("a pack needs rows, each with a target after its first token")
    order = sorted(range(len(rows)), key=lambda number: rows[number].ids)
    tokens: list[int] = []
    depths: list[int] = []
    parents: list[int] = []
    targets: list[tuple[int, int, int]] = []
    path: list[int] = []  # the nodes of the row before; sorted rows share prefixes with their neighbours
    before: tuple[int, ...] = ()
    for number in order:
        row = rows[number]
        shared = _common(before, row.ids)
        del path[shared:]
        for depth in range(shared, len(row.ids) - 1):  # the last token is a target only, nothing follows it
            parents.append(path[-1] if path else -1)
            path.append(len(tokens))
            tokens.append(row.ids[depth])
            depths.append(depth)
        before = row.ids[: len(path)]
        targets += [(number, path[at - 1], row.ids[at]) for at in range(row.labelled_from, len(row.ids))]
    targets.sort(key=lambda target: target[0])
    owners, sources, wanted = (torch.tensor(column) for column in zip(*targets, strict=True))
    return Pack(
        input_ids=torch.tensor([tokens]),
        position_ids=torch.tensor([depths]),
        attention_mask=_ancestors(parents)[None, None],
        sources=sources,
        targets=wanted,
        rows=owners,
        row_tokens=sum(len(row.ids) for row in rows),
    )


def unique_tokens(rows: Sequence[TokenRow]) -> int:
    """How many nodes `pack_rows` makes of these rows; a row's last token is a target and no node."""
    total = 0
    before: tuple[int, ...] = ()
    for row in sorted(row.ids[:-1] for row in rows):
        total += len(row) - _common(before, row)
        before = row
    return total


def pad_rows(rows: Sequence[TokenRow], pad_id: int) -> Pack:
    """The rows side by side, padded on the right: what `pack_rows` saves against. Raises: as pack_rows."""
    if not rows or any(not 1 <= row.labelled_from < len(row.ids) for row in rows):
        raise ValueError("a batch needs rows, each with a target after its first token")
    longest = max(len(row.ids) for row in rows) - 1
    ids = [[*row.ids[:-1], *[pad_id] * (longest + 1 - len(row.ids))] for row in rows]
    lengths = torch.tensor([[len(row.ids) - 1] for row in rows])
    places = torch.arange(longest)[None].expand(len(rows), -1)
    targets = [
        (number, number * longest + at - 1, row.ids[at])
        for number, row in enumerate(rows)
        for at in range(row.labelled_from, len(row.ids))
    ]
    owners, sources, wanted = (torch.tensor(column) for column in zip(*targets, strict=True))
    return Pack(
        input_ids=torch.tensor(ids),
        position_ids=places,
        attention_mask=places < lengths,
        sources=sources,
        targets=wanted,
        rows=owners,
        row_tokens=sum(len(row.ids) for row in rows),
    )


def target_hidden(model: nn.Module, pack: Pack) -> Tensor:
    """[M, hidden]: the last hidden state that predicts each target, under the model's active adapter."""
    decoder = _part(model, "model")
    states: Tensor = decoder(
        input_ids=pack.input_ids,
        position_ids=pack.position_ids,
        attention_mask=mask_for(model, pack.attention_mask),
        use_cache=False,
    ).last_hidden_state
    return states.flatten(0, 1)[pack.sources]


def target_logits(model: nn.Module, pack: Pack) -> Tensor:
    """[M, vocabulary]: logits at the targets' places only; the head is not run anywhere else."""
    logits: Tensor = _part(model, "lm_head")(target_hidden(model, pack))
    return logits


def mask_for(model: nn.Module, allowed: Tensor) -> Tensor:
    """The mask as the model's attention wants it: eager attention adds it to the scores."""
    config = _part(model, "model").config
    if (
        allowed.dim() != 4
        or not isinstance(config, PreTrainedConfig)
        or config._attn_implementation != "eager"
    ):
        return allowed
    floor = torch.finfo(torch.float32).min / 2  # half, so that a sum with a score stays finite
    return torch.where(allowed, 0.0, floor)


def _part(model: nn.Module, name: str) -> nn.Module:
    """A part of the causal language model, out of a PEFT wrapper (adapters stay in place inside it)."""
    causal = model.get_base_model() if isinstance(model, PeftModel) else model
    return causal.get_submodule(name)


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return at
    return min(len(first), len(second))


def _ancestors(parents: Sequence[int]) -> Tensor:
    """[N, N] bool: True at (node, itself) and at (node, each ancestor)."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask
