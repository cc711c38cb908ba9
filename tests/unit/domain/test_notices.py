"""The texts that people read: each id is used with its fields, and a language has no wrong field."""

import ast
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

import chatlane
from chatlane.domain.commands import replies
from chatlane.domain.commands.command_words import CommandName
from chatlane.domain.notices import ENGLISH, NoticeId, Notices, fields_of, problems_of

SERVICE = Path(chatlane.__file__).parent
TEXTS = tomllib.loads((files("chatlane.domain.notices") / "english.toml").read_text("utf-8"))
GERMAN = Path(__file__).parents[3] / "examples/notices.de.toml"


def calls() -> Iterator[tuple[NoticeId, frozenset[str], str]]:
    """Yield each id in a call of `text`, with the fields that the call fills in, and its place."""
    for path in SERVICE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr != "text" or not node.args:
                continue
            fields = frozenset(keyword.arg or "**" for keyword in node.keywords)
            for inner in ast.walk(node.args[0]):
                if isinstance(inner, ast.Attribute) and inner.attr in NoticeId.__members__:
                    yield NoticeId[inner.attr], fields, f"{path.name}:{node.lineno}"


def used_elsewhere() -> set[NoticeId]:
    """Return the ids that a table or the name of a command selects; none of them has fields."""
    names = {
        node.attr
        for path in SERVICE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "NoticeId"
    }
    selected = {f"help_{name}{ending}" for name in CommandName for ending in ("", "_arguments")}
    return {NoticeId[name] for name in names} | {one for one in NoticeId if one in selected}


def test_the_file_and_the_ids_are_the_same() -> None:
    assert list(TEXTS) == list(NoticeId)


def test_the_english_texts_have_no_problem() -> None:
    assert list(problems_of(TEXTS)) == []


def test_every_id_is_used() -> None:
    assert used_elsewhere() == set(NoticeId)


def test_every_field_is_given_wherever_a_text_is_used() -> None:
    found = list(calls())
    assert len(found) > 40
    assert [place for notice, fields, place in found if fields != fields_of(TEXTS[notice])] == []
    without_call = set(NoticeId) - {notice for notice, _, _ in found}
    assert [notice for notice in without_call if fields_of(TEXTS[notice])] == []


@pytest.mark.parametrize("name", CommandName)
def test_every_command_has_a_line_of_help(name: CommandName) -> None:
    assert replies.help_text(ENGLISH, [name], "/").startswith(f"/{name}")


def test_a_missing_id_is_english() -> None:
    german = Notices({"stopped": "Angehalten."})
    assert german.text(NoticeId.STOPPED) == "Angehalten."
    assert german.text(NoticeId.BRANCHED) == ENGLISH.text(NoticeId.BRANCHED)


def test_the_german_example_is_complete_and_valid() -> None:
    german = tomllib.loads(GERMAN.read_text("utf-8"))
    assert list(problems_of(german)) == []
    assert list(german) == list(TEXTS)


@pytest.mark.parametrize(
    ("notice", "text", "problem"),
    [
        ("stoped", "x", "stoped: there is no such id"),
        ("stopped", 7, "stopped: write a text in quotation marks"),
        ("stopped", {"de": "x"}, "stopped: write a text in quotation marks"),
        ("stopped", " ", "stopped: write 1 to 1000 characters"),
        ("stopped", "x" * 1001, "stopped: write 1 to 1000 characters"),
        ("stopped", "a\x1b[2J", "stopped: control characters are not allowed"),
        ("stopped", "{count}", "stopped: there is no field {count} here"),
        ("title", "Titel", "title: the field {title} is missing"),
        ("title", "{titel}", "title: there is no field {titel} here"),
        ("rate_limited", "{messages}", "rate_limited: the field {per} is missing"),
    ],
)
def test_a_wrong_text_is_named_with_its_id(notice: str, text: object, problem: str) -> None:
    assert list(problems_of({notice: text})) == [problem]


@pytest.mark.parametrize(
    "text",
    ["{title.__class__}", "{title[0]}", "{title!r}", "{title:>9}", "{}", "{0}", "{title", "}"],
)
def test_a_field_is_only_a_name(text: str) -> None:
    (problem,) = problems_of({"title": text})
    assert problem.endswith("write {{ and }} for braces")


@pytest.mark.parametrize("text", ["{title}", "{}", "{title.__class__}", "{", "}}", "{0}"])
def test_braces_of_a_person_stay_as_they_are(text: str) -> None:
    assert replies.titled(ENGLISH, text) == f"This conversation is called “{text}”."
    assert replies.undone(ENGLISH, text) == f"Undone, starting with: {text}"


def test_braces_of_a_translation_are_written_twice() -> None:
    german = Notices({"title": "{{Titel}}: {title}"})
    assert german.text(NoticeId.TITLE, title="x") == "{Titel}: x"


@pytest.mark.parametrize(
    "text",
    [
        "Stopped.",
        "Angehalten.",
        "  Angehalten.\nsecond line",
        "Zu viele: 3 in 1m",
        "Too many messages: this one was not accepted. At most 9 in 1h are; wait.",
        "⚠ no answer",
    ],
)
def test_notices_of_both_languages_are_recognized(text: str) -> None:
    german = Notices({"stopped": "Angehalten.", "rate_limited": "Zu viele: {messages} in {per}"})
    assert german.recognizes(text)


def test_questions_are_no_notices() -> None:
    # A text that begins with a field has no beginning to compare with, and parts are no notices.
    german = Notices({"rate_limited": "{messages} in {per} sind zu viele."})
    for text in ("start a new conversation", "Hello", "", "9 in 1m sind zu viele.", "/new"):
        assert not german.recognizes(text)
