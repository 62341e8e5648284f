"""What code finds of a pair in a note: facts that a prompt hands to a model, which says what they mean."""

from __future__ import annotations

from operators.rules.mentions import Target
from operators.rules.values import Reading, read_value
from operators.rules.wording import HEDGE, sentences
from operators.schema import Entity, Slot


def named_parts(text: str, entity: Entity, slot: Slot) -> list[str]:
    """Which of "entity" and "slot" the text names, by name or alias."""
    target = Target.of(entity, slot)
    matchers = {"entity": target.entity_names, "slot": target.slot_names}
    return [part for part, names in matchers.items() if names.find(text)]


def best_reading(text: str, entity: Entity, slot: Slot) -> Reading | None:
    """The value that the rules would read off the text if it states the pair; None if they read none.

    The last reading of a sentence that names entity or slot, else the last of any other sentence; those
    that guess are passed over. It may be wrong: the rules know wording and no meaning.
    """
    target = Target.of(entity, slot)
    beside: Reading | None = None
    elsewhere: Reading | None = None
    for sentence in sentences(text):
        if HEDGE.search(sentence):
            continue
        names = target.slot_names.find(sentence) + target.entity_names.find(sentence)
        reading = read_value(sentence, target, names)
        if names:
            beside = reading or beside
        else:
            elsewhere = reading or elsewhere
    return beside or elsewhere
