"""Guards on the base model's small files: config, generation config, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import TemplateError

from training.guards.findings import Fault
from training.guards.inspected import Inspected
from training.guards.template import control_message, render

BNB_PLUGIN = "vllm-bnb-plugin"


def base_is_not_prequantised(seen: Inspected) -> Iterator[Fault]:
    """A base saved in 4 or 8 bits: NF4 cannot go on top of it, and stock vLLM does not load bnb's."""
    stored = seen.base.config.get("quantization_config") if seen.base else None
    if not stored or not seen.base:
        return
    where, method = str(seen.base.folder / "config.json"), stored.get("quant_method", "bitsandbytes")
    if method == "bitsandbytes" and BNB_PLUGIN not in seen.environment.versions:
        yield Fault(
            where, "the base is saved in bitsandbytes form, which stock vLLM (0.27.2 and later) cannot serve",
            f"serve a bf16, fp8, AWQ or GPTQ base, or install {BNB_PLUGIN}; train on the bf16 base",
        )  # fmt: skip
    elif seen.recipe.text("base.quantization") == "nf4":
        yield Fault(
            where, f"the base is quantised already ({method}); NF4 needs full weights",
            "train on the bf16 base of the same name",
        )  # fmt: skip


def pad_and_eos_are_tokens(seen: Inspected) -> Iterator[Fault]:
    """The recipe's two tokens are the base's, and are two."""
    if not seen.base or not seen.base.tokens:
        return
    ids = {}
    for name in ("pad_token", "eos_token"):
        token = seen.recipe.get(f"base.{name}")
        if token is None:
            continue
        if token not in seen.base.tokens:
            hint = f"control tokens of this base: {', '.join(sorted(seen.base.special)[:8])}"
            yield Fault(f"base.{name}", f"{token} is no token of the base", hint)
        else:
            ids[name] = seen.base.tokens[token]
    if len(ids) == 2 and ids["pad_token"] == ids["eos_token"]:
        hint = "use another token for padding"
        yield Fault("base.pad_token", "pad and end of turn have one id in the base's tokenizer", hint)


def generation_stops_at_eos(seen: Inspected) -> Iterator[Fault]:
    """The base stops at the recipe's end of turn, and its padding is no end of turn.

    A base whose padding is its document boundary (Qwen2.5: `<|endoftext|>` pads, and is bos) may stop there.
    """
    base = seen.base
    if not base or not base.generation:
        return
    where, stops = str(base.folder / "generation_config.json"), _ids(base.generation.get("eos_token_id"))
    pad = base.tokens.get(str(seen.recipe.get("base.pad_token")))
    eos = base.tokens.get(str(seen.recipe.get("base.eos_token")))
    boundaries = _ids(base.config.get("bos_token_id")) | _ids(base.config.get("eos_token_id"))
    if pad is not None and pad in stops - boundaries:
        yield Fault(
            where, f"the padding token {pad} is in eos_token_id: every completion would come out empty",
            "take it out of eos_token_id, or fetch the base again: latticemind models fetch",
        )  # fmt: skip
    if eos is not None and stops and eos not in stops:
        yield Fault(
            where, f"eos_token_id {sorted(stops)} lacks the recipe's end of turn {eos}: answers would run on",
            "add it, or set base.eos_token to the token the template ends a turn with",
        )  # fmt: skip


def template_ends_turns_with_eos(seen: Inspected) -> Iterator[Fault]:
    base = seen.base
    if not base:
        return
    where, eos = str(base.folder / "chat_template.jinja"), seen.recipe.get("base.eos_token")
    if base.template is None:
        yield Fault(where, "the base has no chat template", "use an instruction-tuned base")
        return
    try:
        turn = render(base.template, [control_message("user", "q"), control_message("assistant", "ANSWER")])
    except TemplateError as refused:  # a date in a prompt (strftime_now) is refused so, too
        yield Fault(where, f"the template does not render: {refused}", "use a base whose template does")
        return
    if eos is not None and not turn.partition("ANSWER")[2].startswith(str(eos)):
        yield Fault(
            where, f"the template does not end an assistant's turn with {eos}",
            "set base.eos_token to the token it does end with",
        )  # fmt: skip


def template_keeps_our_system_message(seen: Inspected) -> Iterator[Fault]:
    """Our system message stands in the prompt once, and the template adds none of its own beside it."""
    if not seen.base or seen.base.template is None:
        return
    where, template = str(seen.base.folder / "chat_template.jinja"), seen.base.template
    ours = [control_message("system", "OUR RULES"), control_message("user", "QUESTION")]
    try:
        shown = render(template, ours)
    except TemplateError:
        shown = ""
    if shown.count("OUR RULES") != 1:
        yield Fault(where, "the template loses our system message", "use a base whose template takes one")
    elif any(line in shown for line in _default_lines(template)):
        yield Fault(
            where, "the template puts its default system prompt beside ours",
            "use a base whose template replaces its default",
        )  # fmt: skip


def vocabulary_fits_embeddings(seen: Inspected) -> Iterator[Fault]:
    """Every token has its row in the embeddings; rows beyond the tokens (Qwen2.5's padding) are right."""
    if not seen.base or not seen.base.tokens:
        return
    rows, highest = seen.base.config.get("vocab_size"), max(seen.base.tokens.values())
    if isinstance(rows, int) and highest >= rows:
        yield Fault(
            str(seen.base.folder / "tokenizer.json"), f"token id {highest} is beyond {rows} embeddings",
            "use the base's own tokenizer: nothing is resized here",
        )  # fmt: skip


def _default_lines(template: str) -> list[str]:
    """The sentences that the template puts before a question when no system message is given."""
    try:
        before = render(template, [control_message("user", "QUESTION")]).partition("QUESTION")[0]
    except TemplateError:
        return []
    return [line for line in before.splitlines() if len(line.split()) > 3]


def _ids(value: object) -> set[int]:
    """An id, a list of ids or null as a set."""
    if isinstance(value, int):
        return {value}
    return set(value) if isinstance(value, list) else set()
