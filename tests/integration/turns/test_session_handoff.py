"""What a session that follows another one begins with, who is told of it, and how often."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.policy import ResetPolicy
from chatlane.errors import TransientError
from chatlane_schemas.session_api.sessions import ApiErrorCode
from tests.integration.requests.test_session_changes import ANN, Caller
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, Kernel, at, catalog, event

pytestmark = pytest.mark.integration

IDLE = ResetPolicy("idle", idle=timedelta(hours=1))
STREAM = [Agent("main", delivery="stream")]


@pytest.fixture
async def kernel(kernel_with: KernelWith) -> Kernel:
    return await kernel_with(catalog(reset=IDLE))


async def say(kernel: Kernel, mid: str, clock: str, platform: str = "telegram") -> UUID:
    return (await kernel.say(event(platform, **ANN, mid=mid, text=mid), at(clock))).session


async def answered(kernel: Kernel, clock: str, **fields: Any) -> None:  # noqa: ANN401 - of a result
    """Answer the turn that waits."""
    turn_id = await kernel.value("SELECT id FROM turns WHERE state = 'ready'")
    await kernel.answer(await kernel.claim(turn_id), stored_at=at(clock), **fields)


async def notices(kernel: Kernel) -> list[tuple[str, str | None]]:
    """Return the session and the message replied to of each notice to a chat."""
    return [
        (one["session_id"], one.get("reply_to"))
        for one in await kernel.published("OUTBOUND")
        if one["kind"] == "notice"
    ]


async def test_the_chat_is_told_once_that_a_conversation_starts_afresh(kernel: Kernel) -> None:
    await say(kernel, "1", "09:00")
    await answered(kernel, "09:01")
    second = await say(kernel, "2", "12:00")
    await say(kernel.restarted(), "2", "12:00")
    await say(kernel, "3", "12:01")
    await answered(kernel, "12:02")

    assert await notices(kernel) == [(str(second), "2")]
    said = [one for one in await kernel.published("OUTBOUND") if one["session_id"] == str(second)]
    assert [(one["out_seq"], one["kind"]) for one in said] == [(1, "notice"), (2, "answer")]


async def test_the_notice_comes_with_the_message_or_not_at_all(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before the commit: the message comes again, and then both are there once."""
    await say(kernel, "1", "09:00")
    await answered(kernel, "09:01")
    message = kernel.logged(event(**ANN, mid="2", text="2"), at("12:00"))

    async def fail(*_: object) -> None:
        raise TransientError("lost")

    with monkeypatch.context() as broken:
        broken.setattr("chatlane.store.dead_letters.insert", fail)
        with pytest.raises(TransientError):
            await kernel.decide([message])
    assert await notices(kernel) == []
    await kernel.restarted().decide([message])
    await kernel.restarted().decide([message])

    assert len(await notices(kernel)) == 1


def quiet(platform: str = "telegram", **fields: Any) -> Catalog:  # noqa: ANN401 - of a policy
    declared = catalog(reset=ResetPolicy("idle", idle=timedelta(hours=1), **fields))
    changed = replace(declared.platforms[platform], reset_notices=False)
    return replace(declared, platforms={**declared.platforms, platform: changed})


async def test_nothing_is_said_where_nothing_was_answered(kernel: Kernel) -> None:
    await say(kernel, "1", "09:00")
    await answered(kernel, "09:01", outcome="failed", parts=[])
    before = await notices(kernel)
    await say(kernel, "2", "12:00")
    claimed = (await kernel.run_all())[0]

    assert await notices(kernel) == before
    assert (claimed.reset_reason, claimed.reset_had_activity) == ("idle", False)


