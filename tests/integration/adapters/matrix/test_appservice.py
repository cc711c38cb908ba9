"""Two accounts of an application service on a real homeserver: each answers its own people."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from aiohttp import ClientError, ClientSession, web

from chatlane_adapters.matrix.appservice.registration import load_registration
from chatlane_client import Turn
from chatlane_devkit.platforms.matrix.homeserver import SERVER_NAME, Homeserver
from chatlane_devkit.platforms.matrix.person import Person, open_person
from chatlane_servers.embedded import free_port, open_nats
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import open_adapter_stage
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database
from tests.support.servers.nats_users import with_keys
from tests.support.service.processes import Process

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

BOT: Final = f"@chatlane_bot:{SERVER_NAME}"
SUPPORT: Final = f"@chatlane_support:{SERVER_NAME}"
PATIENCE: Final = timedelta(seconds=60)


@dataclass
class TransactionGate:
    """Passes transactions on to the adapter.

    Attributes:
        adapter_url: Where the adapter takes them.
        victim: Killed after it has confirmed the message `once`; the homeserver hears of an error.
        confirmed: How often the adapter confirmed each transaction, by its path.
    """

    adapter_url: str
    victim: Process | None = None
    confirmed: Counter[str] = field(default_factory=Counter)

    async def _serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type")}
        try:
            async with (
                ClientSession(headers=headers) as session,
                session.put(f"{self.adapter_url}{request.rel_url}", data=body) as answer,
            ):
                content = await answer.read()
        except ClientError:
            return web.Response(status=HTTPStatus.BAD_GATEWAY)
        if answer.ok:
            self.confirmed[request.path] += 1
            if self.victim is not None and b'"body":"once"' in body:
                await self.victim.kill()
                self.victim = None
                return web.Response(status=HTTPStatus.BAD_GATEWAY)
        return web.Response(status=answer.status, body=content, content_type="application/json")

    @asynccontextmanager
    async def opened(self, url: str) -> AsyncIterator[None]:
        """Listen at an address for the length of the block."""
        application = web.Application()
        application.router.add_put("/{path:.*}", self._serve)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", urlsplit(url).port).start()
            yield
        finally:
            await runner.cleanup()


async def until_said(person: Person, room: str, account: str, *texts: str) -> None:
    """Wait until an account has said this in a room, and nothing else."""

    async def has_said() -> bool:
        return await person.said(room, account) == list(texts)

    await eventually(has_said, PATIENCE)


async def until_joined(person: Person, room: str, *accounts: str) -> None:
    async def have_joined() -> bool:
        return {*accounts} <= await person.members(room)

    await eventually(have_joined, PATIENCE)


@pytest.mark.slow
async def test_each_account_answers_its_people_with_its_rights_once_also_after_a_kill(
    homeserver: Homeserver,
    registration: Path,
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path: Path,
) -> None:
    heard: list[str] = []

    async def answer(turn: Turn) -> str:
        heard.append(text := f"{turn.source.account} heard {turn.text}")
        return text

    users: dict[str, dict[str, object]] = {
        "router": {"role": "router"},
        "main-worker": {"role": "worker", "agent": "main"},
        "matrix-bot": {"role": "adapter", "account": "matrix/bot"},
        "matrix-support": {"role": "adapter", "account": "matrix/support"},
    }
    keys, config = with_keys(tmp_path / "keys", users)
    port = free_port()
    gate = TransactionGate(f"http://127.0.0.1:{port}")
    async with (
        gate.opened(load_registration(registration).url),
        open_person(homeserver, f"carol-{uuid4().hex}") as carol,
        open_person(homeserver, f"dave-{uuid4().hex}") as dave,
        open_database(postgres_server.url, template_database) as name,
        open_nats(tmp_path / "nats", extra_config=config) as nats,
        open_adapter_stage(
            tmp_path,
            nats.url,
            postgres_server.dsn(name),
            platform="matrix",
            command="matrix-appservice",
            variables={
                "account": "bot,support",
                "principal": "matrix-{account}",
                "nkey_seed_file": str(keys.seed_file("matrix-{account}")),
                "homeserver": homeserver.url,
                "registration": str(registration),
                "listen_port": str(port),
            },
            settings="[platforms.matrix.accounts.support]\n",
            answer=answer,
            keys=keys,
        ) as stage,
    ):
        await stage.adapter.until_logged("requests_served")
        of_carol = await carol.open_room(BOT, is_direct=True)
        await carol.say(of_carol, "early")
        of_dave = await dave.open_room(SUPPORT, is_direct=True)
        await until_said(carol, of_carol, BOT, "bot heard early")
        await until_joined(dave, of_dave, SUPPORT)
        await dave.say(of_dave, "hello")
        await until_said(dave, of_dave, SUPPORT, "support heard hello")

        group = await carol.open_room(BOT, SUPPORT, dave.account.user_id)
        await until_joined(carol, group, BOT, SUPPORT)
        await carol.say(group, "help", **{"m.mentions": {"user_ids": [SUPPORT]}})
        await until_said(carol, group, SUPPORT, "support heard help")

        gate.victim = stage.adapter
        await carol.say(of_carol, "once")
        await eventually(lambda: gate.victim is None, PATIENCE)
        stage.adapter.start()
        await dave.say(of_dave, "again")
        await until_said(dave, of_dave, SUPPORT, "support heard hello", "support heard again")
        await until_said(carol, of_carol, BOT, "bot heard early", "bot heard once")
        assert await carol.said(group, BOT) == []
        assert 2 in gate.confirmed.values(), "the transaction was repeated"
        assert sorted(heard) == sorted(
            [
                *("bot heard early", "support heard hello", "support heard help"),
                *("bot heard once", "support heard again"),
            ]
        )
        await stage.adapter.stop()
        assert stage.adapter.exit_code == 0
        log = nats.log_path.read_text("utf-8")
        assert [line for line in log.splitlines() if "iolation" in line] == []
