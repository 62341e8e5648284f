"""What a message states of a transition is decided by its words alone; the label comes from the diff."""

from __future__ import annotations

import pytest

from data_builders.mining.align import Alignment, align
from data_builders.mining.facts import Family
from data_builders.mining.history import Transition
from data_builders.mining.scrub import scrub
from operators.normal import Form


def change(
    thing: str,
    before: str | None,
    after: str | None,
    form: Form = Form.VERSION,
    *,
    many: bool = False,
    moved: bool = False,
) -> Transition:
    return Transition(
        "package.json", thing, "dependency", form, many, (), "npm", Family.VERSIONS, before, after, moved
    )


@pytest.mark.parametrize(
    ("message", "transition", "value"),
    [
        ("Bump react from 17.0.1 to 18.2.0", change("react", "17.0.1", "^18.2.0"), "18.2.0"),
        ("deps: react 18.2.0", change("react", None, "18.2.0"), "18.2.0"),
        ("Update `left-pad` to v1.3.0.", change("left-pad", "1.2.0", "1.3.0"), "1.3.0"),
        ("Set MAX_RETRIES to 25", change("MAX_RETRIES", "10", "25", Form.NUMBER), "25"),
        ("Remove the react dependency", change("react", "17.0.1", None), None),
        ("Enable fast_mode by default", change("fast_mode", "off", "on", Form.FLAG), "on"),
        (
            "Add the disabled-by-default `fast_mode` feature",
            change("fast_mode", None, "off", Form.FLAG),
            "off",
        ),
        ("Introduce the default-on fast_mode flag", change("fast_mode", None, "on", Form.FLAG), "on"),
        ("Set log_level to debug", change("log_level", "info", "debug", Form.NAME), "debug"),
        ("Turn off fast_mode", change("fast_mode", "on", "off", Form.FLAG), "off"),
        ("CI: test `python-version` 3.14 too", change("python-version", None, "3.14", many=True), "3.14"),
    ],
)
def test_a_sentence_that_names_the_thing_and_gives_the_value_states_it(
    message: str, transition: Transition, value: str | None
) -> None:
    (found,) = align(message, [transition])
    assert (found.alignment, found.value) == (Alignment.STATED, value)


@pytest.mark.parametrize(
    ("message", "transition"),
    [
        ("Bump react", change("react", "17.0.1", "18.2.0")),
        ("Move react away from 18.2.0", change("react", "17.0.1", "18.2.0")),
        ("React is nice.\nAlso we are at 18.2.0 now", change("react", "17.0.1", "18.2.0")),
        ("Revert \"Bump react to 18.2.0\"", change("react", "17.0.1", "18.2.0")),
        ("Remove dead code around react", change("react", "17.0.1", None)),
        ("fast_mode: not enabled for now", change("fast_mode", "off", "on", Form.FLAG)),
        ("Build fast_mode on top of the new core", change("fast_mode", "off", "on", Form.FLAG)),
        ("Add a fast_mode switch to the disable-things command", change("fast_mode", "on", "off", Form.FLAG)),
        ("log_level: print everything unknown", change("log_level", "info", "unknown", Form.NAME)),
        ("Enable or disable fast_mode", change("fast_mode", "off", "on", Form.FLAG)),
        ("MAX_RETRIES is 5 in step 3", change("MAX_RETRIES", "10", "3", Form.NUMBER)),
        ("Bump react to 18.2.0", change("react", "18.2.0", "18.2.0", moved=True)),
        ("Bump react to 18.2.0-beta", change("react", "17.0.1", "18.2.0")),
    ],
)  # fmt: skip
def test_less_than_that_only_names_it(message: str, transition: Transition) -> None:
    (found,) = align(message, [transition])
    assert found.alignment is Alignment.NAMED
    assert found.value is None


@pytest.mark.parametrize(
    "message",
    ["", "Bump react-dom to 18.2.0", "Tidy up", "Set name to 18.2.0", "preact 18.2.0 and @types/react"],
)
def test_a_message_without_the_things_name_is_silent(message: str) -> None:
    thing = "name" if "name" in message else "react"
    (found,) = align(message, [change(thing, "17.0.1", "18.2.0")])
    assert found.alignment is Alignment.SILENT


def test_two_things_of_one_name_and_different_values_are_stated_by_neither() -> None:
    found = align(
        "react goes to 17.0.2 and 18.2.0", [change("react", "1", "17.0.2"), change("react", "1", "18.2.0")]
    )
    assert [a.alignment for a in found] == [Alignment.NAMED, Alignment.NAMED]


def test_the_same_value_in_two_files_is_stated_by_both() -> None:
    found = align(
        "react goes to 18.2.0", [change("react", "1.0", "18.2.0"), change("react", "1.1", "18.2.0")]
    )
    assert [a.alignment for a in found] == [Alignment.STATED, Alignment.STATED]


def test_scrubbing_takes_people_links_and_numbers_out_and_leaves_the_prose() -> None:
    message = (
        "Bump @types/node to 20.1.0 (#123)\r\n\r\nThanks @jane, see https://example.org/x and\n"
        "[the notes](https://example.org/y); closes #45.\n\nSigned-off-by: Jane <jane@example.org>\n"
        "Co-authored-by: Joe <joe@example.org>\n"
    )
    text = scrub(message)
    assert text.startswith("Bump @types/node to 20.1.0\n")
    assert "the notes" in text
    for gone in ("jane", "joe", "example.org", "#123", "#45", "https", "Signed-off"):
        assert gone not in text.lower()
    assert scrub("Signed-off-by: Jane <jane@example.org>") == ""


def test_wrapped_prose_is_one_sentence_and_a_list_of_commits_is_not() -> None:
    bump = change("react", "17.0.1", "18.2.0")
    prose = "This raises the version that we ask for of react, which is now\npinned to 18.2.0 everywhere."
    listed = "Squashed changes:\n9dc30f225 theme: use what react gives us since a while ago\n8dc30f226 Fix 18.2.0 links"
    assert align(prose, [bump])[0].alignment is Alignment.STATED
    assert align(listed, [bump])[0].alignment is Alignment.NAMED
