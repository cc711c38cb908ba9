"""Adapter, router, worker and back: what any router must make of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane_client import (
    NoReply,
    Reply,
    SessionApi,
    SessionNotFoundError,
    TranscriptApi,
    Turn,
    TurnFailedError,
    TurnWorker,
)
from chatlane_client.transport.wire import publish_stored
from chatlane_schemas import (
    Part,
    ResultMessage,
    Role,
    RoutedMessage,
    TranscriptRow,
    TurnDelta,
    decode,
)
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, routed_durable
from tests.integration.client.fake_router import FakeRouter
from tests.integration.client.real_router import SHORT_LEASE, real_router
from tests.integration.client.routing import (
    AGENTS,
    DESK,
    MAIN,
    PRINCIPAL,
    SLOTS,
    Chats,
    delivering,
    running,
    said,
    working,
)
from tests.support.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("any_router")]


@pytest.fixture(params=["fake", "real"])
def routing(
    request: pytest.FixtureRequest, bus_url: str, tmp_path: Path
) -> AbstractAsyncContextManager[object]:
    """The fake that the other tests rely on, and the router itself."""
    if request.param == "fake":
        return FakeRouter(bus_url, AGENTS, SLOTS).running()
    database_url = request.getfixturevalue("database_url")
    return real_router(tmp_path, bus_url, database_url, lease=SHORT_LEASE)


@pytest.fixture
async def any_router(routing: AbstractAsyncContextManager[object]) -> AsyncIterator[None]:
    async with routing:
        yield


async def echo(turn: Turn) -> str:
    return f"You said: {turn.text}"


@pytest.fixture
def sessions(client: Client) -> SessionApi:
    return SessionApi(client, principal=PRINCIPAL)


@pytest.fixture
def transcripts(client: Client) -> TranscriptApi:
    return TranscriptApi(client, principal=PRINCIPAL)


async def test_what_is_said_is_answered_in_its_chat(client: Client) -> None:
    chats = Chats()
    async with working(client, echo), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello", chat="1"))
        await adapter.publish(said("hi", chat="2"))

        await eventually(lambda: len(chats.messages) == 2)
    assert chats.texts("1") == ["You said: hello"]
    assert chats.texts("2") == ["You said: hi"]


async def test_messages_of_one_chat_are_answered_in_order(client: Client) -> None:
    chats = Chats()
    heard: list[str] = []

    async def listen(turn: Turn) -> Reply:
        texts = [message.text or "" for message in turn.messages]
        heard.extend(texts)
        return Reply(parts=texts)

    async with working(client, listen, slots=4), delivering(client, chats.deliver) as adapter:
        wanted = [str(number) for number in range(30)]
        await asyncio.gather(*(adapter.publish(said(text)) for text in wanted))

        await eventually(lambda: len(chats.messages) == len(wanted))
    assert heard == wanted
    assert chats.texts() == wanted
    assert [it.out_seq for it in chats.messages] == list(range(1, 31))


async def test_an_event_published_twice_is_answered_once(client: Client) -> None:
    chats = Chats()
    async with working(client, echo), delivering(client, chats.deliver) as adapter:
        event = said("hello")
        first = await adapter.publish(event)
        again = await adapter.publish(event)
        await eventually(lambda: bool(chats.messages))
        await adapter.publish(said("that is all"))

        await chats.until_said("You said: that is all")
    assert (first.is_repeat, again.is_repeat) == (False, True)
    assert again.sequence == first.sequence
    assert chats.texts() == ["You said: hello", "You said: that is all"]


async def test_slots_work_on_different_sessions_at_the_same_time(client: Client) -> None:
    chats = Chats()
    busy_arrival = asyncio.Barrier(3)

    async def meet(turn: Turn) -> str:
        await busy_arrival.wait()
        return turn.text

    async with working(client, meet, slots=3), delivering(client, chats.deliver) as adapter:
        for chat in ("1", "2", "3"):
            await adapter.publish(said("here", chat=chat))

        await eventually(lambda: len(chats.messages) == 3)


async def test_a_turn_longer_than_its_lease_is_renewed(client: Client) -> None:
    chats = Chats()
    attempts: list[int] = []

    async def think(turn: Turn) -> str:
        attempts.append(turn.attempt)
        await asyncio.sleep(SHORT_LEASE.total_seconds() * 1.5)
        return "thought about it"

    async with working(client, think), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("a hard question"))

        await eventually(lambda: chats.texts() == ["thought about it"])
    assert attempts == [1]


async def test_the_turn_of_a_worker_that_dies_goes_to_another(client: Client) -> None:
    chats = Chats()
    attempts: list[int] = []
    started = asyncio.Event()

    async def hang(turn: Turn) -> str:
        attempts.append(turn.attempt)
        started.set()
        await asyncio.Event().wait()
        return "never"

    async def answer(turn: Turn) -> str:
        attempts.append(turn.attempt)
        return turn.text

    async with delivering(client, chats.deliver) as adapter:
        async with working(client, hang):
            await adapter.publish(said("hello"))
            await started.wait()
        async with working(client, answer):
            await eventually(lambda: chats.texts() == ["hello"])
    assert attempts == [1, 2]


async def test_a_handler_that_raises_is_tried_again(client: Client) -> None:
    chats = Chats()

    async def stumble(turn: Turn) -> str:
        if turn.attempt == 1:
            raise ValueError("stumbled")
        return f"attempt {turn.attempt}"

    async with working(client, stumble), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))

        await eventually(lambda: chats.texts() == ["attempt 2"])


async def test_a_turn_given_up_by_its_handler_is_not_tried_again(client: Client) -> None:
    chats = Chats()
    attempts: list[int] = []

    async def give_up(turn: Turn) -> str:
        attempts.append(turn.attempt)
        raise TurnFailedError("no model of this name")

    async with working(client, give_up), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))

        await eventually(lambda: len(chats.messages) == 1)
    assert attempts == [1]


async def test_a_reply_too_large_to_send_fails_its_turn_for_good(client: Client) -> None:
    chats = Chats()
    attempts: list[int] = []

    async def ramble(turn: Turn) -> str:
        attempts.append(turn.attempt)
        return "x" * (300 * 1024) if turn.text == "ramble" else turn.text

    async with working(client, ramble), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("ramble"))
        await eventually(lambda: len(chats.messages) == 1)
        await adapter.publish(said("short"))

        await chats.until_said("short")
    assert attempts == [1, 1]


async def test_parts_rows_and_usage_arrive(client: Client, transcripts: TranscriptApi) -> None:
    chats = Chats()
    rows = (
        TranscriptRow(role=Role.ASSISTANT, tool_calls=[{"id": "c1", "name": "clock"}]),
        TranscriptRow(role=Role.TOOL, content="12:00", tool_call_id="c1", tool_name="clock"),
        TranscriptRow(role=Role.ASSISTANT, content="It is noon. Lunch!"),
    )

    async def tell_time(_: Turn) -> Reply:
        parts: list[str | Part] = ["It is noon.", Part(text="Lunch!")]
        return Reply(parts=parts, transcript=rows, usage={"input_tokens": 7})

    async with working(client, tell_time), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("What time is it?"))
        await eventually(lambda: len(chats.messages) == 2)

        transcript = await transcripts.newest(chats.messages[0].session_id)
    assert chats.texts() == ["It is noon.", "Lunch!"]
    assert [row.role for row in transcript] == ["user", "assistant", "tool", "assistant"]
    assert transcript[2].tool_name == "clock"


async def test_no_reply_ends_the_turn_in_silence(client: Client) -> None:
    chats = Chats()
    heard: list[str] = []

    async def listen(turn: Turn) -> str | NoReply:
        heard.append(turn.text)
        return NoReply() if turn.text == "psst" else turn.text

    async with working(client, listen), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("psst"))
        await eventually(lambda: heard == ["psst"])
        await adapter.publish(said("hello"))

        await eventually(lambda: bool(chats.messages))
    assert chats.texts() == ["hello"]


async def test_history_is_what_was_said_before_the_turn(client: Client) -> None:
    chats = Chats()
    histories: list[list[str | None]] = []

    async def remember(turn: Turn) -> str:
        histories.append([row.content for row in await turn.history(limit=3)])
        return f"re: {turn.text}"

    async with working(client, remember), delivering(client, chats.deliver) as adapter:
        for text in ("a", "b", "c"):
            await adapter.publish(said(text))
            await chats.until_said(f"re: {text}")
    assert histories == [[], ["a", "re: a"], ["re: a", "b", "re: b"]]


async def test_deltas_reach_whoever_watches(client: Client) -> None:
    watching = await client.subscribe(f"chat.v1.delta.{MAIN.name}.*")
    chats = Chats()

    async def stream(turn: Turn) -> str:
        for word in ("one ", "two"):
            await turn.delta(word)
        return "one two"

    async with working(client, stream), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("count"))
        seen = [await watching.next_msg(timeout=10) for _ in range(2)]
    await watching.unsubscribe()
    deltas = [decode(TurnDelta, message.data) for message in seen]
    assert [(it.index, it.text) for it in deltas] == [(0, "one "), (1, "two")]


async def test_a_stopped_worker_finishes_what_it_has_and_takes_no_more(client: Client) -> None:
    chats = Chats()
    started, may_answer = asyncio.Event(), asyncio.Event()

    async def wait(turn: Turn) -> str:
        started.set()
        await may_answer.wait()
        return turn.text

    worker = TurnWorker(client, MAIN.name, wait, slots=2, principal=PRINCIPAL)
    async with delivering(client, chats.deliver) as adapter, running(worker.run()) as run:
        await adapter.publish(said("before"))
        await started.wait()
        worker.stop()
        may_answer.set()
        await run
        await eventually(lambda: chats.texts() == ["before"])

        await adapter.publish(said("after", chat="2"))
        async with working(client, echo):
            await eventually(lambda: chats.texts("2") == ["You said: after"])


async def test_sessions_are_found_by_id_and_by_key(client: Client, sessions: SessionApi) -> None:
    chats = Chats()
    keys: list[str] = []

    async def note(turn: Turn) -> str:
        keys.append(turn.session_key)
        return turn.text

    async with working(client, note), delivering(client, chats.deliver) as adapter:
        for chat in ("1", "2", "3"):
            await adapter.publish(said("hello", chat=chat))
        await eventually(lambda: len(chats.messages) == 3)

    peeked = [await sessions.peek(key) for key in keys]
    ids = {message.session_id for message in chats.messages}
    assert {view.id for view in peeked if view} == ids
    assert (await sessions.get(chats.messages[0].session_id)).agent == MAIN.name
    assert {view.id async for view in sessions.list_all(page_size=2)} == ids
    assert await sessions.peek(f"{keys[0]}0") is None


async def test_a_session_that_is_not_there_is_an_error(sessions: SessionApi) -> None:
    with pytest.raises(SessionNotFoundError):
        await sessions.get(UUID(int=0))


async def test_a_transcript_is_read_in_pages(client: Client, transcripts: TranscriptApi) -> None:
    chats = Chats()

    async def list_words(turn: Turn) -> Reply:
        return Reply(parts=turn.text.split())

    async with working(client, list_words), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("a b c d e f g"))
        await eventually(lambda: len(chats.messages) == 7)

    session_id = chats.messages[0].session_id
    pages = [page async for page in transcripts.pages(session_id, page_size=3)]
    assert [[row.seq for row in page] for page in pages] == [[6, 7, 8], [3, 4, 5], [1, 2]]
    newest = await transcripts.newest(session_id, limit=4)
    assert [row.content for row in newest] == ["d", "e", "f", "g"]


async def test_a_stream_agent_is_served_without_this_package(client: Client) -> None:
    """What the simplest worker does, by hand: fetch, answer, acknowledge."""
    chats = Chats()
    async with delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello", agent=DESK.name))
        async for routed in _routed_messages(client):
            answer = ResultMessage(
                id=f"{routed.id}:0",
                at=datetime.now(UTC),
                session_id=routed.session_id,
                reply_to=routed.id,
                text=f"desk heard {routed.text}",
            )
            await publish_stored(client, subjects.result(DESK.name, routed.session_id), answer)
        await eventually(lambda: chats.texts() == ["desk heard hello"])


async def _routed_messages(client: Client) -> AsyncIterator[RoutedMessage]:
    """Yield the one message that was routed, from whichever slot it is in."""
    slots = [
        await client.jetstream().pull_subscribe_bind(
            consumer=routed_durable(DESK.name, slot), stream=StreamName.ROUTED
        )
        for slot in range(SLOTS)
    ]
    pulls = [asyncio.create_task(slot.fetch(1, timeout=5)) for slot in slots]
    done, others = await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
    for pull in others:
        pull.cancel()
    for slot in slots:
        await slot.unsubscribe()
    [message] = done.pop().result()
    yield decode(RoutedMessage, message.data)
    await message.ack()
