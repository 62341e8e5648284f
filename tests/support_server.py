"""An OpenAI-compatible server that misbehaves as a test wants, and keeps what it was asked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self

from operators.errors import LatticeMindError
from operators.models.endpoint import EndpointModel
from operators.models.text import ChoiceRequest, JsonSchema, TextRequest
from operators.outcome import Outcome, OutcomeKind

YES: Mapping[str, float] = {"yes": 0.9, "no": 0.1}
"""The probabilities of the first token in an answer that nothing is wrong with."""
NOWHERE = "http://127.0.0.1:1/v1"
"""A closed port."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came; `number` is how many came before it."""

    path: str
    authorization: str
    body: dict[str, Any]
    number: int

    @property
    def prompt(self) -> str:
        return str(self.body["messages"][-1]["content"])


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back: `content` as JSON (bytes as they are), late, byte by byte or cut off if so said."""

    content: object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    pause_s: float = 0.0  # after every byte
    share: float = 1.0  # of the body, before the connection closes


Behaviour = Callable[[Asked], Reply]
Fault = Callable[[dict[str, Any]], Reply]
"""Spoils the right answer."""
Failure = OutcomeKind | type[LatticeMindError]


def said(content: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def logged(logprob: float | None) -> dict[str, Any]:
    """One token, a yes, with this for its log-probability."""
    return {"content": [{"token": "yes", "top_logprobs": [{"token": "yes", "logprob": logprob}]}]}


def among(likely: Mapping[str, float]) -> dict[str, Any]:
    """Log-probabilities of one token, the likeliest first."""
    ranked: list[dict[str, Any]] = [
        {"token": token, "logprob": math.log(share), "bytes": None} for token, share in likely.items()
    ]
    return {"content": [{**ranked[0], "top_logprobs": ranked}]}


def right_answer(asked: Asked, text: str, likely: Mapping[str, float] = YES) -> dict[str, Any]:
    """A chat completion by the model that was asked; a choice is one token long, as vLLM gives it."""
    choosing = bool(asked.body.get("logprobs"))
    choice = {
        "index": 0,
        "message": said(next(iter(likely)) if choosing else text),
        "finish_reason": "length" if choosing else "stop",
        "logprobs": among(likely) if choosing else None,
    }
    about = {"id": "chat-0", "object": "chat.completion", "created": 0, "model": asked.body["model"]}
    return {**about, "choices": [choice]}


def but(good: dict[str, Any], **changes: object) -> Reply:
    """The right answer with other fields in its choice."""
    [choice] = good["choices"]
    return Reply({**good, "choices": [{**choice, **changes}]})


def well(asked: Asked, text: str = '{"port": 8080}', likely: Mapping[str, float] = YES) -> Reply:
    return Reply(right_answer(asked, text, likely))


def echo(asked: Asked, *, delay_s: float = 0.0) -> Reply:
    return Reply(right_answer(asked, asked.prompt), delay_s=delay_s)


def refusal(status: int, message: str = "no", headers: Mapping[str, str] | None = None) -> Reply:
    """An error as OpenAI-compatible servers give it."""
    return Reply({"error": {"message": message, "type": "error"}}, status, headers or {})


FAULTS: dict[str, Fault] = {
    "prose": lambda good: but(good, message=said("It is 8080."), logprobs=among({"It": 0.9, "The": 0.1})),
    "brackets": lambda good: but(good, message=said("[" * 5000), logprobs=None),
    "truncated": lambda good: but(good, finish_reason="length"),
    "whitespace": lambda good: but(
        good, finish_reason="length", message=said("\n  " * 50), logprobs=among({"\n": 0.9, " ": 0.1})
    ),
    "content filter": lambda good: but(good, finish_reason="content_filter"),
    "null content": lambda good: but(good, message=said(None), logprobs=None),
    "no log-probabilities": lambda good: but(good, logprobs=None),
    "the base answers": lambda good: Reply({**good, "model": "base"}),
    "another model answers": lambda good: Reply({**good, "model": "another"}),
    "no model is named": lambda good: Reply({**good, "model": None}),
    "no choices": lambda good: Reply({**good, "choices": []}),
    "another shape": lambda good: Reply({"model": good["model"], "text": "yes"}),
    "a list": lambda good: Reply([good]),
    "null": lambda _: Reply(None),
    "no JSON": lambda _: Reply(b'{"choices": [oops'),
    "no text": lambda _: Reply(b"\xff\xfe{}"),
    "nothing": lambda _: Reply(b""),
    "a web page": lambda _: Reply(b"<html>yes</html>", headers={"Content-Type": "text/html"}),
    "half a body": lambda good: Reply(good, share=0.5),
    "slow": lambda good: Reply(good, delay_s=30),
    "drips": lambda good: Reply(good, pause_s=0.05),
    "a loop of redirects": lambda _: Reply({}, 307, {"Location": "/v1/chat/completions"}),
    "400": lambda _: refusal(400, "the prompt is too long"),
    "401": lambda _: refusal(401),
    "403": lambda _: refusal(403),
    "404": lambda _: refusal(404, "no such model"),
    "429": lambda _: refusal(429),
    "429 for a minute": lambda _: refusal(429, headers={"Retry-After": "60"}),
    "500": lambda _: refusal(500),
    "503": lambda _: refusal(503),
}
"""Whatever is wrong with a server for good, by name."""

ILL_SHAPED: dict[str, Fault] = {
    "a null choice": lambda good: Reply({**good, "choices": [None]}),
    "a number for a choice": lambda good: Reply({**good, "choices": [3]}),
    "choices by name": lambda good: Reply({**good, "choices": {"first": good["choices"][0]}}),
    "no message": lambda good: but(good, message=None, logprobs={"content": [None]}),
    "text in parts": lambda good: but(
        good, message=said([{"type": "text", "text": "yes"}]), logprobs={"content": [{"top_logprobs": None}]}
    ),
    "a number for a text": lambda good: but(good, message=said(5), logprobs=logged(None)),
    "a probability over 1": lambda good: but(good, message=said({}), logprobs=logged(1000.0)),
    "an endless probability": lambda good: but(good, message=said([]), logprobs=logged(math.inf)),
    "nested too deep": lambda _: Reply(b"[" * 200_000),
}
"""Replies whose parts have other types than the protocol says, by name."""


class MisbehavingServer(ThreadingHTTPServer):
    """Answers on a free port of this machine, as `behave` says, while it is entered."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, behave: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behave, self.stopping = behave, Event()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.most_in_flight = 0
        self._in_flight = 0
        self._asked: list[Asked] = []
        self._crashes: list[Exception] = []
        self._lock = Lock()
        self._thread = Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        self.server_close()
        assert not self._crashes, self._crashes

    @property
    def asked(self) -> list[Asked]:
        """Every request up to now, in the order in which they came."""
        with self._lock:
            return list(self._asked)

    def reply_to(self, path: str, authorization: str, body: dict[str, Any]) -> Reply:
        """The reply when it is due; a request is in flight until then."""
        with self._lock:
            asked = Asked(path, authorization, body, len(self._asked))
            self._asked.append(asked)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            reply = self.behave(asked)
            self.stopping.wait(reply.delay_s)
        except Exception as fault:
            self._crashes.append(fault)  # the test's own fault, which a client takes for a lost connection
            raise
        finally:
            with self._lock:
                self._in_flight -= 1
        return reply

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up, even in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: MisbehavingServer

    def do_GET(self) -> None:
        self._send(self.server.reply_to(self.path, self._authorization, {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(self.server.reply_to(self.path, self._authorization, body))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    @property
    def _authorization(self) -> str:
        return str(self.headers.get("Authorization", ""))

    def _send(self, reply: Reply) -> None:
        content = reply.content
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(reply.status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, value in {**headers, **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if reply.pause_s:
            for byte in body:
                self.wfile.write(bytes([byte]))
                if self.server.stopping.wait(reply.pause_s):
                    break
        else:
            self.wfile.write(body[: int(len(body) * reply.share)])
        self.close_connection = reply.share < 1 or self.server.stopping.is_set()


@contextmanager
def served(behave: Behaviour, **settings: Any) -> Iterator[tuple[MisbehavingServer, EndpointModel]]:
    """A server and a model that asks it once, with a timeout that a busy machine does not reach."""
    known = {"base": "base", "timeout_s": 20.0, "retries": 0, **settings}
    with MisbehavingServer(behave) as server, EndpointModel(server.url, **known) as model:
        yield server, model


def spoilt(
    fault: str, answer: Behaviour = well, **settings: Any
) -> AbstractContextManager[tuple[MisbehavingServer, EndpointModel]]:
    """As `served`, every answer spoilt; the timeout is short where it is to pass."""

    def behave(asked: Asked) -> Reply:
        good = answer(asked).content
        assert isinstance(good, dict)
        return (FAULTS | ILL_SHAPED)[fault](good)

    timeout_s = 0.3 if fault in ("slow", "drips") else 20.0
    return served(behave, **{"timeout_s": timeout_s, **settings})


def text(prompt: str = "q", *, schema: JsonSchema | None = None, adapter: str | None = None) -> TextRequest:
    return TextRequest(({"role": "user", "content": prompt},), schema, 9, adapter)


def choice(*choices: str, adapter: str | None = None) -> ChoiceRequest:
    return ChoiceRequest(({"role": "user", "content": "q"},), choices or ("yes", "no"), adapter)


def failure_of(ask: Callable[..., Sequence[Any]], *given: object) -> Failure:
    """What became of the one request: an error with a hint, or an outcome with a reason and no value."""
    try:
        [outcome] = ask(*given)
    except LatticeMindError as fault:
        return type(fault) if fault.hint else LatticeMindError
    assert isinstance(outcome, Outcome), outcome
    assert (outcome.value, bool(outcome.detail)) == (None, True), outcome
    assert outcome.kind not in (OutcomeKind.VALID, OutcomeKind.EMPTY), outcome
    return outcome.kind


def told_by(model: EndpointModel) -> str:
    """All that is said of the one request's failure."""
    try:
        return model.complete([text(adapter="port")])[0].detail
    except LatticeMindError as error:
        return f"{error} {error.hint} {error.__cause__!r}"
