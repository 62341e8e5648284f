"""A vLLM server as a child of this process: started, watched, started again, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2

from operators.errors import EndpointError, LatticeMindError
from operators.models.endpoint import EndpointModel
from operators.models.text import ChoiceRequest, TextRequest
from operators.outcome import Outcome, OutcomeKind
from serving.vllm_command import VllmCommand
from serving.wire import Health

POLL_S = 1.0
GRACE_S = 20.0
"""From SIGTERM to SIGKILL."""

LONGEST_PAUSE_S = 60.0
PROGRESS_S = 10
Check = Callable[[EndpointModel], None]
AWAY: Outcome[Any] = Outcome(OutcomeKind.UNAVAILABLE, None, "vLLM is being started")


class _WhileReady:
    """The checked server as a model; while there is none, every request is unavailable at once."""

    def __init__(self, checked: Callable[[], EndpointModel | None], identity: str) -> None:
        self._checked, self.identity = checked, identity

    def complete(self, requests: Sequence[TextRequest]) -> list[Outcome[str]]:
        endpoint = self._checked()
        return endpoint.complete(requests) if endpoint else [AWAY for _ in requests]

    def choose(self, requests: Sequence[ChoiceRequest]) -> list[Outcome[tuple[float, ...]]]:
        endpoint = self._checked()
        return endpoint.choose(requests) if endpoint else [AWAY for _ in requests]


class VllmEngine:
    """One vLLM server. `check` is asked before each start counts; it raises where the server is not right.

    Until then nobody else reaches the server: a check that shares batches with callers proves nothing. A
    server that dies is started again after a pause that doubles each time it dies before it is ready.
    """

    def __init__(
        self,
        command: VllmCommand,
        *,
        url: str,
        log: Path,
        check: Check,
        token: str | None,
        start_timeout_s: float,
        timeout_s: float,
        concurrency: int,
    ) -> None:
        self.command, self.url, self.log = command, url, log
        self._check, self._token, self._start_timeout_s = check, token, start_timeout_s
        self._timeout_s, self._concurrency = timeout_s, concurrency
        self._checked: EndpointModel | None = None
        self.model = _WhileReady(lambda: self._checked, command.base_name)
        self._child: subprocess.Popen[bytes] | None = None
        self._health = Health(status="starting")
        self._stopping = Event()
        self._watcher = Thread(target=self._watch, name="vllm", daemon=True)

    def start(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Back when the server has passed its checks. Raises: EndpointError, with the end of its log."""
        try:
            self._bring_up(progress)
        except BaseException:
            self.close()
            raise
        self._watcher.start()

    def health(self) -> Health:
        return self._health

    def waiting(self) -> int:
        """vLLM keeps its own queue: see its /metrics."""
        return 0

    def close(self) -> None:
        """End the server and all its processes."""
        self._stopping.set()
        self._end()
        if self._watcher.is_alive():
            self._watcher.join()
            self._end()

    def _bring_up(self, progress: Callable[[str], None]) -> None:
        self._end()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | self.command.environment
        if self._token is not None:
            environment["VLLM_API_KEY"] = self._token  # not on the command line, where everyone reads it
        watched = [sys.executable, "-m", "serving.child", str(os.getpid()), *self.command.argv]
        with self.log.open("ab") as log:
            try:
                child = self._child = subprocess.Popen(
                    watched, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                    start_new_session=True, cwd=Path(__file__).parent.parent,
                )  # fmt: skip
            except OSError as fault:
                raise EndpointError(f"vLLM cannot be started: {fault}") from fault
        began, said = time.monotonic(), 0
        while not self._answers():
            waited = time.monotonic() - began
            if waited >= said:
                progress(f"vLLM is starting, {waited:.0f} s; its log: {self.log}")
                said += PROGRESS_S
            if child.poll() is not None:
                raise EndpointError(
                    f"vLLM ended with status {child.returncode}:\n{self._tail()}",
                    hint=f"its log: {self.log}",
                )
            if waited > self._start_timeout_s:
                raise EndpointError(
                    f"vLLM is not up after {waited:.0f} s:\n{self._tail()}",
                    hint=f"its log: {self.log}; --start-timeout gives it longer",
                )
            if self._stopping.wait(POLL_S):
                raise EndpointError("stopped while vLLM was starting")
        progress("vLLM is up; checking every adapter")
        endpoint = EndpointModel(
            self.url, base=self.command.base_name, token=self._token, timeout_s=self._timeout_s,
            concurrency=self._concurrency,
        )  # fmt: skip
        try:
            self._check(endpoint)
        except BaseException:
            endpoint.close()
            raise
        self._checked, self._health = endpoint, Health(status="ready")

    def _watch(self) -> None:
        """Until `close`: look at the server, and start it again when it is gone."""
        pause = POLL_S
        while not self._stopping.wait(POLL_S):
            child = self._child
            if child is not None and child.poll() is None:
                if self._answers():
                    self._health, pause = Health(status="ready"), POLL_S
                else:
                    self._health = Health(status="unavailable", detail="vLLM does not answer")
                continue
            if child is not None:
                ended = f"vLLM ended with status {child.returncode}; starting it again"
                self._health = Health(status="unavailable", detail=ended)
                self._cut_off()
            if self._stopping.wait(pause):
                return
            try:
                self._bring_up(lambda _: None)
            except LatticeMindError as fault:
                self._end()  # up, perhaps, and not right
                self._health = Health(status="unavailable", detail=str(fault).splitlines()[0])
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/health", timeout=5.0, trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False

    def _tail(self, lines: int = 15) -> str:
        """The end of the server's log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _cut_off(self) -> None:
        """Whoever waits for an answer is told that there is none."""
        endpoint, self._checked = self._checked, None
        if endpoint is not None:
            endpoint.close()

    def _end(self) -> None:
        """SIGTERM to the server, then SIGKILL to whatever of its session is left."""
        self._cut_off()
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        self._child = None
