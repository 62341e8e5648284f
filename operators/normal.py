"""Value normal forms: two spellings of one value become the same text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache


class Form(StrEnum):
    """What kind of value a slot holds."""

    FLAG = "flag"  # on | off
    ENUM = "enum"  # one of the schema's names
    VERSION = "version"
    NUMBER = "number"  # with an optional unit
    NAME = "name"  # an identifier, slug, path or command
    TEXT = "text"


CLOSED_FORMS = frozenset({Form.FLAG, Form.ENUM, Form.NUMBER})
"""Forms whose values are known from the schema or too common to identify a source."""

ON_WORDS = ("on", "true", "enabled", "enable", "enables", "yes", "active", "activated", "1")
OFF_WORDS = ("off", "false", "disabled", "disable", "disables", "no", "inactive", "deactivated", "0")
_FLAGS = dict.fromkeys(ON_WORDS, "on") | dict.fromkeys(OFF_WORDS, "off")
_QUOTES = "`'\"“”‘’"
_ARTICLES = frozenset({"a", "an", "the"})


@lru_cache(maxsize=1 << 16)
def normal_text(text: str) -> str:
    """Case, quotes, articles, white space and outer punctuation (but a leading dot) do not count."""
    words = re.sub(rf"[{_QUOTES}]", "", text.casefold()).split()
    kept = [word for word in words if word not in _ARTICLES] or words
    return " ".join(kept).lstrip(" ,;:!?()[]").rstrip(" .,;:!?()[]")


def normal_value(text: str, form: Form, names: Mapping[str, tuple[str, ...]]) -> str:
    """The normal form of a value.

    `names` maps an enum's names to their aliases (empty for other forms). A value that does not fit
    its form falls back to its text form, so that nothing is lost.
    """
    plain = normal_text(text)
    if form is Form.FLAG:
        return _FLAGS.get(plain, plain)
    if form is Form.ENUM:
        for name, aliases in names.items():
            if plain in {normal_text(name), normal_text(name.replace("_", " "))} or any(
                plain == normal_text(alias) for alias in aliases
            ):
                return name
        return plain
    if form is Form.VERSION:
        return re.sub(r"^(?:version |[\^~=<>!\s])*v?(?=\d)", "", plain)
    if form is Form.NUMBER:
        match = re.fullmatch(r"([+-]?[\d,_]*\.?\d+)\s*([a-z%]*)", plain)
        if match:
            digits = re.sub(r"[,_]", "", match[1])
            number = digits.rstrip("0").rstrip(".") if "." in digits else digits
            return f"{number} {match[2]}".strip()
        return plain
    return plain
