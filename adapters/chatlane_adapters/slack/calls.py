"""Calls of Slack's Web API, with refusals in the terms of chatlane."""

import asyncio
from collections.abc import Awaitable
from typing import Final

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from chatlane_adapters.slack.text import Json
from chatlane_client import ChatGone, RetryAfter, Undeliverable
from chatlane_schemas import DeliveryFailure

_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
# How long a chat waits whose workspace refuses the token, or is not available.
ACCOUNT_PAUSE: Final = 60.0
_REVOKED: Final = frozenset(
    {
        "account_inactive",
        "app_uninstalled",
        "invalid_auth",
        "not_authed",
        "token_expired",
        "token_revoked",
    }
)
_PASSING: Final = frozenset(
    {
        "accesslimited",
        "message_limit_exceeded",
        "org_login_required",
        "request_timeout",
        "team_added_to_org",
    }
)
_UNCERTAIN: Final = frozenset({"fatal_error", "internal_error", "service_unavailable"})
_GONE: Final = frozenset(
    {
        "cannot_dm_bot",
        "channel_not_found",
        "is_archived",
        "not_in_channel",
        "restricted_action",
        "restricted_action_read_only_channel",
        "restricted_action_thread_locked",
        "user_not_found",
    }
)
_BLOCKED: Final = frozenset({"messages_tab_disabled", "user_disabled", "user_is_restricted"})
_TOO_LARGE: Final = frozenset({"msg_too_long", "msg_blocks_too_long", "metadata_too_large"})


class UncertainCallError(Exception):
    """Slack may have done what was asked."""


class RefusedTokenError(RetryAfter):
    """Slack refuses the token: each chat of the workspace waits."""

    def __init__(self, error: str) -> None:
        super().__init__(ACCOUNT_PAUSE)
        self.error = error


class RefusedCallError(Undeliverable):
    """Slack refuses a call for good.

    Attributes:
        error: The word of Slack, such as `message_not_found`.
    """

    def __init__(self, error: str) -> None:
        is_large = error in _TOO_LARGE
        failure = DeliveryFailure.TOO_LARGE if is_large else DeliveryFailure.REFUSED
        super().__init__(f"Slack refuses it: {error}", failure=failure)
        self.error = error


async def done(call: Awaitable[AsyncSlackResponse]) -> Json:
    """Return the answer of a call.

    Raises:
        RetryAfter: Slack asks to wait, or refuses the token.
        ChatGone: The channel takes no message of the app.
        RefusedCallError: Slack refuses the call for another reason.
        UncertainCallError: There is no answer that says whether the call was done.
    """
    try:
        response = await call
    except SlackApiError as error:
        raise _refusal(error) from None
    except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
        raise UncertainCallError(type(error).__name__) from None
    answer = response.data
    return answer if isinstance(answer, dict) else {}


def _refusal(error: SlackApiError) -> Exception:
    """Return a refusal without the text that was refused."""
    response = error.response
    word = str(response.get("error") or "") if isinstance(response.data, dict) else ""
    status = response.status_code
    if status == _TOO_MANY_REQUESTS or word in {"ratelimited", "rate_limited"}:
        return RetryAfter(_seconds(response.headers.get("Retry-After")))
    if not word or word in _UNCERTAIN or status >= _SERVER_ERROR:
        return UncertainCallError(word or f"HTTP {status}")
    return _refusal_of(word)


def _refusal_of(word: str) -> Exception:
    if word in _REVOKED:
        return RefusedTokenError(word)
    if word in _PASSING:
        return RetryAfter(ACCOUNT_PAUSE)
    if word in _GONE:
        return ChatGone(f"Slack refuses the channel: {word}")
    if word in _BLOCKED:
        return ChatGone(f"Slack refuses the channel: {word}", failure=DeliveryFailure.BLOCKED)
    return RefusedCallError(word)


def _seconds(given: str | None) -> float:
    try:
        return float(given or "1")
    except ValueError:
        return ACCOUNT_PAUSE
