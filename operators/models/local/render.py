"""Messages to token ids, in one way for training and for answering."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from operators.errors import InputError
from operators.prompts import Message


def prompt_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    """The prompt up to where the assistant's answer begins, by the base's own chat template.

    Raises: InputError for a prompt without a system message: a template may then put in one of its own (T21).
    """
    if not messages or messages[0]["role"] != "system":
        raise InputError("a prompt opens with a system message of ours")
    conversation = [{"role": message["role"], "content": message["content"]} for message in messages]
    ids = tokenizer.apply_chat_template(
        conversation, add_generation_prompt=True, return_dict=False, tokenize=True
    )
    assert isinstance(ids, list)
    return [token for token in ids if isinstance(token, int)]


def completion_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], answer: str) -> list[int]:
    """Prompt and answer as one row that ends with the end-of-turn token; the prompt is its prefix (T19).

    Raises: InputError when the tokenizer has no end-of-turn token.
    """
    if tokenizer.eos_token_id is None:
        raise InputError("the tokenizer has no end-of-turn token", hint="set base.eos_token in the config")
    answered = tokenizer.encode(answer, add_special_tokens=False)
    return [*prompt_ids(tokenizer, messages), *answered, int(tokenizer.eos_token_id)]
