"""Bodies of the calls to Discord, and what its refusals mean."""

from typing import Any, Final

import aiohttp
import pytest

from chatlane_adapters.discord.render import RENDERER, content, new_message
from chatlane_adapters.discord.rest import (
    Answer,
    RevokedTokenError,
    UnknownMessageError,
    refusal_of,
)
from chatlane_client import ChatGone, RetryAfter, Undeliverable
from chatlane_schemas import Button, DeliveryFailure
from chatlane_schemas.content.buttons import TextFormat

TABLE: Final = "| a | b |\n|---|---|\n| 1 | 2 |"


def refusal(status: int, code: int = 0, **more: Any) -> Exception:  # noqa: ANN401 - any JSON
    return refusal_of(Answer(status, {"code": code, **more}, {"X-RateLimit-Scope": "user"}))


@pytest.mark.parametrize(
    ("status", "code", "error", "failure"),
    [
        (404, 10003, ChatGone, DeliveryFailure.GONE),
        (403, 50001, ChatGone, DeliveryFailure.GONE),
        (403, 50007, ChatGone, DeliveryFailure.BLOCKED),
        (403, 50013, ChatGone, DeliveryFailure.REFUSED),
        (404, 10008, UnknownMessageError, DeliveryFailure.GONE),
        (400, 50035, Undeliverable, DeliveryFailure.REFUSED),
        (413, 0, Undeliverable, DeliveryFailure.TOO_LARGE),
        (400, 40005, Undeliverable, DeliveryFailure.TOO_LARGE),
        # The token of an interaction, not that of the bot.
        (401, 50027, Undeliverable, DeliveryFailure.REFUSED),
    ],
)
def test_refusals_that_last(
    status: int, code: int, error: type[Undeliverable], failure: DeliveryFailure
) -> None:
    found = refusal(status, code)
    assert type(found) is error
    assert found.failure is failure


def test_a_limit_of_a_channel_lets_the_channel_wait() -> None:
    found = refusal(429, retry_after=3600.0)
    assert isinstance(found, RetryAfter)
    assert (found.after.total_seconds(), found.whole_account) == (3600, False)
    slow = refusal(400, 20016, retry_after=5)
    assert isinstance(slow, RetryAfter)
    assert (slow.after.total_seconds(), slow.whole_account) == (5, False)


def test_a_limit_of_the_bot_or_of_its_address_lets_all_wait() -> None:
    found = refusal(429, retry_after=2, **{"global": True})
    assert isinstance(found, RetryAfter)
    assert found.whole_account
    # A page of a proxy has no JSON and no scope.
    found = refusal_of(Answer(429, {}, {"Retry-After": "120"}))
    assert isinstance(found, RetryAfter)
    assert (found.after.total_seconds(), found.whole_account) == (120, True)


def test_what_may_pass_is_tried_again_and_a_token_is_not() -> None:
    assert isinstance(refusal(502), aiohttp.ClientError)
    assert isinstance(refusal(401), RevokedTokenError)


def test_every_attempt_has_the_same_nonce_of_22_characters() -> None:
    first, again = new_message("a", key="k-0"), new_message("a", key="k-0")
    assert first["nonce"] == again["nonce"] != new_message("a", key="k-1")["nonce"]
    assert (len(first["nonce"]), first["enforce_nonce"]) == (22, True)


def test_a_reply_to_a_deleted_message_is_sent_anyway() -> None:
    body = new_message("a", key="k", reply_to="5")
    assert body["message_reference"] == {"message_id": "5", "fail_if_not_exists": False}
    assert "message_reference" not in new_message("a", key="k", reply_to="not-an-id")


def test_buttons_come_in_rows_of_five_and_have_ids_of_their_own() -> None:
    buttons = tuple(Button(label="x" * 90, value="v" * 200) for _ in range(7))
    rows = content("a", buttons)["components"]
    assert [len(row["components"]) for row in rows] == [5, 2]
    controls = [it for row in rows for it in row["components"]]
    assert len({it["custom_id"] for it in controls}) == 7
    assert max(len(it["custom_id"]) for it in controls) <= 100
    assert max(len(it["label"]) for it in controls) == 80
    [[link]] = [row["components"] for row in content("a", (page,))["components"]]
    assert (link["style"], link["url"]) == (5, "https://example.org")


page: Final = Button(label="Page", url="https://example.org")


def test_an_edit_without_buttons_takes_them_away() -> None:
    assert content("a")["components"] == []


def test_an_answer_notifies_nobody_by_accident() -> None:
    assert content("@everyone")["allowed_mentions"]["parse"] == ["users"]


def test_tables_become_code_and_every_part_fits() -> None:
    [table] = RENDERER(TABLE, TextFormat.MARKDOWN)
    assert table.startswith("```")
    parts = RENDERER("*" * 5000, TextFormat.PLAIN)
    assert max(map(len, parts)) <= 2000
    assert "".join(parts).count("*") == 5000
