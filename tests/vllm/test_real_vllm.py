"""The real vLLM (its CPU build) with adapters trained here: `make test-vllm`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from threading import Event, Thread

import httpx2
import psutil
import pytest
from safetensors.torch import load_file, save_file
from starlette.testclient import TestClient

from data_builders.gold import gold_cases
from data_builders.trajectory import load_trajectories
from eval.bench.serve import serve_calls
from operators.adapters import WEIGHTS, read_card, weights_hash, write_card
from operators.config import load_config
from operators.errors import EndpointError
from operators.learned.judge import LearnedCompare
from operators.models.bases import FoundBase
from operators.models.endpoint import EndpointModel
from operators.models.local.model import LocalModel
from operators.models.local.precision import has_bf16
from operators.models.text import TextRequest
from operators.outcome import OutcomeKind
from serving.app import build_app
from serving.checks import check_answers, check_models
from serving.proxy import proxy_route
from serving.registry import Registry, ServedAdapter, read_registry
from serving.run import check_prompts, free_port
from serving.service import Service
from serving.vllm_command import vllm_command, vllm_python
from serving.vllm_engine import VllmEngine
from tests.training.support import TRAJECTORIES, run, write_data
from training.config import TrainConfig

pytestmark = pytest.mark.vllm
HOLDOUT = "browser-surface"
RECIPE = TRAJECTORIES.parents[0] / "train" / "smollm2-135m-cpu.yaml"
SMALL = ("--enforce-eager", "--max-num-seqs", "8")
DTYPE = "bfloat16" if has_bf16() else "float32"
ROWS = 64
TIMEOUT_S = 60


@dataclass(frozen=True)
class Served:
    """A running server with two sound adapters, and two that only it has loaded."""

    engine: VllmEngine
    good: Registry
    zero: ServedAdapter
    shuffled: ServedAdapter
    run: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, smollm2: FoundBase) -> Path:
    """A run with small compare-claims and update-memory adapters."""
    folder = tmp_path_factory.mktemp("vllm")
    settings = load_config(RECIPE, TrainConfig, ("mode=from-scratch", "optim.fold.epochs=1"))
    rows = {"trajectory": {"compare-claims": ROWS, "update-memory": ROWS}}
    mixture = settings.mixture.model_copy(update={"shared": {}, "fold": rows})
    settings = settings.model_copy(update={"mixture": mixture})
    run(
        folder / "run", write_data(folder / "data"), smollm2, settings,
        operators=("compare-claims", "update-memory"), holdouts=(HOLDOUT,),
    )  # fmt: skip
    return folder / "run"


def spoilt(adapter: ServedAdapter, folder: Path, how: str) -> ServedAdapter:
    """The adapter with every B at zero, or with B's rows in another order: same names, same shapes."""
    shutil.copytree(adapter.folder, folder)
    weights = load_file(folder / WEIGHTS)
    for name, tensor in weights.items():
        if "lora_B" in name:
            weights[name] = tensor * 0 if how == "zero" else -tensor.flip(0).contiguous()
    save_file(weights, folder / WEIGHTS)
    card = read_card(folder).model_copy(update={"weights_hash": weights_hash(folder)})
    write_card(folder, card)
    return ServedAdapter(folder, card, {})


