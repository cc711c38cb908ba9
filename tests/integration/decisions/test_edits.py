"""Edits and deletes (C37): they change what a message says, wherever it is, and start nothing."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.session_api.transcripts import RowState
from chatlane_schemas.turns import ClaimStatus
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}
FILE = {"url": "https://example.org/a.png", "media_type": "image/png"}


def message(mid: str = "1", text: str = "sumarise", **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return event(**ANN, mid=mid, text=text, **fields)


def edit(mid: str = "1", text: str | None = "summarise", **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return event(**ANN, mid=mid, kind="edit", text=text, **fields)


def delete(mid: str = "1", **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return event(**ANN, mid=mid, kind="delete", **fields)


async def rows(kernel: Kernel, session: UUID) -> list[tuple[str | None, str | None]]:
    """Return (content, state) of what people said."""
    found = await kernel.fetch(
        "SELECT content, state FROM messages WHERE session_id = $1 AND role = 'user' ORDER BY seq",
        session,
    )
    return [tuple(row) for row in found]


async def revisions(kernel: Kernel, session: UUID) -> list[tuple[str | None, str]]:
    """Return (content, reason) of what rows said before, oldest first."""
    found = await kernel.fetch(
        "SELECT content, reason FROM message_revisions WHERE session_id = $1 ORDER BY id", session
    )
    return [tuple(row) for row in found]


async def test_an_edit_of_what_waits_replaces_it(kernel: Kernel) -> None:
    placed = await kernel.say(message(attachments=[FILE], reply_to="0"), at("09:00"))
    before = await kernel.fetch("SELECT * FROM sessions")
    await kernel.say(edit(), at("09:01"))
    assert await kernel.fetch("SELECT * FROM sessions") == before
    (told,) = (await kernel.run_turn(placed.session)).messages
    assert (told.text, told.attachments, told.kind) == ("summarise", (), "message")
    assert await rows(kernel, placed.session) == [("summarise", None)]
    assert await revisions(kernel, placed.session) == []
    assert await kernel.turns_of(placed.session) == 1


async def test_an_edit_brings_its_files(kernel: Kernel) -> None:
    placed = await kernel.say(message(), at("09:00"))
    await kernel.say(edit(text=None, attachments=[FILE]), at("09:01"))
    (told,) = (await kernel.claim_live(placed.session)).messages
    assert (told.text, [file.url for file in told.attachments]) == (None, [FILE["url"]])


async def test_an_edit_of_a_row_keeps_what_it_said(kernel: Kernel) -> None:
    """C37: event 2; no turn, no clock, no counter of the session."""
    placed = await kernel.say(message(), at("09:00"))
    await kernel.run_all()
    version = await kernel.value("SELECT revision FROM sessions")
    before = await kernel.fetch("SELECT last_activity_at, next_seq, user_messages FROM sessions")
    await kernel.say(edit(event_id="e1"), at("09:01"))
    await kernel.say(edit(text="summarise, please", event_id="e2"), at("09:02"))
    after = await kernel.fetch("SELECT last_activity_at, next_seq, user_messages FROM sessions")
    assert after == before
    assert await rows(kernel, placed.session) == [("summarise, please", "edited")]
    assert await revisions(kernel, placed.session) == [
        ("sumarise", "edited"),
        ("summarise", "edited"),
    ]
    assert await kernel.turns_of(placed.session) == 1
    assert await kernel.value("SELECT revision FROM sessions") == version + 2
    assert kernel.metrics.counts["message_changes", "edit", "applied"] == 2


async def test_an_edit_that_says_the_same_is_none(kernel: Kernel) -> None:
    """C37: bots and previews of links change hidden fields of old posts."""
    placed = await kernel.say(message(), at("09:00"))
    await kernel.run_all()
    await kernel.say(edit(text="sumarise"), at("09:01"))
    assert await rows(kernel, placed.session) == [("sumarise", None)]
    assert await revisions(kernel, placed.session) == []
    assert kernel.metrics.counts["message_changes", "edit", "same"] == 1


@pytest.mark.parametrize("is_claimed", [False, True])
async def test_an_older_edit_that_comes_later_changes_nothing(
    kernel: Kernel, *, is_claimed: bool
) -> None:
    placed = await kernel.say(message(), at("09:00"))
    if is_claimed:
        await kernel.claim_live(placed.session)
    for version, text in (("9", "c"), ("10", "d"), ("9.5", "x"), ("2", "b"), ("10.1", "e")):
        await kernel.say(edit(text=text, version=version), at("09:01"))
    told = await kernel.waiting(placed.session) + [
        row[0] for row in await rows(kernel, placed.session)
    ]
    assert told == ["e"]
    assert kernel.metrics.counts["message_changes", "edit", "older"] == 2


async def test_a_running_turn_goes_on_and_its_next_attempt_meets_what_is_said_now(
    kernel: Kernel,
) -> None:
    placed = await kernel.say(message("1", "one"), at("09:00"))
    await kernel.say(message("2", "two"), at("09:00"))
    claimed = await kernel.claim_live(placed.session)
    await kernel.say(edit("1", "ONE"), at("09:01"))
    await kernel.say(delete("2"), at("09:01"))
    assert texts(claimed) == ["one", "two"]
    assert (await kernel.renew(claimed)).status == "renewed"
    await kernel.expire(claimed.turn_id)
    assert texts(await kernel.claim(claimed.turn_id)) == ["ONE"]
    assert await rows(kernel, placed.session) == [("ONE", "edited"), (None, "deleted")]
    assert await revisions(kernel, placed.session) == [("one", "edited"), ("two", "deleted")]


async def test_f02_what_was_deleted_before_its_turn_never_runs_and_leaves_a_row(
    kernel: Kernel,
) -> None:
    placed = await kernel.say(message("1", "one"), at("09:00"))
    await kernel.say(message("2", "two"), at("09:00"))
    await kernel.say(delete("1"), at("09:01"))
    repeated = await kernel.say(message("1", "one"), at("09:02"))
    assert repeated.session_id is None
    claimed = await kernel.run_turn(placed.session)
    assert (texts(claimed), claimed.session_is_new) == (["two"], True)
    assert await rows(kernel, placed.session) == [(None, "deleted"), ("two", None)]
    assert await revisions(kernel, placed.session) == [("one", "deleted")]


async def test_a_turn_whose_messages_were_deleted_is_void(kernel: Kernel) -> None:
    placed = await kernel.say(message(), at("09:00"))
    await kernel.say(delete(), at("09:01"))
    assert (await kernel.claim_live(placed.session)).status is ClaimStatus.VOID
    assert await kernel.live_turn(placed.session) is None
    after = await kernel.say(message("2", "two"), at("09:02"))
    assert after.session == placed.session
    assert texts(await kernel.run_turn(placed.session)) == ["two"]


async def test_a_delete_that_comes_first_keeps_its_message_from_running(kernel: Kernel) -> None:
    await kernel.say(delete(), at("09:00"))
    for _ in range(2):
        assert (await kernel.say(message(), at("09:01"))).session_id is None
    assert await kernel.value("SELECT count(*) FROM sessions") == 0
    assert kernel.metrics.counts["duplicates", "inbound"] == 2


async def test_an_edit_that_comes_first_is_what_its_message_says(kernel: Kernel) -> None:
    await kernel.say(edit(text="b", version="2", attachments=[FILE]), at("09:00"))
    await kernel.say(edit(text="a", version="1"), at("09:00"))
    assert await kernel.value("SELECT count(*) FROM sessions") == 0
    placed = await kernel.say(message(text="original", reply_to="0"), at("09:01"))
    repeated = await kernel.say(message(text="original"), at("09:02"))
    assert repeated.session_id is None
    await kernel.say(edit(text="a2", version="1.5"), at("09:03"))
    (told,) = (await kernel.run_turn(placed.session)).messages
    assert (told.text, len(told.attachments)) == ("b", 1)
    await kernel.say(edit(text="c", version="3"), at("09:04"))
    assert await rows(kernel, placed.session) == [("c", "edited")]
    assert await kernel.value("SELECT count(*) FROM early_edits") == 0
    assert await kernel.value("SELECT count(*) FROM seen WHERE arrival = -1") == 0


async def test_an_edit_that_comes_first_is_undone_by_a_delete(kernel: Kernel) -> None:
    await kernel.say(edit(), at("09:00"))
    await kernel.say(delete(), at("09:01"))
    await kernel.say(edit(text="again"), at("09:02"))
    assert (await kernel.say(message(), at("09:03"))).session_id is None
    assert await kernel.value("SELECT count(*) FROM sessions") == 0
    assert await kernel.value("SELECT count(*) FROM early_edits") == 0


async def test_nothing_comes_back_after_a_delete(kernel: Kernel) -> None:
    placed = await kernel.say(message(attachments=[FILE]), at("09:00"))
    await kernel.run_all()
    await kernel.say(delete(), at("09:01"))
    await kernel.say(edit(version="9"), at("09:02"))
    await kernel.say(delete(), at("09:03"))
    assert (await kernel.say(message(), at("09:04"))).session_id is None
    assert await rows(kernel, placed.session) == [(None, "deleted")]
    assert await revisions(kernel, placed.session) == [("sumarise", "deleted")]
    details = await kernel.value("SELECT details FROM messages WHERE role = 'user'")
    assert details == '{"kind": "message"}'


async def test_a_turn_that_failed_and_lost_its_messages_is_not_tried_again(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "one"), at("09:00"))
    claimed = await kernel.claim_live(placed.session)
    await kernel.say(message("2", "two"), at("09:00"))
    await kernel.answer(claimed, outcome="failed", retry=True, parts=[])
    await kernel.say(delete("1"), at("09:01"))
    assert (await kernel.claim(claimed.turn_id)).status is ClaimStatus.VOID
    assert texts(await kernel.run_turn(placed.session)) == ["two"]


async def test_a_running_turn_that_lost_its_messages_is_not_tried_again(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "one"), at("09:00"))
    claimed = await kernel.claim_live(placed.session)
    await kernel.say(message("2", "two"), at("09:00"))
    await kernel.say(delete("1"), at("09:01"))
    assert (await kernel.renew(claimed)).status == "renewed"
    await kernel.answer(claimed, outcome="failed", retry=True, parts=[])
    assert (await kernel.claim(claimed.turn_id)).status is ClaimStatus.VOID
    await kernel.expire(claimed.turn_id)
    assert texts(await kernel.run_turn(placed.session)) == ["two"]


async def test_a_repeated_claim_of_what_was_deleted_meanwhile_gets_nothing(kernel: Kernel) -> None:
    placed = await kernel.say(message(), at("09:00"))
    turn_id = await kernel.live_turn(placed.session)
    assert turn_id is not None
    assert (await kernel.claim(turn_id, claim_id="c1")).status is ClaimStatus.CLAIMED
    await kernel.say(delete(), at("09:01"))
    # Another router, or the same one once it keeps the answer no longer.
    other = kernel.restarted()
    assert (await other.claim(turn_id, claim_id="c1")).status is ClaimStatus.VOID
    await kernel.expire(turn_id)
    assert await kernel.live_turn(placed.session) is None


async def test_what_was_deleted_is_not_run_once_more(kernel: Kernel) -> None:
    """A turn that is asked for again gets what is left of it, as it is now."""
    placed = await kernel.say(message("1", "one"), at("09:00"))
    await kernel.say(message("2", "two"), at("09:00"))
    await kernel.run_all()
    await kernel.say(delete("1"), at("09:01"))
    await kernel.say(edit("2", "TWO"), at("09:01"))
    await kernel.say(message("3", "/retry"), at("09:02"))
    assert texts(await kernel.run_turn(placed.session)) == ["TWO"]
    await kernel.say(delete("2"), at("09:03"))
    turns = await kernel.turns_of(placed.session)
    await kernel.say(message("4", "/retry"), at("09:04"))
    assert await kernel.turns_of(placed.session) == turns
    assert await kernel.live_turn(placed.session) is None


async def test_files_of_what_was_deleted_start_nothing(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "one"), at("09:00"))
    await kernel.run_all()
    await kernel.say(delete("1"), at("09:01"))
    await kernel.say(event(**ANN, mid="1", kind="attachments", attachments=[FILE]), at("09:02"))
    assert await kernel.turns_of(placed.session) == 1


async def test_a_running_turn_may_answer_what_was_deleted(kernel: Kernel) -> None:
    placed = await kernel.say(message(), at("09:00"))
    claimed = await kernel.claim_live(placed.session)
    await kernel.say(delete(), at("09:01"))
    await kernel.answer(claimed, "done")
    assert await kernel.said(placed.session) == [None, "done"]


@pytest.mark.parametrize("delivery", ["turns", "stream"])
async def test_all_of_it_in_one_batch(kernel_with: KernelWith, delivery: str) -> None:
    """Messages are decided as they would be alone, whatever shares their batch."""
    agent = Agent("other", delivery=delivery)  # type: ignore[arg-type]
    told = {"profile": "p"}
    kernel = await kernel_with(catalog(agents=[agent], profiles={"p": "other"}))
    events = [
        edit("3", "early", version="1", **told),
        message("1", "one", **told),
        edit("1", "ONE", version="2", **told),
        edit("1", "won", version="1", **told),
        message("2", "two", **told),
        delete("2", **told),
        message("2", "two", **told),
        message("3", "three", **told),
        message("3", "three", **told),
        edit("3", "THREE", version="2", **told),
        edit("4", "four", **told),
        delete("4", **told),
        message("4", "four", **told),
    ]
    await kernel.say_together(events, at("09:00"))
    session: UUID = await kernel.value("SELECT id FROM sessions")
    if delivery == "turns":
        turn_id = await kernel.live_turn(session)
        assert turn_id is not None
        assert texts(await kernel.claim(turn_id, "other")) == ["ONE", "THREE"]
        assert await rows(kernel, session) == [(None, "deleted"), ("ONE", None), ("THREE", None)]
        assert await revisions(kernel, session) == [("two", "deleted")]
    else:
        assert await rows(kernel, session) == [
            ("ONE", "edited"),
            (None, "deleted"),
            ("THREE", "edited"),
        ]
        assert [body["text"] for body in await kernel.published("ROUTED")] == [
            "one",
            "two",
            "early",
        ]
        assert await revisions(kernel, session) == [
            ("one", "edited"),
            ("two", "deleted"),
            ("early", "edited"),
        ]


async def test_an_edit_may_count_as_new_where_nothing_was_asked_before(kernel: Kernel) -> None:
    """C37, what is debated: the edit that adds the mention asks for the first time."""
    asked = edit(text="@bot sumarise", version="2", counts_as_new=True)
    await kernel.say(asked, at("09:00"))
    session: UUID = await kernel.value("SELECT id FROM sessions")
    await kernel.say(edit(text="@bot summarise", version="3", counts_as_new=True), at("09:01"))
    await kernel.say(edit(text="sumarise", version="1", counts_as_new=True), at("09:02"))
    await kernel.say(message(), at("09:03"))
    (told,) = (await kernel.run_turn(session)).messages
    assert (told.text, told.kind) == ("@bot summarise", "message")
    assert await kernel.turns_of(session) == 1
    assert await kernel.value("SELECT last_activity_at FROM sessions") == at("09:00")


async def test_the_newest_edit_is_what_counts_as_new(kernel: Kernel) -> None:
    await kernel.say(edit(text="newest", version="3"), at("09:00"))
    await kernel.say(edit(text="@bot", version="2", counts_as_new=True), at("09:01"))
    session: UUID = await kernel.value("SELECT id FROM sessions")
    assert texts(await kernel.run_turn(session)) == ["newest"]


async def test_an_edit_finds_its_message_in_a_session_that_was_ended(kernel: Kernel) -> None:
    placed = await kernel.say(message(), at("09:00"))
    await kernel.run_all()
    await kernel.fetch("UPDATE sessions SET ended_at = now(), end_reason = 'requested'")
    await kernel.say(edit(), at("09:01"))
    assert await rows(kernel, placed.session) == [("summarise", "edited")]
    assert await kernel.value("SELECT count(*) FROM sessions") == 1


async def test_an_edit_finds_its_message_when_its_mark_is_gone(kernel: Kernel) -> None:
    placed = await kernel.say(message(), at("09:00"))
    await kernel.run_all()
    await kernel.fetch("DELETE FROM seen")
    await kernel.say(edit(), at("09:01"))
    await kernel.say(edit("2", "unknown"), at("09:01"))
    assert await rows(kernel, placed.session) == [("summarise", "edited")]


async def test_an_edit_whose_session_is_gone_changes_nothing(kernel: Kernel) -> None:
    await kernel.say(message(), at("09:00"))
    for statement in ("DELETE FROM sessions", "DELETE FROM lanes", "DELETE FROM waiting"):
        await kernel.fetch(statement)
    await kernel.say(edit(), at("09:01"))
    assert kernel.metrics.counts["message_changes", "edit", "gone"] == 1
    assert await kernel.dead() == []


@pytest.mark.parametrize("is_undone", [False, True])
async def test_an_edit_reaches_the_copies_in_branches(kernel: Kernel, *, is_undone: bool) -> None:
    """The conversation that goes on in a branch is told, too; each keeps what it said."""
    placed = await kernel.say(message("1", "one"), at("09:00"))
    await kernel.run_all()
    await kernel.say(message("2", "/branch"), at("09:01"))
    branch: UUID = await kernel.value("SELECT id FROM sessions WHERE link_kind = 'branch'")
    sessions = {branch} if is_undone else {branch, placed.session}
    if is_undone:
        await kernel.fetch("DELETE FROM messages WHERE session_id = $1", placed.session)
    await kernel.say(edit("1", "ONE"), at("09:02"))
    for session in sessions:
        assert await rows(kernel, session) == [("ONE", "edited")]
    await kernel.say(delete("1"), at("09:03"))
    for session in sessions:
        assert await rows(kernel, session) == [(None, "deleted")]
        assert await revisions(kernel, session) == [("one", "edited"), ("ONE", "deleted")]
    in_branch = await kernel.say(message("3", "three"), at("09:04"))
    assert in_branch.session == branch
    await kernel.say(edit("3", "THREE"), at("09:05"))
    assert texts(await kernel.run_turn(branch)) == ["THREE"]


async def test_two_chats_of_one_session_may_number_alike(kernel: Kernel) -> None:
    ours: Fields = {"kind_of_chat": "group", "user": "7"}
    one = await kernel.say(event(**ours, chat="-1", mid="5", text="a"), at("09:00"))
    await kernel.say(event(**ours, chat="-2", mid="6", text="x"), at("09:00"))
    await kernel.run_all()
    await kernel.fetch("UPDATE lanes SET session_id = $1", one.session)
    await kernel.say(event(**ours, chat="-2", mid="5", text="b"), at("09:01"))
    await kernel.run_all()
    await kernel.say(event(**ours, chat="-2", mid="5", kind="edit", text="B"), at("09:02"))
    await kernel.say(event(**ours, chat="-1", mid="5", kind="delete"), at("09:02"))
    assert await rows(kernel, one.session) == [(None, "deleted"), ("B", "edited")]


async def test_an_edit_finds_a_message_that_moved_with_its_conversation(kernel: Kernel) -> None:
    """C13: what waited when a link was learnt waits in the older session from then on."""
    phone: Fields = {"chat": "15550001@s.whatsapp.net", "user": "15550001@s.whatsapp.net"}
    hidden: Fields = {"chat": "77@lid", "user": "77@lid"}
    older = await kernel.say(event("whatsapp", **phone, mid="a", text="one"), at("09:00"))
    await kernel.run_all()
    newer = await kernel.say(event("whatsapp", **hidden, mid="b", text="two"), at("09:01"))
    assert newer.session != older.session
    linked = event("whatsapp", **hidden, aliases=["15550001@s.whatsapp.net"], mid="c", text="three")
    change = event("whatsapp", **hidden, mid="b", kind="edit", text="TWO")
    await kernel.say_together([linked, change], at("09:02"))
    assert texts(await kernel.run_turn(older.session)) == ["TWO", "three"]


async def test_a_transcript_shows_what_became_of_its_rows(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "one", attachments=[FILE]), at("09:00"))
    await kernel.say(message("2", "two"), at("09:00"))
    await kernel.run_all()
    await kernel.say(edit("1", "ONE"), at("09:01"))
    await kernel.say(delete("1"), at("09:02"))
    await kernel.say(edit("2", "TWO"), at("09:03"))
    reads = TranscriptReads(kernel.store)
    shown = await reads.rows(placed.session, below_seq=9, limit=9, max_bytes=9999)
    assert [(row.content, row.state) for row in reversed(shown.rows)] == [
        (None, RowState.DELETED),
        ("TWO", RowState.EDITED),
        ("ok", None),
    ]
    before = await reads.revisions(placed.session, 1, before=2**62, limit=9)
    assert [(one.content, one.reason, one.at, len(one.attachments)) for one in before] == [
        ("ONE", RowState.DELETED, at("09:02"), 0),
        ("one", RowState.EDITED, at("09:01"), 1),
    ]
    assert await reads.revisions(placed.session, 1, before=before[0].number, limit=9) == before[1:]
    assert await reads.revisions(placed.session, 3, before=2**62, limit=9) == ()


@pytest.mark.parametrize("kind", ["edit", "delete"])
async def test_what_names_no_message_changes_nothing(kernel: Kernel, kind: str) -> None:
    placed = await kernel.say(message(), at("09:00"))
    await kernel.say(event(**ANN, kind=kind, text="x"), at("09:01"))
    assert await kernel.waiting(placed.session) == ["sumarise"]


async def test_who_took_a_message_away_does_not_matter(kernel_with: KernelWith) -> None:
    """A bot of the platform moderates; only what it says itself is ignored."""
    kernel = await kernel_with(catalog(own_ids=frozenset({"UBOT"})))
    group: Fields = {"kind_of_chat": "group", "chat": "C5"}
    placed = await kernel.say(event("slack", **group, user="U1", mid="1", text="a"), at("09:00"))
    await kernel.say(event("slack", **group, user="U2", mid="2", text="b"), at("09:00"))
    moderator: Fields = {**group, "user": "MOD", "is_bot": True}
    await kernel.say(event("slack", **moderator, mid="2", kind="edit", text="B"), at("09:01"))
    await kernel.say(event("slack", **moderator, mid="1", kind="delete"), at("09:01"))
    assert await kernel.waiting(placed.session) == []
    assert await kernel.value("SELECT content FROM waiting") == "b"


async def test_a_command_finds_the_edits_of_its_own_batch_in_a_new_chat(kernel: Kernel) -> None:
    """What moved rows reads the marks again, and finds those that its batch has written."""
    await kernel.say_together([message(), edit(), message("2", "/stop")], at("09:00"))
    session: UUID = await kernel.value("SELECT id FROM sessions")
    assert await kernel.live_turn(session) is None
    assert await kernel.value("SELECT count(*) FROM waiting") == 0


async def test_files_find_the_edit_of_their_message_in_their_own_batch(kernel: Kernel) -> None:
    files = event(**ANN, mid="1", kind="attachments", attachments=[FILE])
    placed = await kernel.say_together([message(awaits_files=True), edit(), files], at("09:00"))
    (told,) = (await kernel.claim_live(placed[0].session)).messages
    assert (told.text, [file.url for file in told.attachments]) == ("summarise", [FILE["url"]])


async def test_an_edit_finds_its_message_after_a_branch_in_its_own_batch(kernel: Kernel) -> None:
    placed = await kernel.say(message(), at("09:00"))
    await kernel.run_all()
    await kernel.say_together([message("2", "/branch"), edit()], at("09:01"))
    assert await rows(kernel, placed.session) == [("summarise", "edited")]
