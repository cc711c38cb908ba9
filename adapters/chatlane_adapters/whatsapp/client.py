"""Calls of the Graph API for one number, with refusals in the terms of chatlane."""

from collections.abc import AsyncIterator
from typing import Final

import httpx

from chatlane_adapters.whatsapp.decode import WINDOW_CLOSED, Json
from chatlane_client import ChatGone, RetryAfter, Undeliverable
from chatlane_schemas import DeliveryFailure

_CALL_TIME: Final = 30.0
_SERVER_ERROR: Final = 500
# One message in six seconds to one person.
_PAIR_RATE: Final = 131056
_PAIR_PAUSE: Final = 6.0
_ACCOUNT_PAUSE: Final = 60.0
_ACCOUNT_RATES: Final = frozenset({4, 80007, 130429, 131048})
_REFUSED_ACCOUNT: Final = frozenset({0, 3, 10, 190, 368, 131005, 131031})
_UNCERTAIN: Final = frozenset({1, 2, 131000, 131016})
_UNREACHABLE: Final = frozenset({131026, 131050})


class UncertainCallError(Exception):
    """WhatsApp may have done what was asked."""


class RefusedAccountError(RetryAfter):
    """WhatsApp refuses the token or the number."""

    def __init__(self) -> None:
        super().__init__(_ACCOUNT_PAUSE, whole_account=True)


class WindowClosedError(Undeliverable):
    """The person has not written for 24 hours."""

    def __init__(self) -> None:
        super().__init__("the person has not written for 24 hours")


class GraphClient:
    """Sends messages of one number.

    Args:
        http: A client with the address of the Graph API.
        number_id: Id of the number.
        token: Access token.
    """

    def __init__(self, http: httpx.AsyncClient, number_id: str, token: str) -> None:
        self._http = http
        self._path = f"/{number_id}/messages"
        self._headers = {"Authorization": f"Bearer {token}"}

    async def send(self, message: Json) -> Json:
        """Send a message or a state, and return the answer.

        Raises:
            RetryAfter: WhatsApp asks to wait, or refuses the account.
            ChatGone: The person gets no messages of the number.
            WindowClosedError: The person has not written for 24 hours.
            Undeliverable: WhatsApp refuses the message for another reason.
            UncertainCallError: There is no answer that says whether the call was done.
        """
        body = {"messaging_product": "whatsapp", "recipient_type": "individual", **message}
        try:
            response = await self._http.post(
                self._path, json=body, headers=self._headers, timeout=_CALL_TIME
            )
            answer: Json = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise UncertainCallError(type(error).__name__) from None
        if response.is_success:
            return answer
        given = answer.get("error") or {}
        raise _refusal(response.status_code, int(given.get("code", -1)))

    async def file(self, url: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a file of a message.

        Args:
            url: Its address in the Graph API, which tells for some minutes where its bytes are.

        Raises:
            httpx.HTTPError: WhatsApp does not give it.
        """
        place = await self._http.get(url, headers=self._headers, timeout=_CALL_TIME)
        place.raise_for_status()
        async with self._http.stream(
            "GET", place.json()["url"], headers=self._headers, timeout=_CALL_TIME
        ) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                yield chunk


def _refusal(status: int, code: int) -> Exception:
    """Return a refusal without its message, which may quote what was sent."""
    if code in _REFUSED_ACCOUNT:
        return RefusedAccountError()
    if code == _PAIR_RATE or code in _ACCOUNT_RATES:
        is_pair = code == _PAIR_RATE
        seconds = _PAIR_PAUSE if is_pair else _ACCOUNT_PAUSE
        return RetryAfter(seconds, whole_account=not is_pair)
    if code == WINDOW_CLOSED:
        return WindowClosedError()
    if code in _UNCERTAIN or status >= _SERVER_ERROR:
        return UncertainCallError(str(code))
    reason = f"WhatsApp refuses it: {code}"
    is_blocked = code in _UNREACHABLE
    return (
        ChatGone(reason, failure=DeliveryFailure.BLOCKED) if is_blocked else Undeliverable(reason)
    )
