"""Case C26, bursts and albums: what belongs together is one turn, and nothing overtakes a file."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from chatlane.decisions.operations.cancellation import stop_session
from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.effects import Effects
from chatlane.store.conversations import sessions
from chatlane_schemas.turns import CancelReason
from tests.support.worlds.kernel import Fields, Kernel, Placed, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}
PHOTO: Fields = {"attachments": [{"url": "https://files/1", "media_type": "image/png"}]}
SOON, LONG = timedelta(seconds=30), timedelta(seconds=40)


def patient(**fields: Any) -> Catalog:  # noqa: ANN401 - any field of an agent
    """Return a catalog whose agent waits long enough for a test to see it."""
    return catalog(agents=[Agent("main", **fields)])


async def say(kernel: Kernel, number: int, text: str, **fields: Any) -> Placed:  # noqa: ANN401 - any field of an event
    one = event(**(ANN | {"mid": str(number), "text": text} | fields))
    return await kernel.say(one, at(f"09:00:{number % 60:02}"))


async def bring(kernel: Kernel, number: int, **fields: Any) -> Placed:  # noqa: ANN401 - any field of an event
    one = event(**(ANN | {"mid": str(number), "kind": "attachments"} | PHOTO | fields))
    return await kernel.say(one, at("09:00:59"))


async def notices(kernel: Kernel) -> list[int]:
    return [one["dispatch"] for one in await kernel.published("TURNS")]


async def ripen(kernel: Kernel, placed: Placed) -> None:
    """Let the time of a resting turn come, as the sweep sees it."""
    await kernel.fetch("UPDATE waiting SET ready_at = clock_timestamp()")
    turn = await kernel.live_turn(placed.session)
    assert turn is not None
    await kernel.expire(turn)


async def files(kernel: Kernel, placed: Placed) -> list[int]:
    """Return how many files each message of the session's transcript has."""
    rows = await kernel.fetch(
        "SELECT coalesce(jsonb_array_length(details -> 'attachments'), 0) FROM messages"
        " WHERE session_id = $1 AND role = 'user' ORDER BY seq",
        placed.session,
    )
    return [row[0] for row in rows]


async def test_a_slow_file_is_not_overtaken(kernel: Kernel) -> None:
    """C26."""
    first = await say(kernel, 1, "", awaits_files=True)
    for number, text in enumerate(["what is this?", *"abcdefgh"], 2):
        await say(kernel, number, text)
    other = await kernel.say(event(chat="702", user="702", mid="1", text="hi"))
    # Nobody is told of the one, and the other chat does not wait for it.
    assert await notices(kernel) == [1]
    assert texts(await kernel.run_turn(other.session)) == ["hi"]

    await bring(kernel, 1)

    assert await notices(kernel) == [1, 1]
    claimed = await kernel.run_turn(first.session)
    assert texts(claimed) == ["", "what is this?", *"abcdefgh"]
    assert [len(one.attachments) for one in claimed.messages] == [1, *[0] * 9]
    assert [one.source.message_id for one in claimed.messages] == [str(n) for n in range(1, 11)]
    assert await files(kernel, first) == [1, *[0] * 9]


async def test_files_that_never_come_are_waited_for_as_long_as_is_set(kernel: Kernel) -> None:
    first = await say(kernel, 1, "look", awaits_files=True)
    turn = await kernel.live_turn(first.session)
    assert turn is not None
    assert timedelta(seconds=58) < await kernel.due_in(turn) <= timedelta(minutes=1)
    await kernel.deadlines.sweep()
    assert await notices(kernel) == []
    await ripen(kernel, first)
    assert await notices(kernel) == [1]
    assert texts(await kernel.run_turn(first.session)) == ["look"]

    # Late, but not lost: they are a message of their own, once.
    late = event(**ANN, **PHOTO, mid="1", kind="attachments", event_id="e1")
    await kernel.say(late, at("09:02"))
    await kernel.say(late, at("09:03"))
    (again,) = await kernel.run_all()
    assert [len(one.attachments) for one in again.messages] == [1]
    assert await files(kernel, first) == [0, 1]


async def test_a_file_behind_a_text_does_not_hold_it_up(kernel: Kernel) -> None:
    first = await say(kernel, 1, "hi")
    await say(kernel, 2, "look", awaits_files=True)
    await say(kernel, 3, "well?")
    assert texts(await kernel.run_turn(first.session)) == ["hi"]
    # The next turn was told of at once; who comes for it too early is sent away.
    turn = await kernel.live_turn(first.session)
    assert turn is not None
    assert (await kernel.claim(turn)).status == "taken"
    await bring(kernel, 2)
    assert texts(await kernel.claim_live(first.session)) == ["look", "well?"]
    assert await notices(kernel) == [1, 1, 2]


