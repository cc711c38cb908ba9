"""Drafts: what a chat sees of an answer while it is written."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from chatlane_client import RateBudget, RetryAfter, TextLimit, Undeliverable
from chatlane_client.drafts import Draft, Drafts
from chatlane_schemas import (
    Chat,
    LivePiece,
    PieceKind,
    Source,
    TurnEnded,
    TurnOutcome,
    TurnPiece,
    TurnRecap,
    TurnStarted,
)
from tests.support.eventually import eventually

TARGET = Source(platform="telegram", account="bot", chat=Chat(id="7"))
SESSION_ID = UUID(int=1)
TURN_ID = UUID(int=2)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Platform:
    """A chat, as its calls leave it.

    Attributes:
        sent: How many messages were sent.
        deleted: The ids of messages that were deleted.
        calls: What was called, in order.
        keys: The key of each attempt to send, and whether it was said to be a further one.
        answers: Set while calls are answered.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.deleted: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.keys: list[tuple[str, bool]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.error: Exception | None = None

    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        assert target == TARGET
        self.keys.append((key, may_be_sent))
        await self._call("send", text)
        self.sent += 1
        return f"m{self.sent}"

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        assert (target, message_id) == (TARGET, f"m{self.sent or 1}"), "the newest message"
        await self._call("edit", text)

    async def delete(self, target: Source, message_id: str) -> None:
        assert target == TARGET
        self.deleted.append(message_id)
        await self._call("delete", "")

    async def _call(self, verb: str, text: str) -> None:
        self.calls.append((verb, text))
        await self.answers.wait()
        if self.error is not None:
            raise self.error


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
def drafts(platform: Platform, reported: list[str]) -> Drafts:
    async def report(turn_id: UUID, target: Source, message_id: str) -> None:
        assert (turn_id, target) == (TURN_ID, TARGET)
        reported.append(message_id)

    return Drafts(platform, report, interval=timedelta(0))


def event(**fields: object) -> dict[str, object]:
    """Return the fields of an event about the turn."""
    head = {"id": uuid4().hex, "at": NOW, "turn_id": TURN_ID, "session_id": SESSION_ID}
    return {**head, "agent": "main", "attempt": 1, **fields}


def started(**fields: object) -> TurnStarted:
    return TurnStarted.model_validate(event(source=TARGET, **fields))


def ended(outcome: TurnOutcome, *outbound_ids: str) -> TurnEnded:
    return TurnEnded.model_validate(event(outcome=outcome, outbound_ids=outbound_ids))


def piece(text: str, kind: PieceKind = PieceKind.TEXT, index: int = 0) -> TurnPiece:
    shown = LivePiece(kind=kind, text=text)
    return TurnPiece.model_validate(event(index=index, piece=shown))


async def show_draft(platform: Platform, drafts: Drafts, text: str) -> None:
    """Start the turn with a piece, and wait until the chat has its draft."""
    drafts.update(started())
    drafts.update(piece(text))
    await eventually(lambda: platform.sent == 1)


async def test_text_is_sent_once_then_edited_and_left_to_the_answer(
    platform: Platform, drafts: Drafts, reported: list[str]
) -> None:
    drafts.update(started())
    drafts.update(piece("Once "))
    await eventually(lambda: platform.calls == [("send", "Once ")])
    drafts.update(piece("thinking", PieceKind.THOUGHT))
    drafts.update(piece("upon "))
    await eventually(lambda: len(platform.calls) == 2)
    drafts.update(piece("a time"))
    await eventually(lambda: len(platform.calls) == 3)

    assert await drafts.finish(TURN_ID) == "m1"
    assert platform.calls[1:] == [("edit", "Once upon "), ("edit", "Once upon a time")]
    assert reported == ["m1"]
    # A delivery that is tried again gets the same message.
    assert await drafts.finish(TURN_ID) == "m1"


async def test_edits_wait_for_each_other_and_skip_what_is_outdated(
    platform: Platform, drafts: Drafts
) -> None:
    platform.answers.clear()
    drafts.update(started())
    drafts.update(piece("a"))
    await eventually(lambda: bool(platform.calls))
    for text in ("b", "c", "d"):
        drafts.update(piece(text))
    platform.answers.set()
    await eventually(lambda: platform.calls[-1] == ("edit", "abcd"))
    assert len(platform.calls) == 2


async def test_an_interval_bounds_the_edits(platform: Platform) -> None:
    async def report(_: str) -> None:
        pass

    draft = Draft(platform, TARGET, report, interval=timedelta(hours=1))
    draft.show("a")
    await eventually(lambda: bool(platform.calls))
    draft.show("ab")
    # Ends the pause at once, and edits nothing after it.
    assert await draft.finish() == "m1"
    assert platform.calls == [("send", "a")]


async def test_the_answer_waits_for_a_call_in_progress(platform: Platform, drafts: Drafts) -> None:
    platform.answers.clear()
    drafts.update(started())
    drafts.update(piece("slow"))
    await eventually(lambda: bool(platform.calls))
    finishing = asyncio.create_task(drafts.finish(TURN_ID))
    platform.answers.set()
    assert await finishing == "m1"


async def test_pieces_after_the_answer_begin_no_other_draft(
    platform: Platform, drafts: Drafts
) -> None:
    drafts.update(started())
    assert await drafts.finish(TURN_ID) is None
    drafts.update(piece("late"))
    drafts.update(started(attempt=2))
    drafts.update(piece("later"))
    await drafts.close()
    assert platform.calls == []


@pytest.mark.parametrize(
    "outcome", [TurnOutcome.NO_REPLY, TurnOutcome.CANCELLED, TurnOutcome.FAILED]
)
async def test_a_turn_without_an_answer_takes_its_draft_away(
    platform: Platform, drafts: Drafts, outcome: TurnOutcome
) -> None:
    await show_draft(platform, drafts, "half")
    drafts.update(ended(outcome))
    await eventually(lambda: platform.calls[-1] == ("delete", ""))
    assert await drafts.finish(TURN_ID) is None


async def test_a_turn_with_an_answer_keeps_its_draft_until_it_is_delivered(
    platform: Platform, drafts: Drafts
) -> None:
    await show_draft(platform, drafts, "half")
    drafts.update(ended(TurnOutcome.OK, "answer-1"))
    drafts.update(piece("late"))
    assert await drafts.finish(TURN_ID) == "m1"
    assert platform.calls == [("send", "half")]


async def test_another_attempt_goes_on_in_the_message_of_the_one_before(
    platform: Platform, drafts: Drafts
) -> None:
    drafts.update(started(attempt=2, draft="m1"))
    drafts.update(piece("again"))
    await eventually(lambda: platform.calls == [("edit", "again")])
    assert await drafts.finish(TURN_ID) == "m1"


async def test_a_recap_takes_the_place_of_the_text_before(
    platform: Platform, drafts: Drafts
) -> None:
    await show_draft(platform, drafts, "a")
    pieces = [
        LivePiece(kind=PieceKind.TEXT, text="abc"),
        LivePiece(kind=PieceKind.THOUGHT, text="hm"),
    ]
    drafts.update(TurnRecap.model_validate(event(next_index=3, pieces=pieces)))
    await eventually(lambda: platform.calls[-1] == ("edit", "abc"))


async def test_a_message_whose_answer_got_lost_is_sent_again_with_its_key(
    platform: Platform, drafts: Drafts, reported: list[str]
) -> None:
    platform.error = TimeoutError()
    drafts.update(started())
    drafts.update(piece("a"))
    await eventually(lambda: len(platform.calls) == 2)
    platform.error = None
    drafts.update(piece("b"))
    await eventually(lambda: platform.calls[-1] == ("edit", "ab"))
    assert await drafts.finish(TURN_ID) == "m1"
    (first, was_further), *others = platform.keys
    assert not was_further
    assert others == [(first, True)] * len(others)
    assert reported == ["m1"]


async def test_another_process_sends_the_draft_of_a_turn_with_the_same_key(
    platform: Platform, reported: list[str]
) -> None:
    async def report(_turn_id: UUID, _target: Source, message_id: str) -> None:
        reported.append(message_id)

    for count in (1, 2):
        process = Drafts(platform, report, interval=timedelta(0))
        process.update(started())
        process.update(piece("a"))
        await eventually(lambda count=count: len(reported) == count)  # type: ignore[misc]
        await process.close()
    (first, _), (second, _) = platform.keys
    assert first == second


@pytest.mark.parametrize(("attempt", "edits"), [(1, 0), (2, 1)])
async def test_a_draft_of_a_later_attempt_may_show_what_an_earlier_one_wrote(
    platform: Platform, drafts: Drafts, attempt: int, edits: int
) -> None:
    drafts.update(started(attempt=attempt))
    drafts.update(piece("a"))
    await eventually(lambda: len(platform.calls) == 1 + edits)
    drafts.update(piece("b", index=1))
    await eventually(lambda: platform.calls[-1] == ("edit", "ab"))
    assert platform.calls == [("send", "a"), *[("edit", "a")] * edits, ("edit", "ab")]


async def test_the_answer_waits_until_it_is_known_whether_there_is_a_message(
    platform: Platform, drafts: Drafts
) -> None:
    platform.error = TimeoutError()
    drafts.update(started())
    drafts.update(piece("a"))
    await eventually(lambda: bool(platform.calls))
    with pytest.raises(TimeoutError):
        await drafts.finish(TURN_ID)
    platform.error = None
    assert await drafts.finish(TURN_ID) == "m1"
    assert await drafts.finish(TURN_ID) == "m1"
    assert platform.sent == 1


async def test_a_message_that_the_platform_cannot_find_is_not_sent_again(
    platform: Platform, drafts: Drafts
) -> None:
    platform.error = TimeoutError()
    drafts.update(started())
    drafts.update(piece("a"))
    await eventually(lambda: bool(platform.calls))
    platform.error = Undeliverable("it cannot be found")
    assert await drafts.finish(TURN_ID) is None
    calls = len(platform.calls)
    platform.error = None
    assert await drafts.finish(TURN_ID) is None
    assert len(platform.calls) == calls


async def test_an_edit_that_fails_is_made_up_for_by_the_next(
    platform: Platform, drafts: Drafts
) -> None:
    await show_draft(platform, drafts, "a")
    platform.error = OSError()
    drafts.update(piece("b"))
    await eventually(lambda: len(platform.calls) == 2)
    platform.error = None
    drafts.update(piece("c"))
    await eventually(lambda: platform.calls[-1] == ("edit", "abc"))


async def test_blank_text_shows_nothing(platform: Platform, drafts: Drafts) -> None:
    drafts.update(started())
    drafts.update(piece(" \n"))
    assert await drafts.finish(TURN_ID) is None
    assert platform.calls == []


async def test_a_discarded_draft_leaves_the_chat(platform: Platform, drafts: Drafts) -> None:
    await show_draft(platform, drafts, "half")
    await drafts.discard(TURN_ID, TARGET, None)
    assert platform.calls == [("send", "half"), ("delete", "")]
    assert await drafts.finish(TURN_ID) is None


async def test_the_draft_of_an_earlier_process_leaves_the_chat(
    platform: Platform, drafts: Drafts
) -> None:
    await drafts.discard(TURN_ID, TARGET, "m1")
    assert platform.calls == [("delete", "")]


async def test_a_draft_shows_the_first_piece_of_a_long_text(
    platform: Platform, reported: list[str]
) -> None:
    draft = a_draft(platform, reported, limit=TextLimit(40))
    draft.show("word " * 7)
    await eventually(lambda: bool(platform.calls))
    draft.show("word " * 100)
    draft.show("word " * 101)
    await draft.finish()
    assert all(len(text) <= 40 for _, text in platform.calls)
    assert len(platform.calls) <= 2


async def test_a_draft_waits_as_long_as_the_platform_says(
    platform: Platform, reported: list[str]
) -> None:
    budget = RateBudget()
    platform.error = RetryAfter(0.2)
    draft = a_draft(platform, reported, budget=budget)
    draft.show("a")
    await eventually(lambda: bool(platform.calls))
    assert budget.try_take("7") > 0, "messages of the chat wait as well"
    platform.error = None
    await eventually(lambda: draft.message_id == "m1")
    assert platform.calls == [("send", "a"), ("send", "a")]
    await draft.finish()


async def test_a_draft_takes_only_what_messages_leave(
    platform: Platform, reported: list[str]
) -> None:
    budget = RateBudget(per_second=0.001)
    await budget.wait("8")
    draft = a_draft(platform, reported, budget=budget)
    draft.show("a")
    assert await draft.finish() is None
    assert platform.calls == []


async def test_text_behind_another_message_of_the_turn_moves_the_draft(
    platform: Platform, drafts: Drafts, reported: list[str]
) -> None:
    drafts.update(started())
    drafts.update(piece("Once "))
    await eventually(lambda: platform.calls == [("send", "Once ")])
    drafts.pass_by(TURN_ID)
    drafts.update(piece("upon "))
    await eventually(lambda: platform.sent == 2)
    drafts.update(piece("a time"))
    await eventually(lambda: platform.calls[-1] == ("edit", "Once upon a time"))
    # A process that dies in between leaves no message that the next one does not know.
    assert platform.calls[1:3] == [("delete", ""), ("send", "Once upon ")]
    assert platform.deleted == ["m1"]
    assert reported == ["m1", "m2"]
    assert await drafts.finish(TURN_ID) == "m2"
    assert not drafts.is_passed(TURN_ID)


async def test_a_draft_before_another_message_is_deleted_for_the_answer(
    platform: Platform, drafts: Drafts
) -> None:
    await show_draft(platform, drafts, "half")
    drafts.pass_by(TURN_ID)
    # A delivery that is tried again finds the same.
    for _ in range(2):
        assert await drafts.finish(TURN_ID) is None
        assert drafts.is_passed(TURN_ID)
    assert platform.deleted == ["m1"]


async def test_a_draft_that_a_message_passes_while_it_is_sent_moves_again(
    platform: Platform, drafts: Drafts
) -> None:
    platform.answers.clear()
    drafts.update(started())
    drafts.update(piece("a"))
    await eventually(lambda: bool(platform.calls))
    drafts.pass_by(TURN_ID)
    platform.answers.set()
    drafts.update(piece("b"))
    await eventually(lambda: platform.sent == 2)
    assert platform.calls[:3] == [("send", "a"), ("delete", ""), ("send", "ab")]
    assert platform.deleted == ["m1"]


async def test_a_draft_whose_move_fails_is_still_deleted_for_the_answer(
    platform: Platform, drafts: Drafts
) -> None:
    await show_draft(platform, drafts, "a")
    drafts.pass_by(TURN_ID)
    platform.error = TimeoutError()
    drafts.update(piece("b"))
    await eventually(lambda: len(platform.calls) == 2)
    platform.error = None
    assert await drafts.finish(TURN_ID) is None
    assert drafts.is_passed(TURN_ID)
    assert platform.calls == [("send", "a"), ("delete", ""), ("delete", "")]
    assert platform.deleted == ["m1", "m1"]


async def test_the_answer_waits_until_a_draft_before_another_message_is_deleted(
    platform: Platform, drafts: Drafts
) -> None:
    await show_draft(platform, drafts, "half")
    drafts.pass_by(TURN_ID)
    platform.error = RetryAfter(0.01)
    with pytest.raises(RetryAfter):
        await drafts.finish(TURN_ID)
    platform.error = None
    assert await drafts.finish(TURN_ID) is None
    assert drafts.is_passed(TURN_ID)
    assert platform.calls == [("send", "half"), ("delete", ""), ("delete", "")]


async def test_a_draft_is_deleted_when_the_platform_asked_to_wait(
    platform: Platform, drafts: Drafts
) -> None:
    await show_draft(platform, drafts, "half")
    platform.error = RetryAfter(0.01)
    drafts.update(ended(TurnOutcome.FAILED))
    await eventually(lambda: platform.deleted == ["m1"])
    platform.error = None
    await eventually(lambda: platform.deleted == ["m1", "m1"])


async def test_the_end_does_not_wait_for_a_platform_that_deletes_nothing(
    platform: Platform, drafts: Drafts
) -> None:
    await show_draft(platform, drafts, "half")
    platform.error = RetryAfter(60)
    drafts.update(ended(TurnOutcome.FAILED))
    await eventually(lambda: platform.deleted == ["m1"])
    async with asyncio.timeout(5):
        await drafts.close()


async def test_a_draft_that_a_message_passes_while_it_is_in_doubt_moves(
    platform: Platform, drafts: Drafts
) -> None:
    platform.error = TimeoutError()
    drafts.update(started())
    drafts.update(piece("a"))
    await eventually(lambda: platform.calls == [("send", "a")])
    # The platform has the draft, and shows the message of the turn behind it.
    drafts.pass_by(TURN_ID)
    platform.error = None
    await eventually(lambda: platform.calls[-2:] == [("delete", ""), ("send", "a")])
    assert platform.deleted == ["m1"]
    assert await drafts.finish(TURN_ID) == "m2"


def a_draft(
    platform: Platform,
    reported: list[str],
    *,
    limit: TextLimit | None = None,
    budget: RateBudget | None = None,
) -> Draft:
    async def report(message_id: str) -> None:
        reported.append(message_id)

    return Draft(platform, TARGET, report, interval=timedelta(0), limit=limit, budget=budget)
