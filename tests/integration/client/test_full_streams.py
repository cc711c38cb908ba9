"""A stream without room loses nothing: what leads to it waits, and adapters are told so."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import httpx
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane.app.state import App
from chatlane.ingest import log_trimmer
from chatlane.nats.jetstream import JetStream
from chatlane.postgres.pool import open_store
from chatlane_client import AdapterClient, RetryLaterError, Turn, open_connection
from chatlane_schemas import InboundEvent
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import ACCOUNT, PLATFORM, Chats, delivering, said, working
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

ROOM: Final = 20_000
CHATS: Final = 60
LONG: Final = "x" * 500
DESK_PROFILE: Final = "desk"
# As nats-server answers a publish that finds its queue of a stream full.
TOO_MANY: Final = {
    "error": {"code": 429, "err_code": 10167, "description": "too many requests"},
    "stream": "INBOUND",
    "seq": 0,
}


@pytest.fixture(autouse=True)
def no_share_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that alone fills ROUTED would get nothing more."""
    monkeypatch.setattr(log_trimmer, "_EVERY", timedelta(hours=1))


@pytest.fixture
async def router(bus_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[App]:
    async with real_router(tmp_path, bus_url, database_url, outbox_rows=0) as opened:
        yield opened


@pytest.fixture
async def roomy_router(bus_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[App]:
    """A router that keeps some rows in the database for a full stream."""
    async with real_router(tmp_path, bus_url, database_url, outbox_rows=100) as opened:
        yield opened


async def limit(client: Client, stream: StreamName, max_bytes: int) -> None:
    jetstream = JetStream(client)
    config = (await jetstream.get_stream(stream)).config
    await jetstream.request(f"STREAM.UPDATE.{stream}", {**config, "max_bytes": max_bytes})


def shown(router: App, name: str, **labels: str) -> float:
    return router.metrics.registry.get_sample_value(name, labels) or 0


def held_back(router: App, stream: StreamName) -> float:
    return shown(router, "chatlane_held_back_total", stream=str(stream))


async def complaints(router: App) -> list[str]:
    async with httpx.AsyncClient(timeout=5) as client:
        answer = await client.get(f"http://127.0.0.1:{router.http_port}/readyz")
    told = answer.json()
    assert told["state"] == ("degraded" if told["complaints"] else "ready")
    # The test changes streams, which is seen as well.
    return [one for one in told["complaints"] if one != "topology"]


def to_desk(chat: str) -> InboundEvent:
    return said(LONG, chat=chat).model_copy(update={"profile": DESK_PROFILE})


async def fill(client: Client, router: App, adapter: AdapterClient) -> int:
    """Let chats write until ROUTED has no room for the last of them; return how many did."""

    async def is_decided() -> bool:
        stored = await client.jetstream().stream_info(StreamName.ROUTED)
        assert router.relay is not None
        return bool(router.relay.full_streams) or stored.state.messages == written

    written = 0
    while not (router.relay and router.relay.full_streams):
        await adapter.publish(to_desk(f"desk {written}"))
        written += 1
        await eventually(is_decided)
    return written


async def all_heard(chats: Chats, texts: list[str]) -> None:
    """Wait until every chat was told these, in this order, however many answers that took."""
    expected = "\n".join(texts)

    def check() -> bool:
        told = [[it or "" for it in chats.texts(str(chat))] for chat in range(CHATS)]
        assert {"\n".join(its) for its in told} == {expected}
        return True

    await eventually(check, timedelta(seconds=60))


async def echo(turn: Turn) -> str:
    return f"{turn.text}"


def adapter_of(client: Client) -> AdapterClient:
    return AdapterClient(client, platform=PLATFORM, account=ACCOUNT)


async def test_answers_that_find_no_room_stay_in_their_log(client: Client, router: App) -> None:
    await limit(client, StreamName.OUTBOUND, ROOM)
    adapter, chats = adapter_of(client), Chats()
    async with working(client, echo, slots=8):
        for number in range(2):
            for chat in range(CHATS):
                await adapter.publish(said(f"{number} {LONG}", chat=str(chat)))
        await eventually(lambda: held_back(router, StreamName.OUTBOUND) > 0)
        assert router.intake is not None
        waiting = [feed for feed in router.intake.feeds if feed.partition.log == "results"]
        assert any(feed.available(float("inf")) for feed in waiting)
        assert await complaints(router) == ["stream_full"]

        await limit(client, StreamName.OUTBOUND, 2**24)
        async with delivering(client, chats.deliver):
            expected = [f"{number} {LONG}" for number in range(2)]

            await all_heard(chats, expected)
    await eventually(lambda: router.relay and not router.relay.full_streams)
    assert await complaints(router) == []


async def test_messages_whose_agent_has_no_room_wait_and_others_do_not(
    client: Client, router: App
) -> None:
    await limit(client, StreamName.ROUTED, ROOM)
    adapter, chats = adapter_of(client), Chats()
    async with working(client, echo), delivering(client, chats.deliver):
        routed = await fill(client, router, adapter)
        # One chat has more to say; most others are in partitions where nothing waits for room.
        await adapter.publish(to_desk("desk 0"))
        await eventually(lambda: held_back(router, StreamName.ROUTED) > 0)
        for chat in range(CHATS):
            await adapter.publish(said("hello", chat=str(chat)))
        await eventually(lambda: chats.messages)
        await limit(client, StreamName.ROUTED, 2**24)
        await all_heard(chats, ["hello"])

    async def all_are_routed() -> bool:
        stored = await client.jetstream().stream_info(StreamName.ROUTED)
        assert stored.state.messages == routed + 1
        return True

    await eventually(all_are_routed)


async def test_a_full_stream_costs_no_other_until_much_waits_for_it(
    client: Client, roomy_router: App
) -> None:
    """Not even where both lead through one partition."""
    router = roomy_router
    await limit(client, StreamName.ROUTED, ROOM)
    adapter, chats = adapter_of(client), Chats()
    async with working(client, echo, slots=8), delivering(client, chats.deliver):
        routed = await fill(client, router, adapter)
        for chat in range(CHATS):
            await adapter.publish(to_desk(f"{chat}"))
            await adapter.publish(said("hello", chat=f"{chat}"))
        await all_heard(chats, ["hello"])
        assert held_back(router, StreamName.ROUTED) == 0
        assert await complaints(router) == ["stream_full"]

        # More than may wait is left in the log.
        for chat in range(2 * CHATS):
            await adapter.publish(to_desk(f"more {chat}"))
        await eventually(lambda: held_back(router, StreamName.ROUTED) > 0)

        await limit(client, StreamName.ROUTED, 2**24)

    async def all_are_routed() -> bool:
        stored = await client.jetstream().stream_info(StreamName.ROUTED)
        assert stored.state.messages == routed + 3 * CHATS
        return True

    await eventually(all_are_routed, timedelta(seconds=30))


@pytest.mark.slow
async def test_results_that_find_no_room_stay_with_their_workers(
    client: Client, router: App, caplog: pytest.LogCaptureFixture
) -> None:
    def renewed() -> float:
        return shown(router, "chatlane_turn_renewals_total", agent="main", status="renewed")

    await limit(client, StreamName.RESULTS, 3_000)
    adapter, chats = adapter_of(client), Chats()
    async with working(client, echo, slots=4), delivering(client, chats.deliver):
        for chat in range(8):
            await adapter.publish(said(LONG, chat=str(chat)))
        await eventually(lambda: any(line.startswith("stream_full: ") for line in caplog.messages))
        # So long that no lease was spared this, and no turn lost by it.
        renewals = renewed()
        await eventually(lambda: renewed() >= renewals + 16)
        assert shown(router, "chatlane_turns_expired_total", agent="main") == 0
        assert len(chats.messages) < 8

        await limit(client, StreamName.RESULTS, 2**24)
        await eventually(lambda: len(chats.messages) == 8)
    assert [chats.texts(str(chat)) for chat in range(8)] == [[LONG]] * 8
    assert shown(router, "chatlane_late_results_total", agent="main") == 0


async def test_a_full_stream_of_dead_letters_holds_up_nobody(
    client: Client, router: App, database_url: str
) -> None:
    await limit(client, StreamName.DEAD, 2_000)
    for number in range(30):
        await client.jetstream().publish(
            subjects.inbound(PLATFORM, ACCOUNT, f"{number:016x}"), b"not json"
        )
    async with open_store(database_url) as store, store.transaction() as connection:
        await eventually(lambda: connection.fetchval("SELECT count(*) = 30 FROM dead_letters"))
        # Neither in memory nor in the table anything waits for room there.
        await eventually(lambda: connection.fetchval("SELECT count(*) = 0 FROM outbox"))
    assert router.relay is not None
    assert router.relay.backlog == 0
    stored = await client.jetstream().stream_info(StreamName.DEAD)
    assert 0 < stored.state.messages < 30
    adapter, chats = adapter_of(client), Chats()
    async with working(client, echo), delivering(client, chats.deliver):
        await adapter.publish(said("hello"))
        await chats.until_said("hello")


async def test_an_adapter_is_told_to_try_later_while_the_log_is_full(client: Client) -> None:
    adapter = adapter_of(client)
    await limit(client, StreamName.INBOUND, 3_000)
    event = said("x" * 2_000)
    await adapter.publish(event)

    waits = []
    later = said("x" * 2_000, chat="2")
    for _ in range(3):
        with pytest.raises(RetryLaterError) as caught:
            await adapter.publish(later)
        waits.append(caught.value.after.total_seconds())
        assert caught.value.message_id == later.id
    assert 0.5 <= waits[0] <= 1
    assert 2 <= waits[2] <= 4

    await limit(client, StreamName.INBOUND, 2**24)
    assert (await adapter.publish(later)).sequence == 2
    await limit(client, StreamName.INBOUND, 5_000)
    with pytest.raises(RetryLaterError) as caught:
        await adapter.publish(said("x" * 2_000))
    assert caught.value.after <= timedelta(seconds=1)


async def test_a_server_that_takes_too_much_at_once_is_asked_again(nats_url: str) -> None:
    """Where somebody publishes more than a stream takes in, the server drops others' tries, too."""
    answers = [TOO_MANY, TOO_MANY, {"stream": "INBOUND", "seq": 7}]
    asked: list[str] = []

    async def answer(message: Msg) -> None:
        asked.append((message.headers or {}).get("Nats-Msg-Id", ""))
        await message.respond(json.dumps(answers[len(asked) - 1]).encode())

    async with open_connection(nats_url, name="test") as client:
        await client.subscribe(subjects.wildcards(subjects.INBOUND), cb=answer)
        event = said("hello", chat="1")
        stored = await AdapterClient(client, platform=PLATFORM, account=ACCOUNT).publish(event)
    assert stored.sequence == 7
    assert len(asked) == 3
    # The same id, so that it is stored once.
    [message_id] = set(asked)
    assert message_id.startswith(f"{event.id}:")
