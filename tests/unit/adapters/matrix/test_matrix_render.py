"""Outbound messages as events of a room."""

import json

import pytest

from chatlane_adapters.matrix.refusals import HomeserverError, RevokedTokenError, refusal_of
from chatlane_adapters.matrix.render import RENDERER, edit_of, file_content, placed
from chatlane_client import ChatGone, RetryAfter, Undeliverable
from chatlane_schemas import Attachment, TextFormat

MAX_EVENT_BYTES = 65_536


def test_a_plain_text_has_no_html() -> None:
    (text,) = RENDERER("1 < 2\nand *so* on", None)
    content = text.content()
    assert content == {"msgtype": "m.text", "body": "1 < 2\nand *so* on", "m.mentions": {}}


def test_markdown_is_html_beside_a_body() -> None:
    (text,) = RENDERER("**bold** <script>", TextFormat.MARKDOWN)
    assert text.html == "<p><strong>bold</strong> &lt;script&gt;</p>"
    assert text.body == "bold <script>"


def test_a_notice_is_marked_as_one() -> None:
    (text,) = RENDERER("done", None)
    assert text.content(is_notice=True)["msgtype"] == "m.notice"


@pytest.mark.parametrize("text", ["&" * 30_000, "😀 " * 12_000, "**a** " * 8_000, "x" * 70_000])
def test_each_part_fits_into_an_encrypted_edit(text: str) -> None:
    for part in RENDERER(text, TextFormat.MARKDOWN):
        edit = json.dumps(edit_of("$" + "x" * 43, part.content()))
        # Ciphers are written in base64.
        assert len(edit.encode()) * 4 / 3 + 2_000 < MAX_EVENT_BYTES


def test_a_reply_and_a_thread_are_relations() -> None:
    content = {"msgtype": "m.text", "body": "x"}
    assert "m.relates_to" not in placed(content, thread_id=None, reply_to=None)
    reply = placed(content, thread_id=None, reply_to="$first")
    assert reply["m.relates_to"] == {"m.in_reply_to": {"event_id": "$first"}}
    thread = placed(content, thread_id="$root", reply_to=None)["m.relates_to"]
    assert thread == {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$root"},
    }


def test_an_edit_holds_the_whole_content() -> None:
    content = {"msgtype": "m.text", "body": "new", "m.mentions": {}}
    edit = edit_of("$first", content)
    assert edit["m.new_content"] == content
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$first"}
    assert edit["body"] == "* new"


@pytest.mark.parametrize(
    ("media_type", "message_type"),
    [
        ("image/png", "m.image"),
        ("video/mp4", "m.video"),
        ("audio/ogg", "m.audio"),
        ("x/y", "m.file"),
    ],
)
def test_a_file_is_shown_as_what_it_is(media_type: str, message_type: str) -> None:
    file = Attachment(key="files/a.bin", media_type=media_type)
    content = file_content(file, {"url": "mxc://a/b"}, 7)
    assert content["msgtype"] == message_type
    assert content["filename"] == "a.bin"
    assert content["info"] == {"mimetype": media_type, "size": 7}


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("M_LIMIT_EXCEEDED", 429, RetryAfter),
        ("M_FORBIDDEN", 403, ChatGone),
        ("M_NOT_FOUND", 404, ChatGone),
        ("M_TOO_LARGE", 413, Undeliverable),
        ("M_BAD_JSON", 400, Undeliverable),
        ("M_UNKNOWN_TOKEN", 401, RevokedTokenError),
        ("M_USER_DEACTIVATED", 403, RevokedTokenError),
        ("M_UNKNOWN", 500, HomeserverError),
        (None, 502, HomeserverError),
        (None, 200, HomeserverError),
    ],
)
def test_an_error_of_the_homeserver_says_what_becomes_of_a_message(
    code: str | None, status: int, kind: type[Exception]
) -> None:
    assert type(refusal_of(code, status)) is kind


def test_the_homeserver_says_how_long_to_wait() -> None:
    refusal = refusal_of("M_LIMIT_EXCEEDED", 429, 3_600_000)
    assert isinstance(refusal, RetryAfter)
    assert refusal.after.total_seconds() == 3600
    assert refusal.whole_account
