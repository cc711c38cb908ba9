"""Messages and questions of running turns, from a worker to a person and back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from nats.aio.client import Client

from chatlane_client import (
    AdapterClient,
    ConflictingRequestError,
    NoReply,
    OutboxApi,
    QuestionAnswer,
    RefusedRequestError,
    SessionApi,
    TranscriptApi,
    Turn,
    edited,
    open_connection,
    pressed,
)
from chatlane_schemas import (
    Button,
    FieldKind,
    FormField,
    QuestionEnd,
    QuestionKind,
    TurnAnswered,
    TurnAsked,
)
from chatlane_schemas.content.elements import Press
from chatlane_schemas.topology.streams import StreamName, outbound_durable
from tests.integration.client.deliveries.test_rich_answers import Platform
from tests.integration.client.real_router import SHORT_LEASE, real_router
from tests.integration.client.routing import (
    ACCOUNT,
    PLATFORM,
    PRINCIPAL,
    running,
    said,
    working,
)
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from chatlane_schemas.content.questions import FieldValue

pytestmark = pytest.mark.integration

LONG = timedelta(seconds=30)
OPTIONS = (Button(label="Yes", value="y"), Button(label="No, thanks", value="n"))


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    async with (
        real_router(tmp_path, nats_url, database_url, lease=SHORT_LEASE),
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


FORM: Final = (
    FormField(name="city", label="Which city?"),
    FormField(name="days", label="How many days?", kind=FieldKind.NUMBER, minimum=1),
    FormField(name="train", label="By train?", kind=FieldKind.BOOLEAN, required=False),
)


def sessions_of(client: Client) -> SessionApi:
    return SessionApi(client, principal=PRINCIPAL)


@pytest.mark.parametrize("has_buttons", [True, False])
async def test_a_chat_is_asked_for_a_form_field_by_field(
    client: Client, *, has_buttons: bool
) -> None:
    platform, adapter = Platform(), adapter_of(client)
    answers: list[QuestionAnswer] = []

    async def answer(turn: Turn) -> str:
        answers.append(await turn.ask_form("The trip", FORM, within=LONG))
        return "Booked."

    delivering = adapter.deliver_pieces(platform.send, has_buttons=has_buttons)
    shown = ["The trip", "Which city?"]
    async with working(client, answer), running(delivering):
        trip = said("plan a trip")
        await adapter.publish(trip)
        for text, asked in (
            ("Oslo", "How many days?"),
            ("none", "Please write a number, such as 3 or 2.5.\n\nHow many days?"),
            ("4", "By train?" if has_buttons else "By train?\n\n1. Yes\n2. No\n3. Skip"),
        ):
            await platform.until_shown(*shown)
            await adapter.publish(said(text))
            shown.append(asked)
        await platform.until_shown(*shown)
        if has_buttons:
            button = platform.pieces[-1].buttons[1]
            card = trip.model_copy(update={"message_id": "505"})
            press = Press(value=button.value, label=button.label)
            await adapter.publish(pressed(card, press, event_id="p1"))
        else:
            await adapter.publish(said("2"))
        await platform.until_shown(*shown, "Booked.")
    values: dict[str, FieldValue] = {"city": "Oslo", "days": 4, "train": False}
    assert answers == [QuestionAnswer(None, is_default=False, values=values)]


async def test_a_front_end_reads_a_question_and_replies(client: Client) -> None:
    adapter, api = adapter_of(client), sessions_of(client)
    started: asyncio.Queue[Turn] = asyncio.Queue()

    async def answer(turn: Turn) -> str:
        if turn.text == "hello":
            return "hi"
        started.put_nowait(turn)
        found = await turn.ask_form("The trip", FORM, within=LONG)
        return f"{found.values}"

    platform = Platform()
    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("hello"))
        await platform.until_shown("hi")
        [session] = [one async for one in api.list_all()]
        async with api.watch(session.id) as updates:
            await api.submit(session.id, "plan a trip")
            asked = await anext(it async for it in updates if isinstance(it, TurnAsked))
            question = await api.question(session.id)
            assert question is not None
            assert question.question_id == asked.question_id
            assert (question.kind, question.fields) == (QuestionKind.FORM, FORM)
            with pytest.raises(RefusedRequestError, match=r"values\.days: is missing"):
                await api.reply(session.id, asked.question_id, values={"city": "Oslo"})
            values: dict[str, FieldValue] = {"city": "Oslo", "days": 2}
            await api.reply(session.id, asked.question_id, values=values)
            over = await anext(it async for it in updates if isinstance(it, TurnAnswered))
            assert (over.question_id, over.outcome) == (asked.question_id, QuestionEnd.ANSWERED)
            assert over.message_id == asked.message_id
        assert await api.question(session.id) is None
        with pytest.raises(ConflictingRequestError):
            await api.reply(session.id, asked.question_id, values=values)
        await platform.until_shown("hi", "The trip", "Which city?", f"{values}")


async def test_a_submitted_text_answers_a_question_and_waits_for_the_answer(
    client: Client,
) -> None:
    adapter, api, platform = adapter_of(client), sessions_of(client), Platform()

    async def answer(turn: Turn) -> str:
        if turn.text == "hello":
            return "hi"
        return f"In {(await turn.ask('Which city?', within=LONG)).value}."

    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(said("hello"))
        await platform.until_shown("hi")
        [session] = [one async for one in api.list_all()]
        asking = asyncio.create_task(api.submit(session.id, "weather?", wait=True))
        await platform.until_shown("hi", "Which city?")
        answering = await api.submit(session.id, "Oslo", wait=True)
        asked = await asking
    assert (answering.answer, answering.turn_id) == ("In Oslo.", asked.turn_id)
    # The question is no answer: who asked waits for the end of the turn.
    assert asked.answer == "Which city?\n\nIn Oslo."


async def test_an_edited_message_begins_the_turn_again(client: Client) -> None:
    platform, adapter = Platform(), adapter_of(client)

    async def answer(turn: Turn) -> str:
        return f"{turn.text}: {(await turn.ask(f'{turn.text}?', OPTIONS, within=LONG)).value}"

    message = said("delete the backups")
    async with working(client, answer), running(adapter.deliver_pieces(platform.send)):
        await adapter.publish(message)
        await platform.until_shown("delete the backups?")
        changed = message.model_copy(update={"id": "changed", "text": "delete the logs"})
        await adapter.publish(edited(changed, version=1))
        await platform.until_shown("delete the backups?", "delete the logs?")
        await adapter.publish(said("yes"))
        await platform.until_shown("delete the backups?", "delete the logs?", "delete the logs: y")
