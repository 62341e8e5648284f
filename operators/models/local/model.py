"""A model in this process: one base, any number of adapters on it, answers under a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
import xgrammar
from jsonschema import Draft202012Validator
from peft import PeftModel
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from operators.errors import ConfigError, InputError
from operators.models.local.generate import Answer, generate
from operators.models.local.prefix_tree import TokenRow, pack_rows, target_logits, unique_tokens
from operators.models.local.render import completion_ids, prompt_ids
from operators.models.text import ChoiceRequest, JsonSchema, TextRequest
from operators.outcome import Outcome, OutcomeKind, valid

PACK_TOKENS = 1024
"""Unique tokens of one forward pass when choices are scored."""

END_OF_TURN = "<|im_end|>"
Rows = list[TokenRow]


class LocalModel:
    """transformers and PEFT in process. Adapters are switched, never merged; the base is loaded once.

    `batch_size` is how many answers are written side by side.
    """

    def __init__(
        self,
        base: Path,
        *,
        identity: str,
        adapters: Mapping[str, Path] | None = None,
        dtype: Literal["float32", "bfloat16"] = "bfloat16",
        batch_size: int = 32,
    ) -> None:
        """Raises: ConfigError for a base whose tokenizer has no end-of-turn token."""
        self.identity = identity
        self.batch_size = batch_size
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(base)
        if END_OF_TURN in self.tokenizer.get_vocab():
            self.tokenizer.eos_token = END_OF_TURN
        if self.tokenizer.eos_token_id is None:
            raise ConfigError(f"{base} has no end-of-turn token", hint="give a chat model")
        on_gpu = torch.cuda.is_available()
        model: Any = AutoModelForCausalLM.from_pretrained(
            base, dtype=getattr(torch, dtype), attn_implementation="sdpa" if on_gpu else "eager",
            device_map="cuda" if on_gpu else None,
        )  # fmt: skip
        self.context = int(model.config.max_position_embeddings)
        for name, folder in (adapters or {}).items():
            if isinstance(model, PeftModel):
                model.load_adapter(str(folder), name, autocast_adapter_dtype=False)
            else:
                model = PeftModel.from_pretrained(
                    model, str(folder), adapter_name=name, autocast_adapter_dtype=False
                )
        self.model: nn.Module = model.eval()
        self.adapters = frozenset(adapters or ())
        info = xgrammar.TokenizerInfo.from_huggingface(
            self.tokenizer, vocab_size=model.config.vocab_size, stop_token_ids=[self._eos]
        )
        self._compiler = xgrammar.GrammarCompiler(info)

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """One outcome a request, in order.

        Raises: InputError for a prompt longer than the base's context, ConfigError for an unknown adapter.
        """
        prompts = [self._prompt(request.messages, request.max_tokens) for request in requests]
        found: dict[int, Outcome[str]] = {}
        for adapter, numbers in _by_adapter(requests):
            numbers.sort(key=lambda number: len(prompts[number]))
            with self._active(adapter):
                for start in range(0, len(numbers), self.batch_size):
                    batch = numbers[start : start + self.batch_size]
                    answers = generate(
                        self.model,
                        [prompts[number] for number in batch],
                        [self._grammar(requests[number].schema) for number in batch],
                        max_tokens=max(requests[number].max_tokens for number in batch),
                        eos_id=self._eos,
                        pad_id=self._eos,
                    )
                    for number, answer in zip(batch, answers, strict=True):
                        found[number] = self._checked(requests[number], answer)
        return [found[number] for number in range(len(requests))]

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        """For each request, in order, the probability of each of its choices among them.

        Requests that share a prefix are computed together. Raises: as `complete`.
        """
        found: dict[int, tuple[float, ...]] = {}
        for adapter, numbers in _by_adapter(requests):
            with self._active(adapter):
                for batch in self._packed(requests, numbers):
                    found |= self._probabilities(batch)
        return [valid(found[number]) for number in range(len(requests))]

    @property
    def _eos(self) -> int:
        eos = self.tokenizer.eos_token_id
        assert isinstance(eos, int)
        return eos

    def _prompt(self, messages: Sequence[Any], room: int) -> list[int]:
        ids = prompt_ids(self.tokenizer, messages)
        if len(ids) + room > self.context:
            raise InputError(
                f"a prompt of {len(ids)} tokens and an answer of {room} do not fit {self.context}",
                hint="shorten the note or its schema",
            )
        return ids

    def _grammar(self, schema: JsonSchema | None) -> xgrammar.CompiledGrammar | None:
        """Compact JSON as json.dumps writes it: what the training rows hold."""
        if schema is None:
            return None
        return self._compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)

    def _checked(self, request: TextRequest, answer: Answer) -> Outcome[str]:
        ids = answer.ids[: request.max_tokens]
        if not answer.ended or len(answer.ids) > request.max_tokens:
            return Outcome(OutcomeKind.TRUNCATED, None, f"no end within {request.max_tokens} tokens")
        text = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        assert isinstance(text, str)
        if request.schema is None:
            return valid(text)
        try:
            fault = next(Draft202012Validator(request.schema).iter_errors(json.loads(text)), None)
        except ValueError:
            return Outcome(OutcomeKind.MALFORMED, None, f"no JSON: {text[:80]!r}")
        if fault is not None:
            return Outcome(OutcomeKind.MALFORMED, None, f"off schema: {fault.message[:160]}")
        return valid(text)

    def _packed(
        self, requests: Sequence[ChoiceRequest], numbers: Sequence[int]
    ) -> Iterator[list[tuple[int, Rows]]]:
        """Requests in their order, cut into packs of about PACK_TOKENS unique tokens."""
        batch: list[tuple[int, Rows]] = []
        for number in numbers:
            rows = self._choice_rows(requests[number])
            together = [row for _, others in batch for row in others] + rows
            if batch and unique_tokens(together) > PACK_TOKENS:
                yield batch
                batch = []
            batch.append((number, rows))
        if batch:
            yield batch

    def _choice_rows(self, request: ChoiceRequest) -> Rows:
        start = len(self._prompt(request.messages, 8))
        return [
            TokenRow(tuple(completion_ids(self.tokenizer, request.messages, choice)), start)
            for choice in request.choices
        ]

    @torch.inference_mode()
    def _probabilities(self, batch: Sequence[tuple[int, Rows]]) -> dict[int, tuple[float, ...]]:
        rows = [row for _, choices in batch for row in choices]
        pack = pack_rows(rows).to(next(self.model.parameters()).device)
        logs = target_logits(self.model, pack).float().log_softmax(-1)
        logs = logs.gather(1, pack.targets[:, None])[:, 0]
        sums = torch.zeros(len(rows), device=logs.device).index_add_(0, pack.rows, logs)
        found, start = {}, 0
        for number, choices in batch:
            scores = sums[start : start + len(choices)].softmax(0)
            found[number] = tuple(float(score) for score in scores)
            start += len(choices)
        return found

    def _active(self, adapter: str | None) -> AbstractContextManager[Any]:
        """The adapter switched on, or every adapter off."""
        if adapter is not None and adapter not in self.adapters:
            known = ", ".join(sorted(self.adapters)) or "none"
            raise ConfigError(f"no adapter {adapter!r} is loaded", hint=f"there are: {known}")
        if not isinstance(self.model, PeftModel):
            return nullcontext()
        if adapter is None:
            return self.model.disable_adapter()
        self.model.set_adapter(adapter)
        return nullcontext()


def _by_adapter(
    requests: Sequence[TextRequest | ChoiceRequest],
) -> list[tuple[str | None, list[int]]]:
    groups: dict[str | None, list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(request.adapter, []).append(number)
    return list(groups.items())
