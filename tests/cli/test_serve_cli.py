"""`latticemind serve` as users run it: the command it prints, what it refuses, and a service that comes and goes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from latticemind import main
from operators.adapters import read_card
from operators.models.bases import find_base
from operators.outcome import OutcomeKind
from tests.serving.fake_vllm import OTHERWISE, Fakes
from tests.serving.support import compare_body, extract_body, update_body
from tests.serving.test_vllm_engine import ANSWER, ASKED, BASES, CANARY, RELATION, TOKEN
from tests.support_adapters import write_adapter, write_base_files
from tests.support_models import tiny_base
from tests.training.support import OPERATORS, recipe, run, write_data

READY = re.compile(r"ready: (http://\S+),")
BODIES = {
    "extract-state": extract_body("The api listens on port 8080."),
    "compare-claims": compare_body("8080", "9090"),
    "update-memory": update_body("9090"),
}


@dataclass(frozen=True, slots=True)
class Done:
    """What a call printed, and its exit code."""

    code: int
    out: str
    err: str


class Cli:
    """The front door in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def serve(self, *args: object) -> Done:
        return self.call("serve", *args)

    def call(self, *args: object) -> Done:
        self.capsys.readouterr()
        self.monkeypatch.setattr(sys, "argv", ["latticemind", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(int(left.value.code or 0), *self.capsys.readouterr())

    def refused(self, *args: object) -> str:
        """What is said of a call that is refused: one error, with a hint."""
        done = self.serve(*args)
        assert (done.code, done.err.count("error: ")) == (2, 1), done
        assert "hint: " in done.err
        assert "ready: " not in done.err
        return done.err


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """With no token, no vLLM, no cache and no hub of the machine's own."""
    for name in ("LATTICEMIND_TOKEN", "LATTICEMIND_VLLM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LATTICEMIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return Cli(monkeypatch, capsys)


@dataclass(frozen=True, slots=True)
class Place:
    """A base and a run of three adapters on it, and how to serve them."""

    folder: Path

    @property
    def args(self) -> tuple[str, ...]:
        return ("--adapters", str(self.folder / "run"), "--base", str(self.folder / "base"))

    @property
    def names(self) -> dict[str, str]:
        """Every operator's adapter."""
        cards = [read_card(path.parent) for path in (self.folder / "run").rglob("adapter.json")]
        return {card.operator: card.name for card in cards}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Adapters that only a fake can serve."""
    place = Place(tmp_path_factory.mktemp("written"))
    base = find_base(str(write_base_files(place.folder / "base"))).card.model_dump()
    for operator, task in zip(OPERATORS, ("direct", "compare", "update"), strict=True):
        write_adapter(
            place.folder / "run" / "adapters" / operator / "one", operator=operator, tasks=[task], base=base,
            canaries=[CANARY.model_dump()],
        )  # fmt: skip
    return place


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A tiny base and an adapter of each operator, trained until they answer otherwise than it does."""
    place = Place(tmp_path_factory.mktemp("trained"))
    base = find_base(str(tiny_base(place.folder / "base")))
    data = write_data(place.folder / "data")
    for operator in OPERATORS:
        for seed in range(20):
            config = recipe(optim__shared={"learning_rate": 0.6}, optim__seed=seed)
            tried = place.folder / f"{operator}-{seed}"
            [made] = run(tried, data, base, config, operators=(operator,), holdouts=())
            if made.card.canaries:
                shutil.copytree(made.folder, place.folder / "run" / "adapters" / operator / "shared")
                break
    assert len(place.names) == len(OPERATORS)
    return place


def test_the_printed_command_serves_every_adapter_of_a_run(cli: Cli, written: Place) -> None:
    done = cli.serve(
        *written.args,
        "--print-command",
        "--port",
        8001,
        "--dtype",
        "float32",
        "--",
        "--enforce-eager",
        "--x=a b",
    )
    assert (done.code, done.err) == (0, "")
    words = shlex.split(done.out.replace(" \\\n", ""))
    assert words[:3] == ["HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "python"]
    assert words[words.index("--model") + 1] == str(written.folder / "base")
    assert words[words.index("--port") + 1] == "8001"
    assert words[words.index("--dtype") + 1] == "float32"
    modules = words[words.index("--lora-modules") + 1 : -2]
    assert {module.partition("=")[0] for module in modules} == set(written.names.values())
    assert words[-2:] == ["--enforce-eager", "--x=a b"]


def test_the_printed_command_needs_neither_vllm_nor_a_token_and_shows_none(cli: Cli, written: Place) -> None:
    cli.monkeypatch.setenv("LATTICEMIND_TOKEN", TOKEN)
    done = cli.serve(*written.args, "--print-command", "--host", "0.0.0.0", "--vllm-python", "my/python")
    assert done.code == 0
    assert " my/python -m vllm" in done.out
    assert TOKEN not in done.out


def test_a_folder_without_adapters_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert "holds no adapter" in cli.refused("--adapters", tmp_path, "--engine", "local")


def test_an_unknown_holdout_is_refused_with_what_there_is(cli: Cli, written: Place) -> None:
    said = cli.refused(*written.args, "--holdout", "nobody")
    assert "'nobody'" in said
    assert "there are: one" in said


def test_a_base_that_is_not_the_adapters_own_is_refused(cli: Cli, written: Place, tmp_path: Path) -> None:
    other = write_base_files(tmp_path / "other" / "base", fill=b"\x02")
    assert "T33" in cli.refused(*written.args[:2], "--base", other, "--engine", "local", "--port", 0)


@pytest.mark.parametrize("engine", ["local", "vllm"])
def test_a_port_that_is_taken_is_refused_before_anything_is_loaded(
    cli: Cli, written: Place, engine: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = cli.refused(*written.args, "--engine", engine, "--port", port)
    assert f"127.0.0.1:{port} cannot be used" in said
    assert "--port" in said
    assert "loading" not in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_open_door_without_a_token_is_refused(cli: Cli, written: Place, host: str) -> None:
    said = cli.refused(*written.args, "--engine", "local", "--port", 0, "--host", host)
    assert "no token" in said
    assert "--token-file" in said


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"\xff"])
def test_a_token_file_without_a_token_is_refused(
    cli: Cli, written: Place, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "token").write_bytes(content)
    cli.refused(*written.args, "--engine", "local", "--port", 0, "--token-file", tmp_path / "token")


def test_options_of_vllm_are_refused_by_the_local_engine(cli: Cli, written: Place) -> None:
    said = cli.refused(*written.args, "--engine", "local", "--port", 0, "--", "--enforce-eager")
    assert "'--enforce-eager' is for vLLM" in said


def test_without_an_interpreter_that_has_vllm_it_says_how_to_get_one(cli: Cli, written: Place) -> None:
    said = cli.refused(*written.args, "--port", 0)
    assert "no interpreter with vLLM is known" in said
    assert "--vllm-python" in said


class Served:
    """`latticemind serve` as a process of its own; `url` is where it says it is ready."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self.log = process, log

    @property
    def url(self) -> str:
        until = time.monotonic() + 240
        while not (found := READY.search(self.log.read_text("utf-8"))):
            assert self.process.poll() is None, self.log.read_text("utf-8")
            assert time.monotonic() < until, self.log.read_text("utf-8")
            time.sleep(0.05)
        return found[1]

    def sigterm(self, *, within_s: float = 30) -> int:
        """Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)


@contextmanager
def serving(folder: Path, *args: object, cwd: Path | None = None, **settings: str) -> Iterator[Served]:
    """Started, and ended if it is still there after the block."""
    log = folder / "serve.log"
    called = [sys.executable, "-m", "latticemind", "serve", "--port", "0", *map(str, args)]
    with (
        log.open("w") as said,
        subprocess.Popen(
            called, stderr=said, text=True, cwd=cwd or folder, env=os.environ | settings
        ) as process,
    ):
        try:
            yield Served(process, log)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_model_of_this_process_answers_for_every_operator_and_ends_when_told(
    trained: Place, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n", encoding="utf-8")
    with serving(tmp_path, *trained.args, "--engine", "local", "--token-file", token) as served:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(base_url=served.url, headers=headers, timeout=120) as client:
            assert client.get("/healthz", headers={"Authorization": ""}).json()["status"] == "ready"
            operators = {row["operator"]: row for row in client.get("/v1/operators").json()}
            assert {name: row["default"] for name, row in operators.items()} == trained.names
            for operator, body in BODIES.items():
                answer = client.post(f"/v1/operators/{operator}", json=body)
                assert answer.status_code == 200, answer.text
                assert answer.json()["adapter"] == trained.names[operator]
                assert answer.json()["outcome"] in set(OutcomeKind)
            listed = {row["id"] for row in client.get("/v1/models").json()["data"]}
            assert listed == {*trained.names.values(), "base"}
            assert client.get("/v1/models", headers={"Authorization": ""}).status_code == 401
            items = [BODIES["compare-claims"]] * 48
            with ThreadPoolExecutor(1) as caller:
                asked = caller.submit(
                    client.post, "/v1/operators/compare-claims/batch", json={"items": items}
                )
                while 'in_flight{operator="compare-claims"} 1.0' not in client.get("/metrics").text:
                    assert not asked.done()
                assert served.sigterm() == 0
                assert len(asked.result().json()["answers"]) == len(items)
        assert "Traceback" not in served.log.read_text("utf-8")


@pytest.mark.slow
def test_a_server_s_answers_score_as_those_of_this_process(cli: Cli, trained: Place, tmp_path: Path) -> None:
    loo = [
        "--operators", "compare=learned,update=learned", "--holdout", "browser-surface", "--json",
        "--adapters", trained.folder / "run", "--adapters-of", "none",
    ]  # fmt: skip
    here = cli.call("eval", "loo", *loo, "--base", trained.folder / "base", "--runs", tmp_path / "here")
    assert here.code == 0, here.err
    with serving(tmp_path, *trained.args, "--engine", "local") as served:
        there = cli.call("eval", "loo", *loo, "--url", served.url, "--runs", tmp_path / "there")
        assert there.code == 0, there.err
        assert json.loads(there.out) == json.loads(here.out)
        bench = ["--url", served.url, "--requests", "40", "--clients", "8", "--distinct", "9", "--json"]
        measured = json.loads(cli.call("bench", "serve", *bench).out)
        assert (measured["lost"], measured["wrong"]) == (0, 0)
    [[one], [other]] = ([*(tmp_path / side).iterdir()] for side in ("here", "there"))
    assert (one / "rows.jsonl").read_text("utf-8") == (other / "rows.jsonl").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class FakedService(Fakes):
    """`serve` with a fake for vLLM that answers as the canaries want it."""

    @contextmanager
    def of(self, place: Place, *args: object, cwd: Path | None = None, **settings: str) -> Iterator[Served]:
        said = dict.fromkeys(place.names.values(), ANSWER) | {"base": BASES}
        self.answer({name: {ASKED[0]["content"]: text, OTHERWISE: RELATION} for name, text in said.items()})
        given = (
            *(args or place.args),
            "--vllm-python",
            self.interpreter(),
            "--log",
            self.folder / "vllm.log",
        )
        with serving(self.folder, *given, cwd=cwd, **self.environment, **settings) as served:
            yield served


@pytest.fixture
def faked(tmp_path: Path) -> Iterator[FakedService]:
    found = FakedService(tmp_path)
    yield found
    found.kill()


def test_vllm_is_a_child_that_ends_with_the_service(written: Place, faked: FakedService) -> None:
    with faked.of(written, LATTICEMIND_TOKEN=TOKEN) as served:
        url, headers = served.url, {"Authorization": f"Bearer {TOKEN}"}
        assert httpx2.get(f"{url}/healthz").status_code == 200
        answer = httpx2.post(
            f"{url}/v1/operators/compare-claims", json=BODIES["compare-claims"], headers=headers
        )
        assert (answer.status_code, answer.json()["relation"]) == (200, "unrelated")
        listed = httpx2.get(f"{url}/v1/models", headers=headers).json()["data"]
        assert {row["id"] for row in listed} == {*written.names.values(), "base"}
        assert served.sigterm() == 0
        assert faked.ended()


def test_sigterm_while_vllm_is_starting_leaves_nothing(written: Place, faked: FakedService) -> None:
    faked.next_does(delay_s=120)
    with faked.of(written) as served:
        faked.wait_for_start()
        assert served.sigterm() == 0
        assert faked.ended()


def test_a_base_named_from_where_the_user_stands_is_found_by_vllm_too(
    written: Place, faked: FakedService
) -> None:
    with faked.of(written, "--adapters", "run", "--base", "base", cwd=written.folder) as served:
        assert served.url
        (start,) = faked.starts
        model = start.argv[start.argv.index("--model") + 1]
        assert (Path(start.cwd) / model).samefile(written.folder / "base")


def test_it_ends_in_time_though_vllm_still_owes_answers(written: Place, faked: FakedService) -> None:
    busy = ("--timeout", "3", "--concurrency", "1")
    with faked.of(written, *written.args, *busy) as served:
        url = served.url
        os.kill(faked.starts[0].server, signal.SIGSTOP)  # it owes every answer from now on
        items = {"items": [BODIES["compare-claims"]] * 9}
        answer = httpx2.post(f"{url}/v1/operators/compare-claims/batch", json=items, timeout=60)
        assert answer.status_code == 503
        assert served.sigterm(within_s=60) == 0
        assert faked.ended()
