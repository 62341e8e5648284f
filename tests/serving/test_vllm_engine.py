"""A vLLM server as a child: it counts when its checks pass, comes back when it dies, and is never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from operators.canaries import Canary
from operators.claims import content_hash
from operators.errors import ConfigError, EndpointError
from operators.models.endpoint import EndpointModel
from operators.models.text import TextRequest
from operators.outcome import Outcome, OutcomeKind
from operators.prompts import Message
from serving.registry import Registry
from serving.run import free_port, vllm_engine
from serving.vllm_command import VllmCommand
from serving.vllm_engine import GRACE_S, Check, VllmEngine
from tests.serving import fake_vllm
from tests.serving.fake_vllm import Fakes, alive, comes, gone
from tests.serving.support import adapter
from tests.support_adapters import BASE

TOKEN = "open-sesame"
ASKED: tuple[Message, ...] = ({"role": "user", "content": "Which of the two holds?"},)
ANSWER, BASES, RELATION = '{"n":1}', '{"n":2}', '{"relation":"unrelated"}'
CANARY = Canary(
    messages=ASKED, answer_schema={"type": "object"}, max_tokens=9,
    prompt_hash=content_hash(fake_vllm.tokens_of(ASKED)), answer=ANSWER, base_answer=BASES,
)  # fmt: skip
REGISTRY = Registry(tuple(adapter("compare-claims", name, canaries=[CANARY]) for name in ("one", "two")))
NAMES = tuple(one.name for one in REGISTRY.adapters)


def no_check(_: EndpointModel) -> None:
    """Any server will do."""


@dataclass(frozen=True, slots=True)
class Stage(Fakes):
    """Fakes, each started by an engine of its own."""

    port: int = 0

    def answers(self, adapters: str = ANSWER, base: str = BASES, otherwise: str = RELATION) -> None:
        said = dict.fromkeys(NAMES, adapters) | {BASE.id: base}
        self.answer({m: {ASKED[0]["content"]: t, fake_vllm.OTHERWISE: otherwise} for m, t in said.items()})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "logs" / "vllm.log"

    def logged(self, words: str) -> int:
        """How often its log says so."""
        return self.log.read_text("utf-8").count(words)

    @property
    def command(self) -> VllmCommand:
        """It shares this stage's environment, so that later starts behave as is said later."""
        argv = (
            sys.executable, fake_vllm.__file__, "--port", str(self.port), "--served-model-name", BASE.id,
            "--lora-modules", *(f"{name}=/adapters/{name}" for name in NAMES),
        )  # fmt: skip
        return VllmCommand(argv, self.environment, BASE.id)

    def engine(
        self, check: Check = no_check, *, command: VllmCommand | None = None, start_timeout_s: float = 60.0
    ) -> VllmEngine:
        return VllmEngine(
            command or self.command, url=self.url, log=self.log, check=check, token=None,
            start_timeout_s=start_timeout_s, timeout_s=5.0, concurrency=16,
        )  # fmt: skip

    def checked(
        self, *, token: str | None = None, said: Callable[[str], None] = lambda _: None
    ) -> VllmEngine:
        """As `serve` starts it: with all checks."""
        return vllm_engine(
            REGISTRY, self.command, url=self.url, log=self.log, token=token, start_timeout_s=60.0,
            timeout_s=20.0, concurrency=16, progress=said,
        )  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Fakes that answer as recorded and are looked at often."""
    monkeypatch.setattr("serving.vllm_engine.POLL_S", 0.05)
    found = Stage(tmp_path, port=free_port())
    found.answers()
    yield found
    found.kill()


@contextmanager
def up(engine: VllmEngine, said: Callable[[str], None] = lambda _: None) -> Iterator[VllmEngine]:
    """Closed at the end, a second time if a test has done so."""
    try:
        engine.start(said)
        yield engine
    finally:
        engine.close()


def ask(engine: VllmEngine, *names: str | None) -> list[Outcome[str]]:
    return engine.model.complete([TextRequest(ASKED, None, 9, name) for name in names])


def fails_after(good: int, fault: Exception) -> Check:
    """A check that so many starts pass."""
    passed: list[EndpointModel] = []

    def check(model: EndpointModel) -> None:
        passed.append(model)
        if len(passed) > good:
            raise fault

    return check


def test_a_server_is_ready_when_its_checks_have_passed_and_gone_after_close(stage: Stage) -> None:
    stage.next_does(delay_s=0.3)
    said: list[str] = []
    engine = stage.checked(said=said.append)
    assert engine.health().status == "ready"
    assert said[0].startswith("vLLM is starting, ")
    assert said[-1] == "vLLM is up; checking every adapter"
    assert [outcome.value for outcome in ask(engine, NAMES[0], None)] == [ANSWER, BASES]
    assert stage.logged("the fake is starting") == 1
    (start,) = stage.starts
    assert [alive(start.server), alive(start.core)] == [True, True]
    engine.close()
    assert stage.ended()


def test_it_is_starting_until_the_checks_have_passed(stage: Stage) -> None:
    seen: list[str] = []
    engine = stage.engine(lambda _: seen.append(engine.health().status))
    with up(engine):
        assert (seen, engine.health().status) == (["starting"], "ready")
        engine.close()


WRONG = {
    "T33": (("wrong-parent",), {}),
    f"does not list {NAMES[0]}": (("missing-adapter",), {}),
    "other tokens": (("other-tokens",), {}),
    "has no effect": ((), {"adapters": BASES}),
    "0 of 1 canaries": ((), {"adapters": '{"n":3}'}),
    "does not keep to a schema": ((), {"otherwise": "O sea!"}),
}  # fmt: skip
"""What is said of a server: what it does and answers otherwise than it should."""


@pytest.mark.parametrize("said", WRONG)
def test_a_server_that_is_not_right_is_not_left_running(stage: Stage, said: str) -> None:
    faults, answers = WRONG[said]
    stage.next_does(*faults)
    stage.answers(**answers)
    with pytest.raises(EndpointError, match=said) as left:
        stage.checked()
    assert left.value.hint
    assert stage.ended()


def test_a_check_that_cannot_go_on_leaves_no_process_either(stage: Stage) -> None:
    with pytest.raises(ZeroDivisionError):
        stage.engine(fails_after(0, ZeroDivisionError())).start()
    assert stage.ended()


def test_a_server_that_ends_at_once_is_told_with_the_end_of_its_log(stage: Stage) -> None:
    stage.next_does("exit")
    with pytest.raises(EndpointError) as left:
        stage.engine().start()
    assert "vLLM ended with status 1" in str(left.value)
    assert "LoRA rank 32 is greater than max_lora_rank 16." in str(left.value)
    assert left.value.hint == f"its log: {stage.log}"
    assert stage.ended()


def test_an_interpreter_that_is_not_there_is_told(stage: Stage) -> None:
    with pytest.raises(EndpointError, match="nowhere/python"):
        stage.engine(command=VllmCommand(("nowhere/python", "-m", "vllm"), {}, BASE.id)).start()


@pytest.mark.parametrize(("fault", "delay_s"), [("never-healthy", 0), ("", 60)])
def test_a_server_that_is_not_up_in_time_is_ended(stage: Stage, fault: str, delay_s: float) -> None:
    stage.next_does(fault, delay_s=delay_s)
    with pytest.raises(EndpointError, match="not up after") as left:
        stage.engine(start_timeout_s=1).start(stage.wait_for_start)
    assert "the fake is starting" in str(left.value)
    assert "--start-timeout" in left.value.hint
    assert stage.ended()


def test_a_server_that_is_killed_under_load_is_started_again(stage: Stage) -> None:
    stage.next_does(answer_s=30)
    with up(stage.engine()) as engine, ThreadPoolExecutor(8) as callers:
        (first,) = stage.starts
        asked = [callers.submit(ask, engine, name) for name in NAMES * 4]
        assert comes(lambda: stage.logged(fake_vllm.ASKED) >= len(asked))
        stage.next_does(delay_s=6)
        killed = time.monotonic()
        os.kill(first.server, signal.SIGKILL)
        assert comes(lambda: "vLLM ended with status -9" in engine.health().detail)
        assert engine.health().status == "unavailable"
        outcomes: Sequence[Outcome[str]] = [outcome for future in asked for outcome in future.result()]
        assert time.monotonic() - killed < 10
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.UNAVAILABLE}
        assert comes(lambda: engine.health().status == "ready")
        assert [outcome.value for outcome in ask(engine, NAMES[0])] == [ANSWER]
        assert len(stage.starts) == 2
        assert gone(first.server, first.core)
    assert stage.ended()


def test_a_server_that_dies_while_it_comes_back_is_tried_again(stage: Stage) -> None:
    with up(stage.engine()) as engine:
        stage.next_does("exit")
        os.kill(stage.starts[0].server, signal.SIGTERM)
        assert comes(lambda: len(stage.starts) >= 3)
        assert engine.health().status == "unavailable"
        stage.next_does()
        assert comes(lambda: engine.health().status == "ready")
    assert stage.ended()


def test_a_server_that_does_not_answer_any_more_is_not_ready(stage: Stage) -> None:
    with up(stage.engine()) as engine:
        (start,) = stage.starts
        os.kill(start.server, signal.SIGSTOP)
        assert comes(lambda: engine.health().status == "unavailable")
        os.kill(start.server, signal.SIGCONT)
        assert comes(lambda: engine.health().status == "ready")
        assert len(stage.starts) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "fault", [EndpointError("no effect"), ConfigError("no such model")], ids=["server", "user"]
)
def test_a_server_that_came_back_wrong_is_not_ready_and_is_started_once_more(
    stage: Stage, fault: Exception
) -> None:
    with up(stage.engine(fails_after(1, fault))) as engine:
        os.kill(stage.starts[0].server, signal.SIGKILL)
        assert comes(lambda: str(fault) in engine.health().detail, within_s=15)
        assert not comes(lambda: engine.health().status == "ready", within_s=1.5)
        assert comes(lambda: len(stage.starts) >= 3)
    assert stage.ended()


def test_close_during_a_restart_ends_that_too(stage: Stage) -> None:
    engine = stage.engine()
    engine.start()
    stage.next_does(delay_s=60)
    os.kill(stage.starts[0].server, signal.SIGKILL)
    assert comes(lambda: len(stage.starts) == 2)
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < GRACE_S
    assert stage.ended()


def test_close_while_the_new_server_is_asked_for_its_health(stage: Stage) -> None:
    engine = stage.engine()
    engine.start()
    stage.next_does("hang")
    os.kill(stage.starts[0].server, signal.SIGKILL)
    assert comes(lambda: stage.logged(fake_vllm.HUNG) > 0)
    engine.close()
    assert stage.ended()


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.vllm_engine.GRACE_S", 0.5)
    stage.next_does("ignore-sigterm")
    engine = stage.engine()
    engine.start()
    began = time.monotonic()
    engine.close()
    assert 0.5 <= time.monotonic() - began < GRACE_S
    assert stage.ended()


def test_one_that_ignores_sigterm_while_it_starts_is_killed_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.vllm_engine.GRACE_S", 0.5)
    stage.next_does("ignore-sigterm", delay_s=60)
    with pytest.raises(EndpointError, match="not up"):
        stage.engine(start_timeout_s=0.5).start(stage.wait_for_start)
    assert stage.ended()


def test_the_token_goes_by_the_environment_and_is_in_no_argv(stage: Stage) -> None:
    engine = stage.checked(token=TOKEN)
    try:
        assert ask(engine, NAMES[0])[0].value == ANSWER
        (start,) = stage.starts
        for process in (start.server, start.core):
            assert TOKEN not in Path(f"/proc/{process}/cmdline").read_text("utf-8")
        assert f"VLLM_API_KEY={TOKEN}" in Path(f"/proc/{start.server}/environ").read_text("utf-8")
        assert TOKEN not in stage.log.read_text("utf-8")
        with EndpointModel(stage.url, base=BASE.id, token="another") as stranger, pytest.raises(ConfigError):
            stranger.models()
    finally:
        engine.close()


PARENT = """
import sys, time
from pathlib import Path
from serving.vllm_command import VllmCommand
from serving.vllm_engine import VllmEngine
url, log, *argv = sys.argv[1:]
VllmEngine(
    VllmCommand(tuple(argv), {}, "base"), url=url, log=Path(log), check=lambda _: None, token=None,
    start_timeout_s=30, timeout_s=5, concurrency=1,
).start()
print("ready", flush=True)
time.sleep(300)
"""


def test_a_parent_that_is_killed_outright_takes_its_server_along(stage: Stage) -> None:
    called = [sys.executable, "-c", PARENT, stage.url, str(stage.log), *stage.command.argv]
    with subprocess.Popen(called, stdout=subprocess.PIPE, env=os.environ | stage.environment) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        (start,) = stage.starts
        assert alive(start.server)
        parent.kill()
    assert stage.ended()


def test_a_proxy_of_the_surroundings_is_not_asked_for_this_machine(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with up(stage.engine(start_timeout_s=3), stage.wait_for_start) as engine:
        assert ask(engine, NAMES[0])[0].value == ANSWER
