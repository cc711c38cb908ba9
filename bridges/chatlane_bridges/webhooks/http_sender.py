"""POST one body to an address, after a check of where the address leads."""

import asyncio
import socket
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

import httpx

STEP_WITHIN: Final = 10.0
"""Seconds that each step of an exchange may take."""

_WITHIN: Final = timedelta(seconds=20)
_MAX_PAUSE: Final = timedelta(hours=1)


class PostFailedError(Exception):
    """An attempt failed.

    Attributes:
        reason: For the log: a status, or the type of the error.
        is_refusal: Whether the endpoint works and refuses this body.
        retry_after: How long the endpoint wants a pause.
    """

    def __init__(
        self, reason: str, *, is_refusal: bool = False, retry_after: timedelta | None = None
    ) -> None:
        self.reason = reason
        self.is_refusal = is_refusal
        self.retry_after = retry_after
        super().__init__(reason)


# What the body is refused for; every other status may be a fault of the endpoint that passes.
_REFUSALS: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)


class HttpSender:
    """Sends to one address; follows no redirection and uses no proxy."""

    def __init__(self, client: httpx.AsyncClient, url: str, *, allow_private: bool) -> None:
        self._client = client
        self._url = httpx.URL(url)
        self._allow_private = allow_private

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a body.

        Raises:
            PostFailedError: The endpoint did not confirm it.
        """
        try:
            async with asyncio.timeout(_WITHIN.total_seconds()):
                # The connection is made to the address that was checked, not to another answer of DNS.
                url = self._url.copy_with(host=await self._address())
                request = self._client.build_request(
                    "POST",
                    url,
                    content=body,
                    headers={
                        **headers,
                        "content-type": "application/json",
                        "host": self._url.netloc.decode("ascii"),
                    },
                    extensions={"sni_hostname": self._url.host},
                )
                response = await self._client.send(request, stream=True)
                await response.aclose()
        except (httpx.HTTPError, OSError, TimeoutError) as exc:
            raise PostFailedError(type(exc).__name__) from None
        if not response.is_success:
            raise PostFailedError(
                str(response.status_code),
                is_refusal=response.status_code in _REFUSALS,
                retry_after=_pause(response.headers.get("retry-after", "")),
            )

    async def _address(self) -> str:
        """Return the address of the host.

        Raises:
            PostFailedError: It is private.
        """
        found = await asyncio.get_running_loop().getaddrinfo(
            self._url.host, self._url.port or self._url.scheme, type=socket.SOCK_STREAM
        )
        addresses = [str(entry[4][0]) for entry in found]
        if not (self._allow_private or all(ip_address(it).is_global for it in addresses)):
            raise PostFailedError("private_address")
        return addresses[0]


def _pause(header: str) -> timedelta | None:
    return min(timedelta(seconds=int(header)), _MAX_PAUSE) if header.isdecimal() else None
