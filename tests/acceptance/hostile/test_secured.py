"""Everything the product does, each part as its own user of NATS, over TLS, and nothing refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from nats.aio.client import Client

from chatlane.config.nats_users import new_seed
from chatlane_client import AdapterClient, Refusal, SessionApi, open_connection
from chatlane_schemas import InboundEvent, OutboundMessage, new_envelope_id
from chatlane_schemas.inbound import Chat, Sender
from chatlane_schemas.live_turns import TurnOutcome
from chatlane_schemas.session_api.people import Person
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.servers.secured_nats import SecuredNats, open_secured_nats
from tests.support.service.installation import CONFIG, Installation

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

PLATFORM, ACCOUNT = "telegram", "assistant"
PATIENCE: Final = timedelta(seconds=60)
VIOLATIONS: Final = ("Violation", "authentication error")


@dataclass
class Company:
    """A server with users, and commands and connections of each of them."""

    nats: SecuredNats
    directory: Path
    database_url: str
    port: int

    def of(self, user: str) -> Installation:
        """Return commands that connect as this user."""
        environment = self.nats.environment(f"production/{user}")
        return Installation(
            self.directory, self.nats.url, self.database_url, self.port, environment
        )

    @asynccontextmanager
    async def connected(self, user: str) -> AsyncIterator[Client]:
        """Connect as the client package does it; fail where anything was refused."""
        refused: list[Refusal] = []
        async with open_connection(
            self.nats.url,
            name=user,
            principal=user,
            nkey_seed_file=str(self.nats.seed_file(f"production/{user}")),
            tls_ca_file=str(self.nats.ca_file),
            on_refused=refused.append,
        ) as client:
            yield client
        assert refused == []

    def violations(self) -> list[str]:
        """Return what the server says it refused."""
        log = self.nats.server.log_path.read_text("utf-8")
        return [line for line in log.splitlines() if any(word in line for word in VIOLATIONS)]


@pytest.fixture
async def company(tmp_path: Path, database_url: str) -> AsyncIterator[Company]:
    """What `admin apply` made as the provisioner, a router, and a worker of the agent main."""
    platform = f"[platforms.{PLATFORM}.accounts.{ACCOUNT}]\n"
    (tmp_path / "chatlane.toml").write_text(CONFIG + platform)
    async with open_secured_nats() as nats:
        its = Company(nats, tmp_path, database_url, free_port())
        provisioner, router, worker = map(its.of, ("provisioner", "router", "main-worker"))
        assert "INBOUND" in await provisioner.done("admin", "apply")
        assert "as declared" in await provisioner.done("admin", "verify")
        async with router.running("router"), worker.running("echo-worker"):
            await eventually(router.is_ready, PATIENCE)
            yield its
        assert its.violations() == []


def event(text: str, profile: str | None = None) -> InboundEvent:
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        message_id=new_envelope_id(),
        platform=PLATFORM,
        account=ACCOUNT,
        chat=Chat(id="ann", kind="dm"),
        sender=Sender(id="ann", name="Ann"),
        sent_at=datetime.now(UTC),
        text=text,
        profile=profile,
    )


@asynccontextmanager
async def delivered(client: Client) -> AsyncIterator[tuple[AdapterClient, list[str]]]:
    """Let an adapter publish and deliver; what it was given to say is in the list."""
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    said: list[str] = []

    async def say(message: OutboundMessage) -> None:
        said.append(message.text or "")

    delivering = asyncio.create_task(adapter.deliver(say))
    try:
        yield adapter, said
    finally:
        adapter.stop()
        await delivering


@pytest.mark.slow
async def test_everything_is_done_by_users_of_their_own(company: Company) -> None:
    operator = company.of("operator")
    async with (
        company.connected("telegram-assistant") as client,
        delivered(client) as (adapter, said),
    ):
        await adapter.publish(event("hello"))
        await eventually(lambda: said == ["#1 heard: hello"], PATIENCE)
        [session] = map(json.loads, (await operator.done("sessions", "--json")).splitlines())
        assert "hello" in await operator.done("sessions", "show", session["id"])
        await operator.done("sessions", "title", session["id"], "talk")

        async with company.connected("web") as web:
            ann = Person(platform=PLATFORM, account=ACCOUNT, id="ann")
            sessions = SessionApi(web, principal="web", acting_for=ann)
            assert [its.title async for its in sessions.list_all()] == ["talk"]
        of_ann = ("--person", f"{PLATFORM}/{ACCOUNT}/ann", "--json")
        [listed] = (await operator.done("sessions", "list", *of_ann)).splitlines()
        assert json.loads(listed)["title"] == "talk"

        async with company.connected("web") as web:
            sessions = SessionApi(web, principal="web", acting_for=ann)
            opened = await sessions.create(origin="page")
            # It also hears the end of a turn whose session has no chat.
            submission = await sessions.submit(opened.id, "from a page", wait=True)
            assert submission.outcome == TurnOutcome.OK
            assert submission.answer is not None

        await operator.done("sessions", "reset", session["session_key"])
        await adapter.publish(event("again"))
        await eventually(lambda: "#1 heard: again" in said, PATIENCE)
        await operator.done("sessions", "remove", session["id"], "--yes")

        await adapter.publish(event("for nobody", profile="nobody"))
        await eventually(partial(is_dead_letter, company.of("observer")), PATIENCE)
        retried = await operator.done("dead-letters", "retry", "--reason", "unknown_profile")
        assert " retried" in retried


async def is_dead_letter(observer: Installation) -> bool:
    return "unknown_profile" in await observer.done(
        "dead-letters", "list", "--from-stream", "--json"
    )


async def test_a_terminal_is_told_that_it_has_no_role(tmp_path: Path) -> None:
    async with open_secured_nats() as nats:
        (tmp_path / "chatlane.toml").write_text(CONFIG)
        environment = nats.environment("production/telegram-assistant")
        installation = Installation(tmp_path, nats.url, "", free_port(), environment)
        ended = await installation.run("chat", "--as", "ann", typed="hello\n")
        assert ended.code == 1
        assert "an ephemeral consumer on OUTBOUND, which no role may create" in ended.err


async def test_who_is_not_let_in_is_told_so(tmp_path: Path) -> None:
    async with open_secured_nats() as nats:
        environment = nats.environment("production/operator")
        stranger = tmp_path / "stranger.nk"
        stranger.write_bytes(new_seed())
        environment["CHATLANE_NATS__NKEY_SEED_FILE"] = str(stranger)
        (tmp_path / "chatlane.toml").write_text(CONFIG)
        ended = await Installation(tmp_path, nats.url, "", free_port(), environment).run("sessions")
        assert ended.code == 1
        assert "refuses the login: check nats.nkey_seed_file" in ended.err
        assert "authentication error" in nats.server.log_path.read_text("utf-8")
