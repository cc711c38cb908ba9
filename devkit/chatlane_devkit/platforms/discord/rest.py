"""The REST API of an emulated Discord, as far as bots that chat need it."""

import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, TypeAlias

from aiohttp import web

from chatlane_devkit.platforms.discord.gateway import Gateway
from chatlane_devkit.platforms.discord.world import LOADING, Channel, Interaction, Json, World

MAX_TEXT: Final = 2000
_MAX_NONCE: Final = 25
_MAX_ROWS: Final = 5
_MAX_LABEL: Final = 80
_MAX_CUSTOM_ID: Final = 100
# Messages that a channel takes in so many seconds.
_BUCKET: Final = 5
_BUCKET_SECONDS: Final = 5.0
_DEFER, _DEFER_UPDATE = 5, 6
_INVALID_FORM: Final = 50035
_Call: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RefusalError(Exception):
    """The API refuses a call."""

    def __init__(self, status: int, code: int, text: str = "refused", **more: object) -> None:
        super().__init__(text)
        self.status = status
        self.body = {"message": text, "code": code, **more}


@dataclass(slots=True)
class Faults:
    """The faults of the API.

    Attributes:
        failing: How many calls get a 502 from now on.
        lost_answers: How many messages are sent whose caller gets no answer.
        limited_until: Monotonic time until which the whole account gets 429.
        keeps_rates: Whether the rates of channels are enforced.
    """

    failing: int = 0
    lost_answers: int = 0
    limited_until: float = 0.0
    keeps_rates: bool = True
    limited_calls: int = 0
    recent: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))


