"""What a turn handler sees."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from chatlane_client import Turn, prompt_of
from chatlane_client.transport.process_name import process_name
from chatlane_schemas import Chat, ClaimRequest, Role, Source, TurnMessage, new_envelope_id
from chatlane_schemas.session_api.transcripts import TranscriptEntry, Unanswered

SOURCE = Source(platform="test", account="bot", chat=Chat(id="1"))


def turn_with(*texts: str | None) -> Turn:
    now = datetime.now(UTC)

    async def load_history(_: int) -> tuple[TranscriptEntry, ...]:
        return ()

    async def publish_delta(_: str) -> None:
        pass

    return Turn(
        id=uuid4(),
        session_id=uuid4(),
        session_key="agent:main:test:bot:dm:1",
        agent="main",
        attempt=1,
        source=SOURCE,
        messages=tuple(
            TurnMessage(seq=seq, text=text, source=SOURCE, stored_at=now)
            for seq, text in enumerate(texts, start=1)
        ),
        load_history=load_history,
        publish_delta=publish_delta,
    )


@pytest.mark.parametrize(
    ("texts", "text"), [(("a",), "a"), (("a", None, "b"), "a\nb"), ((None,), "")]
)
def test_the_text_of_a_turn_is_all_that_was_written(
    texts: tuple[str | None, ...], text: str
) -> None:
    assert turn_with(*texts).text == text


async def test_a_turn_made_by_hand_is_enough_to_test_a_handler() -> None:
    turn = turn_with("hello")
    assert await turn.history() == ()
    await turn.delta("hi")


def test_the_name_of_a_worker_fits_into_a_claim() -> None:
    ClaimRequest(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        turn_id=uuid4(),
        worker=process_name(),
    )


def test_a_model_is_told_who_says_what_where_several_people_talk() -> None:
    first, second, empty = turn_with("hi", "a\nb", None).messages
    ann = first.model_copy(update={"sender_prefix": "[Ann]"})

    assert prompt_of([ann, second, empty]) == "[Ann] hi\na\nb"
    assert turn_with("hi", "there").prompt == "hi\nthere"


def test_a_model_is_told_who_said_what_before() -> None:
    row = TranscriptEntry(
        seq=1, role=Role.USER, content="hi", sender_prefix="[Ann]", created_at=datetime.now(UTC)
    )

    assert prompt_of([row]) == "[Ann] hi"
    assert prompt_of([row.model_copy(update={"content": None})]) == ""


@pytest.mark.parametrize("reason", Unanswered)
def test_f03_what_was_not_answered_says_so_to_a_model(reason: Unanswered) -> None:
    row = TranscriptEntry(
        seq=1, role=Role.USER, content="pay the rent", created_at=datetime.now(UTC)
    )
    told = prompt_of([row.model_copy(update={"unanswered": reason})])
    assert told.startswith("pay the rent\n[Not answered: ")
    assert told.endswith("Do not answer it now.]")
    assert prompt_of([row]) == "pay the rent"
