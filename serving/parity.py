"""Whether a server answers as the adapters do in this process: by gold tokens, and by answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from operators.errors import EndpointError, InputError, UnscoredError
from operators.models.endpoint import is_loopback
from operators.models.text import TextModel, TextRequest
from operators.outcome import Outcome
from operators.prompts import Message
from serving.registry import Registry

ANSWER_TOKENS = 160


class ParityExample(BaseModel):
    """One row of `data build`, of which only this is read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    operator: str
    task: str
    prompt: tuple[Message, ...]
    completion: tuple[Message, ...]

    @property
    def gold(self) -> str:
        return self.completion[0]["content"]


class LocalReference(TextModel, Protocol):
    """The adapters in this process."""

    def gold_row(self, messages: Sequence[Message], answer: str) -> tuple[list[int], int]:
        """Token ids of prompt and answer with its end of turn, and where the answer begins."""

    def gold_logprobs(self, messages: Sequence[Message], answer: str, adapter: str) -> list[float]:
        """The log-probability of each token of the answer, its end of turn included."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One example whose answers differ."""

    example: str
    adapter: str
    local: str
    served: str


@dataclass(frozen=True, slots=True)
class Parity:
    """What came of the comparison.

    `logprob_mean` and `logprob_max` are of |local - served| over all gold tokens, in nats; `differences` are
    the answers that are not the same, `flips` those that the server itself gave differently the second time.
    """

    examples: int
    tokens: int
    logprob_mean: float
    logprob_max: float
    differences: tuple[Difference, ...]
    flips: tuple[Difference, ...]


def read_examples(path: Path, *, limit: int) -> list[ParityExample]:
    """So many rows of a JSONL file, evenly spread over it. Raises: InputError for a row that is none."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            found.append(ParityExample.model_validate_json(line))
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            hint = "give rows that `data build` wrote"
            raise InputError(first["msg"], file=path, line=number, field=field, hint=hint) from fault
    step = max(1, len(found) // limit)
    return found[::step][:limit]


def measure_parity(
    examples: Sequence[ParityExample],
    registry: Registry,
    local: LocalReference,
    served: TextModel,
    served_logprobs: Callable[[str, list[int]], list[float]],
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Parity:
    """Ask both sides the same: gold tokens scored, and answers without a schema, which could hide a flip.

    Raises: UnscoredError for no example, ConfigError where an adapter is missing, EndpointError.
    """
    if not examples:
        raise UnscoredError("there is no example to compare", hint="give --examples with rows of data build")
    names = [registry.answering(example.operator).name for example in examples]
    gaps: list[float] = []
    for number, (example, name) in enumerate(zip(examples, names, strict=True), start=1):
        progress(f"gold tokens, {number} of {len(examples)}")
        ids, start = local.gold_row(example.prompt, example.gold)
        mine = local.gold_logprobs(example.prompt, example.gold, name)
        theirs = served_logprobs(name, ids)[start:]
        gaps += [abs(a - b) for a, b in zip(mine, theirs, strict=True)]
    requests = [
        TextRequest(example.prompt, None, ANSWER_TOKENS, name)
        for example, name in zip(examples, names, strict=True)
    ]
    progress("answers, in this process")
    mine_texts = local.complete(requests)
    progress("answers of the server")
    first, second = served.complete(requests), served.complete(requests)
    return Parity(
        len(examples), len(gaps), sum(gaps) / len(gaps), max(gaps),
        tuple(_differences(examples, names, mine_texts, first)),
        tuple(_differences(examples, names, first, second)),
    )  # fmt: skip


def root_client(url: str, token: str | None) -> httpx2.Client:
    """A client of the server's root; one on this machine is reached past any proxy."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    there = not is_loopback(urlsplit(url).hostname or "")
    return httpx2.Client(base_url=url, headers=headers, timeout=300.0, trust_env=there)


class _Scored(BaseModel):
    logprob: float


class _Prompt(BaseModel):
    prompt_logprobs: list[dict[str, _Scored] | None]


class _Scoring(BaseModel):
    """What is read of a /v1/completions reply: by token id, what each token of the prompt scored."""

    choices: list[_Prompt] = Field(min_length=1)


def vllm_logprobs(client: httpx2.Client) -> Callable[[str, list[int]], list[float]]:
    """How vLLM's /v1/completions scores the tokens of a prompt; the first token has no score and gets 0.

    The client's address is the server's root. Raises: EndpointError where it does not.
    """

    def score(model: str, ids: list[int]) -> list[float]:
        body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        try:
            reply = client.post("/v1/completions", json=body)
            reply.raise_for_status()
            scored = _Scoring.model_validate_json(reply.content).choices[0].prompt_logprobs
            pairs = list(zip(ids, scored, strict=True))[1:]
            return [0.0, *((entry or {})[str(token)].logprob for token, entry in pairs)]
        except (httpx2.HTTPError, ValueError, KeyError) as fault:
            raise EndpointError(
                f"{client.base_url} does not score prompts ({fault})"[:200], hint="parity needs a vLLM server"
            ) from fault

    return score


def _differences(
    examples: Sequence[ParityExample],
    names: Sequence[str],
    one: Sequence[Outcome[str]],
    other: Sequence[Outcome[str]],
) -> Iterator[Difference]:
    for example, name, left, right in zip(examples, names, one, other, strict=True):
        if (left.kind, left.value) != (right.kind, right.value):
            yield Difference(example.id, name, _text(left), _text(right))


def _text(outcome: Outcome[str]) -> str:
    return outcome.value if outcome.value is not None else f"({outcome.kind.value}: {outcome.detail})"