class RestApi:
    """Serves the calls of a bot."""

    def __init__(self, world: World, gateway: Gateway, is_token: Callable[[str], bool]) -> None:
        self._world = world
        self._gateway = gateway
        self._is_token = is_token
        self.faults = Faults()
        self.uploads: list[tuple[str, bytes]] = []

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, below `/api/v10`."""
        message = "/channels/{channel}/messages/{message}"
        original = "/webhooks/{application}/{token}/messages/@original"
        table: list[tuple[str, str, _Call]] = [
            ("GET", "/users/@me", self._me),
            ("POST", "/users/@me/channels", self._open_dm),
            ("GET", "/oauth2/applications/@me", self._application),
            ("GET", "/applications/@me", self._application),
            ("GET", "/applications/{application}/commands", self._get_commands),
            ("PUT", "/applications/{application}/commands", self._set_commands),
            ("GET", "/gateway/bot", self._find_gateway),
            ("GET", "/channels/{channel}", self._get_channel),
            ("GET", "/channels/{channel}/messages", self._get_messages),
            ("POST", "/channels/{channel}/messages", self._send),
            ("GET", message, self._get_message),
            ("PATCH", message, self._edit),
            ("DELETE", message, self._delete),
            ("POST", "/channels/{channel}/typing", self._type),
            ("POST", "/interactions/{interaction}/{token}/callback", self._acknowledge),
            ("GET", original, self._get_original),
            ("PATCH", original, self._edit_original),
        ]
        return [
            web.route(method, f"/api/v10{path}", self._checked(it)) for method, path, it in table
        ]

    def _checked(self, call: _Call) -> _Call:
        """Return a call behind the token, the faults and the form of errors."""

        async def checked(request: web.Request) -> web.StreamResponse:
            try:
                self._check(request)
                return await call(request)
            except RefusalError as error:
                headers = {"Via": "1.1 google"}
                if error.status == web.HTTPTooManyRequests.status_code:
                    headers["Retry-After"] = str(error.body["retry_after"])
                    headers["X-RateLimit-Scope"] = "user"
                return _json(error.body, status=error.status, headers=headers)

        return checked

    def _check(self, request: web.Request) -> None:
        by_token = "token" in request.match_info
        if not by_token and not self._is_token(request.headers.get("Authorization", "")[4:]):
            raise RefusalError(401, 0, "401: Unauthorized")
        if self.faults.failing > 0:
            self.faults.failing -= 1
            raise RefusalError(502, 0, "bad gateway")
        if (seconds := self.faults.limited_until - monotonic()) > 0:
            self.faults.limited_calls += 1
            raise _limited(seconds, is_global=True)

    def _channel(self, request: web.Request) -> Channel:
        channel = self._world.channels.get(request.match_info["channel"])
        if channel is None:
            raise RefusalError(404, 10003, "Unknown Channel")
        if channel.refusal is not None:
            if request.method in {"POST", "PATCH"} and "/messages" in request.path:
                channel.called_at.append(monotonic())
            raise RefusalError(*channel.refusal)
        return channel

    def _message(self, request: web.Request) -> tuple[Channel, Json]:
        channel = self._channel(request)
        message = channel.messages.get(request.match_info["message"])
        if message is None:
            raise RefusalError(404, 10008, "Unknown Message")
        return channel, message

    def _take(self, channel: Channel) -> None:
        """Count a call that writes, and refuse it if there are too many."""
        now = monotonic()
        channel.called_at.append(now)
        if (seconds := channel.limited_until - now) > 0:
            raise _limited(seconds)
        recent = self.faults.recent[channel.id]
        while recent and recent[0] < now - _BUCKET_SECONDS:
            recent.popleft()
        if self.faults.keeps_rates and len(recent) >= _BUCKET:
            channel.limited_calls += 1
            raise _limited(recent[0] + _BUCKET_SECONDS - now)
        recent.append(now)

    # The calls.

    async def _me(self, _: web.Request) -> web.Response:
        return _json({**self._world.bot.as_user(), "verified": True, "flags": 0})

    async def _application(self, _: web.Request) -> web.Response:
        owner = self._world.bot.as_user()
        return _json(
            {
                "id": self._world.application_id,
                "name": "chatlane",
                "description": "",
                "icon": None,
                "bot_public": True,
                "bot_require_code_grant": False,
                "verify_key": "0" * 64,
                "owner": owner,
                "team": None,
                "flags": 1 << 18,
                "integration_types_config": {},
            }
        )

    async def _find_gateway(self, _: web.Request) -> web.Response:
        limits = {"total": 1000, "remaining": 999, "reset_after": 86_400_000, "max_concurrency": 1}
        gateway = {"url": self._gateway.url, "shards": 1, "session_start_limit": limits}
        return _json(gateway)

    async def _open_dm(self, request: web.Request) -> web.Response:
        person = self._world.person_of((await request.json())["recipient_id"])
        return _json(self._world.dm(person).as_channel())

    async def _get_commands(self, _: web.Request) -> web.Response:
        return _json(self._world.commands)

    async def _set_commands(self, request: web.Request) -> web.Response:
        self._world.commands = await request.json()
        added_fields = {
            "application_id": self._world.application_id,
            "version": self._world.new_id(),
        }
        return _json(
            [{**it, **added_fields, "id": self._world.new_id()} for it in self._world.commands]
        )

    async def _get_channel(self, request: web.Request) -> web.Response:
        return _json(self._channel(request).as_channel())

    async def _get_messages(self, request: web.Request) -> web.Response:
        after = int(request.query.get("after", "0"))
        limit = int(request.query.get("limit", "50"))
        found = self._world.messages_of(self._channel(request), after=after, limit=limit)
        return _json(list(found))

    async def _get_message(self, request: web.Request) -> web.Response:
        return _json(self._message(request)[1])

    async def _send(self, request: web.Request) -> web.Response:
        channel = self._channel(request)
        body = await self._body(request)
        nonce = body.get("nonce")
        if nonce is not None and len(str(nonce)) > _MAX_NONCE:
            raise RefusalError(400, _INVALID_FORM, "nonce is too long")
        self._take(channel)
        if body.get("enforce_nonce") and nonce in channel.nonces:
            return _json(channel.messages.get(channel.nonces[nonce]) or {})
        fields = _checked_fields(body)
        if not (fields.get("content") or fields.get("attachments")):
            raise RefusalError(400, 50006, "Cannot send an empty message")
        reference = body.get("message_reference")
        if reference is not None:
            fields["reply_to"] = str(reference["message_id"])
        text = fields.pop("content", "")
        message = self._world.add(channel, self._world.bot, text, **fields)
        if nonce is not None:
            channel.nonces[nonce] = message["id"]
        if self.faults.lost_answers > 0 and request.transport is not None:
            self.faults.lost_answers -= 1
            request.transport.abort()
        await self._until_answered(channel)
        return _json({**message, "nonce": nonce})

    async def _edit(self, request: web.Request) -> web.Response:
        channel, message = self._message(request)
        body = await self._body(request)
        self._take(channel)
        if message["author"]["id"] != self._world.bot.id:
            raise RefusalError(403, 50005, "Cannot edit a message authored by another user")
        message = self._world.change(channel, message["id"], _checked_fields(body))
        await self._until_answered(channel)
        return _json(message)

    async def _delete(self, request: web.Request) -> web.Response:
        channel, message = self._message(request)
        self._world.remove(channel, message)
        return web.Response(status=204)

    async def _type(self, request: web.Request) -> web.Response:
        self._channel(request).typing += 1
        return web.Response(status=204)

    def _interaction(self, request: web.Request) -> Interaction:
        interaction = self._world.interactions.get(request.match_info["token"])
        if interaction is None:
            raise RefusalError(404, 10015, "Unknown Webhook")
        return interaction

    async def _acknowledge(self, request: web.Request) -> web.Response:
        interaction = self._interaction(request)
        if interaction.callback is not None:
            raise RefusalError(400, 40060, "Interaction has already been acknowledged")
        interaction.callback = (await request.json())["type"]
        interaction.acknowledged_after = monotonic() - interaction.began
        if interaction.callback == _DEFER:
            world = self._world
            message = world.add(interaction.channel, world.bot, "", type=20, flags=LOADING)
            interaction.original = message["id"]
        return web.Response(status=204)

    def _original(self, request: web.Request) -> tuple[Channel, Json]:
        interaction = self._interaction(request)
        message = interaction.channel.messages.get(interaction.original or "")
        if message is None:
            raise RefusalError(404, 10008, "Unknown Message")
        return interaction.channel, message

    async def _get_original(self, request: web.Request) -> web.Response:
        return _json(self._original(request)[1])

    async def _edit_original(self, request: web.Request) -> web.Response:
        channel, message = self._original(request)
        fields = {**_checked_fields(await self._body(request)), "flags": 0}
        message = self._world.change(channel, message["id"], fields)
        await self._until_answered(channel)
        return _json(message)

    async def _until_answered(self, channel: Channel) -> None:
        if channel.stops_after is not None and len(channel.texts) > channel.stops_after:
            channel.answers.clear()
        await channel.answers.wait()

    async def _body(self, request: web.Request) -> Json:
        """Return the body of a call; files become attachments."""
        if request.content_type != "multipart/form-data":
            body: Json = await request.json()
            return body
        form = await request.post()
        written = form["payload_json"]
        if isinstance(written, web.FileField):
            raise RefusalError(400, _INVALID_FORM, "payload_json is a file")
        payload: Json = json.loads(written)
        files = []
        for name, part in form.items():
            if isinstance(part, web.FileField) and name.startswith("files["):
                self.uploads.append((part.filename, part.file.read()))
                file = {"id": self._world.new_id(), "filename": part.filename, "size": 1}
                url = f"https://cdn.discord.test/{part.filename}"
                files.append({**file, "url": url, "proxy_url": url})
        payload["attachments"] = files
        return payload


def _limited(seconds: float, *, is_global: bool = False) -> RefusalError:
    text = "You are being rate limited."
    more: dict[str, Any] = {"retry_after": round(seconds, 3), "global": is_global}
    return RefusalError(429, 0, text, **more)


def _checked_fields(body: Json) -> Json:
    """Return the fields of a message that a body sets; refuses what the API refuses."""
    fields: Json = {
        key: body[key] for key in ("content", "components", "attachments") if key in body
    }
    if len(fields.get("content") or "") > MAX_TEXT:
        raise RefusalError(400, _INVALID_FORM, "content is too long")
    rows = fields.get("components") or []
    if len(rows) > _MAX_ROWS or any(len(row["components"]) > _MAX_ROWS for row in rows):
        raise RefusalError(400, _INVALID_FORM, "too many components")
    controls = [it for row in rows for it in row["components"]]
    names = [it["custom_id"] for it in controls if "custom_id" in it]
    if len(set(names)) < len(names) or any(not 0 < len(it) <= _MAX_CUSTOM_ID for it in names):
        raise RefusalError(400, _INVALID_FORM, "custom_id is not valid")
    if any(not 0 < len(it.get("label", "")) <= _MAX_LABEL for it in controls):
        raise RefusalError(400, _INVALID_FORM, "label is not valid")
    return fields


def _json(
    data: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    # Clients compare the content type as a whole, and Discord names no charset.
    all_headers = {"Content-Type": "application/json", **(headers or {})}
    return web.Response(body=json.dumps(data).encode(), status=status, headers=all_headers)
