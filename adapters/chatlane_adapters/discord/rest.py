"""Call the REST API of Discord, without waiting out its limits.

discord.py sleeps on 429 for up to 30 s, also after a call that used up its bucket, and logs the
tokens of interactions. So only the gateway is its part.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias

import aiohttp

from chatlane_client import ChatGone, RetryAfter, UndeliverableError
from chatlane_schemas import DeliveryFailure

Json: TypeAlias = dict[str, Any]

_TIMEOUT: Final = aiohttp.ClientTimeout(total=60)
_AGENT: Final = "DiscordBot (https://github.com/chatlane, 0.1)"
_MOST_BUCKETS: Final = 10_000


class RevokedTokenError(Exception):
    """Discord does not accept the token of the bot."""


class UnknownMessageError(UndeliverableError):
    """The message of a call does not exist."""


class File(NamedTuple):
    """A file to upload."""

    name: str
    content: bytes
    media_type: str


class Answer(NamedTuple):
    """An error answer of the API."""

    status: int
    body: Json
    headers: Mapping[str, str]

    @property
    def code(self) -> int:
        """Return the error code; 0 if there is none."""
        code = self.body.get("code")
        return code if isinstance(code, int) else 0

    @property
    def is_global(self) -> bool:
        """Return whether a limit is that of the bot, or of its address, and not of a channel."""
        if self.code == _SLOWMODE:
            return False
        # A proxy in front of Discord sends no scope, and refuses everything from this address.
        scope = self.headers.get("X-RateLimit-Scope", "global")
        return bool(self.body.get("global")) or scope == "global"

    @property
    def retry_after(self) -> float:
        """Return for how many seconds the call must not be repeated."""
        try:
            return float(self.body.get("retry_after") or self.headers.get("Retry-After") or 1.0)
        except (TypeError, ValueError):
            return 1.0


# By error code: https://discord.com/developers/docs/topics/opcodes-and-status-codes
_REFUSALS: Final[Mapping[int, tuple[type[UndeliverableError], DeliveryFailure]]] = {
    10003: (ChatGone, DeliveryFailure.GONE),  # unknown channel
    10004: (ChatGone, DeliveryFailure.GONE),  # unknown guild
    10008: (UnknownMessageError, DeliveryFailure.GONE),
    40005: (UndeliverableError, DeliveryFailure.TOO_LARGE),
    50001: (ChatGone, DeliveryFailure.GONE),  # no access
    50007: (ChatGone, DeliveryFailure.BLOCKED),  # the person takes no messages
    50008: (ChatGone, DeliveryFailure.REFUSED),  # a channel without text
    50013: (ChatGone, DeliveryFailure.REFUSED),  # no permission
    50083: (ChatGone, DeliveryFailure.GONE),  # an archived thread
    50278: (ChatGone, DeliveryFailure.BLOCKED),  # no guild in common
    160005: (ChatGone, DeliveryFailure.GONE),  # a locked thread
}
_SLOWMODE: Final = 20016
_INVALID_WEBHOOK_TOKEN: Final = 50027
_SERVER_ERRORS: Final = 500


def refusal_of(answer: Answer) -> Exception:
    """Return the error that stands for a refused call, in the terms of chatlane."""
    status, code = answer.status, answer.code
    reason = f"status {status}, code {code}"
    if status == HTTPStatus.TOO_MANY_REQUESTS or code == _SLOWMODE:
        return RetryAfter(answer.retry_after, whole_account=answer.is_global)
    if status == HTTPStatus.UNAUTHORIZED and code != _INVALID_WEBHOOK_TOKEN:
        return RevokedTokenError(reason)
    if status >= _SERVER_ERRORS:
        return aiohttp.ClientError(reason)
    is_too_large = status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    usual = DeliveryFailure.TOO_LARGE if is_too_large else DeliveryFailure.REFUSED
    error, failure = _REFUSALS.get(code, (UndeliverableError, usual))
    return error(reason, failure=failure)


class Rest:
    """The REST API for one bot.

    Args:
        session: Makes the requests.
        url: Base of the API.
        token: Token of the bot.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bot {token}", "User-Agent": _AGENT}
        # Monotonic times at which used up buckets are full again, by route and channel.
        self._free_at: dict[str, float] = {}

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        files: Sequence[File] = (),
        query: Mapping[str, str] | None = None,
        bucket: str | None = None,
    ) -> Any:  # noqa: ANN401 - any JSON
        """Make a call and return its answer.

        Args:
            method: Method of HTTP.
            path: Path below the base of the API.
            body: Sent as JSON.
            files: Sent beside the body.
            query: Parameters of the address.
            bucket: Name of what Discord counts the call with. While it is used up, the call is
                refused here.

        Raises:
            RetryAfter: The limit of a channel or of the bot is reached.
            ChatGone: The bot cannot write there any more.
            UnknownMessageError: The message does not exist.
            UndeliverableError: Discord refuses the call for good.
            RevokedTokenError: Discord does not accept the token.
            aiohttp.ClientError: Anything else; the call may have taken effect.
        """
        if bucket is not None and (pause := self._free_at.get(bucket, 0.0) - monotonic()) > 0:
            raise RetryAfter(pause)
        sent: dict[str, Any] = {"json": body} if body is not None else {}
        if files:
            sent = {"data": _form(body, files)}
        async with self._session.request(
            method,
            self._url + path,
            headers=self._headers,
            params=query,
            timeout=_TIMEOUT,
            **sent,
        ) as response:
            if bucket is not None:
                self._note_rate(bucket, response.headers)
            text = await response.text()
            if response.ok:
                return json.loads(text) if text else None
            raise refusal_of(Answer(response.status, _object(text), response.headers))

    def _note_rate(self, bucket: str, headers: Mapping[str, str]) -> None:
        if headers.get("X-RateLimit-Remaining") != "0":
            return
        if len(self._free_at) >= _MOST_BUCKETS:
            now = monotonic()
            self._free_at = {key: at for key, at in self._free_at.items() if at > now}
        self._free_at[bucket] = monotonic() + float(headers.get("X-RateLimit-Reset-After") or 1.0)


def _form(body: object, files: Sequence[File]) -> aiohttp.FormData:
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("payload_json", json.dumps(body), content_type="application/json")
    for number, file in enumerate(files):
        form.add_field(
            f"files[{number}]", file.content, filename=file.name, content_type=file.media_type
        )
    return form


def _object(text: str) -> Json:
    """Return a JSON object; an empty one for a page of a proxy."""
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
