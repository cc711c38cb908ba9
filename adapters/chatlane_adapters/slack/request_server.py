"""Take the signed requests of Slack."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web
from slack_sdk.signature import SignatureVerifier

from chatlane_adapters.kit.webhook import Webhook
from chatlane_adapters.slack.intake import PayloadKind, interactive_payload
from chatlane_adapters.slack.text import Json

_log: Final = logging.getLogger(__name__)

Take = Callable[[PayloadKind, Json], Awaitable[None]]


class RequestServer:
    """Serves the path `/slack`, for events, commands and buttons.

    Args:
        signing_secret: By which Slack signs its requests.
        take: Stores a payload.
    """

    def __init__(self, signing_secret: str, take: Take) -> None:
        self._verifier = SignatureVerifier(signing_secret)
        self._take = take
        self._webhook = Webhook()

    async def run(self, host: str, port: int) -> None:
        """Serve until cancelled.

        Raises:
            ConnectionClosedError: The connection to NATS is closed for good.
            UndeclaredAccountError: chatlane.toml does not declare the account.
        """
        await self._webhook.run(host, port, [web.post("/slack", self._serve)])

    async def _serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        if not self._is_signed(request, body):
            return web.Response(status=401)
        try:
            kind, payload = _payload_of(request.content_type, body)
        except (KeyError, ValueError):
            return web.Response(status=400)
        if payload.get("type") == "url_verification":
            return web.json_response({"challenge": payload.get("challenge")})
        if payload.get("type") == "app_rate_limited":
            _log.warning("events_rate_limited")
            return web.Response()
        if kind is None:
            return web.Response()
        return await self._webhook.stored(self._take(kind, payload))

    def _is_signed(self, request: web.Request, body: bytes) -> bool:
        try:
            return self._verifier.is_valid_request(body, dict(request.headers))
        except (TypeError, ValueError):
            # No number as time, or characters that no signature has.
            return False


def _payload_of(content_type: str, body: bytes) -> tuple[PayloadKind | None, Json]:
    """Return kind and payload of a request; Slack checks the address by one without a kind.

    Raises:
        KeyError: It has no payload.
        ValueError: It is not understood.
    """
    if content_type == "application/json":
        payload = json.loads(body)
        if not isinstance(payload, dict):
            raise ValueError(type(payload))
        return "events_api", payload
    form = dict(parse_qsl(body.decode(), keep_blank_values=True))
    if "ssl_check" in form:
        return None, {}
    if "command" in form:
        return "slash_commands", dict(form)
    return "interactive", interactive_payload(form)
