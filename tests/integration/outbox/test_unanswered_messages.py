"""Faults F02 and F03: what was accepted is in a transcript, and says there why it has no answer."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.effects import Publication
from chatlane.domain.notices import ENGLISH, NoticeId
from chatlane.domain.policy import KeyRules
from chatlane.domain.sessions.transcripts import repaired
from chatlane.nats.advisories import Notice, Undelivered
from chatlane.nats.jetstream import StoredMessage
from chatlane.outbox.redrive import Retrying
from chatlane.outbox.undeliverable import UndeliverableMessages
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from tests.integration.decisions.commands.test_commands import ANN, lane
from tests.integration.requests.test_cancellation import Caller
from tests.support.worlds.kernel import DAY, Fields, Kernel, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ROOM: Fields = {"chat": "-900", "kind_of_chat": "group"}
# Longer than any of these tests takes.
LATER = timedelta(seconds=60)


def shared_room(**delivery_policy: Any) -> Catalog:  # noqa: ANN401 - any field of a platform
    """Return a catalog in which all people of a group have one session."""
    declared = catalog(keys=KeyRules(group_sessions_per_user=False))
    platforms = {name: replace(one, **delivery_policy) for name, one in declared.platforms.items()}
    return replace(declared, platforms=platforms)


async def entries(kernel: Kernel, session_id: UUID) -> tuple[TranscriptEntry, ...]:
    """Return a transcript as callers get it."""
    reads = TranscriptReads(kernel.store, kernel.catalog)
    found = await reads.rows(session_id, below_seq=2**63 - 1, limit=500, max_bytes=10**6)
    return found.rows[::-1]


async def marks(kernel: Kernel, session_id: UUID) -> list[tuple[str | None, str | None]]:
    """Return what each row of a transcript says, and why it has no answer."""
    return [(row.content, row.unanswered) for row in await entries(kernel, session_id)]


async def speak(kernel: Kernel, user: str, text: str, mid: str, **fields: Any) -> UUID | None:  # noqa: ANN401 - any field of an event
    """Say something in the room."""
    placed = await kernel.say(event(**ROOM, user=user, mid=mid, text=text, **fields), at("09:00"))
    return placed.session_id


@pytest.mark.parametrize("is_together", [False, True])
async def test_f02_new_keeps_what_waits_and_says_how_many(
    kernel: Kernel, *, is_together: bool
) -> None:
    said = [
        event(**ANN, mid="1", text="a table for two"),
        event(**ANN, mid="2", text="at eight"),
        event(**ANN, mid="3", text="/new"),
    ]
    if is_together:
        first, *_ = await kernel.say_together(said)
    else:
        first, *_ = [await kernel.say(one) for one in said]
    assert await marks(kernel, first.session) == [
        ("a table for two", "session_ended"),
        ("at eight", "session_ended"),
    ]
    assert await kernel.waiting(first.session) == []
    assert await kernel.told() == [
        f"{ENGLISH.text(NoticeId.STARTED)}\n2 messages in it were not answered.",
    ]
    assert await lane(kernel, first.session) != first.session
    assert await kernel.run_all() == []
    # It is no other message when it comes again.
    await kernel.decide([first.message])
    assert await kernel.run_all() == []


async def test_f02_new_keeps_what_waits_behind_a_running_turn(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="long job"))
    running = await kernel.claim_live(first.session)
    await kernel.say(event(**ANN, mid="2", text="and the weather"))
    await kernel.say(event(**ANN, mid="3", text="/new"))
    await kernel.answer(running, "", outcome="no_reply", parts=[])
    assert ("and the weather", "session_ended") in await marks(kernel, first.session)
    assert (await kernel.told())[-1].endswith("1 message in it was not answered.")


async def test_f02_a_reset_over_the_api_keeps_what_waits(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="water the plants"))
    await kernel.say(event(**ANN, mid="2", text="all of them"))
    reply = await Caller(kernel).reset_reply(first.session)
    assert reply.dropped == 2
    assert await marks(kernel, first.session) == [
        ("water the plants", "session_ended"),
        ("all of them", "session_ended"),
    ]
    assert await kernel.run_all() == []


async def test_f02_a_stop_keeps_what_waits(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="call Ben"))
    await kernel.say(event(**ANN, mid="2", text="/stop"))
    assert await marks(kernel, first.session) == [("call Ben", "stopped")]
    third = await kernel.say(event(**ANN, mid="3", text="call Cleo"))
    claimed = await kernel.run_turn(third.session)
    # No worker has seen the session before.
    assert (texts(claimed), claimed.session_is_new) == (["call Cleo"], True)
    fourth = await kernel.say(event(**ANN, mid="4", text="and Dan"))
    assert not (await kernel.run_turn(fourth.session)).session_is_new


async def test_f02_what_waits_is_still_answered_where_the_lane_is_led_elsewhere(
    kernel: Kernel,
) -> None:
    old = await kernel.say(event(**ANN, mid="1", text="the first talk"))
    await kernel.run_turn(old.session)
    await kernel.say(event(**ANN, mid="2", text="/new"))
    new = await kernel.say(event(**ANN, mid="3", text="the second talk"))
    await kernel.say(event(**ANN, mid="4", text=f"/resume {old.session}"))
    assert await lane(kernel, old.session) == old.session
    assert texts(await kernel.run_turn(new.session)) == ["the second talk"]


async def test_f02_a_new_of_one_person_leaves_what_others_said_to_be_answered(
    kernel_with: KernelWith,
) -> None:
    """In the old conversation, which their words belong to, and whose history they are about."""
    kernel = await kernel_with(shared_room(debounce=LATER, debounce_cap=LATER))
    old = await speak(kernel, "a", "a hotel in Rome", "1")
    await speak(kernel, "b", "with a pool", "2")
    await speak(kernel, "a", "near the station", "3")
    await speak(kernel, "a", "/new", "4")
    assert old is not None
    assert (await kernel.told())[-1].endswith(
        "2 messages in it were not answered.\n1 message of others will still be answered."
    )
    turn = await kernel.live_turn(old)
    assert turn is not None
    await kernel.expire(turn)
    assert texts(await kernel.run_turn(old)) == ["with a pool"]
    assert await marks(kernel, old) == [
        ("a hotel in Rome", "session_ended"),
        ("near the station", "session_ended"),
        ("with a pool", None),
        ("ok", None),
    ]
    assert [one["text"] for one in await kernel.published("OUTBOUND")][-1] == "ok"
    new = await speak(kernel, "b", "thanks", "5")
    assert new not in {old, None}


async def test_f02_a_running_turn_with_words_of_others_goes_on_after_new(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(shared_room())
    old = await speak(kernel, "a", "one", "1")
    await speak(kernel, "b", "two", "2")
    assert old is not None
    running = await kernel.claim_live(old)
    await speak(kernel, "a", "/new", "3")
    assert (await kernel.renew(running)).cancel is None
    assert (await kernel.told())[-1].endswith("1 message of others will still be answered.")
    await kernel.answer(running, "both")
    assert [one["text"] for one in await kernel.published("OUTBOUND")][-1] == "both"


async def test_f02_a_running_turn_of_one_person_ends_and_others_are_next(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(shared_room())
    old = await speak(kernel, "a", "one", "1")
    assert old is not None
    running = await kernel.claim_live(old)
    await speak(kernel, "b", "two", "2")
    await speak(kernel, "a", "/new", "3")
    assert (await kernel.renew(running)).cancel == "session_ended"
    await kernel.answer(running, "", outcome="no_reply", parts=[])
    assert texts(await kernel.run_turn(old)) == ["two"]


async def test_f02_an_album_and_a_message_without_its_files_are_kept(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(shared_room(album_wait=LATER, files_wait=LATER))
    photo: Fields = {
        "attachments": [{"url": "https://files.example/1.png", "media_type": "image/png"}]
    }
    first = await kernel.say(event(**ANN, mid="1", text="Rome", album_id="7", **photo))
    await kernel.say(event(**ANN, mid="2", album_id="7", **photo))
    await kernel.say(event(**ANN, mid="3", text="my ticket", awaits_files=True))
    await kernel.say(event(**ANN, mid="4", text="/new"))
    await kernel.say(event(**ANN, mid="3", kind="attachments", **photo))
    kept = await entries(kernel, first.session)
    assert [(row.content, row.unanswered, len(row.attachments)) for row in kept] == [
        ("Rome", "session_ended", 1),
        (None, "session_ended", 1),
        ("my ticket", "session_ended", 1),
    ]
    # The files come to the message that they are of, and start nothing.
    assert await kernel.run_all() == []


async def test_f02_a_branch_keeps_the_mark(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="call Ben"))
    await kernel.say(event(**ANN, mid="2", text="/stop"))
    await kernel.say(event(**ANN, mid="3", text="/branch"))
    copy = await lane(kernel, first.session)
    assert copy != first.session
    assert await marks(kernel, copy) == [("call Ben", "stopped")]


async def test_f02_what_was_not_answered_may_be_asked_again(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="call Ben"))
    await kernel.say(event(**ANN, mid="2", text="/stop"))
    await kernel.say(event(**ANN, mid="3", text="/retry"))
    assert texts(await kernel.run_turn(first.session)) == ["call Ben"]
    assert await marks(kernel, first.session) == [("call Ben", None), ("ok", None)]


# Turns that end without an answer.


async def test_f03_a_turn_that_failed_for_good_closes_its_question(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="sell all my shares"))
    claimed = await kernel.claim_live(first.session)
    await kernel.answer(claimed, "", outcome="failed", retry=False, parts=[])
    await kernel.say(event(**ANN, mid="2", text="how late is it?"))
    await kernel.run_turn(first.session, "noon")
    assert await marks(kernel, first.session) == [
        ("sell all my shares", "failed"),
        ("how late is it?", None),
        ("noon", None),
    ]


async def test_f03_an_attempt_that_is_repeated_leaves_its_question_open(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="sell all my shares"))
    claimed = await kernel.claim_live(first.session)
    await kernel.answer(claimed, "", outcome="failed", retry=True, parts=[])
    assert await marks(kernel, first.session) == [("sell all my shares", None)]


async def test_f03_a_turn_whose_workers_died_closes_its_question(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="sell all my shares"))
    while (turn := await kernel.live_turn(first.session)) is not None:
        await kernel.claim(turn)
        await kernel.expire(turn)
    assert await marks(kernel, first.session) == [("sell all my shares", "failed")]


@pytest.mark.parametrize("confirms", [True, False])
async def test_f03_a_stopped_turn_closes_its_question(kernel: Kernel, *, confirms: bool) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="delete the archive"))
    await kernel.say(event(**ANN, mid="2", text="all of it"))
    claimed = await kernel.claim_live(first.session)
    await kernel.say(event(**ANN, mid="3", text="/stop"))
    if confirms:
        await kernel.answer(claimed, "", outcome="no_reply", parts=[])
    else:
        assert claimed.turn_id is not None
        await kernel.expire(claimed.turn_id)
    assert await marks(kernel, first.session) == [
        ("delete the archive", "stopped"),
        ("all of it", "stopped"),
    ]


async def test_f03_a_stop_between_two_attempts_closes_the_question(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="delete the archive"))
    claimed = await kernel.claim_live(first.session)
    await kernel.answer(claimed, "", outcome="failed", retry=True, parts=[])
    await kernel.say(event(**ANN, mid="2", text="/stop"))
    assert await marks(kernel, first.session) == [("delete the archive", "stopped")]


async def test_f03_what_a_stopped_turn_still_answers_is_its_answer(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="count to ten"))
    claimed = await kernel.claim_live(first.session)
    await kernel.say(event(**ANN, mid="2", text="/stop"))
    await kernel.answer(claimed, "one, two")
    assert await marks(kernel, first.session) == [("count to ten", None), ("one, two", None)]


async def test_f03_a_question_that_a_newer_one_replaced_is_closed(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", busy="interrupt")]))
    first = await kernel.say(event(**ANN, mid="1", text="a table for four"))
    claimed = await kernel.claim_live(first.session)
    await kernel.say(event(**ANN, mid="2", text="no, for five"))
    await kernel.answer(claimed, "", outcome="no_reply", parts=[])
    await kernel.run_turn(first.session, "done")
    assert await marks(kernel, first.session) == [
        ("a table for four", "interrupted"),
        ("no, for five", None),
        ("done", None),
    ]


async def test_f03_an_answer_of_no_words_is_one(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="thanks"))
    claimed = await kernel.claim_live(first.session)
    await kernel.answer(claimed, "", outcome="no_reply", parts=[])
    assert await marks(kernel, first.session) == [("thanks", None)]


async def test_f03_a_failed_turn_keeps_what_it_did(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="sell all my shares"))
    claimed = await kernel.claim_live(first.session)
    calls = [{"role": "assistant", "tool_calls": [{"id": "c1", "name": "sell"}]}]
    await kernel.answer(claimed, "", outcome="failed", parts=[], transcript=calls)
    question, call = await entries(kernel, first.session)
    assert (question.unanswered, call.tool_calls) == ("failed", [{"id": "c1", "name": "sell"}])
    shown = repaired([question, call])
    assert [(row.tool_call_id, row.is_placeholder) for row in shown[2:]] == [("c1", True)]


async def test_f03_a_turn_that_is_tried_again_opens_its_question_again(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="sell all my shares"))
    claimed = await kernel.claim_live(first.session)
    await kernel.answer(claimed, "", outcome="failed", retry=False, parts=[])
    letter = await kernel.value("SELECT id FROM dead_letters")
    await Retrying(kernel.store, no_publish).retry(letter)
    assert await marks(kernel, first.session) == [("sell all my shares", None)]
    await kernel.run_turn(first.session, "sold")
    assert await marks(kernel, first.session) == [("sell all my shares", None), ("sold", None)]


async def no_publish(_row: Publication) -> None:
    """Publish nothing: what is retried here goes by way of the database."""


class Advisory:
    """The advisories of a server that says of one message that no worker acknowledged it."""

    def __init__(self, body: bytes) -> None:
        message = StoredMessage(1, DAY, "chat.v1.routed.main.0.s", body)
        self._notices: list[Notice] = [
            Notice(Undelivered("main-0", 1, 5, DAY, message), None)  # type: ignore[arg-type]
        ]

    async def next(self) -> Notice | None:
        return self._notices.pop() if self._notices else None

    async def acknowledge(self, notice: Notice) -> None:
        """Do nothing: it was taken."""


async def test_f03_a_message_that_no_stream_worker_took_is_closed_until_it_is_answered(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", delivery="stream")]))
    first = await kernel.say(event(**ANN, mid="1", text="ring the bell"))
    (routed,) = await kernel.published("ROUTED")
    advisory = Advisory(json.dumps(routed).encode())
    messages = UndeliverableMessages(advisory, kernel.store.transaction, kernel.metrics)  # type: ignore[arg-type]
    assert await messages.collect() == 1
    assert await marks(kernel, first.session) == [("ring the bell", "failed")]
    # A worker had it in hand, or an operator lets it come again.
    await kernel.decide([kernel.stream_answer(routed, "ding")])
    assert await marks(kernel, first.session) == [("ring the bell", None), ("ding", None)]
