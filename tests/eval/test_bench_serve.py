"""`bench serve` counts what it should: every answer under load held against the same request alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest

from data_builders.trajectory import load_trajectories
from eval.bench.serve import Call, direct_calls, run_serve_bench, scripted_server, serve_calls
from operators.errors import EndpointError

TRAJECTORIES = Path(__file__).parents[2] / "configs" / "trajectories"


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    return serve_calls(load_trajectories(TRAJECTORIES)[0], 12)


def test_the_calls_are_distinct_and_the_operators_take_turns(calls: list[Call]) -> None:
    assert [operator for operator, _ in calls[:3]] == ["extract-state", "compare-claims", "update-memory"]
    assert len({json.dumps(call) for call in calls}) == len(calls) == 12


@pytest.mark.slow
def test_the_scripted_service_mixes_up_no_answers_under_load(calls: list[Call]) -> None:
    with scripted_server() as url:
        found = run_serve_bench(url, calls, requests=150, clients=16, direct=direct_calls())
    assert (found.requests, found.clients, found.distinct) == (150, 16, 12)
    assert (found.wrong, found.lost) == (0, 0)
    assert found.direct is not None
    assert 0 < found.p50 <= found.p95


@contextmanager
def answering(after: int, status: int, *, wrong: bool) -> Iterator[str]:
    """A server whose answers are right so many times; every later one is as told."""
    number = count()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            late = next(number) >= after
            content = json.dumps({"of": "another" if late and wrong else body.decode()}).encode()
            self.send_response(status if late else 200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_answer_that_is_another_s_is_wrong_and_a_refusal_is_lost(calls: list[Call]) -> None:
    with answering(12, 200, wrong=True) as url:
        found = run_serve_bench(url, calls, requests=20, clients=4)
    assert (found.wrong, found.lost) == (20, 0)
    assert (found.direct, found.overhead) == (None, None)
    with answering(12 + 15, 503, wrong=False) as url:
        found = run_serve_bench(url, calls, requests=20, clients=4)
    assert (found.wrong, found.lost) == (0, 5)


def test_a_server_that_fails_before_the_load_is_no_figure(calls: list[Call]) -> None:
    with answering(0, 500, wrong=False) as url, pytest.raises(EndpointError, match="500"):
        run_serve_bench(url, calls, requests=20, clients=4)
