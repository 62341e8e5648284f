"""`latticemind serve` and `latticemind parity`."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from operators.errors import ConfigError
from operators.models.bases import FoundBase, find_base
from operators.models.endpoint import EndpointModel
from serving.registry import Registry, read_registry
from serving.vllm_command import VllmCommand, vllm_command, vllm_python

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)


class EngineKind(StrEnum):
    VLLM = "vllm"
    LOCAL = "local"


AdaptersOption = Annotated[
    list[Path], typer.Option("--adapters", help="A folder that `train` wrote, or one adapter; repeatable.")
]
BaseOption = Annotated[
    str | None, typer.Option("--base", help="Where the adapters' base is, if not where its id says.")
]
HoldoutOption = Annotated[
    str | None,
    typer.Option(help="Whose adapters answer where a request names none; `none`: the shared ones."),
]
TokenOption = Annotated[
    Path | None, typer.Option("--token-file", help="Holds the bearer token; else $LATTICEMIND_TOKEN.")
]


def serve(
    adapters: AdaptersOption,
    extra: Annotated[list[str] | None, typer.Argument(help="After `--`: options for vLLM itself.")] = None,
    engine: Annotated[EngineKind, typer.Option(help="vLLM as a child, or this process.")] = EngineKind.VLLM,
    host: Annotated[str, typer.Option(help="Beyond loopback a token is needed.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    base: BaseOption = None,
    holdout: HoldoutOption = None,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of two-stage; default: what `eval loo` found, or 0.5.")
    ] = None,
    token_file: TokenOption = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds a request may take.")] = 120.0,
    max_body_mb: Annotated[float, typer.Option(min=0.001, help="Megabytes a body may have.")] = 4.0,
    concurrency: Annotated[int, typer.Option(min=1, help="Model requests side by side.")] = 32,
    print_command: Annotated[
        bool, typer.Option("--print-command", help="Print vLLM's command line and stop.")
    ] = False,
    python: Annotated[
        str | None, typer.Option("--vllm-python", help="The interpreter with vLLM; else $LATTICEMIND_VLLM.")
    ] = None,
    log: Annotated[Path, typer.Option(help="Where vLLM's output goes.")] = Path("runs/vllm.log"),
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds vLLM may take to start.")] = 900.0,
    dtype: Annotated[str, typer.Option(help="vLLM's --dtype.")] = "bfloat16",
    max_model_len: Annotated[int | None, typer.Option(min=256, help="vLLM's --max-model-len.")] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that share the model.")] = 1,
    data_parallel: Annotated[int, typer.Option(min=1, help="Copies of the model.")] = 1,
) -> None:
    """Serve one base with all its adapters: typed operator endpoints and the OpenAI-compatible route."""
    registry = read_registry(adapters, holdout=holdout)

    def command(python: str, host: str, port: int) -> VllmCommand:
        return vllm_command(
            registry, _base(registry, base), python=python, host=host, port=port, dtype=dtype,
            max_model_len=max_model_len, tensor_parallel=tensor_parallel, data_parallel=data_parallel,
            extra=tuple(extra or ()),
        )  # fmt: skip

    if print_command:
        typer.echo(command(python or "python", host, port).line())
        return
    if extra and engine is EngineKind.LOCAL:
        raise ConfigError(f"{extra[0]!r} is for vLLM, and --engine is local", hint="leave it out")
    running = _needs("serving.run")
    token = running.read_token(token_file)
    running.refuse_open_door(host, token)
    bound = running.listening_socket(host, port)
    with bound, running.ended_by_sigterm():
        if engine is EngineKind.LOCAL:
            found = running.local_engine(
                registry, _base(registry, base), batch_size=concurrency, timeout_s=timeout, progress=_say
            )
            route = import_module("serving.openai_route").local_route(found.model, registry, registry.base.id)
        else:
            inner = running.free_port()
            url = f"http://127.0.0.1:{inner}"
            found = running.vllm_engine(
                registry, command(vllm_python(python), "127.0.0.1", inner), url=url, log=log.absolute(),
                token=token, start_timeout_s=start_timeout, timeout_s=timeout, concurrency=concurrency,
                progress=_say,
            )  # fmt: skip
            route = import_module("serving.proxy").proxy_route(
                url, timeout_s=timeout, token=token, ready=lambda: found.health().status == "ready"
            )
        try:
            service = import_module("serving.service").Service(found, registry, threshold)
            app = import_module("serving.app").build_app(
                service, openai=route, token=token, timeout_s=timeout, max_bytes=int(max_body_mb * 2**20)
            )
            _say(f"ready: http://{host}:{bound.getsockname()[1]}, described at /docs")
            running.run_app(app, bound, grace_s=timeout)
        finally:
            found.close()


def parity(
    adapters: AdaptersOption,
    url: Annotated[str, typer.Option(help="The server's root, as `serve` prints it.")],
    examples: Annotated[Path, typer.Option(help="A JSONL file of `data build`.")],
    limit: Annotated[int, typer.Option(min=1, help="So many rows, spread over the file.")] = 60,
    base: BaseOption = None,
    holdout: HoldoutOption = None,
    token_file: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Compare a vLLM server with the adapters in this process: gold-token log-probabilities, and answers."""
    measuring, running = _needs("serving.parity"), _needs("serving.run")
    registry = read_registry(adapters, holdout=holdout)
    rows = measuring.read_examples(examples, limit=limit)
    token = running.read_token(token_file)
    with Status("loading the model", console=err) as status:
        found = _base(registry, base)
        local = _needs("operators.models.local.model", "local").LocalModel.load(
            found.path,
            identity=registry.base.id,
            adapters={adapter.name: adapter.folder for adapter in registry.adapters},
        )
        with (
            EndpointModel(url, base=registry.base.id, token=token) as served,
            measuring.root_client(url, token) as client,
        ):
            result = measuring.measure_parity(
                rows, registry, local, served, measuring.vllm_logprobs(client), progress=status.update
            )
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=2, ensure_ascii=False))
        return
    out.print(
        f"{result.examples} examples, {result.tokens:,} gold tokens: log-probabilities differ by "
        f"{result.logprob_mean:.4f} on average, {result.logprob_max:.4f} at most",
        highlight=False,
    )
    same = result.examples - len(result.differences)
    out.print(f"answers: {same} of {result.examples} the same; {len(result.flips)} flips of the server")
    for title, found_ones in (("differs", result.differences), ("flips", result.flips)):
        for one in found_ones:
            out.print(f"{title} {one.example} ({one.adapter})", markup=False, highlight=False)
            out.print(f"  here   {one.local}\n  there  {one.served}", markup=False, highlight=False)


def _base(registry: Registry, given: str | None) -> FoundBase:
    """The adapters' base on this machine; every adapter is held against it. Raises: ConfigError."""
    card = registry.base
    found = find_base(given) if given is not None else find_base(card.id, card.revision)
    read_registry([adapter.folder for adapter in registry.adapters], base=found.card)
    return found


def _needs(module: str, extra: str = "service") -> ModuleType:
    """A module that needs an optional extra. Raises: ConfigError, naming it."""
    try:
        return import_module(module)
    except ImportError as fault:
        hint = f"pip install 'latticemind[{extra}]'"
        raise ConfigError(f"this needs the extra `{extra}` ({fault.name})", hint=hint) from fault


def _say(step: str) -> None:
    """One line, written over while the terminal can."""
    err.print(step, markup=False, highlight=False)