async def test_the_second_file_is_waited_for_after_the_first_has_come(kernel: Kernel) -> None:
    first = await say(kernel, 1, "one", awaits_files=True)
    await say(kernel, 2, "two", awaits_files=True)
    await bring(kernel, 2)
    assert await notices(kernel) == []
    await bring(kernel, 1)
    claimed = await kernel.run_turn(first.session)
    assert [(one.text, len(one.attachments)) for one in claimed.messages] == [
        ("one", 1),
        ("two", 1),
    ]


async def test_a_turn_ends_before_a_file_that_is_not_there(kernel: Kernel) -> None:
    first = await say(kernel, 1, "one", awaits_files=True)
    await say(kernel, 2, "two", awaits_files=True)
    await bring(kernel, 1)
    assert texts(await kernel.run_turn(first.session)) == ["one"]
    await bring(kernel, 2)
    assert texts(await kernel.run_turn(first.session)) == ["two"]


async def test_files_of_what_nobody_waits_for_start_nothing(kernel: Kernel) -> None:
    """Of a message that was dropped, of none, and again of one that has them."""
    first = await say(kernel, 1, "look", awaits_files=True)
    await kernel.fetch("DELETE FROM waiting")
    await bring(kernel, 1)
    await bring(kernel, 7)
    await bring(kernel, 8, chat="709", user="709")
    assert await notices(kernel) == []
    assert await kernel.waiting(first.session) == []
    assert await kernel.value("SELECT count(*) FROM sessions") == 1


async def test_all_of_it_in_one_batch(kernel: Kernel) -> None:
    placed = await kernel.say_together(
        [
            event(**ANN, mid="1", text="look", awaits_files=True),
            event(**ANN, mid="2", text="well?"),
            event(**ANN, **PHOTO, mid="1", kind="attachments"),
            event(**ANN, mid="3", text="say"),
        ]
    )
    claimed = await kernel.run_turn(placed[0].session)
    assert texts(claimed) == ["look", "well?", "say"]
    assert await notices(kernel) == [1]


async def test_a_restart_forgets_no_rest(kernel: Kernel) -> None:
    first = await say(kernel, 1, "look", awaits_files=True)
    other = kernel.restarted()
    await other.deadlines.sweep()
    assert await notices(other) == []
    await bring(other, 1)
    assert texts(await other.run_turn(first.session)) == ["look"]


