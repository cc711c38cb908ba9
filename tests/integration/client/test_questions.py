"""Messages and questions of running turns, from a worker to a person and back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from nats.aio.client import Client

from chatlane_client import (
    AdapterClient,
    ConflictingRequestError,
    NoReply,
    OutboxApi,
    QuestionAnswer,
    TranscriptApi,
    Turn,
    open_connection,
    pressed,
)
from chatlane_schemas import Button
from chatlane_schemas.content.elements import Press
from chatlane_schemas.topology.streams import StreamName, outbound_durable
from tests.integration.client.deliveries.test_rich_answers import Platform
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import (
    ACCOUNT,
    PLATFORM,
    PRINCIPAL,
    running,
    said,
    working,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

LONG = timedelta(seconds=30)
OPTIONS = (Button(label="Yes", value="y"), Button(label="No, thanks", value="n"))


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    async with (
        real_router(tmp_path, nats_url, database_url),
        open_connection(nats_url, name="test") as connection,
    ):
        yield connection


def adapter_of(client: Client) -> AdapterClient:
    return AdapterClient(client, platform=PLATFORM, account=ACCOUNT)


async def test_a_turn_says_several_things_before_its_answer(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)
    turns: list[Turn] = []

    async def answer(turn: Turn) -> str:
        turns.append(turn)
        first = await turn.say("Looking it up.", key="start")
        assert await turn.say("Looking it up again.", key="start") == first
        await turn.say("Found it.")
        return "It is 4 °C."

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("weather?"))
        await platform.until_shown("Looking it up.", "Found it.", "It is 4 °C.")
    rows = await TranscriptApi(client, principal=PRINCIPAL).newest(turns[0].session_id, limit=10)
    assert [row.content for row in rows] == [
        "weather?",
        "Looking it up.",
        "Found it.",
        "It is 4 °C.",
    ]
    assert len({piece.message.turn_id for piece in platform.pieces}) == 1


async def test_c70_a_reply_to_a_message_beside_the_answer_finds_its_row(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)
    turns: list[Turn] = []

    async def answer(turn: Turn) -> str:
        turns.append(turn)
        if len(turns) == 1:
            await turn.say("Looking it up.")
            return "It is 4 °C."
        return "yes"

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("weather?"))
        await platform.until_shown("Looking it up.", "It is 4 °C.")
        outbox = OutboxApi(client, principal=PRINCIPAL, agent="main")
        await outbox.send(turns[0].session_id, "It is 5 °C now.")
        told = ["Looking it up.", "It is 4 °C.", "It is 5 °C now."]
        await platform.until_shown(*told)
        durable = outbound_durable(PLATFORM, ACCOUNT)

        async def are_reported() -> bool:
            info = await client.jetstream().consumer_info(StreamName.OUTBOUND, durable)
            return info.ack_floor is not None and info.ack_floor.consumer_seq == len(told)

        await eventually(are_reported, LONG)
        for number in range(len(told)):
            reply = said("really?").model_copy(update={"reply_to": str(500 + number)})
            await adapter.publish(reply)
            await platform.until_shown(*told, *["yes"] * (number + 1))
    replied = [turn.messages[0].replied for turn in turns[1:]]
    assert [its.text if its else None for its in replied] == told


async def test_a_turn_that_has_spoken_needs_no_answer(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)

    async def answer(turn: Turn) -> NoReply:
        await turn.say("That is all.")
        return NoReply()

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("anything?"))
        await platform.until_shown("That is all.")
        await adapter.publish(said("anything else?"))
        await platform.until_shown("That is all.", "That is all.")


@pytest.mark.parametrize(
    ("written", "value"),
    [("1", "y"), ("2.", "n"), ("yes", "y"), (" NO, THANKS ", "n"), ("(2)", "n")],
)
async def test_a_person_answers_with_the_number_or_the_label(
    client: Client, written: str, value: str
) -> None:
    platform, adapter = Platform(), adapter_of(client)
    answers: list[QuestionAnswer] = []

    async def answer(turn: Turn) -> str:
        answers.append(await turn.ask("Delete it?", OPTIONS, within=LONG))
        return "done"

    delivering = adapter.deliver_pieces(platform.send, has_buttons=False)
    asked = "Delete it?\n\n1. Yes\n2. No, thanks"
    async with working(client, answer), running(delivering):
        await adapter.publish(said("clean up"))
        await platform.until_shown(asked)
        await adapter.publish(said(written))
        await platform.until_shown(asked, "done")
    assert answers == [QuestionAnswer(value, is_default=False)]


@pytest.mark.parametrize("number", [0, 1])
async def test_a_press_answers_once_and_a_late_one_starts_nothing(
    client: Client, number: int
) -> None:
    platform, adapter = Platform(), adapter_of(client)
    turns: list[Turn] = []

    async def answer(turn: Turn) -> str:
        turns.append(turn)
        return f"chose {(await turn.ask('Delete it?', OPTIONS, within=LONG)).value}"

    question = said("clean up")
    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(question)
        await platform.until_shown("Delete it?")
        button = platform.pieces[0].buttons[number]
        assert len((button.value or "").encode()) <= 64
        card = question.model_copy(update={"message_id": "500"})
        press = Press(value=button.value, label=button.label)
        await adapter.publish(pressed(card, press, event_id="p1"))
        chosen = OPTIONS[number].value
        await platform.until_shown("Delete it?", f"chose {chosen}")
        for event_id in ("p1", "p2"):
            await adapter.publish(pressed(card, press, event_id=event_id))
        await adapter.publish(said("clean up again"))
        await platform.until_shown("Delete it?", f"chose {chosen}", "Delete it?")
        # A press of the first question does not answer the second one.
        await adapter.publish(pressed(card, press, event_id="p3"))
        await adapter.publish(said("no, thanks"))
        await platform.until_shown("Delete it?", f"chose {chosen}", "Delete it?", "chose n")
    assert [turn.text for turn in turns] == ["clean up", "clean up again"]
    rows = await TranscriptApi(client, principal=PRINCIPAL).newest(turns[0].session_id, limit=10)
    assert [row.content for row in rows][:4] == [
        "clean up",
        "Delete it?",
        OPTIONS[number].label,
        f"chose {chosen}",
    ]


async def test_a_question_without_options_takes_the_next_message(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)

    async def answer(turn: Turn) -> str:
        found = await turn.ask("Which city?", within=LONG)
        return f"In {found.value}."

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("weather?"))
        await platform.until_shown("Which city?")
        await adapter.publish(said("Oslo"))
        await platform.until_shown("Which city?", "In Oslo.")


async def test_without_an_answer_in_time_the_default_counts(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)
    answers: list[QuestionAnswer] = []

    async def answer(turn: Turn) -> str:
        within = timedelta(milliseconds=300)
        answers.append(await turn.ask("Delete it?", OPTIONS, within=within, default="n"))
        return f"answered {turn.text}"

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("clean up"))
        await platform.until_shown("Delete it?", "answered clean up")
        await adapter.publish(said("yes"))
        await platform.until_shown("Delete it?", "answered clean up", "Delete it?", "answered yes")
    assert answers == [QuestionAnswer("n", is_default=True)] * 2


@pytest.mark.parametrize("written", ["maybe", "3", "yes please"])
async def test_another_message_is_no_answer(client: Client, written: str) -> None:
    platform, adapter = Platform(), adapter_of(client)

    async def answer(turn: Turn) -> str:
        if turn.text != "clean up":
            return f"heard {turn.text}"
        return f"answer {(await turn.ask('Delete it?', OPTIONS, within=LONG)).value}"

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("clean up"))
        await platform.until_shown("Delete it?")
        await adapter.publish(said(written))
        await adapter.publish(said("yes"))
        await platform.until_shown("Delete it?", "answer y", f"heard {written}")


async def test_the_answer_to_a_lost_attempt_reaches_no_other_attempt(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)
    values: list[str | None] = []

    async def lost(turn: Turn) -> str:
        await turn.ask("First?", OPTIONS, within=LONG)
        raise AssertionError("the worker is gone")

    async def answer(turn: Turn) -> str:
        assert turn.attempt == 2
        values.append((await turn.ask("Second?", OPTIONS, within=LONG)).value)
        return "done"

    async with running(adapter.deliver_pieces(platform.send)):
        async with working(client, lost):
            await adapter.publish(said("clean up"))
            await platform.until_shown("First?")
        async with working(client, answer):
            await platform.until_shown("First?", "Second?")
            assert values == []
            await adapter.publish(said("no, thanks"))
            await platform.until_shown("First?", "Second?", "done")
    assert values == ["n"]


async def test_a_turn_has_one_open_question(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)
    is_refused = asyncio.Event()

    async def answer(turn: Turn) -> str:
        first = asyncio.create_task(turn.ask("First?", OPTIONS, within=LONG))
        await eventually(lambda: bool(platform.shown), LONG)
        with pytest.raises(ConflictingRequestError):
            await turn.ask("Second?", OPTIONS, within=LONG)
        is_refused.set()
        return str((await first).value)

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("clean up"))
        await is_refused.wait()
        await adapter.publish(said("1"))
        await platform.until_shown("First?", "y")