async def test_nothing_is_said_where_the_policy_does_not_want_it(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(quiet("discord", notify=False))
    await say(kernel, "1", "09:00")
    await answered(kernel, "09:01")
    await say(kernel, "2", "12:00")

    assert await notices(kernel) == []


async def test_nothing_is_said_where_the_platform_does_not_want_it(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(quiet("discord"))
    for platform in ("discord", "telegram"):
        await say(kernel, "1", "09:00", platform)
        await answered(kernel, "09:01")
    await say(kernel, "2", "12:00", "discord")
    assert await notices(kernel) == []

    heard = await say(kernel, "2", "12:00", "telegram")
    assert await notices(kernel) == [(str(heard), "2")]


async def test_what_could_not_go_on_is_told_always(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(quiet(notify=False))
    first = await say(kernel, "1", "09:00")
    await Caller(kernel).changed("suspend", first)
    second = await say(kernel, "2", "09:01")
    await kernel.run_all()
    await Caller(kernel).changed("mark", second)
    await kernel.fetch(
        "UPDATE sessions SET resume_marked_at = $2 WHERE id = $1", second, at("09:00")
    )
    third = await say(kernel, "3", "10:01")

    assert await notices(kernel) == [(str(second), "2"), (str(third), "3")]


async def test_a_reset_on_request_is_not_told_to_the_chat(kernel: Kernel) -> None:
    """C45: who asked knows, and gets the answer."""
    await say(kernel, "1", "09:00")
    await answered(kernel, "09:01")
    await Caller(kernel).changed("reset", (await kernel.fetch("SELECT id FROM sessions"))[0][0])
    await say(kernel, "2", "09:05")

    assert await notices(kernel) == []


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_reset_that_was_confirmed_is_not_undone_by_a_restart(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """C45, by the API: the next message is the first row of the new session, either way."""
    first = await say(kernel, "1", "09:00")
    await answered(kernel, "09:01")
    caller = Caller(kernel)
    if is_killed:

        async def fail(*_: object) -> None:
            raise TransientError("lost")

        with monkeypatch.context() as broken:
            broken.setattr("chatlane.store.api_requests.finish", fail)
            assert await caller.refused("reset", first, id="r1") is ApiErrorCode.UNAVAILABLE
    following = await Caller(kernel.restarted()).changed("reset", first, id="r1")
    again = await Caller(kernel.restarted()).changed("reset", first, id="r1")

    after = await say(kernel.restarted(), "2", "09:05")
    await kernel.run_all()

    assert again == following
    assert (after, await kernel.said(after)) == (following.id, ["2", "ok"])
    ended = await caller.reads.find(first)
    assert ended is not None
    assert ended.end_reason == "requested"
    listed = await kernel.fetch("SELECT id FROM sessions ORDER BY id DESC")
    assert [one["id"] for one in listed] == [following.id, first]


async def test_a_note_is_given_to_the_next_session_once(kernel: Kernel) -> None:
    await say(kernel, "1", "09:00")
    await answered(kernel, "09:01", carry_over="Ann waits for the offer.")
    await say(kernel, "2", "12:00")
    claimed = await kernel.claim(await kernel.value("SELECT id FROM turns WHERE state = 'ready'"))
    await kernel.expire(claimed.turn_id)
    again = await kernel.restarted().claim(claimed.turn_id)
    await kernel.answer(again, stored_at=at("12:01"))
    await say(kernel, "3", "12:02")
    [later] = await kernel.run_all(at("12:03"))

    told = [
        (one.reset_reason, one.reset_had_activity, one.opening_note) for one in (claimed, again)
    ]
    assert told == [("idle", True, "Ann waits for the offer.")] * 2
    assert again.attempt == 2
    assert (later.reset_reason, later.opening_note) == (None, None)
    assert await kernel.value("SELECT count(*) FROM sessions WHERE opening_note <> ''") == 0


async def test_the_reason_is_told_although_the_transcript_begins_otherwise(
    kernel: Kernel,
) -> None:
    """Somebody wrote into the new session before its first turn."""
    first = await say(kernel, "1", "09:00")
    await answered(kernel, "09:01")
    following = (await Caller(kernel).changed("reset", first)).id
    await kernel.fetch(
        "INSERT INTO messages (session_id, seq, role, created_at) VALUES ($1, 1, 'system', $2)",
        following,
        DAY,
    )
    await kernel.fetch("UPDATE sessions SET next_seq = 2 WHERE id = $1", following)
    await say(kernel, "2", "09:05")
    [claimed] = await kernel.run_all()

    assert claimed.reset_reason == "requested"


async def test_a_note_is_left_by_request_also_after_the_end(kernel: Kernel) -> None:
    caller = Caller(kernel)
    first = await say(kernel, "1", "09:00")
    await kernel.run_all()
    await caller.changed("note", first, note="one")
    await caller.changed("end", first)
    await caller.changed("note", first, note="two")
    await say(kernel, "2", "09:05")
    [claimed] = await kernel.run_all()

    assert (claimed.opening_note, claimed.reset_reason) == ("two", None)
    assert await caller.refused("note", first, note="three") is ApiErrorCode.STALE


async def test_a_note_is_replaced_and_taken_back(kernel: Kernel) -> None:
    caller = Caller(kernel)
    first = await say(kernel, "1", "09:00")
    await answered(kernel, "09:01", carry_over="one")
    await caller.changed("note", first, note="")
    assert await caller.refused("note", first, note="x" * 8001) is ApiErrorCode.INVALID
    await say(kernel, "2", "12:00")
    [claimed] = await kernel.run_all()

    assert (claimed.opening_note, claimed.reset_reason) == (None, "idle")


async def test_a_stream_agent_is_told_with_the_first_message(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=IDLE, agents=STREAM))
    await say(kernel, "1", "09:00")
    [routed] = await kernel.published("ROUTED")
    await kernel.decide([kernel.stream_answer(routed, stored_at=at("09:01"), carry_over="a note")])
    await say(kernel, "2", "12:00")
    await say(kernel, "3", "12:01")

    names = ("reset_reason", "reset_had_activity", "opening_note")
    told = [tuple(one.get(name) for name in names) for one in await kernel.published("ROUTED")]
    assert told == [(None, False, None), ("idle", True, "a note"), (None, False, None)]
    assert len(await notices(kernel)) == 1
