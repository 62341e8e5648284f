"""Messages to token ids, in one way for training and for answering."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from operators.errors import InputError
from operators.prompts import Message


def prompt_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    """The prompt up to where the assistant's answer begins, by the base's own chat template.

    A control token of the base's tokenizer inside a message is broken by a space: it stays text (T22).
    Raises: InputError for a prompt without a system message: a template may then put in one of its own (T21).
    """
    if not messages or messages[0]["role"] != "system":
        raise InputError("a prompt opens with a system message of ours")
    control = _control(tokenizer)
    conversation = [
        {"role": message["role"], "content": control.sub(_broken, message["content"])} for message in messages
    ]
    ids = tokenizer.apply_chat_template(
        conversation, add_generation_prompt=True, return_dict=False, tokenize=True
    )
    assert isinstance(ids, list)
    return [token for token in ids if isinstance(token, int)]


def completion_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], answer: str) -> list[int]:
    """Prompt and answer as one row that ends with the end-of-turn token; the prompt is its prefix (T19).

    What looks like a control token in the answer is encoded as the text it is.
    Raises: InputError when the tokenizer has no end-of-turn token.
    """
    if tokenizer.eos_token_id is None:
        raise InputError("the tokenizer has no end-of-turn token", hint="set base.eos_token in the config")
    answered = tokenizer.encode(answer, add_special_tokens=False, split_special_tokens=True)
    return [*prompt_ids(tokenizer, messages), *answered, int(tokenizer.eos_token_id)]


@lru_cache(maxsize=8)
def _control(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """The tokenizer's own control tokens, longest first; prompts break the common families already."""
    names = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    known = sorted((name for name in names if len(name) > 1), key=lambda name: (-len(name), name))
    return re.compile("|".join(map(re.escape, known)) or r"(?!)")


def _broken(found: re.Match[str]) -> str:
    return f"{found[0][0]} {found[0][1:]}"
