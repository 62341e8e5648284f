"""Which paths hold what people keep by hand."""

from __future__ import annotations

_NOT_BY_HAND = frozenset(
    """__fixtures__ __mocks__ __snapshots__ __tests__ bench benches benchmark benchmarks build cassettes
    cases data dist e2e example examples fixture fixtures fuzz generated gen i18n l10n lang langs locale
    locales messages mock mocks node_modules out playground playgrounds resources sample samples schemas
    snapshot snapshots static target template templates test test-data test_data testdata tests testing
    third-party third_party translations vendor vendored""".split()
)


def folders(path: str) -> list[str]:
    """The folders on the way to a file, lower case, outermost first."""
    return path.lower().split("/")[:-1]


def is_kept_by_hand(path: str) -> bool:
    """Whether no folder on the way holds tests, examples, translations, generated or vendored files."""
    return not any(
        folder in _NOT_BY_HAND
        or folder.endswith(("-fixtures", "_fixtures"))
        or folder.startswith("template-")
        for folder in folders(path)
    )
