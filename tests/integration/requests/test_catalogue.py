"""What people keep of a session in their list: pins, labels, titles of models, read-only sessions."""

import asyncio
from uuid import UUID

import pytest

from chatlane_schemas.session_api.sessions import ApiErrorCode
from tests.integration.requests.test_session_changes import ANN, Caller
from tests.support.worlds.kernel import Kernel, event

pytestmark = pytest.mark.integration


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


async def opened(kernel: Kernel) -> UUID:
    return (await kernel.say(event(**ANN, mid="1", text="a"))).session


async def test_r7_1_a_pin_moves_nothing_but_itself(kernel: Kernel, caller: Caller) -> None:
    """R7.1 to R7.3, R11.6: neither a pin nor the archive moves a session."""
    session = await opened(kernel)
    before = await caller.reads.find(session)
    assert before is not None

    pinned = await caller.changed("pin", session)
    archived = await caller.changed("archive", session)
    unpinned = await caller.changed("pin", session, pinned=False)

    assert pinned == before.model_copy(update={"pinned": True})
    # Archiving does not unpin, and coming back needs nothing but the flag.
    assert archived.pinned
    assert archived.archived_at is not None
    returned = await caller.changed("archive", session, archived=False)
    assert not unpinned.pinned
    assert returned == before


async def test_labels_are_replaced_as_one(kernel: Kernel, caller: Caller) -> None:
    session = await opened(kernel)

    given = await caller.changed("label", session, labels=["garden", "ro\u202eof", "garden"])
    removed = await caller.changed("label", session, labels=[])

    assert given.labels == ("garden", "roof")
    assert removed.labels == ()
    assert await caller.refused("label", session, labels=["\u200b"]) is ApiErrorCode.INVALID
    too_many = [str(number) for number in range(17)]
    assert await caller.refused("label", session, labels=too_many) is ApiErrorCode.INVALID


async def test_r6_3_a_model_never_replaces_the_title_of_a_person(
    kernel: Kernel, caller: Caller
) -> None:
    session = await opened(kernel)

    made = await caller.changed("title", session, title="Roof", by_model=True)
    again = await caller.changed("title", session, title="Roof and garden", by_model=True)
    given = await caller.changed("title", session, title="Our house")
    refused = await caller.refused("title", session, title="Roof", by_model=True)

    assert (made.title_source, again.title_source) == ("model", "model")
    assert (given.shown_title, given.title_source) == ("Our house", "person")
    assert refused is ApiErrorCode.CONFLICT


async def test_f26_nothing_is_written_to_a_read_only_session(
    kernel: Kernel, caller: Caller
) -> None:
    session = await opened(kernel)
    await kernel.run_turn(session)
    assert await caller.refused("protect", session) is ApiErrorCode.CONFLICT
    await caller.changed("end", session)
    key = await kernel.value("SELECT session_key FROM sessions")

    assert (await caller.changed("protect", session)).read_only
    assert await caller.refused("reopen", session) is ApiErrorCode.CONFLICT
    assert await caller.refused("submit", session, text="b") is ApiErrorCode.CONFLICT
    other = (await kernel.say(event(**ANN, mid="2", text="c"))).session
    assert other != session
    switch = {"session_key": key, "expected_session_id": str(other)}
    assert await caller.refused("switch", session, **switch) is ApiErrorCode.CONFLICT

    copy = await caller.changed("fork", session)
    assert not copy.read_only
    assert not (await caller.changed("protect", session, read_only=False)).read_only
    assert (await caller.changed("reopen", session)).ended_at is None


async def test_v23_changes_of_two_windows_at_once_are_both_there(
    kernel: Kernel, caller: Caller
) -> None:
    """Each of these requests changes its own value and no other."""
    session = await opened(kernel)

    await asyncio.gather(
        caller.changed("pin", session),
        caller.changed("label", session, labels=["garden"]),
        caller.changed("title", session, title="Roof"),
    )

    found = await caller.reads.find(session)
    assert found is not None
    assert (found.pinned, found.labels, found.title) == (True, ("garden",), "Roof")


async def test_v8_the_newest_message_counts_and_not_that_of_a_tool(
    kernel: Kernel, caller: Caller
) -> None:
    """R4.4, R5.2: a message that waits counts as well."""
    session = await opened(kernel)
    asked = await caller.reads.find(session)
    await kernel.run_turn(session)
    answered = await caller.reads.find(session)
    assert asked is not None
    assert answered is not None
    assert asked.waiting is not None or asked.turn is not None
    assert asked.last_message_at == asked.last_activity_at
    assert answered.last_message_at is not None
    newest = await kernel.value(
        "SELECT max(created_at) FROM messages WHERE role <> 'tool' AND session_id = $1", session
    )
    assert answered.last_message_at == newest


async def test_r15_a_worktree_is_noted_shown_and_forgotten(kernel: Kernel, caller: Caller) -> None:
    """R15.1."""
    session = await opened(kernel)
    before = await caller.reads.find(session)
    assert before is not None
    tree = {"path": "/srv/trees/roof", "branch": "ro\u0000of", "repository": "/srv/house"}

    noted = await caller.changed("tree", session, worktree=tree)
    assert noted.worktree is not None
    assert noted.worktree.model_dump(exclude_none=True) == tree | {"branch": "ro\ufffdof"}
    unchanged = noted.model_copy(update={"worktree": None, "version": before.version})
    assert unchanged == before
    assert noted.version != before.version
    secret = tree | {"repository": "https://ann:s3cret-token@git.example/house"}
    assert await caller.refused("tree", session, worktree=secret) is ApiErrorCode.INVALID
    assert (await caller.changed("tree", session)).worktree is None


async def test_v10_v14_to_v17_a_lost_attempt_is_shown_and_repeated_and_loses_nothing(
    kernel: Kernel, caller: Caller
) -> None:
    """F18, F19, R4.6, R12.1 to R12.9: only a turn that is there counts, and a repair needs no rows."""
    session = await opened(kernel)
    lost = await kernel.claim_live(session)
    running = await caller.reads.find(session)
    assert running is not None
    assert running.turn is not None
    assert (running.turn.state, running.turn.attempt, running.turn.has_worker) == (
        *("claimed", 1),
        True,
    )
    await kernel.expire(lost.turn_id)
    repeated = await caller.reads.find(session)
    assert repeated is not None
    assert repeated.turn is not None
    assert (repeated.turn.state, repeated.turn.has_worker) == ("ready", False)
    assert await kernel.said(session) == ["a"]

    again = await kernel.claim(lost.turn_id)
    await kernel.answer(again, parts=[], outcome="failed", retry=False, error="broken")
    ended = await caller.reads.find(session)
    assert ended is not None
    assert (ended.turn, ended.is_busy) == (None, False)
    assert await kernel.said(session) == ["a"]

    # The same words again are another message: nothing is compared with what stands there.
    await kernel.say(event(**ANN, mid="2", text="a "))
    await kernel.run_turn(session)
    assert await kernel.said(session) == ["a", "a ", "ok"]
    after = await caller.reads.find(session)
    assert after is not None
    assert after.turn is None
