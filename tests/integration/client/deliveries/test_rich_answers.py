"""The format, buttons, reply target and edits of answers, from a worker to an adapter."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane_client import (
    AdapterClient,
    OutboxApi,
    Piece,
    RefusedRequestError,
    Reply,
    SessionNotFoundError,
    TextLimit,
    TranscriptApi,
    Turn,
)
from chatlane_client import open_connection as connect
from chatlane_client.transport.wire import publish_stored
from chatlane_schemas import (
    Button,
    Part,
    ResultMessage,
    RoutedMessage,
    TextFormat,
    answer_to,
    decode,
)
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, routed_durable
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import (
    ACCOUNT,
    DESK,
    MAIN,
    PLATFORM,
    PRINCIPAL,
    SLOTS,
    running,
    said,
    working,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

LONG = timedelta(seconds=30)
A, B = "A" * 30, "B" * 30
CHOICE = (Button(label="Yes", value="y"), Button(label="Docs", url="https://example.org/docs"))


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    async with (
        real_router(tmp_path, nats_url, database_url),
        connect(nats_url, name="test") as connection,
    ):
        yield connection


class Platform:
    """A platform that gives its messages the numbers 500, 501 and so on."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.shown: dict[str, str | None] = {}

    async def send(self, piece: Piece) -> str:
        self.pieces.append(piece)
        message_id = piece.edits or str(500 + len(self.shown))
        self.shown[message_id] = piece.text
        return message_id

    async def until_shown(self, *texts: str) -> None:
        await eventually(lambda: list(self.shown.values()) == list(texts), LONG)


def adapter_of(client: Client) -> AdapterClient:
    return AdapterClient(client, platform=PLATFORM, account=ACCOUNT)


async def test_an_answer_has_a_format_buttons_and_a_reply_target(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)
    turns: list[Turn] = []

    async def answer(turn: Turn) -> Reply:
        turns.append(turn)
        rich = Part(
            text="**Sure?**", format=TextFormat.MARKDOWN, buttons=CHOICE, reply_to="earlier-7"
        )
        return Reply(parts=["plain", rich])

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        question = said("do it")
        await adapter.publish(question)
        await platform.until_shown("plain", "**Sure?**")
    plain, rich = platform.pieces
    assert (plain.message.format, plain.buttons) == (None, ())
    assert plain.reply_to == question.message_id
    assert rich.message.format is TextFormat.MARKDOWN
    assert rich.buttons == CHOICE
    assert rich.reply_to == "earlier-7"
    transcripts = TranscriptApi(client, principal=PRINCIPAL)
    rows = await transcripts.newest(turns[0].session_id, limit=10)
    assert [row.buttons for row in rows] == [None, None, CHOICE]


@pytest.mark.parametrize(
    ("text", "buttons", "shown"),
    [
        ("Sure?", CHOICE, "Sure?\n\n1. Yes\n2. Docs: https://example.org/docs"),
        ("", CHOICE[:1], "1. Yes"),
        ("Sure?", (), "Sure?"),
    ],
)
async def test_a_platform_without_buttons_gets_numbered_lines(
    client: Client, text: str, buttons: Sequence[Button], shown: str
) -> None:
    platform, adapter = Platform(), adapter_of(client)

    async def answer(_: Turn) -> Reply:
        return Reply(parts=[Part(text=text, buttons=tuple(buttons) or None)])

    delivering = adapter.deliver_pieces(platform.send, has_buttons=False)
    async with working(client, answer), running(delivering):
        await adapter.publish(said("do it"))
        await platform.until_shown(shown)
    assert platform.pieces[0].buttons == ()


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ("one", "two", {"500": "two"}),
        ("a" * 30 + "\n\n" + "b" * 30, f"{A}\n\n{B}", {"500": A, "501": B}),
        ("one", f"{A}\n\n{B}", {"500": A, "501": B}),
    ],
)
async def test_an_answer_replaces_an_earlier_message(
    client: Client, first: str, second: str, shown: Mapping[str, str]
) -> None:
    platform, adapter = Platform(), adapter_of(client)

    async def answer(turn: Turn) -> str | Reply:
        if turn.text == "first":
            return first
        return Reply(parts=[Part(text=second, edits=UUID(platform.pieces[0].message.id))])

    delivering = adapter.deliver_pieces(platform.send, limit=TextLimit(40))
    async with working(client, answer), running(delivering):
        await adapter.publish(said("first"))
        await eventually(lambda: len(platform.shown) == len(first.split()), LONG)
        await adapter.publish(said("second"))
        await eventually(lambda: platform.shown == shown, LONG)


async def test_an_edit_of_a_message_that_never_arrived_is_sent_anew(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)

    async def answer(turn: Turn) -> Reply:
        return Reply(parts=[Part(text="later", edits=turn.session_id)])

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("first"))
        await platform.until_shown("later")
    assert platform.pieces[0].edits is None


async def test_a_job_reports_after_its_turn_and_corrects_its_report(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)
    outbox = OutboxApi(client, principal=PRINCIPAL, agent=MAIN.name)
    turns: list[Turn] = []

    async def answer(turn: Turn) -> str:
        turns.append(turn)
        return "I will report."

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("start the job"))
        await platform.until_shown("I will report.")
        session_id = turns[0].session_id
        report = await outbox.send(session_id, "50 %", request_id="job-1")
        assert await outbox.send(session_id, "50 %", request_id="job-1") == report
        await platform.until_shown("I will report.", "50 %")
        await outbox.send(session_id, Part(text="100 %", edits=report.message_id))
        await platform.until_shown("I will report.", "100 %")
        with pytest.raises(RefusedRequestError):
            await outbox.send(session_id, "hi", to=f"{PLATFORM}:2")
        with pytest.raises(SessionNotFoundError):
            await OutboxApi(client, principal=PRINCIPAL, agent="desk").send(session_id, "hi")
    assert platform.pieces[1].reply_to is None


async def test_a_stream_answer_has_a_format_and_buttons(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)

    async def answer_first() -> None:
        jetstream = client.jetstream()
        pulls = [
            await jetstream.pull_subscribe_bind(routed_durable(DESK.name, slot), StreamName.ROUTED)
            for slot in range(SLOTS)
        ]
        while True:
            for pull in pulls:
                try:
                    [raw] = await pull.fetch(1, timeout=0.1)
                except TimeoutError:
                    continue
                routed = decode(RoutedMessage, raw.data)
                result: ResultMessage = answer_to(
                    routed, "*ok*", text_format=TextFormat.MARKDOWN, buttons=CHOICE
                )
                to = subjects.result(DESK.name, routed.session_id)
                await publish_stored(client, to, result)
                await raw.ack()

    async with running(answer_first()), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("hi", agent=DESK.name))
        await platform.until_shown("*ok*")
    assert platform.pieces[0].message.format is TextFormat.MARKDOWN
    assert platform.pieces[0].buttons == CHOICE
