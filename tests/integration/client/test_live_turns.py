"""Readers follow the turns of a session: events of routers, pieces of workers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client import (
    NoReply,
    Reply,
    SessionApi,
    Turn,
    TurnFailedError,
    TurnUpdate,
    TurnWatch,
    TurnWorker,
    open_connection,
)
from chatlane_client.transport.wire import ask
from chatlane_client.turn_reader import TurnReader
from chatlane_schemas import (
    LivePiece,
    Person,
    PieceKind,
    PlanEntry,
    SessionView,
    StepState,
    TurnEnded,
    TurnFailure,
    TurnOutcome,
    TurnPiece,
    TurnRecap,
    TurnStarted,
    TurnWaiting,
    WaitReason,
)
from chatlane_schemas.topology import subjects
from chatlane_schemas.turns import ClaimReply, ClaimRequest, ClaimStatus
from tests.integration.client.real_router import SHORT_LEASE, real_router
from tests.integration.client.routing import (
    ACCOUNT,
    MAIN,
    PLATFORM,
    PRINCIPAL,
    Chats,
    delivering,
    running,
    said,
    working,
)
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = pytest.mark.integration


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    """A connection to a server with a router."""
    async with (
        real_router(tmp_path, nats_url, database_url, lease=SHORT_LEASE),
        open_connection(nats_url, name="test") as connection,
    ):
        yield connection


@pytest.fixture
def api(client: Client) -> SessionApi:
    """The sessions of the person in chat 1, as a front end reaches them."""
    person = Person(platform=PLATFORM, account=ACCOUNT, id="person-1")
    return SessionApi(client, principal=PRINCIPAL, acting_for=person)


@asynccontextmanager
async def following(watch: TurnWatch) -> AsyncIterator[list[TurnUpdate]]:
    """Collect updates in the background; the list grows during the block."""
    seen: list[TurnUpdate] = []

    async def collect(updates: AsyncIterator[TurnUpdate]) -> None:
        async for update in updates:
            seen.append(update)  # noqa: PERF401 - seen while it grows

    async with watch as updates, running(collect(updates)):
        yield seen


def of_type(seen: list[TurnUpdate], kind: type[TurnUpdate]) -> Callable[[], bool]:
    return lambda: any(isinstance(update, kind) for update in seen)


async def opened(client: Client, api: SessionApi, chats: Chats) -> SessionView:
    """Let a person say something that is answered, and return their session."""

    async def greet(_: Turn) -> str:
        return "hello"

    async with (
        working(client, greet),
        delivering(client, chats.deliver) as adapter,
        following(adapter.watch()) as seen,
    ):
        await adapter.publish(said("hi"))
        await chats.until_said("hello")
        # The events of this turn are over before a test follows others.
        await eventually(of_type(seen, TurnEnded))
    found = await api.peek(f"agent:main:{PLATFORM}:{ACCOUNT}:dm:1")
    assert found is not None
    return found


async def test_a_turn_is_followed_from_its_start_to_its_stored_answer(
    client: Client, api: SessionApi
) -> None:
    chats = Chats()
    session = await opened(client, api, chats)
    shown = [
        LivePiece(kind=PieceKind.THOUGHT, text="Let me see."),
        LivePiece(kind=PieceKind.PLAN, plan=(PlanEntry(text="Look it up"),)),
        LivePiece(
            kind=PieceKind.TOOL_CALL, tool_id="1", tool_name="search", state=StepState.RUNNING
        ),
        LivePiece(kind=PieceKind.TOOL_RESULT, tool_id="1", text="3 results"),
        LivePiece(kind=PieceKind.PROGRESS, text="Writing"),
        LivePiece(kind=PieceKind.USAGE, usage={"input_tokens": 12}),
    ]

    async def stream(turn: Turn) -> Reply:
        for piece in shown:
            await turn.show(piece)
        await turn.delta("It is ")
        await turn.delta("noon.")
        return Reply(parts=["It is noon.", "Lunch!"], usage={"input_tokens": 12})

    async with (
        following(api.watch(session.id)) as seen,
        working(client, stream),
        delivering(client, chats.deliver),
    ):
        submission = await api.submit(session.id, "What time is it?")
        await eventually(of_type(seen, TurnEnded))
        await chats.until_said("Lunch!")

    started, *pieces, ended = seen
    assert isinstance(started, TurnStarted)
    assert isinstance(ended, TurnEnded)
    assert (started.message_ids, started.attempt) == ((submission.message_id,), 1)
    assert (started.source.platform, started.source.account) == (PLATFORM, ACCOUNT)
    assert [piece.piece for piece in pieces if isinstance(piece, TurnPiece)] == [
        *shown,
        LivePiece(kind=PieceKind.TEXT, text="It is "),
        LivePiece(kind=PieceKind.TEXT, text="noon."),
    ]
    assert [piece.index for piece in pieces if isinstance(piece, TurnPiece)] == list(range(8))
    assert (ended.outcome, ended.usage) == (TurnOutcome.OK, {"input_tokens": 12})
    assert ended.outbound_ids == tuple(message.id for message in chats.messages[-2:])
    assert {started.turn_id, ended.turn_id} == {chats.messages[-1].turn_id}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("silence", TurnOutcome.NO_REPLY),
        ("fail", TurnOutcome.FAILED),
        ("stop", TurnOutcome.CANCELLED),
        ("speak", TurnOutcome.OK),
    ],
)
async def test_a_silent_a_failed_and_a_stopped_turn_end_differently(
    client: Client, api: SessionApi, text: str, outcome: TurnOutcome
) -> None:
    chats = Chats()
    session = await opened(client, api, chats)
    runs = asyncio.Event()

    async def act(turn: Turn) -> str | NoReply:
        runs.set()
        match turn.text:
            case "silence":
                return NoReply()
            case "fail":
                raise TurnFailedError("the model refused to say a secret")
            case "stop":
                await asyncio.Event().wait()
            case _:
                pass
        return turn.text

    async with (
        following(api.watch(session.id)) as seen,
        working(client, act),
        delivering(client, chats.deliver),
    ):
        waiting = asyncio.create_task(api.submit(session.id, text, wait=True))
        await runs.wait()
        if text == "stop":
            await api.stop(session.id)
        submission = await waiting
        await eventually(of_type(seen, TurnEnded))
        await eventually(lambda: outcome is not TurnOutcome.FAILED or len(chats.messages) == 2)

    ended = seen[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, submission.outcome) == (outcome, outcome)
    assert submission.answer == ("speak" if text == "speak" else None)
    assert submission.turn_id == ended.turn_id
    is_failed = outcome is TurnOutcome.FAILED
    assert ended.failure == (TurnFailure.ERROR if is_failed else None)
    assert (ended.notice, submission.notice) == (
        (chats.texts()[-1], chats.texts()[-1]) if is_failed else (None, None)
    )
    assert "secret" not in ended.model_dump_json()


async def test_a_message_that_is_dropped_before_its_turn_ends_a_wait(
    client: Client, api: SessionApi
) -> None:
    session = await opened(client, api, Chats())
    waiting = asyncio.create_task(api.submit(session.id, "never mind", wait=True))
    await eventually(lambda: is_busy(api, session))

    await api.stop(session.id)

    submission = await waiting
    assert (submission.outcome, submission.turn_id) == (TurnOutcome.CANCELLED, None)


async def is_busy(api: SessionApi, session: SessionView) -> bool:
    return (await api.get(session.id)).is_busy


async def test_a_turn_whose_worker_died_waits_and_starts_again(
    client: Client, api: SessionApi
) -> None:
    session = await opened(client, api, Chats())
    has_begun = asyncio.Event()

    async def hang(turn: Turn) -> str:
        await turn.delta("half of ")
        has_begun.set()
        await asyncio.Event().wait()
        return ""

    async def answer(turn: Turn) -> str:
        await turn.delta("all of it")
        return "all of it"

    async with following(api.watch(session.id)) as seen:
        async with working(client, hang):
            await api.submit(session.id, "tell me")
            await has_begun.wait()
            await eventually(of_type(seen, TurnPiece))
        await eventually(of_type(seen, TurnWaiting))
        async with working(client, answer):
            await eventually(of_type(seen, TurnEnded))

    started, half, waits, again, whole, ended = seen
    assert isinstance(waits, TurnWaiting)
    assert (waits.reason, waits.attempt) == (WaitReason.LOST, 1)
    assert isinstance(started, TurnStarted)
    assert isinstance(again, TurnStarted)
    assert (started.attempt, again.attempt) == (1, 2)
    assert isinstance(half, TurnPiece)
    assert isinstance(whole, TurnPiece)
    assert (half.index, whole.index, whole.attempt) == (0, 0, 2)
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.attempt) == (TurnOutcome.OK, 2)


async def test_a_late_reader_gets_what_was_shown_before(client: Client, api: SessionApi) -> None:
    session = await opened(client, api, Chats())
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def stream(turn: Turn) -> str:
        await turn.delta("one ")
        await turn.delta("two ")
        has_begun.set()
        await may_end.wait()
        await turn.delta("three")
        return "one two three"

    async with working(client, stream):
        await api.submit(session.id, "count")
        await has_begun.wait()
        async with following(api.watch(session.id)) as seen:
            await eventually(of_type(seen, TurnRecap))
            may_end.set()
            await eventually(of_type(seen, TurnEnded))

    recap, piece, ended = seen
    assert isinstance(recap, TurnRecap)
    assert recap.pieces == (LivePiece(kind=PieceKind.TEXT, text="one two "),)
    assert (recap.next_index, recap.is_shortened) == (2, False)
    assert isinstance(piece, TurnPiece)
    assert (piece.index, piece.piece.text) == (2, "three")
    assert isinstance(ended, TurnEnded)


async def test_a_reader_that_lost_a_piece_gets_a_recap_in_its_place(
    client: Client, api: SessionApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await opened(client, api, Chats())
    may_end = asyncio.Event()

    async def stream(turn: Turn) -> str:
        await turn.delta("a")
        with monkeypatch.context() as lost:
            lost.setattr("chatlane_client.live_output.publish_unstored", published_nowhere)
            await turn.delta("b")
        await turn.delta("c")
        await may_end.wait()
        await turn.delta("d")
        return "abcd"

    async with following(api.watch(session.id)) as seen, working(client, stream):
        await api.submit(session.id, "spell")
        await eventually(of_type(seen, TurnRecap))
        may_end.set()
        await eventually(of_type(seen, TurnEnded))

    _, first, recap, last, _ = seen
    assert isinstance(first, TurnPiece)
    assert isinstance(recap, TurnRecap)
    assert isinstance(last, TurnPiece)
    assert (first.piece.text, recap.pieces[0].text, last.piece.text) == ("a", "abc", "d")


async def test_pieces_that_come_before_their_start_are_shown_by_a_recap(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter learns from the start which agent may show pieces; routers publish it later."""
    chats, may_end = Chats(), asyncio.Event()
    heard, held, pieces = TurnReader._hear, list[tuple[TurnReader, Msg]](), list[Msg]()

    async def hear(reader: TurnReader, model: type[TurnUpdate] | None, message: Msg) -> None:
        if model is None and ".started." in message.subject:
            held.append((reader, message))
        else:
            pieces.extend([message] if model is TurnPiece else [])
            await heard(reader, model, message)
        if len(pieces) > 1 and held:
            await heard(held[0][0], None, held.pop(0)[1])

    async def stream(turn: Turn) -> str:
        await turn.delta("one ")
        await turn.delta("two ")
        await may_end.wait()
        return "one two"

    monkeypatch.setattr(TurnReader, "_hear", hear)
    async with (
        working(client, stream),
        delivering(client, chats.deliver) as adapter,
        following(adapter.watch()) as seen,
    ):
        await adapter.publish(said("count"))
        await eventually(of_type(seen, TurnRecap))
        may_end.set()
        await chats.until_said("one two")
    started, recap, *_ = seen
    assert isinstance(started, TurnStarted)
    assert isinstance(recap, TurnRecap)
    assert [piece.text for piece in recap.pieces] == ["one two "]


