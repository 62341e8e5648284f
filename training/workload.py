"""What a training runs through the model: counted from its micro-batches of token rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from data_builders.examples import Example
from operators.models.local.prefix_tree import TokenRow, unique_tokens


@dataclass(frozen=True, slots=True)
class Workload:
    """One training of one adapter. Counts are of one epoch, `steps` (the optimizer's) of all epochs.

    runs: forward passes; row_tokens: the rows' tokens when each stands by itself; run_tokens: what the model
    is run on (unique tokens of packs, or padded ones); targets: labelled tokens; pairs: query-key pairs that
    attention computes; largest_run: tokens of the largest forward pass; largest_batch, largest_targets: of
    the largest micro-batch, whose passes share one backward pass.
    """

    name: str
    rows: int
    epochs: float
    steps: int
    runs: int
    row_tokens: int
    run_tokens: int
    targets: int
    pairs: int
    largest_run: int
    largest_batch: int
    largest_targets: int


def workload(
    name: str,
    batches: Iterable[Sequence[Sequence[TokenRow]]],
    *,
    pack_tokens: int | None,
    epochs: float,
    accumulation: int,
) -> Workload:
    """Count the micro-batches of one epoch; each is a sequence of cases, a case the rows that share a note.

    `pack_tokens` is the recipe's for packs with shared prefixes, None for padded batches. `accumulation` is
    how many micro-batches one optimizer step takes. No batches: all counts are 0.
    """
    counts = [_count(batch, pack_tokens) for batch in batches]
    return Workload(
        name=name,
        rows=sum(count.rows for count in counts),
        epochs=epochs,
        steps=math.ceil(math.ceil(len(counts) / accumulation) * epochs),
        runs=sum(count.runs for count in counts),
        row_tokens=sum(count.row_tokens for count in counts),
        run_tokens=sum(count.run_tokens for count in counts),
        targets=sum(count.targets for count in counts),
        pairs=sum(count.pairs for count in counts),
        largest_run=max((count.longest for count in counts), default=0),
        largest_batch=max((count.run_tokens for count in counts), default=0),
        largest_targets=max((count.targets for count in counts), default=0),
    )


@dataclass(frozen=True, slots=True)
class _Count:
    """One micro-batch: its forward passes, and the tokens of the longest of them."""

    rows: int
    runs: int
    row_tokens: int
    run_tokens: int
    targets: int
    pairs: int
    longest: int


def _count(batch: Sequence[Sequence[TokenRow]], pack_tokens: int | None) -> _Count:
    """A tree mask is computed whole; a causal kernel computes half the square of a padded row."""
    rows = [row for case in batch for row in case]
    if pack_tokens is None:
        longest = max(len(row.ids) for row in rows) - 1
        sizes, pairs = [len(rows) * longest], len(rows) * longest * longest // 2
    else:
        sizes = [unique_tokens(pack) for pack in packs_of(batch, pack_tokens)]
        pairs = sum(size * size for size in sizes)
    return _Count(
        rows=len(rows),
        runs=len(sizes),
        row_tokens=sum(len(row.ids) for row in rows),
        run_tokens=sum(sizes),
        targets=sum(len(row.ids) - row.labelled_from for row in rows),
        pairs=pairs,
        longest=max(sizes),
    )


def packs_of(cases: Sequence[Sequence[TokenRow]], pack_tokens: int) -> list[list[TokenRow]]:
    """The cases as `PrefixTreeCollator` packs them: whole, until a pack would have more unique tokens."""
    packs: list[list[TokenRow]] = [[]]
    for case in cases:
        size = unique_tokens(packs[-1]) if packs[-1] else 0
        if size and size + unique_tokens(case) > pack_tokens:
            packs.append([])
        packs[-1] += case
    return packs


_PIECE = re.compile(r" ?[^\W\d_]{1,6}|\d| ?[^\s\w]{1,2}|_|\s+")


def rough_rows(examples: Iterable[Example]) -> list[TokenRow]:
    """Rows cut by a pattern, for a plan without the base's tokenizer at hand.

    Counts come within a tenth of a real tokenizer's (docs/gpu.md); what rows share, they share here too.
    """
    return [_rough(example) for example in examples]


def _rough(example: Example) -> TokenRow:
    prompt = "".join(f"<{message['role']}>\n{message['content']}\n" for message in example.prompt)
    before = _pieces(prompt + "<assistant>\n")
    answer = _pieces("".join(message["content"] for message in example.completion) + "<")
    return TokenRow(before + answer, len(before))


def _pieces(text: str) -> tuple[int, ...]:
    return tuple(crc32(piece.encode()) for piece in _PIECE.findall(text))
