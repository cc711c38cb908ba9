"""Replies, buttons, reactions and messages that end, from an adapter to a worker and back."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nats.js.errors
import pytest
from nats.aio.client import Client

from chatlane_client import TranscriptApi, Turn, pressed, prompt_of, reacted
from chatlane_schemas import Attachment, InboundEvent
from chatlane_schemas.content.elements import Press
from chatlane_schemas.inbound import ReturnAddress
from chatlane_schemas.topology.streams import StreamName
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import PRINCIPAL, Chats, delivering, said, working
from tests.support.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("router")]

PHOTO = Attachment(url="https://example.org/a.png", media_type="image/png", kind="photo")


@pytest.fixture
async def router(tmp_path: Path, bus_url: str, database_url: str) -> AsyncIterator[None]:
    async with real_router(tmp_path, bus_url, database_url):
        yield


async def find_body(client: Client, sequence: int) -> bytes:
    """Return a body of the inbound log; empty if it is deleted."""
    with contextlib.suppress(nats.js.errors.NotFoundError):
        return (await client.jetstream().get_msg(StreamName.INBOUND, sequence)).data or b""
    return b""


class Worker:
    """Answers each turn, and keeps the prompts and the history that it was given."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.history: list[str] = []
        self.turns: list[Turn] = []

    async def answer(self, turn: Turn) -> str:
        self.turns.append(turn)
        self.prompts.append(turn.prompt)
        self.history = [prompt_of([row]) for row in await turn.history()]
        return f"done {len(self.turns)}"


def changed(message: InboundEvent, **changes: object) -> InboundEvent:
    return message.model_copy(update=changes)


async def test_c70_c77_c89_an_agent_learns_what_people_do(client: Client) -> None:
    worker, chats = Worker(), Chats()
    photo = changed(said(""), attachments=(PHOTO,))
    back = ReturnAddress(value="token-1", expires_at=datetime.now(UTC) + timedelta(minutes=15))
    async with working(client, worker.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(photo)
        await chats.until_said("done 1")
        await adapter.publish(changed(said("and this one?"), reply_to=photo.message_id))
        await chats.until_said("done 2")
        press = Press(value="42", label="Yes")
        await adapter.publish(pressed(photo, press, event_id="q1", return_address=back))
        await chats.until_said("done 3")
        # The same press once more, and a reaction: neither starts a turn.
        await adapter.publish(pressed(photo, press, event_id="q1", return_address=back))
        await adapter.publish(reacted(photo, "👍", event_id="r1"))
        await adapter.publish(said("so?"))
        await chats.until_said("done 4")
    assert worker.prompts == [
        "[photo]",
        "[reply to a message: photo] and this one?",
        '[pressed a button with the value "42"; reply to a message: photo] Yes',
        "so?",
    ]
    assert worker.history[-1] == "[reacted to a message: photo] 👍"
    replied = worker.turns[1].messages[0].replied
    assert replied is not None
    assert [file.url for file in replied.attachments] == [PHOTO.url]
    pressed_answer = chats.messages[2]
    assert pressed_answer.reply_to == photo.message_id
    assert pressed_answer.target.return_address is not None
    assert pressed_answer.target.return_address.value == "token-1"


async def test_c91_a_message_is_gone_from_the_transcript_at_its_time(client: Client) -> None:
    worker, chats = Worker(), Chats()
    transcripts = TranscriptApi(client, principal=PRINCIPAL, is_operator=True)
    async with working(client, worker.answer), delivering(client, chats.deliver) as adapter:
        ends = datetime.now(UTC) + timedelta(seconds=1)
        await adapter.publish(changed(said("the code is 1234"), expires_at=ends))
        await chats.until_said("done 1")
        session_id = worker.turns[0].session_id
        assert worker.prompts == ["the code is 1234"]

        async def is_gone() -> bool:
            rows = await transcripts.newest(session_id)
            return [row.content for row in rows] == [None, "done 1"]

        await eventually(is_gone)
        jetstream = client.jetstream()

        async def is_gone_from_log() -> bool:
            last = (await jetstream.stream_info(StreamName.INBOUND)).state.last_seq
            bodies = [await find_body(client, sequence) for sequence in range(1, last + 1)]
            return all(b"1234" not in body for body in bodies)

        await eventually(is_gone_from_log)
        # The router reads on behind the gap, and takes it for no loss.
        await adapter.publish(said("hello"))
        await chats.until_said("done 2")
        assert (await jetstream.stream_info(StreamName.DEAD)).state.messages == 0
