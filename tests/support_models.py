"""A tiny random model with a working tokenizer: everything that training and answering need, in a second."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_base(folder: Path, *, seed: int = 0, hidden: int = 64) -> Path:
    """A random two-layer Llama over bytes, written to `folder` as a whole base model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*CONTROL, *alphabet])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=CONTROL[1],
        eos_token=CONTROL[2],
        pad_token=CONTROL[0],
        unk_token=CONTROL[0],
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary), hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096, bos_token_id=1,
            eos_token_id=2, pad_token_id=0, tie_word_embeddings=True,
        )
    )  # fmt: skip
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder
