"""Translate refusals of Telegram into those of a delivery."""

from time import monotonic
from typing import Final

from aiogram.exceptions import (
    TelegramAPIError,
    TelegramBadRequest,
    TelegramEntityTooLarge,
    TelegramForbiddenError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)

from chatlane_client import ChatGone, RetryAfter, Undeliverable
from chatlane_schemas import DeliveryFailure

# How long an account with a token that is not valid waits before it asks again.
REVOKED_PAUSE: Final = 60.0
# Words of a refusal, and what it means for the message.
_MEANINGS: Final = (
    (("message thread not found", "topic_deleted", "topic_closed", "topic_id_invalid"), "gone"),
    (("message is too long", "caption is too long", "file is too big"), "too_large"),
    (("not enough rights", "have no rights", "need administrator rights"), "refused"),
)
# Words of a refusal that holds for the whole chat.
_NO_CHAT: Final = (
    "chat not found",
    "user not found",
    "peer_id_invalid",
    "group chat was deactivated",
    "chat was deleted",
)
_BLOCKED: Final = ("blocked by the user", "initiate conversation")


def is_revoked(error: TelegramAPIError) -> bool:
    """Return whether Telegram does not know the token any more."""
    # A token without the form of one is answered with 404, and so is a method that a server lacks.
    return isinstance(error, TelegramUnauthorizedError) or (
        isinstance(error, TelegramNotFound) and "method" not in error.message
    )


def is_unchanged(error: TelegramAPIError) -> bool:
    """Return whether an edit was refused because the message has that content already."""
    return "message is not modified" in error.message


def has_no_text(error: TelegramAPIError) -> bool:
    """Return whether an edit was refused because the message has a caption instead of a text."""
    return "no text in the message" in error.message


def has_bad_entities(error: TelegramAPIError) -> bool:
    """Return whether a text was refused because of its entities."""
    return isinstance(error, TelegramBadRequest) and "entit" in error.message.lower()


class FloodGate:
    """Tells whether Telegram limits a chat or the whole account: it does not say."""

    def __init__(self) -> None:
        self._chat: object = None
        self._until = 0.0

    def limits_all(self, chat: object, seconds: float) -> bool:
        """Note that a chat is to wait, and return whether another one has to wait as well."""
        now = monotonic()
        is_second = now < self._until and chat != self._chat
        self._chat, self._until = chat, now + seconds
        return is_second


def refusal_of(error: TelegramAPIError, gate: FloodGate, chat: object) -> Exception:
    """Return the exception for a refused call; an error of the network is returned as it is.

    Reasons are those of Telegram, without the words of a message.

    Args:
        error: What the call raised.
        gate: The limits of the account.
        chat: The chat of the call.
    """
    if isinstance(error, TelegramRetryAfter):
        seconds = float(error.retry_after)
        return RetryAfter(seconds, whole_account=gate.limits_all(chat, seconds))
    if is_revoked(error):
        return RetryAfter(REVOKED_PAUSE, whole_account=True)
    if isinstance(error, TelegramEntityTooLarge):
        return Undeliverable("too large", failure=DeliveryFailure.TOO_LARGE)
    if isinstance(error, (TelegramBadRequest, TelegramForbiddenError, TelegramNotFound)):
        return _refused(error)
    return error


def _refused(error: TelegramAPIError) -> Exception:
    reason, lower = error.message, error.message.lower()
    for words, failure in _MEANINGS:
        if any(it in lower for it in words):
            return Undeliverable(reason, failure=DeliveryFailure(failure))
    if any(it in lower for it in _BLOCKED):
        return ChatGone(reason, failure=DeliveryFailure.BLOCKED)
    if isinstance(error, TelegramForbiddenError) or any(it in lower for it in _NO_CHAT):
        return ChatGone(reason)
    return Undeliverable(reason)
