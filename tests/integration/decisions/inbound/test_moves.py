"""Cases C12 and C13: ids that change, and ids of one person or chat that are learnt late."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from chatlane.decisions.batch_decision import BatchDecision, decoded
from chatlane.domain.addressing.alias_rows import chat_alias
from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.policy import ResetPolicy
from chatlane.store.addressing import aliases
from tests.support.eventually import eventually
from tests.support.worlds.kernel import (
    SESSION_EVENTS,
    SLOTS,
    Fields,
    Kernel,
    at,
    catalog,
    event,
    texts,
)

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]

_WAITING_FOR_LOCKS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""

OLD, NEW, NEWEST = "-4518", "-1002471", "-1009999"


def in_group(chat: str, user: str, mid: str, text: str = "hi", **more: Any) -> Any:  # noqa: ANN401
    return event(kind_of_chat="group", chat=chat, user=user, mid=mid, text=text, **more)


def move(old: str = OLD, new: str = NEW, **more: Any) -> Any:  # noqa: ANN401 - any field of an event
    fields: Fields = {"kind_of_chat": "group", "chat": old, "migrate_to": new, "kind": "migration"}
    return event(**(fields | more))


def chats(bodies: list[dict[str, Any]], of: str = "target") -> list[str]:
    """Return the chat each of these publications is for."""
    return [body[of]["chat"]["id"] for body in bodies]


async def test_a_group_keeps_its_conversations_under_a_new_id(kernel: Kernel) -> None:
    """C12."""
    one = await kernel.say(in_group(OLD, "7", "150", "our code word is fig"), at("09:00"))
    two = await kernel.say(in_group(OLD, "8", "151", "hello"), at("09:01"))
    await kernel.run_all(at("09:01"))
    moved = await kernel.say(move(mid="153", text=""), at("09:02"))
    four = await kernel.say(in_group(NEW, "7", "1", "code word?"), at("09:03"))
    five = await kernel.say(in_group(NEW, "8", "150", "hi again"), at("09:04"))
    await kernel.run_all(at("09:05"))

    assert (four.session, five.session) == (one.session, two.session)
    assert (moved.session_id, moved.dead) == (None, None)
    assert await kernel.runs(five) == 1
    assert await kernel.said(one.session) == ["our code word is fig", "ok", "code word?", "ok"]
    assert await kernel.said(two.session) == ["hello", "ok", "hi again", "ok"]
    assert await kernel.value("SELECT count(*) FROM sessions") == 2
    assert chats(await kernel.published("OUTBOUND")) == [OLD, OLD, NEW, NEW]


async def test_every_lane_of_a_moved_chat_moves(kernel: Kernel) -> None:
    """C12: each person, each topic, the shared lane."""
    places: list[Fields] = [
        {"user": "7"},
        {"user": "8"},
        {"user": None},
        {"user": "7", "thr": "10", "is_forum": True},
        {"user": "7", "thr": "11", "is_forum": True},
    ]
    group: Fields = {"kind_of_chat": "group", "text": "hi"}
    before = [
        await kernel.say(event(**group, **place, chat=OLD, mid=str(number)), at("09:00"))
        for number, place in enumerate(places)
    ]
    await kernel.say(move(), at("09:01"))
    after = [
        await kernel.say(event(**group, **place, chat=NEW, mid=str(number)), at("09:02"))
        for number, place in enumerate(places)
    ]
    assert [one.session for one in after] == [one.session for one in before]
    assert len({one.session for one in before}) == len(places)


async def test_what_waits_and_what_runs_is_answered_in_the_new_chat(kernel: Kernel) -> None:
    """C12: nobody can write to the old id any more."""
    running = await kernel.say(in_group(OLD, "7", "1", "long job"), at("09:00"))
    claimed = await kernel.claim_live(running.session)
    await kernel.say(in_group(OLD, "7", "2", "and this"), at("09:01"))
    ready = await kernel.say(in_group(OLD, "8", "3", "unclaimed"), at("09:02"))
    await kernel.say(in_group("-77", "7", "4", "elsewhere"), at("09:02"))
    await kernel.say(move(), at("09:03"))

    await kernel.answer(claimed, "done", at("09:04"))
    await kernel.run_turn(running.session)
    assert (await kernel.run_turn(ready.session)).messages[0].source.chat.id == NEW  # type: ignore[union-attr]
    await kernel.run_all()
    assert chats(await kernel.published("OUTBOUND")) == [NEW, NEW, NEW, "-77"]


async def test_a_stream_answer_goes_to_the_new_chat(kernel_with: KernelWith) -> None:
    """C12."""
    kernel = await kernel_with(catalog(agents=[Agent("main", delivery="stream")]))
    await kernel.say(in_group(OLD, "7", "1", "question"), at("09:00"))
    await kernel.say(move(), at("09:01"))
    (routed,) = await kernel.published("ROUTED")
    await kernel.decide([kernel.stream_answer(routed, "late but right", at("09:02"))])
    assert chats(await kernel.published("OUTBOUND")) == [NEW]


async def test_what_a_chat_left_running_is_answered_in_the_new_chat(kernel: Kernel) -> None:
    """C12: its lane leads elsewhere by the time the chat moves."""
    left = await kernel.say(in_group(OLD, "7", "1", "long job"), at("09:00"))
    await kernel.run_turn(left.session)
    await kernel.say(in_group(OLD, "7", "2", "another one"), at("09:01"))
    claimed = await kernel.claim_live(left.session)
    await kernel.say(in_group(OLD, "7", "3", "/branch"), at("09:02"))
    await kernel.say(move(), at("09:03"))
    await kernel.answer(claimed, "done", at("09:04"))
    answers = [one for one in await kernel.published("OUTBOUND") if one["kind"] == "answer"]
    assert chats(answers) == [OLD, NEW]


async def test_a_stream_answer_to_what_a_chat_left_goes_to_the_new_chat(
    kernel_with: KernelWith,
) -> None:
    """C12: whatever the lane leads to."""
    kernel = await kernel_with(catalog(agents=[Agent("main", delivery="stream")]))
    await kernel.say(in_group(OLD, "7", "1", "question"), at("09:00"))
    (routed,) = await kernel.published("ROUTED")
    await kernel.say(in_group(OLD, "7", "2", "/new"), at("09:01"))
    await kernel.say(move(), at("09:02"))
    await kernel.decide([kernel.stream_answer(routed, "late but right", at("09:03"))])
    answers = [one for one in await kernel.published("OUTBOUND") if one["kind"] == "answer"]
    assert chats(answers) == [NEW]


async def test_a_chat_that_moves_twice_keeps_its_conversations(kernel: Kernel) -> None:
    """C12: also what waits is found again, although its lane is named by the first id."""
    first = await kernel.say(in_group(OLD, "7", "1"), at("09:00"))
    await kernel.say(move(OLD, NEW), at("09:01"))
    second = await kernel.say(in_group(NEW, "7", "1"), at("09:02"))
    await kernel.say(move(NEW, NEWEST), at("09:03"))
    third = await kernel.say(in_group(NEWEST, "7", "1"), at("09:04"))
    assert first.session == second.session == third.session

    claimed = await kernel.claim_live(first.session)
    assert [one.source.chat.id for one in claimed.messages] == [NEWEST] * 3  # type: ignore[union-attr]
    await kernel.answer(claimed)
    assert chats(await kernel.published("OUTBOUND")) == [NEWEST]


async def test_an_old_move_told_again_leads_nobody_back(kernel: Kernel) -> None:
    """C12 with C19: after a restart an adapter tells what is long past."""
    first_move = move(OLD, NEW, event_id="1")
    first = await kernel.say(in_group(OLD, "7", "1"), at("09:00"))
    await kernel.say(first_move, at("09:01"))
    await kernel.say(move(NEW, NEWEST), at("09:02"))
    await kernel.say(first_move, at("09:03"))
    await kernel.say(move(OLD, NEW), at("09:03"))
    claimed = await kernel.claim_live(first.session)
    assert claimed.messages[0].source.chat.id == NEWEST  # type: ignore[union-attr]


async def test_a_lane_begun_between_two_moves_follows_the_second(kernel: Kernel) -> None:
    """C12: nobody has spoken there since, so it still has the name of the middle id."""
    bob = await kernel.say(in_group(NEW, "8", "1", "early"), at("09:00"))
    await kernel.say(move(OLD, NEW), at("09:01"))
    await kernel.say(move(NEW, NEWEST), at("09:02"))
    claimed = await kernel.claim_live(bob.session)
    assert claimed.messages[0].source.chat.id == NEWEST  # type: ignore[union-attr]


async def test_messages_under_the_new_id_may_overtake_the_move(kernel: Kernel) -> None:
    """C12: two ids are two partitions, so nothing orders them.

    A lane that began under the new id is bound where none is; else what waits there goes on
    in the older conversation.
    """
    ann = await kernel.say(in_group(OLD, "7", "150", "our code word is fig"), at("09:00"))
    await kernel.run_all()
    early_ann = await kernel.say(in_group(NEW, "7", "1", "code word?"), at("09:01"))
    early_bob = await kernel.say(in_group(NEW, "8", "2", "hello"), at("09:02"))
    assert early_ann.session != ann.session

    await kernel.say(move(), at("09:03"))
    late_ann = await kernel.say(in_group(NEW, "7", "3", "well?"), at("09:04"))
    late_bob = await kernel.say(in_group(NEW, "8", "4", "anyone?"), at("09:05"))
    assert late_ann.session == ann.session
    assert late_bob.session == early_bob.session
    assert (await kernel.placed(early_ann.message)).session == ann.session

    told = [texts(claimed) for claimed in await kernel.run_all()]
    assert sorted(told, key=str) == [["code word?", "well?"], ["hello", "anyone?"]]


async def test_of_several_lanes_of_one_chat_the_oldest_stays(kernel: Kernel) -> None:
    """C12: whatever order the database finds them in."""
    for number in range(5):
        middle, last = f"-2{number}", f"-3{number}"
        later = await kernel.say(in_group(last, "7", "1", "second"), at("09:01"))
        older = await kernel.say(in_group(middle, "7", "1", "first"), at("09:00"))
        await kernel.say(move(f"-1{number}", middle), at("09:02"))
        await kernel.say(move(middle, last), at("09:03"))
        joined = await kernel.say(in_group(last, "7", "2", "third"), at("09:04"))
        assert joined.session == older.session
        assert (await kernel.placed(later.message)).session == older.session
        assert await kernel.waiting(older.session) == ["first", "second", "third"]


async def test_a_move_told_again_changes_nothing_more(kernel: Kernel) -> None:
    """C12: an adapter repeats it after a restart, or names no kind of chat."""
    first = await kernel.say(in_group(OLD, "7", "1"), at("09:00"))
    for kind_of_chat in ("group", "dm", "group", "dm"):
        placed = await kernel.say(move(kind_of_chat=kind_of_chat), at("09:01"))
        assert placed.dead is None
    second = await kernel.say(in_group(NEW, "7", "1"), at("09:02"))
    assert first.session == second.session
    assert await kernel.value("SELECT count(*) FROM aliases") == 2


async def test_a_move_that_names_no_kind_of_chat_counts_from_the_start(kernel: Kernel) -> None:
    """C12."""
    first = await kernel.say(in_group(OLD, "7", "1"), at("09:00"))
    await kernel.say(move(kind_of_chat="dm"), at("09:01"))
    second = await kernel.say(in_group(NEW, "7", "1"), at("09:02"))
    assert first.session == second.session
    claimed = await kernel.claim_live(first.session)
    assert [one.source.chat.id for one in claimed.messages] == [NEW, NEW]  # type: ignore[union-attr]


async def test_a_move_onto_the_new_id_of_another_chat_is_refused(kernel: Kernel) -> None:
    """C12: nobody's session is taken over, and nobody's answers are sent elsewhere."""
    victim = await kernel.say(in_group("-80", "7", "1", "mine"), at("09:00"))
    await kernel.say(move("-80", "-81"), at("09:01"))
    other = await kernel.say(in_group("-90", "7", "1", "waits"), at("09:02"))
    refused = await kernel.say(move("-90", "-81"), at("09:03"))
    assert refused.dead == "invalid"

    after = await kernel.say(in_group("-81", "7", "2", "still mine"), at("09:04"))
    assert after.session == victim.session
    claimed = await kernel.claim_live(other.session)
    assert claimed.messages[0].source.chat.id == "-90"  # type: ignore[union-attr]


async def test_a_move_in_one_workspace_moves_nothing_in_another(kernel: Kernel) -> None:
    """C12 with C03: an id counts inside its scope only."""
    acme: Fields = {"platform": "slack", "scope": "T_ACME"}
    other: Fields = {"platform": "slack", "scope": "T_OTHER"}
    ours = await kernel.say(in_group("C9", "U1", "1", **acme), at("09:00"))
    theirs = await kernel.say(in_group("C9", "U1", "1", **other), at("09:01"))
    await kernel.say(move("C9", "C10", **acme), at("09:02"))

    assert (await kernel.say(in_group("C10", "U1", "2", **acme))).session == ours.session
    assert (await kernel.say(in_group("C10", "U1", "2", **other))).session != theirs.session
    claimed = await kernel.claim_live(theirs.session)
    assert claimed.messages[0].source.chat.id == "C9"  # type: ignore[union-attr]


async def test_only_a_migration_moves_a_chat(kernel: Kernel) -> None:
    """C12: the field alone, on any other kind, says nothing."""
    first = await kernel.say(in_group(OLD, "7", "1"), at("09:00"))
    for number, kind in enumerate(("service", "edit", "message")):
        await kernel.say(move(kind=kind, mid=str(number), user="7"), at("09:01"))
    second = await kernel.say(in_group(NEW, "7", "1"), at("09:02"))
    assert first.session != second.session
    assert await kernel.value("SELECT count(*) FROM aliases") == 0


async def test_a_move_and_what_follows_it_in_one_batch(kernel: Kernel) -> None:
    """C12: the batch decides what its messages would have decided alone."""
    said = await kernel.say_together(
        [
            in_group(OLD, "7", "1", "before"),
            in_group(NEW, "8", "1", "early"),
            move(),
            in_group(NEW, "7", "2", "after"),
            in_group(NEW, "8", "3", "later"),
            move(NEW, NEWEST),
            in_group(NEWEST, "7", "4", "at last"),
        ]
    )
    assert said[0].session == said[3].session == said[6].session
    assert said[1].session == said[4].session
    claimed = await kernel.claim_live(said[0].session)
    assert texts(claimed) == ["before", "after", "at last"]
    assert {one.source.chat.id for one in claimed.messages} == {NEWEST}  # type: ignore[union-attr]


PHONE, LID, LAPTOP = "15550001@s.whatsapp.net", "9990001@lid", "15550001:12@s.whatsapp.net"
ROOM = "1203@g.us"


def dm(chat: str, mid: str, text: str = "hi", **more: Any) -> Any:  # noqa: ANN401 - any field of an event
    return event("whatsapp", chat=chat, user=chat, mid=mid, text=text, **more)


def in_room(user: str, mid: str, text: str = "hi", **more: Any) -> Any:  # noqa: ANN401
    return in_group(ROOM, user, mid, text, platform="whatsapp", **more)


@pytest.mark.parametrize(
    ("known_as", "link"),
    [pytest.param(PHONE, LID, id="told by phone"), pytest.param(LID, "+15550001", id="by lid")],
)
async def test_one_person_under_two_ids_has_one_history(
    kernel: Kernel, known_as: str, link: str
) -> None:
    """C13: from either side, in direct messages and in groups of per-person sessions."""
    await kernel.say(in_room(known_as, "A0", aliases=[link]), at("08:59"))
    said = [
        await kernel.say(dm(PHONE, "A1", "I am Kim"), at("09:00")),
        await kernel.say(dm(LID, "A2", "who am I?"), at("09:01")),
        await kernel.say(dm(LAPTOP, "A3", "from my laptop"), at("09:02")),
        await kernel.say(in_room(LID, "A4", "x"), at("09:03")),
        await kernel.say(in_room("+15550001", "A5", "y"), at("09:04")),
        await kernel.say(dm("15550002@s.whatsapp.net", "A6"), at("09:05")),
        await kernel.say(dm("8880007@lid", "A7"), at("09:06")),
    ]
    assert len({one.session for one in said[:3]}) == 1
    assert said[3].session == said[4].session
    assert len({said[index].session for index in (0, 3, 5, 6)}) == 4

    await kernel.run_turn(said[0].session)
    (answer,) = await kernel.published("OUTBOUND")
    assert answer["target"]["chat"]["id"] == LAPTOP


async def test_one_message_under_two_ids_of_its_sender_runs_once(kernel: Kernel) -> None:
    """C13 with C14: the bridge tells a message again under the other form of the same contact."""
    first = await kernel.say(dm(PHONE, "A1", "I am Kim", aliases=[LID]), at("09:00"))
    again = await kernel.say(dm(LID, "A1", "I am Kim"), at("09:01"))
    assert again.session_id is None
    await kernel.run_all()
    assert await kernel.said(first.session) == ["I am Kim", "ok"]


async def test_a_link_learnt_late_renames_a_lane_that_is_alone(kernel: Kernel) -> None:
    """C13: the person was only known by the hidden id; the key becomes that of the older id."""
    await kernel.say(in_room(PHONE, "A0"), at("08:58"))
    hidden = await kernel.say(dm(LID, "A1", "who am I?"), at("09:00"))
    linked = await kernel.say(dm(PHONE, "A2", "Kim", aliases=[LID]), at("09:01"))
    assert linked.session == hidden.session
    assert linked.key.endswith(":dm:15550001")
    assert await kernel.fetch("SELECT session_key FROM lanes WHERE session_key LIKE '%lid%'") == []
    assert texts(await kernel.claim_live(linked.session)) == ["who am I?", "Kim"]


async def test_a_link_learnt_late_merges_the_newer_conversation(kernel: Kernel) -> None:
    """C13: what waits goes on in the older one; the newer one ends, linked and noted."""
    older = await kernel.say(dm(PHONE, "A1", "I am Kim"), at("09:00"))
    await kernel.run_all(at("09:00"))
    newer = await kernel.say(dm(LID, "A2", "who am I?"), at("09:01"))
    more = await kernel.say(dm(LID, "A3", "hello?"), at("09:02"))
    assert newer.session == more.session != older.session

    linked = await kernel.say(dm(LID, "A4", "it is me", aliases=[PHONE]), at("09:03"))
    assert linked.session == older.session
    (ended,) = await kernel.fetch(
        "SELECT end_reason, parent_id, link_kind, active_turn FROM sessions WHERE id = $1",
        newer.session,
    )
    assert tuple(ended) == ("merged", older.session, "merged", None)
    (noted,) = await kernel.fetch("SELECT action, session_id FROM audit")
    assert tuple(noted) == ("session_merged", newer.session)
    (told,) = [
        one
        for one in await kernel.published("EVENTS", f"{SESSION_EVENTS}%")
        if one.get("reason") == "merged"
    ]
    assert told["session_id"] == str(newer.session)

    claims = [texts(claimed) for claimed in await kernel.run_all(at("09:04"))]
    assert claims == [["who am I?", "hello?", "it is me"]]
    assert await kernel.said(newer.session) == []
    assert await kernel.said(older.session) == [
        "I am Kim",
        "ok",
        "who am I?",
        "hello?",
        "it is me",
        "ok",
    ]


async def test_a_lane_that_is_led_elsewhere_meanwhile_is_not_taken_for_the_one_that_was_read(
    kernel: Kernel,
) -> None:
    """Another router begins the newer conversation anew while this one waits to join both."""
    await kernel.say(dm(PHONE, "A1", "I am Kim"), at("09:00"))
    await kernel.say(dm(LID, "A2", "who am I?"), at("09:01"))
    await kernel.run_all(at("09:01"))
    anew = kernel.logged(dm(LID, "A3", "/new"), at("09:02"))
    linked = kernel.logged(dm(LID, "A4", "it is me", aliases=[PHONE]), at("09:03"))

    async with kernel.writer.begin() as unit_of_work:
        await BatchDecision(kernel.catalog, SLOTS).run(
            unit_of_work, [decoded(anew, kernel.catalog)]
        )
        merger = asyncio.create_task(kernel.restarted().decide_in_the_end([linked]))
        await eventually(lambda: kernel.value(_WAITING_FOR_LOCKS))
    await merger

    leads_nowhere = """
        SELECT id FROM sessions LEFT JOIN lanes ON session_id = id
        WHERE ended_at IS NULL AND session_id IS NULL
    """
    assert await kernel.fetch(leads_nowhere) == []
    assert await kernel.value("SELECT count(*) FROM lanes") == 1


async def test_a_merged_conversation_whose_turn_runs_ends_it_normally(kernel: Kernel) -> None:
    """C13: its answer is sent and stays in its own transcript; nothing of it is told twice."""
    older = await kernel.say(dm(PHONE, "A1", "I am Kim"), at("09:00"))
    await kernel.run_all(at("09:00"))
    newer = await kernel.say(dm(LID, "A2", "long job"), at("09:01"))
    running = await kernel.claim_live(newer.session)
    await kernel.say(dm(LID, "A3", "waits"), at("09:02"))
    await kernel.say(dm(LID, "A4", "it is me", aliases=[PHONE]), at("09:03"))

    assert (await kernel.renew(running)).status == "renewed"
    await kernel.answer(running, "done", at("09:04"))
    assert await kernel.said(newer.session) == ["long job", "done"]
    assert await kernel.live_turn(newer.session) is None
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["waits", "it is me"]]
    assert (await kernel.published("OUTBOUND"))[1]["target"]["chat"]["id"] == LID
    assert await kernel.said(older.session) == ["I am Kim", "ok", "waits", "it is me", "ok"]


async def test_a_merge_joins_the_line_behind_a_running_turn(kernel: Kernel) -> None:
    """C13: the older conversation is busy; order is that of the merge."""
    older = await kernel.say(dm(PHONE, "A1", "long job"), at("09:00"))
    running = await kernel.claim_live(older.session)
    await kernel.say(dm(PHONE, "A2", "second"), at("09:01"))
    await kernel.say(dm(LID, "A3", "third"), at("09:02"))
    await kernel.say(dm(LID, "A4", "fourth", aliases=[PHONE]), at("09:03"))
    assert await kernel.waiting(older.session) == ["second", "third", "fourth"]
    await kernel.answer(running, "done", at("09:04"))
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["second", "third", "fourth"]]


async def test_a_merge_counts_what_the_person_did_in_both(kernel_with: KernelWith) -> None:
    """C13 with C24: they were active a minute ago, so the older talk is not idle."""
    kernel = await kernel_with(catalog(reset=ResetPolicy("idle", idle=timedelta(hours=1))))
    older = await kernel.say(dm(PHONE, "A1", "I am Kim"), at("09:00"))
    await kernel.run_all(at("09:00"))
    await kernel.say(dm(LID, "A2", "who am I?"), at("11:00"))
    await kernel.run_all(at("11:00"))
    linked = await kernel.say(dm(LID, "A3", "it is me", aliases=[PHONE]), at("11:01"))
    assert linked.session == older.session


async def test_a_link_in_the_middle_of_a_batch_joins_what_came_before_it(kernel: Kernel) -> None:
    """C13: the batch decides what its messages would have decided alone."""
    older = await kernel.say(dm(PHONE, "A1", "I am Kim"), at("09:00"))
    await kernel.run_all(at("09:00"))
    said = await kernel.say_together(
        [
            dm(LID, "A2", "who am I?"),
            dm(LID, "A3", "it is me", aliases=[PHONE]),
            dm(LID, "A4", "and now?"),
        ],
        at("09:01"),
    )
    assert {one.session for one in said} == {older.session}
    assert [texts(claimed) for claimed in await kernel.run_all()] == [
        ["who am I?", "it is me", "and now?"]
    ]


async def test_a_number_that_changed_hands_is_another_person(kernel: Kernel) -> None:
    """C13: the one who has the number now never sees what was said before."""
    kim = await kernel.say(dm(PHONE, "A1", "I am Kim", aliases=[LID]), at("09:00"))
    lee = await kernel.say(dm(PHONE, "A2", "I am Lee", aliases=["9990002@lid"]), at("09:01"))
    still_kim = await kernel.say(dm(LID, "A3", "Kim again"), at("09:02"))
    assert lee.session != kim.session
    assert still_kim.session == kim.session


async def test_a_number_that_changes_hands_inside_a_batch_is_another_person(
    kernel: Kernel,
) -> None:
    """C13: what came before the change stays with the one who wrote it."""
    said = await kernel.say_together(
        [
            dm(PHONE, "A1", "I am Kim", aliases=[LID]),
            dm(PHONE, "A2", "Kim still"),
            dm(PHONE, "A3", "I am Lee", aliases=["9990002@lid"]),
            dm(PHONE, "A4", "Lee still"),
            dm(LID, "A5", "Kim elsewhere"),
        ]
    )
    assert said[0].session == said[1].session == said[4].session
    assert said[2].session == said[3].session != said[0].session


async def test_two_forms_of_a_signal_contact_are_one(kernel: Kernel) -> None:
    """C13 on another platform: the UUID comes as the more stable id beside the number."""
    uuid = "3fa85f64-5717-4562-b3fc-2c963f66afa6"
    number = await kernel.say(
        event("signal", chat="+15551234567", user="+15551234567", mid="1", text="a"), at("09:00")
    )
    both: Fields = {"user": "+15551234567", "alt_user": uuid}
    linked = await kernel.say(event("signal", **both, mid="2", text="b"), at("09:01"))
    other = await kernel.say(event("signal", chat=uuid.upper(), mid="3", text="c"), at("09:02"))
    assert number.session == linked.session == other.session


async def test_a_move_is_believed_only_where_chats_move(kernel_with: KernelWith) -> None:
    declared = catalog()
    still = replace(declared.platforms["discord"], chats_migrate=False)
    kernel = await kernel_with(
        replace(declared, platforms={**declared.platforms, "discord": still})
    )
    old: Fields = {"platform": "discord", "kind_of_chat": "group", "chat": "-1", "user": "7"}
    new = {**old, "chat": "-2"}
    told = await kernel.say(event(**old, mid="1", text="a secret of the old chat"), at("09:00"))
    move = event(**{**old, "user": None}, kind="migration", migrate_to="-2")
    assert (await kernel.say(move, at("09:01"))).dead == "invalid"
    other = await kernel.say(event(**new, mid="1", text="hello"), at("09:02"))
    assert other.session != told.session
    assert await kernel.value("SELECT count(*) FROM aliases") == 0


async def test_an_operator_takes_a_claimed_move_back(kernel: Kernel) -> None:
    old: Fields = {"kind_of_chat": "group", "chat": "-1", "user": "7"}
    new = {**old, "chat": "-2"}
    told = await kernel.say(event(**old, mid="1", text="a secret of the old chat"), at("09:00"))
    await kernel.say(event(**{**old, "user": None}, kind="migration", migrate_to="-2"), at("09:01"))
    led = await kernel.say(event(**new, mid="1", text="hello"), at("09:02"))
    assert led.session == told.session

    async with kernel.owner.transaction() as connection:
        assert not await aliases.split_chat(connection, "telegram", "bot", chat_alias("-1", None))
        assert await aliases.split_chat(connection, "telegram", "bot", chat_alias("-2", None))
        assert not await aliases.split_chat(connection, "telegram", "bot", chat_alias("-2", None))
    own = await kernel.say(event(**new, mid="2", text="and now?"), at("09:03"))
    stays = await kernel.say(event(**old, mid="2", text="still here"), at("09:04"))
    assert own.session != told.session == stays.session
