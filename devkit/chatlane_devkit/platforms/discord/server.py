"""An emulated Discord on a port of this machine."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from time import monotonic

from aiohttp import web

from chatlane_devkit.platforms.discord.gateway import Gateway
from chatlane_devkit.platforms.discord.rest import Faults, RestApi
from chatlane_devkit.platforms.discord.world import Channel, World


class DiscordServer:
    """Gateway and REST API for the bot of one token.

    Attributes:
        token: The token that is accepted; another value revokes it.
        api_url: Base of the REST API.
        world: What people see and do.
        gateway: The connections, and their faults.
        uploads: Names and contents of the files that the bot sent.
    """

    def __init__(self) -> None:
        self.token = ""
        self.api_url = ""
        self.gateway = Gateway(self._is_token)
        self.world = World(self.gateway.tell)
        self.gateway.world = self.world
        # Clients read the id of the bot from its token.
        self.token = f"{b64encode(self.world.bot.id.encode()).decode()}.test.{token_hex(16)}"
        self._api = RestApi(self.world, self.gateway, self._is_token)
        self.uploads = self._api.uploads

    @property
    def faults(self) -> Faults:
        """Return the faults of the REST API."""
        return self._api.faults

    async def revoke(self) -> None:
        """Revoke the token; connections and sessions end."""
        self.token = ""
        await self.gateway.close(4004)
        self.gateway.sessions.clear()

    def limit(self, seconds: float, channel: Channel | None = None) -> None:
        """Refuse calls with 429 for so long, for a channel or for the whole account."""
        until = monotonic() + seconds
        if channel is None:
            self.faults.limited_until = until
        else:
            channel.limited_until = until

    def application(self) -> web.Application:
        """Return the application that serves the requests."""
        application = web.Application(client_max_size=2**26)
        application.add_routes([*self._api.routes(), web.get("/gateway/", self.gateway.serve)])
        return application

    def _is_token(self, token: str) -> bool:
        return bool(self.token) and token == self.token


@asynccontextmanager
async def open_discord() -> AsyncIterator[DiscordServer]:
    """Run an emulated Discord for the length of the block."""
    server = DiscordServer()
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        server.api_url = f"http://127.0.0.1:{port}/api/v10"
        server.gateway.url = f"ws://127.0.0.1:{port}/gateway/"
        yield server
    finally:
        server.gateway.drop()
        for channel in server.world.channels.values():
            channel.answers.set()
        await runner.cleanup()
