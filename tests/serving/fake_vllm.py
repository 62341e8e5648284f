"""Stands for vLLM's server where processes are tested: `python fake_vllm.py [vLLM's flags]`, no model, no torch.

It is told how to behave by its environment, and says in FAKE_RECORD which processes it started, and how.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import Any

ANSWERS, FAULTS, RECORD = "FAKE_ANSWERS", "FAKE_FAULTS", "FAKE_RECORD"
DELAY_S, ANSWER_S = "FAKE_DELAY_S", "FAKE_ANSWER_S"
"""Seconds from the start to the first request that is heard, and of every answer."""

OTHERWISE = "*"
"""In FAKE_ANSWERS, {model: {last message: text}}, what is answered to all other messages."""

KNOWN_FAULTS = frozenset(
    ("exit", "never-healthy", "hang", "ignore-sigterm", "wrong-parent", "missing-adapter", "other-tokens")
)
NEVER = Event()
ASKED, HUNG = "asked for an answer", "asked for its health for good"
"""What it says in its log of requests that it has, and has not answered."""


@dataclass(frozen=True, slots=True)
class Started:
    """One start of the fake: the server, its EngineCore, and what it was started with."""

    server: int
    core: int
    argv: list[str]
    cwd: str


def tokens_of(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """What the fake's tokenizer makes of a prompt."""
    return list("".join(f"{message['role']}: {message['content']}\n" for message in messages).encode())


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits for its parent does not (Linux)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def comes(true: Callable[[], bool], *, within_s: float = 60.0) -> bool:
    """Whether it is true by then."""
    until = time.monotonic() + within_s
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def gone(*pids: int) -> bool:
    """Whether all of them end."""
    return comes(lambda: not any(map(alive, pids)))


@dataclass(frozen=True, slots=True)
class Fakes:
    """What the next fake does, by `environment`, and which there were; all of them share a folder."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment[RECORD] = str(self.folder / "starts.jsonl")

    def next_does(self, *faults: str, delay_s: float = 0.0, answer_s: float = 0.0) -> None:
        self.environment.update({FAULTS: ",".join(faults), DELAY_S: str(delay_s), ANSWER_S: str(answer_s)})

    def answer(self, said: Mapping[str, Mapping[str, str]]) -> None:
        """By model and last message."""
        path = self.folder / "answers.json"
        path.write_text(json.dumps(said), encoding="utf-8")
        self.environment[ANSWERS] = str(path)

    def interpreter(self) -> Path:
        """Something to give as --vllm-python: what is called as vLLM's module is the fake."""
        path = self.folder / "vllm-python"
        path.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" "{__file__}" "$@"\n', encoding="utf-8")
        path.chmod(0o755)
        return path

    @property
    def starts(self) -> list[Started]:
        """Every start so far, the first one first."""
        record = self.folder / "starts.jsonl"
        lines = record.read_text("utf-8").splitlines() if record.exists() else []
        return [Started(**json.loads(line)) for line in lines]

    def wait_for_start(self, _: str = "") -> None:
        """Also a progress that goes on when the fake runs: a busy machine takes longer than a test has."""
        assert comes(lambda: bool(self.starts))

    def ended(self) -> bool:
        """Whether nothing is left of any fake; one has been started."""
        return bool(self.starts) and gone(
            *(pid for start in self.starts for pid in (start.server, start.core))
        )

    def kill(self) -> None:
        """Whatever a failed test leaves."""
        for start in self.starts:
            for pid in filter(alive, (start.server, start.core)):
                os.kill(pid, signal.SIGKILL)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, options: argparse.Namespace, faults: frozenset[str]) -> None:
        super().__init__((options.host, options.port), _Handler)
        self.faults, self.base = faults, str(options.served_model_name)
        self.adapters = dict(module.split("=", 1) for module in options.lora_modules)
        path = os.environ.get(ANSWERS)
        self.answers: dict[str, dict[str, str]] = json.loads(Path(path).read_bytes()) if path else {}
        self.token = os.environ.get("VLLM_API_KEY")

    def models(self) -> list[dict[str, object]]:
        parent = "another" if "wrong-parent" in self.faults else self.base
        listed = list(self.adapters.items())[1 if "missing-adapter" in self.faults else 0 :]
        return [
            {"id": self.base, "object": "model", "root": self.base, "parent": None},
            *({"id": name, "object": "model", "root": root, "parent": parent} for name, root in listed),
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        if self.path == "/health":
            if "hang" in self.server.faults:
                self.log_message("%s", HUNG)
                NEVER.wait()
            self._send(503 if "never-healthy" in self.server.faults else 200, {})
        elif not self._lets_in():
            self._send(401, {"error": "Unauthorized"})
        elif self.path == "/v1/models":
            self._send(200, {"object": "list", "data": self.server.models()})
        else:
            self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._lets_in():
            self._send(401, {"error": "Unauthorized"})
        elif body["model"] not in {self.server.base, *self.server.adapters}:
            self._send(404, {"error": {"message": f"The model `{body['model']}` does not exist."}})
        elif self.path == "/tokenize":
            tokens = tokens_of(body["messages"])
            self._send(200, {"tokens": tokens[1:] if "other-tokens" in self.server.faults else tokens})
        elif self.path == "/v1/chat/completions":
            self._send(200, self._completion(body))
        else:
            self._send(404, {"detail": "Not Found"})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's own name
        print(format % args, flush=True)  # noqa: T201 - what it says goes to the log

    def _lets_in(self) -> bool:
        token = self.server.token
        return token is None or self.headers.get("Authorization") == f"Bearer {token}"

    def _completion(self, body: dict[str, Any]) -> dict[str, object]:
        self.log_message("%s", ASKED)
        time.sleep(float(os.environ.get(ANSWER_S, "0")))
        canned = self.server.answers.get(body["model"], {})
        text = canned.get(body["messages"][-1]["content"], canned.get(OTHERWISE, "{}"))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        about = {"id": "chat-0", "object": "chat.completion", "created": 0, "model": body["model"]}
        return {**about, "choices": [choice]}

    def _send(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def _engine_core() -> Iterator[int]:
    """A process of the server's own; it outlives a server that is killed outright, as vLLM's does."""
    with subprocess.Popen(["sleep", "300"]) as core:
        try:
            yield core.pid
        finally:
            core.kill()


def _stop(_number: int, _frame: object) -> None:
    raise SystemExit(0)


def _options() -> argparse.Namespace:
    """The flags that it heeds; like vLLM it has many more."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--lora-modules", nargs="+", default=[])
    return parser.parse_known_args()[0]


def main() -> None:
    options = _options()
    faults = frozenset(filter(None, os.environ.get(FAULTS, "").split(",")))
    assert faults <= KNOWN_FAULTS, faults
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "ignore-sigterm" in faults else _stop)
    print("INFO the fake is starting", flush=True)  # noqa: T201 - what it says goes to the log
    with _engine_core() as core:
        started = {"server": os.getpid(), "core": core, "argv": sys.argv, "cwd": str(Path.cwd())}
        if RECORD in os.environ:
            with Path(os.environ[RECORD]).open("a", encoding="utf-8") as record:
                record.write(json.dumps(started) + "\n")
        time.sleep(float(os.environ.get(DELAY_S, "0")))
        if "exit" in faults:
            raise ValueError("Call to add_lora method failed: LoRA rank 32 is greater than max_lora_rank 16.")
        _Server(options, faults).serve_forever(0.02)


if __name__ == "__main__":
    main()