async def published_nowhere(*_: object) -> None:
    pass


async def test_turns_of_other_sessions_and_chats_are_not_shown(
    client: Client, api: SessionApi
) -> None:
    chats = Chats()
    session = await opened(client, api, chats)

    async def echo(turn: Turn) -> str:
        await turn.delta(turn.text)
        return turn.text

    async with (
        following(api.watch(session.id)) as seen,
        working(client, echo),
        delivering(client, chats.deliver) as adapter,
        following(adapter.watch()) as heard,
    ):
        await adapter.publish(said("theirs", chat="2"))
        await eventually(of_type(heard, TurnEnded))
        await api.submit(session.id, "own")
        await eventually(of_type(seen, TurnEnded))
    assert {update.session_id for update in seen} == {session.id}
    assert len({update.session_id for update in heard}) == 2
    texts = [update.piece.text for update in heard if isinstance(update, TurnPiece)]
    assert texts == ["theirs", "own"]


async def test_a_worker_of_an_earlier_router_shows_nothing_and_answers(
    client: Client, api: SessionApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim without an audience is what a router of an earlier release answers."""
    session = await opened(client, api, Chats())
    monkeypatch.setattr("chatlane.turns.claims.live_turn_path", lambda *_: NoAudience())

    async def stream(turn: Turn) -> str:
        await turn.delta("shown to nobody")
        return "answered"

    async with following(api.watch(session.id)) as seen, working(client, stream):
        submission = await api.submit(session.id, "hello", wait=True)
    assert submission.answer == "answered"
    assert not any(isinstance(update, TurnPiece) for update in seen)


class NoAudience:
    audience = None


async def test_two_workers_of_an_agent_answer_for_their_own_turns_only(
    client: Client, api: SessionApi
) -> None:
    session = await opened(client, api, Chats())
    has_begun = asyncio.Event()

    async def stream(turn: Turn) -> str:
        await turn.delta("from one worker")
        has_begun.set()
        await asyncio.Event().wait()
        return ""

    idle = TurnWorker(client, MAIN.name, stream, principal=PRINCIPAL)
    async with working(client, stream), running(idle.run()):
        await api.submit(session.id, "hello")
        await has_begun.wait()
        async with following(api.watch(session.id)) as seen:
            await eventually(of_type(seen, TurnRecap))
    assert [update.pieces[0].text for update in seen if isinstance(update, TurnRecap)] == [
        "from one worker"
    ]


async def test_a_start_that_a_lost_connection_may_have_lost_is_published_again(
    tmp_path: Path, nats_url: str, database_url: str
) -> None:
    """A worker whose claim had no answer repeats it, so nobody works on an unseen turn."""
    chats = Chats()
    async with (
        real_router(tmp_path, nats_url, database_url) as app,
        open_connection(nats_url, name="test") as client,
        delivering(client, chats.deliver) as adapter,
    ):
        assert app.bus is not None
        starts = await client.subscribe("chat.v1.event.turn.started.>")
        await adapter.publish(said("hi"))

        async def found_turn() -> "UUID | None":
            async with app.store.transaction() as connection:
                turn_id: UUID | None = await connection.fetchval("SELECT id FROM turns")
                return turn_id

        turn_id = await eventually(found_turn)
        assert turn_id is not None
        claim = ClaimRequest(id="c1", at=datetime.now(UTC), turn_id=turn_id, worker="w")
        subject = subjects.api(PRINCIPAL, "turn", "claim", MAIN.name)

        first = await ask(client, subject, claim, ClaimReply)
        start = await starts.next_msg(timeout=5)
        kept = await ask(client, subject, claim, ClaimReply)
        await app.bus.client.force_reconnect()
        await eventually(lambda: app.bus is not None and app.bus.is_connected)
        copy = await ask(client, subject, claim, ClaimReply)

        assert {first.status, kept.status, copy.status} == {ClaimStatus.CLAIMED}
        assert {first.token, kept.token, copy.token} == {first.token}
        again = await starts.next_msg(timeout=5)
        assert again.headers == start.headers
        assert starts.pending_msgs == 0, "a kept answer publishes no start"
