"""Guards on rows: what the model sees and learns of each example. A fault names the first rows it is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from training.guards.findings import Fault
from training.guards.inspected import Inspected, RenderedRow

SHOWN = 3


def rows_are_prompt_and_completion(seen: Inspected) -> Iterator[Fault]:
    """Completion-only loss needs an answer apart from the prompt, and no `{% generation %}` in a template."""
    yield from _faults(
        seen,
        lambda row: row.roles[-1:] != ("assistant",) or "assistant" in row.roles[:-1],
        "no prompt followed by one assistant's completion",
        "write rows as prompt: [system, user] and completion: [assistant]",
    )


def rows_have_labels(seen: Inspected) -> Iterator[Fault]:
    yield from _faults(
        seen, lambda row: not row.labels or not row.texts[-1].strip(),
        "nothing to learn: no token of the completion is labelled",
        "an empty answer still has text, such as {\"claims\": []}; take the row out otherwise",
    )  # fmt: skip


def rows_fit_max_length(seen: Inspected) -> Iterator[Fault]:
    stated = seen.recipe.text("max_length")
    if stated is None or not stated.isdigit():
        return
    longest = max((row.tokens for row in seen.rows), default=0)
    yield from _faults(
        seen, lambda row: row.tokens > int(stated),
        f"longer than max_length {stated}: a trainer drops or cuts such rows silently",
        f"set max_length: {longest} or more",
    )  # fmt: skip


def rows_end_with_eos(seen: Inspected) -> Iterator[Fault]:
    """The last label that is not white space is the end of turn: else the model never learns to stop."""
    eos = seen.recipe.get("base.eos_token")
    yield from _faults(
        seen, lambda row: bool(row.labels) and _last_word(row.labels) != eos,
        f"the last labelled token is not {eos}",
        "set base.eos_token to the token the template ends a turn with",
    )  # fmt: skip


def prompts_are_prefixes(seen: Inspected) -> Iterator[Fault]:
    yield from _faults(
        seen, lambda row: not row.prompt_is_prefix,
        "the prompt's tokens are no prefix of prompt with completion: it would train on another context",
        "render both with one template and no added white space",
    )  # fmt: skip


def rows_have_our_system_message(seen: Inspected) -> Iterator[Fault]:
    yield from _faults(
        seen, lambda row: row.roles[:1] != ("system",) or not row.texts[0].strip(),
        "no system message of its own: the template would put in its default",
        "build the rows with operators/prompts.py: latticemind data build",
    )  # fmt: skip


def rows_hold_no_control_token(seen: Inspected) -> Iterator[Fault]:
    """A control token inside a message is read as the boundary of a turn: a note could forge one."""
    special = seen.base.special if seen.base else frozenset()
    yield from _faults(
        seen, lambda row: any(token in text for text in row.texts for token in special),
        "a message holds a control token of the base, which would become a turn boundary",
        "break it up: notes go through operators.prompts.sanitised (latticemind data build)",
    )  # fmt: skip


def _faults(
    seen: Inspected, wrong: Callable[[RenderedRow], bool], message: str, hint: str
) -> Iterator[Fault]:
    """One fault for all rows that are wrong in one way."""
    found = [row.id for row in seen.rows if wrong(row)]
    if found:
        more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
        yield Fault(f"row {', '.join(found[:SHOWN])}{more}", message, hint)


def _last_word(labels: tuple[str, ...]) -> str | None:
    return next((label for label in reversed(labels) if label.strip()), None)
