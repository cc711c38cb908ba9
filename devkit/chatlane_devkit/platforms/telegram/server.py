"""Serve the emulated Bot API over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_urlsafe
from typing import Final

from aiohttp import web

from chatlane_devkit.platforms.telegram.chats import World
from chatlane_devkit.platforms.telegram.control import control_routes
from chatlane_devkit.platforms.telegram.faults import Faults
from chatlane_devkit.platforms.telegram.methods import BotMethods
from chatlane_devkit.platforms.telegram.people import People
from chatlane_devkit.platforms.telegram.wire import Call, Json, RefusalError, bad_request, read_call

_LONGEST_POLL: Final = 50
_MAX_BODY: Final = 50 * 2**20
_MAX_CONNECTIONS: Final = 40


class TelegramServer:
    """A Bot API for one bot.

    Attributes:
        token: Token of the bot.
        url: Address of the server.
        world: What the platform knows.
        people: Acts for test persons.
        faults: What goes wrong from now on.
    """

    def __init__(self, token: str, username: str, *, has_privacy: bool) -> None:
        self.token = token
        self.url = ""
        self.world = World(username, has_privacy=has_privacy)
        self.people = People(self.world)
        self.faults = Faults()
        self._methods = BotMethods(self.world)

    def application(self) -> web.Application:
        """Return the application that serves the API, files and the control side."""
        application = web.Application(client_max_size=_MAX_BODY)
        application.add_routes(
            [
                web.route("*", "/bot{token}/{method}", self._serve),
                web.get("/file/bot{token}/documents/{file_id}", self._download),
                *control_routes(self.world, self.people, self.faults),
            ]
        )
        return application

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            if request.match_info["token"] != self.token:
                raise RefusalError(401, "Unauthorized")  # noqa: TRY301 - one way to refuse
            call = await read_call(request)
            chat_id = self._methods.note_call(call)
            self.faults.check(call.method, chat_id)
            result = await self._do(call)
        except RefusalError as refusal:
            return _refused(refusal)
        except (KeyError, TypeError, AttributeError) as error:
            return _refused(bad_request(f"wrong parameter: {type(error).__name__}"))
        await self.faults.until_answered(chat_id)
        if self.faults.loses_answer(call.method, chat_id) and request.transport is not None:
            request.transport.abort()
        return web.json_response({"ok": True, "result": result})

    async def _do(self, call: Call) -> object:
        updates = self.world.updates
        match call.method:
            case "getupdates":
                updates.allow(call.value("allowed_updates"))
                return await updates.poll(
                    call.number("offset") or 0,
                    call.number("limit") or 0,
                    min(call.number("timeout") or 0, _LONGEST_POLL),
                )
            case "setwebhook" | "deletewebhook":
                updates.allow(call.value("allowed_updates"))
                url = call.text("url") if call.method == "setwebhook" else None
                webhook: Json = {"url": url, "secret_token": call.text("secret_token")}
                webhook["max_connections"] = call.number("max_connections") or _MAX_CONNECTIONS
                await updates.set_webhook(
                    webhook if url else None, drops_pending=call.flag("drop_pending_updates")
                )
                return True
            case "getwebhookinfo":
                shown: Json = {"url": (updates.webhook or {}).get("url") or ""}
                shown |= {"has_custom_certificate": False, "pending_update_count": updates.waiting}
                return shown
            case method if method in self._methods.table:
                return self._methods.table[method](call)
            case _:
                raise RefusalError(404, "Not Found: method not found")

    async def _download(self, request: web.Request) -> web.Response:
        if request.match_info["token"] != self.token or self.faults.is_revoked:
            return web.Response(status=401)
        try:
            stored = self.world.files.get(request.match_info["file_id"])
        except RefusalError:
            return web.Response(status=404)
        return web.Response(body=stored.content, content_type="application/octet-stream")


def _refused(refusal: RefusalError) -> web.Response:
    answer: Json = {"ok": False, "error_code": refusal.code, "description": refusal.description}
    if refusal.parameters:
        answer["parameters"] = refusal.parameters
    return web.json_response(answer, status=refusal.code)


@asynccontextmanager
async def open_telegram_server(
    *,
    username: str = "chatlane_test_bot",
    has_privacy: bool = True,
    token: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[TelegramServer]:
    """Run the emulator for the length of the block.

    Args:
        username: Name of the bot.
        has_privacy: Whether the bot gets only messages of groups that are meant for it.
        token: Token of the bot; another one for each server if it is missing.
        host: Address that it listens on.
        port: Its port; 0 takes a free port.
    """
    server = TelegramServer(
        token or f"7000000001:{token_urlsafe(24)}", username, has_privacy=has_privacy
    )
    # A bot that is killed leaves calls behind.
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        server.url = f"http://{host}:{runner.addresses[0][1]}"
        yield server
    finally:
        await server.world.updates.close()
        await runner.cleanup()


async def serve(**options: object) -> None:
    """Run the emulator until cancelled, and print its address and the token as the first line."""
    async with open_telegram_server(**options) as server:  # type: ignore[arg-type]
        print(server.url, server.token, flush=True)  # noqa: T201 - for the parent process
        await asyncio.Event().wait()
