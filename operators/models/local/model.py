"""A model in this process: one base, any number of adapters on it, answers under a schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
import xgrammar
from peft import PeftModel
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, PreTrainedTokenizerBase

from operators.claims import content_hash
from operators.errors import ConfigError, InputError
from operators.models.local.generate import Answer, generate
from operators.models.local.precision import has_bf16
from operators.models.local.prefix_tree import TokenRow, pack_rows, target_logits, unique_tokens
from operators.models.local.render import completion_ids, prompt_ids
from operators.models.text import ChoiceRequest, JsonSchema, TextRequest, checked
from operators.outcome import Outcome, OutcomeKind, valid
from operators.prompts import Message

PACK_TOKENS = 1024
"""Unique tokens of one forward pass when choices are scored."""

BATCH_TOKENS = 65_536
"""Padded prompts and answers that stand side by side: what bounds the memory of one batch."""

GRAMMAR_BYTES = 256 * 2**20
"""Compiled schemas that are kept; each note brings its own."""

END_OF_TURN = "<|im_end|>"
Rows = list[TokenRow]


class LocalModel:
    """transformers and PEFT in process. Adapters are switched, never merged; the base is loaded once.

    `batch_size` is how many answers are written side by side, and `batch_tokens` how many tokens they and
    their padded prompts may take; a request over it is answered alone. `quantization` "nf4" holds the base
    in 4 bits, as QLoRA trained on it. `dtype` is that of the weights, or of what NF4 computes in; native is
    bfloat16 where the machine has it in hardware, else float32.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        *,
        identity: str,
        adapters: Iterable[str] = (),
        batch_size: int = 32,
        batch_tokens: int = BATCH_TOKENS,
    ) -> None:
        """Around a model that is loaded; `adapters` are the names of those it carries.

        Raises: ConfigError for a tokenizer without an end-of-turn token.
        """
        self.identity = identity
        self.batch_size, self.batch_tokens = batch_size, batch_tokens
        self.tokenizer = tokenizer
        if END_OF_TURN in tokenizer.get_vocab():
            tokenizer.eos_token = END_OF_TURN
        if tokenizer.eos_token_id is None:
            raise ConfigError("the base's tokenizer has no end-of-turn token", hint="give a chat model")
        settings: Any = model.config
        self.context = int(settings.max_position_embeddings)
        self.model = model.eval()
        self.adapters = frozenset(adapters)
        info = xgrammar.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=settings.vocab_size, stop_token_ids=[self._eos]
        )
        self._compiler = xgrammar.GrammarCompiler(info, cache_limit_bytes=GRAMMAR_BYTES)

    @classmethod
    def load(
        cls,
        base: Path,
        *,
        identity: str,
        adapters: Mapping[str, Path] | None = None,
        dtype: Literal["native", "float32", "bfloat16"] = "native",
        quantization: Literal["none", "nf4"] = "none",
        batch_size: int = 32,
        batch_tokens: int = BATCH_TOKENS,
    ) -> LocalModel:
        """The base in a folder with adapters on it, by name.

        Raises: ConfigError for a base without an end-of-turn token, or NF4 without its library.
        """
        model: Any = _load(base, dtype, nf4=quantization == "nf4")
        for name, folder in (adapters or {}).items():
            if isinstance(model, PeftModel):
                model.load_adapter(str(folder), name, autocast_adapter_dtype=False)
            else:
                model = PeftModel.from_pretrained(
                    model, str(folder), adapter_name=name, autocast_adapter_dtype=False
                )
        return cls(
            model, AutoTokenizer.from_pretrained(base), identity=identity, adapters=adapters or (),
            batch_size=batch_size, batch_tokens=batch_tokens,
        )  # fmt: skip

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        """One outcome a request, in order.

        Raises: InputError for a prompt longer than the base's context, ConfigError for an unknown adapter.
        """
        prompts = [self._prompt(request) for request in requests]
        found: dict[int, Outcome[str]] = {}
        for adapter, numbers in _by_adapter(requests):
            numbers.sort(key=lambda number: len(prompts[number]))
            costs = [len(prompts[number]) + requests[number].max_tokens for number in numbers]
            with self._active(adapter):
                for start, end in self._batches(costs):
                    batch = numbers[start:end]
                    answers = generate(
                        self.model,
                        [prompts[number] for number in batch],
                        [self._grammar(requests[number].schema) for number in batch],
                        limits=[requests[number].max_tokens for number in batch],
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

    def prompt_hash(self, messages: Sequence[Message]) -> str:
        """A hash of the prompt's token ids: what another server of this base has to make of it too."""
        return content_hash(prompt_ids(self.tokenizer, messages))

    def gold_row(self, messages: Sequence[Message], answer: str) -> tuple[list[int], int]:
        """Token ids of prompt and answer with its end of turn, and where the answer begins."""
        return completion_ids(self.tokenizer, messages, answer), len(prompt_ids(self.tokenizer, messages))

    @torch.inference_mode()
    def gold_logprobs(self, messages: Sequence[Message], answer: str, adapter: str | None) -> list[float]:
        """The log-probability of each token of the answer, its end of turn included."""
        ids, start = self.gold_row(messages, answer)
        pack = pack_rows([TokenRow(tuple(ids), start)]).to(next(self.model.parameters()).device)
        with self._active(adapter):
            logs = target_logits(self.model, pack).float().log_softmax(-1)
        found: list[float] = logs.gather(1, pack.targets[:, None])[:, 0].tolist()
        return found

    @property
    def _eos(self) -> int:
        eos = self.tokenizer.eos_token_id
        assert isinstance(eos, int)
        return eos

    def _prompt(self, request: TextRequest) -> list[int]:
        ids = prompt_ids(self.tokenizer, request.messages)
        return self._fitting(ids, f"a prompt of {len(ids)} tokens", room=request.max_tokens)

    def _fitting(self, ids: list[int], what: str, *, room: int = 0) -> list[int]:
        if len(ids) + room > self.context:
            answer = f" and an answer of {room}" if room else ""
            raise InputError(
                f"{what}{answer} do not fit the base's context of {self.context} tokens",
                hint="shorten the note or its schema",
            )
        return ids

    def _batches(self, costs: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Slices (start, end) within `batch_size` rows and `batch_tokens`, all as long as the longest."""
        start = longest = 0
        for end, cost in enumerate(costs):
            longest = max(longest, cost)
            rows = end + 1 - start
            if rows > 1 and (rows > self.batch_size or rows * longest > self.batch_tokens):
                yield start, end
                start, longest = end, cost
        if costs:
            yield start, len(costs)

    def _grammar(self, schema: JsonSchema | None) -> xgrammar.CompiledGrammar | None:
        """Compact JSON: what the training rows hold, and what vLLM makes of `disable_any_whitespace`."""
        if schema is None:
            return None
        return self._compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=False, separators=(",", ":")
        )

    def _checked(self, request: TextRequest, answer: Answer) -> Outcome[str]:
        if not answer.ended:
            return Outcome(OutcomeKind.TRUNCATED, None, f"no end within {request.max_tokens} tokens")
        text = self.tokenizer.decode(list(answer.ids), skip_special_tokens=False)
        assert isinstance(text, str)
        return checked(request, text)

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
        start = len(prompt_ids(self.tokenizer, request.messages))
        rows = [completion_ids(self.tokenizer, request.messages, choice) for choice in request.choices]
        return [
            TokenRow(tuple(self._fitting(row, f"prompt and choice of {len(row)} tokens")), start)
            for row in rows
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


def _load(base: Path, dtype: str, *, nf4: bool) -> nn.Module:
    """The base, on the GPU where there is one."""
    on_gpu = torch.cuda.is_available()
    native = "bfloat16" if has_bf16() else "float32"
    kind = getattr(torch, native if dtype == "native" else dtype)
    try:
        model: nn.Module = AutoModelForCausalLM.from_pretrained(
            base, dtype=kind, attn_implementation="sdpa" if on_gpu else "eager",
            device_map="cuda" if on_gpu else None, quantization_config=_nf4(kind) if nf4 else None,
        )  # fmt: skip
    except ImportError as fault:
        if not nf4:
            raise
        raise ConfigError("NF4 needs bitsandbytes", hint="pip install 'latticemind[train]'") from fault
    return model


def _nf4(compute: torch.dtype) -> BitsAndBytesConfig:
    """As the QLoRA recipes load the base; the library's own defaults are another type (T06)."""
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=compute,
        bnb_4bit_use_double_quant=True,
    )
