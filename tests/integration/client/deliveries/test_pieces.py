"""C84: a long answer in pieces, over refusals and restarts of the adapter, with a real router."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from nats.aio.client import Client

from chatlane.app.state import App
from chatlane_client import (
    AdapterClient,
    Piece,
    RetryAfter,
    SessionApi,
    SessionNotFoundError,
    TextLimit,
    open_connection,
)
from chatlane_client.delivery.pieces import split_text
from chatlane_schemas import (
    DeliveryState,
    OutboundMessage,
    Person,
    decode,
    encode,
    new_envelope_id,
)
from chatlane_schemas.session_api.deliveries import DeliveryFind, DeliveryReply
from chatlane_schemas.session_api.sessions import ApiErrorCode
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import outbound_durable
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import ACCOUNT, PLATFORM, running, said, working
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

LIMIT = TextLimit(4096, "utf16")
FACE = "\U0001f600"
ANSWER = (
    f"Here it is {FACE}.\n\n```python\n" + f"print('{FACE}')  # a line\n" * 800 + "```\n\nDone."
)
COUNT = len(list(split_text(ANSWER, LIMIT)))
LONG = timedelta(seconds=30)


@pytest.fixture
async def app(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[App]:
    async with real_router(tmp_path, nats_url, database_url) as running_app:
        yield running_app


@pytest.fixture
async def client(app: App, nats_url: str) -> AsyncIterator[Client]:
    assert app.intake is not None
    async with open_connection(nats_url, name="test") as connection:
        yield connection


class Platform:
    """A platform that takes pieces, and at a moment of the test's choice never answers again."""

    def __init__(self, *, stops_at: int | None = None, takes_last: bool = True) -> None:
        self.pieces: list[Piece] = []
        self.stops_at = stops_at
        self.takes_last = takes_last
        self.refusals: list[Exception] = []
        self.is_stuck = asyncio.Event()

    async def send(self, piece: Piece) -> str:
        if piece.number == 2 and self.refusals:
            raise self.refusals.pop()
        if piece.number == self.stops_at:
            if self.takes_last:
                self.pieces.append(piece)
            self.is_stuck.set()
            await asyncio.Event().wait()
        self.pieces.append(piece)
        return str(100 + piece.number)

    @property
    def numbers(self) -> list[int]:
        return [piece.number for piece in self.pieces]


async def ask(client: Client) -> None:
    """Let a person ask for the long answer, and wait until it is on its way."""
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)

    async def answer(turn: object) -> str:
        assert turn
        return ANSWER

    await adapter.publish(said("tell me"))
    async with working(client, answer):
        jetstream = client.jetstream()

        async def is_answered() -> bool:
            state = (await jetstream.stream_info("OUTBOUND")).state
            return state.messages > 0

        await eventually(is_answered, LONG)


def adapter_of(client: Client, platform: Platform) -> Any:  # noqa: ANN401 - a coroutine
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    return adapter.deliver_pieces(platform.send, limit=LIMIT)


async def row(app: App) -> dict[str, Any]:
    async with app.store.transaction() as connection:
        found = await connection.fetchrow("SELECT * FROM deliveries")
        assert found is not None
        return dict(found.items())


async def has_state(app: App, state: str, sent: int) -> bool:
    found = await row(app)
    assert (found["state"], found["sent"]) == (state, sent)
    return True


async def test_c84_each_piece_arrives_once_and_the_service_knows_its_id(
    app: App, client: Client
) -> None:
    platform = Platform()
    platform.refusals = [RetryAfter(0.3)]
    await ask(client)
    async with running(adapter_of(client, platform)):
        await eventually(lambda: has_state(app, "delivered", COUNT), LONG)
    count = platform.pieces[0].count
    assert count == COUNT >= 5
    assert platform.numbers == list(range(count))
    assert all(LIMIT.measure(piece.text or "") <= LIMIT.size for piece in platform.pieces)
    assert all((piece.text or "").count("```") % 2 == 0 for piece in platform.pieces)
    found = await row(app)
    assert found["pieces"] == count
    assert found["platform_message_ids"] == str([str(100 + n) for n in range(count)]).replace(
        "'", '"'
    )


@pytest.mark.parametrize(
    "stops_at", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in (0, 3))]
)
async def test_c84_a_restart_goes_on_at_the_piece_that_is_missing(
    app: App, client: Client, stops_at: int
) -> None:
    """The one piece whose sending was cut off is tried again, and marked."""
    before = Platform(stops_at=stops_at, takes_last=False)
    await ask(client)
    async with running(adapter_of(client, before)):
        await before.is_stuck.wait()
    after = Platform()
    async with running(adapter_of(client, after)):
        await eventually(lambda: has_state(app, "delivered", COUNT), LONG)
    count = COUNT
    assert before.numbers == list(range(stops_at))
    assert after.numbers == list(range(stops_at, count))
    assert [piece.may_be_sent for piece in after.pieces] == [True] + [False] * (
        count - stops_at - 1
    )
    assert {piece.key for piece in (*before.pieces, *after.pieces)} == {
        f"{after.pieces[0].message.id}-{number}" for number in range(count)
    }


async def test_c84_the_service_knows_what_is_unknown_after_a_crash(
    app: App, client: Client
) -> None:
    before = Platform(stops_at=2)
    await ask(client)
    async with running(adapter_of(client, before)):
        await before.is_stuck.wait()
    await eventually(lambda: has_state(app, "handed", 2))
    after = Platform(stops_at=2)
    async with running(adapter_of(client, after)):
        await after.is_stuck.wait()
        await eventually(lambda: has_state(app, "unknown", 2))
        assert after.pieces[0].may_be_sent


