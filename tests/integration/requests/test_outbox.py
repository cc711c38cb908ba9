"""Messages that an agent sends outside a turn: where they go, and that they go there once.

Real decisions on a real database; only NATS is not there.
"""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.domain.catalog import Catalog, Destination, HomeChannel
from chatlane.observability.metrics import Metrics
from chatlane.requests.change_service import ChangeService
from chatlane_schemas import decode
from chatlane_schemas.session_api.outbox import OutboxReply
from chatlane_schemas.session_api.sessions import ApiErrorCode
from tests.integration.requests.test_session_changes import ANN, BEN, Caller, request
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import SLOTS, Kernel, catalog, event

pytestmark = pytest.mark.integration

EVERYWHERE: frozenset[Destination] = frozenset({"origin", "home", "chat"})
TEAM = HomeChannel("-100900", "Team", kind="group")


class Outbox:
    """Sends as the worker of the agent `main`."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        service = ChangeService(kernel.store, kernel.writer, kernel.catalog, SLOTS)
        self._handle = RequestHandler(Metrics()).changes(service.change)["outbox.send"]

    async def ask(self, session_id: UUID, **fields: Any) -> OutboxReply:  # noqa: ANN401 - any field of a request
        body = request(session_id, message={"text": "done"}) | fields
        reply = await self._handle(ApiRequest("worker", json.dumps(body).encode()))
        return decode(OutboxReply, reply)

    async def sent(self, session_id: UUID, **fields: Any) -> OutboxReply:  # noqa: ANN401 - any field of a request
        reply = await self.ask(session_id, **fields)
        assert reply.error is None
        return reply

    async def refused(self, session_id: UUID, **fields: Any) -> ApiErrorCode:  # noqa: ANN401 - any field of a request
        before = await self._kernel.value("SELECT count(*) FROM outbox")
        sessions = await self._kernel.value("SELECT count(*) FROM sessions")
        reply = await self.ask(session_id, **fields)
        assert reply.error is not None
        assert await self._kernel.value("SELECT count(*) FROM outbox") == before
        assert await self._kernel.value("SELECT count(*) FROM sessions") == sessions
        return reply.error.code

    def addresses(self) -> list[tuple[str, str, str]]:
        """Return account, chat and text of what was sent, in order."""
        return [
            (body["target"]["account"], body["target"]["chat"]["id"], body["text"])
            for body in self._kernel.relay.bodies("OUTBOUND")
            if body.get("turn_id") is None
        ]


def declared(send_to: frozenset[Destination] = EVERYWHERE) -> Catalog:
    """Return settings in which the agent may send to some destinations."""
    known = catalog()
    telegram = known.platforms["telegram"]
    accounts = dict(telegram.accounts) | {
        name: replace(account, home=TEAM)
        for name, account in telegram.accounts.items()
        if name == "bot"
    }
    return replace(
        known,
        platforms=dict(known.platforms) | {"telegram": replace(telegram, accounts=accounts)},
        agents=dict(known.agents) | {"main": replace(known.agents["main"], send_to=send_to)},
    )


@pytest.fixture
async def world(kernel_with: KernelWith) -> Kernel:
    return await kernel_with(declared())


@pytest.mark.parametrize("to", ["origin", "session", "telegram:701", "telegram/bot:701"])
async def test_a_message_goes_to_the_chat_of_the_session_and_into_its_transcript(
    world: Kernel, to: str
) -> None:
    outbox = Outbox(world)
    session = (await world.say(event(**ANN, mid="1", text="remind me"))).session
    await world.run_all()

    reply = await outbox.sent(session, to=to)

    assert reply.session_id == session
    assert outbox.addresses() == [("bot", "701", "done")]
    assert await world.said(session) == ["remind me", "ok", "done"]
    sent = world.relay.bodies("OUTBOUND")[-1]
    assert (sent["id"], sent["out_seq"], sent.get("reply_to")) == (str(reply.message_id), 2, None)
    assert await world.value("SELECT count(*) FROM deliveries") == 2


async def test_a_repeated_request_sends_once(world: Kernel) -> None:
    outbox = Outbox(world)
    session = (await world.say(event(**ANN, mid="1", text="remind me"))).session
    name = uuid4().hex
    first = await outbox.sent(session, id=name)
    assert (await outbox.sent(session, id=name)).message_id == first.message_id
    assert len(outbox.addresses()) == 1
    other = await outbox.ask(session, id=name, message={"text": "another"})
    assert other.error is not None
    assert other.error.code is ApiErrorCode.CONFLICT


async def test_messages_of_a_chat_are_in_order_also_during_a_turn(world: Kernel) -> None:
    outbox = Outbox(world)
    session = (await world.say(event(**ANN, mid="1", text="remind me"))).session
    for number in range(3):
        await outbox.sent(session, message={"text": f"{number}"})
    await world.run_all()
    bodies = world.relay.bodies("OUTBOUND")
    assert [body["text"] for body in bodies] == ["0", "1", "2", "ok"]
    assert [body["out_seq"] for body in bodies] == [1, 2, 3, 4]


async def test_the_origin_is_the_present_session_of_the_chat(world: Kernel) -> None:
    outbox, caller = Outbox(world), Caller(world)
    first = (await world.say(event(**ANN, mid="1", text="remind me"))).session
    await world.run_all()
    await caller.changed("reset", first)
    second = (await world.say(event(**ANN, mid="2", text="something else"))).session
    assert second != first

    assert await outbox.refused(first, to="session") is ApiErrorCode.CONFLICT
    assert (await outbox.sent(first)).session_id == second
    assert outbox.addresses() == [("bot", "701", "done")]


async def test_the_origin_gets_a_session_if_its_last_one_has_ended(world: Kernel) -> None:
    outbox, caller = Outbox(world), Caller(world)
    first = (await world.say(event(**ANN, mid="1", text="remind me"))).session
    await world.run_all()
    await caller.changed("end", first)

    opened = (await outbox.sent(first)).session_id

    assert opened not in {None, first}
    assert outbox.addresses() == [("bot", "701", "done")]
    answer = await world.say(event(**ANN, mid="2", text="thanks"))
    assert answer.session == opened
    owners = await world.fetch("SELECT DISTINCT owner FROM sessions")
    assert [row["owner"] is None for row in owners] == [False]


@pytest.mark.parametrize("to", ["telegram", "telegram/bot"])
async def test_a_home_channel_gets_a_session_of_its_own(world: Kernel, to: str) -> None:
    outbox = Outbox(world)
    session = (await world.say(event(**ANN, mid="1", text="every morning"))).session

    opened = (await outbox.sent(session, to=to)).session_id
    again = (await outbox.sent(session, to=to)).session_id

    assert opened is not None
    assert opened == again != session
    assert outbox.addresses() == [("bot", "-100900", "done")] * 2
    assert await world.said(opened) == ["done", "done"]


async def test_another_chat_is_reached_by_its_id(world: Kernel) -> None:
    outbox = Outbox(world)
    session = (await world.say(event(**ANN, mid="1", text="tell Ben"))).session
    bens = (await world.say(event(**BEN, mid="2", text="hi"))).session
    assert (await outbox.sent(session, to=f"telegram:{BEN['chat']}")).session_id == bens


@pytest.mark.parametrize(
    "to",
    [
        "telegram:999",
        "telegram/nobody:701",
        "telegram/nobody",
        "nowhere",
        "nowhere:1",
        "slack:701",
        "telegram:",
    ],
)
async def test_a_destination_that_means_no_chat_is_refused(world: Kernel, to: str) -> None:
    outbox = Outbox(world)
    session = (await world.say(event(**ANN, mid="1", text="x"))).session
    assert await outbox.refused(session, to=to) in {ApiErrorCode.INVALID, ApiErrorCode.NOT_FOUND}


@pytest.mark.parametrize(
    ("to", "kind"),
    [
        ("origin", "origin"),
        ("session", "origin"),
        ("telegram", "home"),
        ("telegram/bot", "home"),
        ("telegram:701", "chat"),
    ],
)
async def test_an_agent_sends_only_where_the_settings_allow(
    kernel_with: KernelWith, to: str, kind: Destination
) -> None:
    world = await kernel_with(declared(EVERYWHERE - {kind}))
    session = (await world.say(event(**ANN, mid="1", text="x"))).session
    assert await Outbox(world).refused(session, to=to) is ApiErrorCode.INVALID


@pytest.mark.parametrize("message", [{"text": " \u200b"}, {}, {"text": None, "buttons": []}])
async def test_a_message_that_says_nothing_is_refused(
    world: Kernel, message: dict[str, Any]
) -> None:
    session = (await world.say(event(**ANN, mid="1", text="x"))).session
    assert await Outbox(world).refused(session, message=message) is ApiErrorCode.INVALID


async def test_a_session_that_does_not_exist_sends_nothing(world: Kernel) -> None:
    assert await Outbox(world).refused(uuid4()) is ApiErrorCode.NOT_FOUND
