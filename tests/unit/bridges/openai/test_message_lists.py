"""Which part of a message list is new, and where a list belongs in a transcript."""

from typing import Any

import pytest

from chatlane_bridges.http.problems import ApiProblem
from chatlane_bridges.openai.asks import split
from chatlane_bridges.openai.message_lists import Exchange, StoredExchange, position
from tests.support.bridges.openai_endpoint import messages


def stored(*texts: str) -> list[StoredExchange]:
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return [StoredExchange(texts=[said], answered=[answer]) for said, answer in pairs]


def test_only_the_words_after_the_last_answer_are_new() -> None:
    assert split(messages("one", "1", "two"), "messages") == ("two", (Exchange("one", "1"),))
    more = [*messages("one", "1", "two"), {"role": "user", "content": "three"}]
    assert split(more, "messages")[0] == "two\n\nthree"
    system = [{"role": "system", "content": "Be kind."}, *messages("one")]
    assert split(system, "messages") == ("one", ())


def test_parts_of_text_are_joined_and_others_are_refused() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "a"},
        {"type": "input_text", "text": "b"},
    ]
    assert split([{"role": "user", "content": parts}], "messages")[0] == "ab"
    picture: list[Any] = [
        *parts,
        {"type": "image_url", "image_url": {"url": "https://example.org"}},
    ]
    with pytest.raises(ApiProblem, match="unsupported"):
        split([{"role": "user", "content": picture}], "messages")
    # What was said before is known to the session.
    before: list[Any] = [{"role": "user", "content": picture}, *messages("one", "1", "two")[1:]]
    assert split(before, "messages") == ("two", (Exchange("ab", "1"),))


@pytest.mark.parametrize(
    "sent",
    [
        messages("one", "1"),
        messages(" "),
        [{"role": "system", "content": "Be kind."}],
        [*messages("one"), {"role": "tool", "content": "4"}],
        [{"type": "function_call_output", "output": "4"}, *messages("one")],
    ],
)
def test_a_list_without_new_words_of_a_person_is_refused(sent: list[dict[str, Any]]) -> None:
    with pytest.raises(ApiProblem):
        split(sent, "messages")


@pytest.mark.parametrize(
    ("history", "place"),
    [
        (Exchange("two", "2"), 1),
        (Exchange("one", "1"), 0),
        (Exchange(" two\r\n", "2\n"), 1),
        (Exchange("two", "another answer"), None),
        (Exchange("three", "2"), None),
        (Exchange("never answered\n\ntwo", "2"), 1),
    ],
)
def test_a_list_belongs_behind_its_last_exchange(history: Exchange, place: int | None) -> None:
    assert position([history], stored("one", "1", "two", "2")) == place


@pytest.mark.parametrize(
    ("kept", "given"),
    [
        ("You said: two", "You sa"),
        ("Which city?", "Which city?\n\n1. Oslo\n2. Bergen"),
        ("You said: two", "You wrote\n\nYou said: two"),
        ("", "Error 500"),
    ],
)
def test_a_client_may_have_a_part_of_an_answer_or_more(kept: str, given: str) -> None:
    assert position([Exchange("two", given)], stored("one", "1", "two", kept)) == 1