@pytest.fixture(scope="module")
def served(trained: Path, smollm2: FoundBase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    good = read_registry([trained], base=smollm2.card)
    first = good.answering("compare-claims")
    zero, shuffled = (spoilt(first, folder / how, how) for how in ("zero", "shuffled"))
    port = free_port()
    command = vllm_command(
        Registry((*good.adapters, zero, shuffled)), smollm2, python=vllm_python(None), host="127.0.0.1",
        port=port, dtype=DTYPE, max_model_len=4096, extra=SMALL,
    )  # fmt: skip
    engine = VllmEngine(
        command, url=f"http://127.0.0.1:{port}", log=folder / "vllm.log", check=lambda _: None, token=None,
        start_timeout_s=600.0, timeout_s=300.0, concurrency=8,
    )  # fmt: skip
    engine.start()
    try:
        yield Served(engine, good, zero, shuffled, trained)
    finally:
        engine.close()


@pytest.fixture(scope="module", autouse=True)
def small_memory() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        yield


def test_sound_adapters_pass_every_check(served: Served) -> None:
    with EndpointModel(served.engine.url, base=served.good.base.id) as model:
        check_models(model.models(), served.good)
    check_prompts(served.engine.url, served.good, token=None)
    check_answers(served.engine.model, served.good)


def test_an_adapter_of_zeros_is_found_without_effect(served: Served) -> None:
    with pytest.raises(EndpointError, match="no effect"):
        check_answers(served.engine.model, Registry((served.zero,)))


def test_other_weights_under_its_name_are_found_by_the_recorded_answers(served: Served) -> None:
    with pytest.raises(EndpointError, match=r"answers . of . canaries as recorded|no effect"):
        check_answers(served.engine.model, Registry((served.shuffled,)))


def test_an_adapter_of_another_base_is_refused_before_anything_starts(served: Served, tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    shutil.copytree(served.good.adapters[0].folder, folder)
    card = read_card(folder)
    other = card.base.model_copy(update={"tokenizer_hash": "0" * 64})
    write_card(folder, card.model_copy(update={"base": other}))
    done = subprocess.run(
        [sys.executable, "-c", "import latticemind; latticemind.main()", "serve", "--adapters", str(folder)],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.returncode == 2
    assert "T33" in done.stderr


def test_adapters_in_one_batch_answer_as_they_do_alone(served: Served) -> None:
    names = [adapter.name for adapter in served.good.adapters]
    requests = [
        TextRequest(canary.messages, canary.answer_schema, canary.max_tokens, name)
        for adapter in served.good.adapters
        for canary in adapter.card.canaries
        for name in names
    ]
    alone = [served.engine.model.complete([request])[0] for request in requests]
    together = served.engine.model.complete(requests * 3)
    differing = sum(a.value != b.value for a, b in zip(alone * 3, together, strict=True))
    assert differing <= len(together) // 20, (
        "bf16 may flip a close call; crossed adapters would differ in half"
    )


def test_a_holdouts_comparisons_over_http_agree_with_the_adapters_in_this_process(
    served: Served, smollm2: FoundBase
) -> None:
    (trajectory,) = (t for t in load_trajectories(TRAJECTORIES) if t.name == HOLDOUT)
    cases = gold_cases(trajectory)
    service = Service(served.engine, served.good)
    app = build_app(
        service, openai=proxy_route(served.engine.url, timeout_s=300.0, token=None), timeout_s=600.0
    )
    bodies = [body for operator, body in serve_calls(trajectory, 10_000) if operator == "compare-claims"]
    with TestClient(app) as client:
        reply = client.post("/v1/operators/compare-claims/batch", json={"items": bodies})
        assert [entry["id"] for entry in client.get("/v1/models").json()["data"]]
    answers = reply.raise_for_status().json()["answers"]
    assert len(answers) == len(cases.compare) >= 50
    assert {answer["outcome"] for answer in answers} == {"valid"}
    adapter = served.good.answering("compare-claims")
    local = LocalModel.load(smollm2.path, identity="local", adapters={adapter.name: adapter.folder})
    mine = LearnedCompare(cases.schema, local, adapter.name).compare_batch(
        [(case.incumbent, case.incoming) for case in cases.compare]
    )
    assert all(outcome.kind is OutcomeKind.VALID for outcome in mine)
    same = [
        outcome.value is not None and outcome.value.relation.value == answer["relation"]
        for outcome, answer in zip(mine, answers, strict=True)
    ]
    assert sum(same) >= 0.9 * len(same), json.dumps({"same": sum(same), "of": len(same)})


class Callers:
    """Clients that ask one request after the other until they are told to stop; what each came to is kept."""

    def __init__(self, url: str, number: int) -> None:
        (trajectory,) = (t for t in load_trajectories(TRAJECTORIES) if t.name == HOLDOUT)
        calls = [call for call in serve_calls(trajectory, 60) if call[0] == "compare-claims"]
        self.came: list[tuple[int | str, float, float]] = []  # to what, asked when, after how long
        self._url, self._calls, self._stop = url, cycle(calls), Event()
        self._threads = [Thread(target=self._ask) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        with httpx2.Client(timeout=200.0) as client:
            while not self._stop.is_set():
                operator, body = next(self._calls)
                began = time.monotonic()
                try:
                    reply = client.post(f"{self._url}/v1/operators/{operator}", json=body)
                    came: int | str = reply.status_code
                    assert (came, reply.json()["outcome"]) in {(200, "valid"), (503, "unavailable")}
                except httpx2.HTTPError as fault:
                    came = repr(fault)
                self.came.append((came, began, time.monotonic() - began))
                if came != 200:
                    time.sleep(0.2)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def until(self, wanted: int, status: int) -> bool:
        """Whether so many more requests come to this status."""
        start = len(self.came)
        return _comes(lambda: sum(came == status for came, _, _ in self.came[start:]) >= wanted)


def test_serve_under_load_says_when_its_engine_is_gone_brings_it_back_and_leaves_nothing(
    served: Served, tmp_path: Path
) -> None:
    output = (tmp_path / "out").open("wb")
    process = subprocess.Popen(
        [
            sys.executable, "-c", "import latticemind; latticemind.main()", "serve", "--adapters",
            str(served.run), "--port", "0", "--max-model-len", "4096", "--log", str(tmp_path / "vllm.log"),
            "--timeout", str(TIMEOUT_S), "--dtype", DTYPE, "--", *SMALL,
        ],
        stderr=output, env=os.environ | {"PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    try:
        url = _address(tmp_path / "out", process)
        family = psutil.Process(process.pid).children(recursive=True)
        assert httpx2.get(f"{url}/healthz").status_code == 200
        callers = Callers(url, 8)
        assert callers.until(16, 200)
        for child in family:
            if "EngineCore" in " ".join(child.cmdline()):
                child.kill()
        assert _comes(lambda: httpx2.get(f"{url}/healthz", timeout=10.0).status_code == 503)
        assert callers.until(8, 503)
        assert _comes(lambda: httpx2.get(f"{url}/healthz", timeout=10.0).status_code == 200)
        assert callers.until(16, 200)
        family += psutil.Process(process.pid).children(recursive=True)
        told, ended = time.monotonic(), len(callers.came)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S + 40) == 0
        callers.stop()
        assert {came for came, _, _ in callers.came[:ended]} == {200, 503}
        under_way = [came for came, began, _ in callers.came[ended:] if began < told]
        assert under_way
        assert set(under_way) == {200}
        assert max(seconds for _, _, seconds in callers.came) < TIMEOUT_S + 5
        _, alive = psutil.wait_procs(family, timeout=20)
        assert alive == []
    finally:
        process.kill()
        output.close()


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    for _ in range(600):
        found = re.search(r"ready: (http://\S+),", log.read_text(encoding="utf-8"))
        if found:
            return found[1]
        assert process.poll() is None, log.read_text(encoding="utf-8")
        time.sleep(1)
    raise AssertionError(log.read_text(encoding="utf-8"))


def _comes(true: Callable[[], bool]) -> bool:
    for _ in range(600):
        if true():
            return True
        time.sleep(0.5)
    return False
