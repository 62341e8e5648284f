"""Greedy answers for a batch of prompts, each under its own grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import xgrammar
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Answer:
    """Token ids without the end of turn; `ended` is False when the limit cut it off."""

    ids: tuple[int, ...]
    ended: bool


@torch.inference_mode()
def generate(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    grammars: Sequence[xgrammar.CompiledGrammar | None],
    *,
    limits: Sequence[int],
    eos_id: int,
    pad_id: int,
) -> list[Answer]:
    """The most probable allowed token at each step, for all prompts side by side (padded on the left).

    `limits` are in tokens, one a prompt; the end of turn counts as one, as a server counts it.
    """
    device = next(model.parameters()).device
    ids, mask = (part.to(device) for part in _left_padded(prompts, pad_id))
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    matchers = [xgrammar.GrammarMatcher(grammar) if grammar is not None else None for grammar in grammars]
    answers: list[list[int]] = [[] for _ in prompts]
    ended = [False] * len(prompts)
    cache = None
    for _ in range(max(limits)):
        out = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        cache = out.past_key_values
        open_rows = [row for row in range(len(prompts)) if not ended[row] and len(answers[row]) < limits[row]]
        chosen = _choose(out.logits[:, -1].float(), matchers, open_rows)
        for row, token in chosen.items():
            matcher = matchers[row]
            if token == eos_id:
                ended[row] = True
                continue
            answers[row].append(token)
            if matcher is not None:
                matcher.accept_token(token)
        if all(
            done or len(found) >= limit for done, found, limit in zip(ended, answers, limits, strict=True)
        ):
            break
        ids = torch.tensor([[chosen.get(row, pad_id)] for row in range(len(prompts))], device=device)
        mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return [Answer(tuple(found), done) for found, done in zip(answers, ended, strict=True)]


def _left_padded(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


def _choose(
    logits: Tensor, matchers: Sequence[xgrammar.GrammarMatcher | None], rows: Sequence[int]
) -> dict[int, int]:
    """The best token of each of these rows among those its grammar allows next."""
    bound = [(row, matcher) for row in rows if (matcher := matchers[row]) is not None]
    if bound:
        bitmask = xgrammar.allocate_token_bitmask(len(matchers), logits.shape[-1])
        for row, matcher in bound:
            matcher.fill_next_token_bitmask(bitmask, row)
        xgrammar.apply_token_bitmask_inplace(
            logits, bitmask.to(logits.device), indices=[row for row, _ in bound]
        )
    best = logits.argmax(-1).tolist()
    return {row: int(best[row]) for row in rows}