async def test_a_burst_is_one_turn(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(patient(debounce=SOON, debounce_cap=LONG))
    first = await say(kernel, 1, "I was")
    turn = await kernel.live_turn(first.session)
    assert turn is not None
    await kernel.fetch("UPDATE turns SET due_at = due_at - interval '20 s'")
    await say(kernel, 2, "thinking")
    assert timedelta(seconds=28) < await kernel.due_in(turn) <= SOON
    # As old as this it may rest 5 s more, whatever comes.
    await kernel.fetch(
        "UPDATE turns SET created_at = created_at - interval '35 s', due_at = clock_timestamp()"
    )
    await say(kernel, 3, "about")
    assert timedelta(seconds=3) < await kernel.due_in(turn) <= timedelta(seconds=5)
    assert await notices(kernel) == []
    await kernel.expire(turn)
    assert await notices(kernel) == [1]
    # Its time has come, though the last message is young.
    assert texts(await kernel.run_turn(first.session)) == ["I was", "thinking", "about"]


async def test_a_burst_in_one_batch_rests_as_long(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(patient(debounce=SOON, debounce_cap=LONG))
    events = [event(**ANN, mid=str(number), text="x") for number in range(3)]
    messages = [
        kernel.logged(one, at(f"09:00:{15 * number:02}")) for number, one in enumerate(events)
    ]
    await kernel.decide(messages)
    first = await kernel.placed(messages[0])
    turn = await kernel.live_turn(first.session)
    assert turn is not None
    assert timedelta(seconds=38) < await kernel.due_in(turn) <= LONG


async def test_a_burst_behind_a_running_turn_is_one_turn(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(patient(debounce=SOON, debounce_cap=LONG))
    first = await say(kernel, 1, "a")
    await ripen(kernel, first)
    running = await kernel.claim_live(first.session)
    await say(kernel, 2, "b")
    await kernel.answer(running)
    turn = await kernel.live_turn(first.session)
    assert turn is not None
    assert (await kernel.claim(turn)).status == "taken"
    await say(kernel, 3, "c")
    await ripen(kernel, first)
    assert texts(await kernel.run_turn(first.session)) == ["b", "c"]


async def test_a_timer_waits_for_nobody(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(patient(debounce=SOON))
    await say(kernel, 1, "tick", kind="system")
    assert await notices(kernel) == [1]


@pytest.mark.parametrize("busy", ["collect", "queue", "interrupt", "steer"])
async def test_an_album_is_one_turn(kernel_with: KernelWith, busy: Any) -> None:  # noqa: ANN401 - a busy mode
    """Whatever else is a turn of its own."""
    kernel = await kernel_with(patient(busy=busy))
    first = await say(kernel, 1, "our holidays", album_id="A", **PHOTO)
    await say(kernel, 2, "", album_id="A", **PHOTO)
    await say(kernel, 3, "", album_id="A", **PHOTO)
    assert await notices(kernel) == []
    await say(kernel, 4, "nice?")
    await ripen(kernel, first)
    claimed = await kernel.run_turn(first.session)
    album = ["our holidays", "", ""]
    assert texts(claimed) == (album if busy == "queue" else [*album, "nice?"])
    assert [one.album_id for one in claimed.messages][:3] == ["A", "A", "A"]
    assert all(len(one.attachments) == 1 for one in claimed.messages[:3])


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
async def test_an_album_is_one_turn_however_late_its_files_come(
    kernel: Kernel, order: tuple[int, ...]
) -> None:
    first, *_ = [
        await say(kernel, number, "", album_id="A", awaits_files=True) for number in (1, 2, 3)
    ]
    for number in order:
        assert await notices(kernel) == []
        await bring(kernel, number)
    claimed = await kernel.run_turn(first.session)
    assert [len(one.attachments) for one in claimed.messages] == [1, 1, 1]


async def test_albums_of_two_people_and_two_albums_are_two(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(patient(busy="queue"))
    group: Fields = {"kind_of_chat": "group", "chat": "-5", "thr": "7", "is_forum": True}
    parts = [("1", "A"), ("2", "A"), ("2", "A"), ("2", "B")]
    first = None
    for number, (user, album) in enumerate(parts):
        one = event(**group, user=user, mid=str(number), text=f"{user}{album}", album_id=album)
        first = await kernel.say(one)
    assert first is not None
    await ripen(kernel, first)
    seen = []
    while await kernel.live_turn(first.session) is not None:
        await kernel.fetch("UPDATE waiting SET ready_at = NULL")
        seen.append(texts(await kernel.run_turn(first.session)))
    assert seen == [["1A"], ["2A", "2A"], ["2B"]]


async def test_a_stop_ends_a_rest(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(patient(debounce=SOON))
    first = await say(kernel, 1, "a")
    async with kernel.writer.begin() as unit_of_work:
        locked = await sessions.lock(unit_of_work.connection, [first.session])
        effects = Effects()
        session = locked[first.session]
        stopped = await stop_session(
            unit_of_work.connection, session, CancelReason.STOPPED, at("09:01"), effects
        )
        await unit_of_work.write(effects, sessions_of=[session])
    assert (stopped.was_running, stopped.dropped) == (False, 1)
    assert await kernel.live_turn(first.session) is None


async def test_a_platform_has_its_own_patience(kernel_with: KernelWith) -> None:
    declared = patient(debounce=SOON)
    platforms = dict(declared.platforms)
    platforms["telegram"] = replace(platforms["telegram"], debounce=timedelta(0))
    kernel = await kernel_with(replace(declared, platforms=platforms))
    await say(kernel, 1, "a")
    assert await notices(kernel) == [1]
    await kernel.say(event("slack", chat="D1", user="U1", mid="1", text="a"))
    assert await notices(kernel) == [1]


async def test_a_stream_agent_gets_files_as_a_message_of_their_own(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", delivery="stream")]))
    await say(kernel, 1, "look", awaits_files=True)
    await bring(kernel, 1)
    routed = kernel.relay.bodies("ROUTED")
    assert [(one.get("text"), len(one["attachments"])) for one in routed] == [
        ("look", 0),
        (None, 1),
    ]


@pytest.mark.parametrize("together", [False, True])
async def test_files_find_a_message_whose_lane_leads_elsewhere(
    kernel: Kernel,
    together: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """C26: it is still answered, and with them."""
    before = await say(kernel, 1, "hi")
    await kernel.run_turn(before.session)
    sent = [
        event(**ANN, mid="2", text="look", awaits_files=True),
        event(**ANN, mid="3", text="/branch"),
        event(**ANN, **PHOTO, mid="2", kind="attachments"),
    ]
    messages = [kernel.logged(one, at("09:01")) for one in sent]
    if together:
        await kernel.decide(messages)
    else:
        for message in messages:
            await kernel.decide([message])
    assert texts(await kernel.run_turn(before.session)) == ["look"]
    assert await files(kernel, before) == [0, 1]