async def forget_deliveries(client: Client) -> None:
    """Let the server forget which messages it has given to an adapter, as one that is killed does."""
    jetstream, durable = client.jetstream(), outbound_durable(PLATFORM, ACCOUNT)
    info = await jetstream.consumer_info("OUTBOUND", durable)
    await jetstream.delete_consumer("OUTBOUND", durable)
    await jetstream.add_consumer("OUTBOUND", info.config)


async def test_what_was_delivered_is_not_sent_again_by_a_server_that_forgot_it(
    app: App, client: Client
) -> None:
    platform = Platform()
    await ask(client)
    async with running(adapter_of(client, platform)):
        await eventually(lambda: has_state(app, "delivered", COUNT), LONG)
    await forget_deliveries(client)
    again = Platform()
    async with running(adapter_of(client, again)):
        await eventually(lambda: _is_done(client), LONG)
    assert again.pieces == []


async def test_what_a_killed_process_had_in_hand_is_marked_by_a_server_that_forgot_it(
    app: App, client: Client
) -> None:
    before = Platform(stops_at=0)
    await ask(client)
    async with running(adapter_of(client, before)):
        await before.is_stuck.wait()
    await forget_deliveries(client)
    after = Platform()
    async with running(adapter_of(client, after)):
        await eventually(lambda: has_state(app, "delivered", COUNT), LONG)
    assert [piece.may_be_sent for piece in after.pieces] == [True] + [False] * (COUNT - 1)


async def test_a_piece_whose_answer_was_lost_is_marked_when_it_is_tried_again(
    app: App, client: Client
) -> None:
    platform = Platform()
    platform.refusals = [ConnectionResetError()]
    async with running(adapter_of(client, platform)):
        await ask(client)
        await eventually(lambda: has_state(app, "delivered", COUNT), LONG)
    marked = [piece.number for piece in platform.pieces if piece.may_be_sent]
    assert marked == [2]


async def test_c84_what_was_delivered_is_not_sent_again_when_only_its_acknowledgement_was_lost(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        await asyncio.Event().wait()

    platform = Platform()
    await ask(client)
    with monkeypatch.context() as patched:
        patched.setattr("chatlane_client.delivery.chat_queues.ChatQueues.acknowledge", lost)
        async with running(adapter_of(client, platform)):
            await eventually(lambda: has_state(app, "delivered", COUNT), LONG)
    again = Platform()
    async with running(adapter_of(client, again)):
        await eventually(lambda: _is_done(client), LONG)
    assert again.pieces == []


async def _is_done(client: Client) -> bool:
    info = await client.jetstream().consumer_info("OUTBOUND", f"{PLATFORM}={ACCOUNT}")
    return bool(info.num_ack_pending == 0 and info.num_pending == 0)


async def test_whole_messages_are_remembered_over_a_restart_as_well(
    app: App, client: Client
) -> None:
    taken: list[OutboundMessage] = []

    async def send(message: OutboundMessage) -> tuple[str, ...]:
        taken.append(message)
        return ("7", "8")

    await ask(client)
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    async with running(adapter.deliver(send)):
        await eventually(lambda: has_state(app, "delivered", 2), LONG)
    found = await row(app)
    assert found["message_id"] == UUID(taken[0].id)
    assert found["platform_message_ids"] == '["7", "8"]'


async def test_the_session_api_shows_what_became_of_messages(app: App, client: Client) -> None:
    await ask(client)
    sessions = SessionApi(client, principal="tests")
    session_id = (await row(app))["session_id"]
    [waiting] = await sessions.deliveries(session_id)
    assert (waiting.state, waiting.sent) == (DeliveryState.WAITING, 0)
    async with running(adapter_of(client, Platform())):
        await eventually(lambda: has_state(app, "delivered", COUNT), LONG)
    [delivered] = await sessions.deliveries(session_id, waiting.message_id)
    assert (delivered.state, delivered.sent, delivered.pieces) == (
        DeliveryState.DELIVERED,
        COUNT,
        COUNT,
    )
    with pytest.raises(SessionNotFoundError):
        await sessions.deliveries(uuid4())
    stranger = Person(platform=PLATFORM, account=ACCOUNT, id="stranger")
    with pytest.raises(SessionNotFoundError):
        await SessionApi(client, principal="tests", acting_for=stranger).deliveries(session_id)


@pytest.mark.parametrize(
    ("subject", "asked"),
    [
        ((PLATFORM, "other"), (PLATFORM, ACCOUNT)),
        (("other", ACCOUNT), (PLATFORM, ACCOUNT)),
        (("other", "other"), (PLATFORM, ACCOUNT)),
    ],
)
async def test_an_adapter_learns_nothing_about_another_account(
    app: App, client: Client, subject: tuple[str, str], asked: tuple[str, str]
) -> None:
    await ask(client)
    found = await row(app)
    request = DeliveryFind(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=found["session_id"],
        message_id=found["message_id"],
        platform=asked[0],
        account=asked[1],
        chat="none",
    )
    address = subjects.api_for_account("tests", "delivery", "find", *subject)
    answered = await client.request(address, encode(request), timeout=5)
    reply = decode(DeliveryReply, answered.data)
    assert reply.error is not None
    assert reply.error.code is ApiErrorCode.FORBIDDEN
    assert reply.deliveries == ()
    own = request.model_copy(update={"platform": subject[0], "account": subject[1]})
    answered = await client.request(address, encode(own), timeout=5)
    assert decode(DeliveryReply, answered.data).deliveries == ()
