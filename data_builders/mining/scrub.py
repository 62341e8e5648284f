"""Commit messages without what identifies people or points elsewhere: trailers, addresses, handles, links."""

from __future__ import annotations

import re

_TRAILER = re.compile(
    r"^(?:[A-Z][A-Za-z-]*-by|Co-[Aa]uthored-[Bb]y|Change-Id|Reviewed-on|Cc|Closes|Fixes|Resolves|See|Refs?"
    r"|GitOrigin-RevId|PiperOrigin-RevId)\s*:.*$"
)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\[([^\]\n]{0,200})\]\((?:https?|ftp)://[^)\s]*\)")
_URL = re.compile(r"(?:https?|ftp)://\S+")
_EMAIL = re.compile(r"<?[\w.+-]+@[\w-]+(?:\.[\w-]+)+>?")
_HANDLE = re.compile(r"(?<![\w/@.`\"'])@[A-Za-z][\w-]*(?![\w/-])")
_NUMBER = re.compile(r"\s*\((?:[\w./-]*#\d+(?:,\s*)?)+\)|(?<!\w)(?:[\w-]+/[\w.-]+)?#\d+\b")


def scrub(message: str) -> str:
    """The message's prose; empty when nothing is left. A scoped package such as `@types/node` stays."""
    text = _COMMENT.sub("", message.replace("\r\n", "\n"))
    lines = [line for line in text.split("\n") if not _TRAILER.match(line.strip())]
    text = "\n".join(lines)
    text = _LINK.sub(r"\1", text)
    for pattern in (_URL, _EMAIL, _NUMBER, _HANDLE):
        text = pattern.sub("", text)
    text = re.sub(r"[ \t]+", " ", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()
