"""A chat template rendered without transformers (and so without torch), as transformers renders it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from operators.prompts import Message


def render(template: str, messages: Sequence[Message], *, answer_next: bool = False) -> str:
    """The messages as the text the tokenizer reads; with `answer_next`, up to where the assistant begins.

    Raises: jinja2.TemplateError where the template refuses the messages.
    """
    return _compiled(template).render(
        messages=list(messages), add_generation_prompt=answer_next, bos_token="", eos_token="", tools=None
    )


def control_message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


class _Generation(Extension):
    """`{% generation %}`, which marks an assistant's tokens in transformers' templates and adds no text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    sandbox.filters["tojson"] = _tojson
    sandbox.globals["raise_exception"] = _refuse
    return sandbox.from_string(template)


def _tojson(value: Any, indent: int | None = None) -> str:
    """transformers' filter: plain JSON, unlike jinja2's own, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> str:
    raise TemplateError(message)
