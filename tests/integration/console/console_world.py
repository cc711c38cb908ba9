"""A console on a running service, and browsers without pages."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import httpx
from fastapi import FastAPI
from nats.aio.client import Client

from chatlane_client import AdapterClient
from chatlane_console.application import create_app, link_token_of
from chatlane_console.http.guard import CSRF_HEADER
from chatlane_console.server import listening, server_of
from chatlane_console.settings import ConsoleSettings, SignInKind
from tests.integration.client.routing import ACCOUNT, PLATFORM, said
from tests.support.eventually import eventually

PROXY: Final = {"proxy_addresses": "127.0.0.1", "sign_in": SignInKind.PROXY}
API: Final = "/api/v1"
MAX_FILE_BYTES: Final = 1_000_000
SAFE: Final = {CSRF_HEADER: "1"}


@dataclass(frozen=True)
class Received:
    """A server-sent event."""

    id: str
    name: str
    data: dict[str, Any]


@dataclass
class Stream:
    """An open event stream, and what came over it."""

    response: httpx.Response
    events: list[Received] = field(default_factory=list)

    async def read(self) -> None:
        """Read until the stream ends."""
        fields: dict[str, str] = {}
        async for line in self.response.aiter_lines():
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
            elif line == "" and fields:
                if "event" in fields:
                    data = json.loads(fields["data"])
                    self.events.append(Received(fields["id"], fields["event"], data))
                fields = {}

    def names(self) -> list[str]:
        """Return the names of all events so far."""
        return [event.name for event in self.events]

    async def until(self, name: str, times: int = 1) -> Received:
        """Return the newest event of a name, once there are that many."""
        await eventually(lambda: self.names().count(name) >= times)
        return [event for event in self.events if event.name == name][-1]


class Browser(httpx.AsyncClient):
    """A browser of one person: keeps cookies, and sends the header of the console's pages."""

    @asynccontextmanager
    async def follow(self, path: str, last_event_id: str | None = None) -> AsyncIterator[Stream]:
        """Follow an event stream for the length of the block."""
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        async with self.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            stream = Stream(response)
            reading = asyncio.create_task(stream.read())
            try:
                yield stream
            finally:
                reading.cancel()
                _ = await asyncio.gather(reading, return_exceptions=True)


class ConsoleWorld:
    """A running console."""

    def __init__(self, app: FastAPI, url: str, suffix: str = "") -> None:
        self.app = app
        self.url = url
        self.suffix = suffix

    @asynccontextmanager
    async def browser(self, **headers: str) -> AsyncIterator[Browser]:
        """Open a browser in which nobody has signed in."""
        async with Browser(base_url=self.url, headers={**SAFE, **headers}, timeout=60) as browser:
            yield browser

    @asynccontextmanager
    async def person(self, person_id: str, *groups: str) -> AsyncIterator[Browser]:
        """Open a browser behind the trusted proxy."""
        headers = {
            "x-forwarded-user": person_id + self.suffix,
            "x-forwarded-groups": ",".join(groups),
        }
        async with self.browser(**headers) as browser:
            yield browser

    @property
    def link(self) -> str:
        """Path of the local link."""
        return f"/sign-in/link?token={quote(link_token_of(self.app))}"


@asynccontextmanager
async def open_console(
    nats_url: str,
    **settings: Any,  # noqa: ANN401 - settings of the console
) -> AsyncIterator[ConsoleWorld]:
    """Serve a console for the people of the tests' account, on a free port."""
    usual = {
        "port": 0,
        "nats_url": nats_url,
        "platform": PLATFORM,
        "account": ACCOUNT,
        "operator_principal": "console-operator",
        "operator_role": "operators",
    }
    chosen = ConsoleSettings(**{**usual, **settings})
    app = create_app(chosen)
    with listening(chosen) as taken:
        server = server_of(app)
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        try:
            await eventually(lambda: server.started)
            yield ConsoleWorld(app, f"http://127.0.0.1:{taken.getsockname()[1]}")
        finally:
            server.should_exit = True
            async with asyncio.timeout(timedelta(seconds=60).total_seconds()):
                await serving


async def write(client: Client, text: str, chat: str) -> None:
    """Let a person write in a chat of the tests' account."""
    await AdapterClient(client, platform=PLATFORM, account=ACCOUNT).publish(said(text, chat=chat))
