"""What one chat or one person writes beyond a limit is set aside, and said to be."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from chatlane.decisions.batch_decision import BatchDecision, decoded
from chatlane.domain.catalog import Limit, Limits
from chatlane.domain.log import LogMessage
from chatlane.maintenance import TableMaintenance
from chatlane.outbox.redrive import Retrying
from chatlane_schemas.inbound import InboundEvent
from tests.integration.outbox.test_redrive import Log
from tests.support.worlds.kernel import (
    DAY,
    SLOTS,
    Fields,
    Kernel,
    catalog,
    event,
    open_kernel,
    texts,
)

pytestmark = pytest.mark.integration

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
THREE_A_MINUTE = Limit(3, MINUTE)
PER_CHAT = catalog(limits=Limits(per_chat=THREE_A_MINUTE))
PER_SENDER = catalog(limits=Limits(per_sender=THREE_A_MINUTE))
GROUP: Fields = {"chat": "g", "kind_of_chat": "group"}


@pytest.fixture
async def kernel(database_url: str) -> AsyncIterator[Kernel]:
    async with open_kernel(database_url, PER_CHAT) as opened:
        yield opened


def numbered(first: int, last: int, **fields: str) -> list[InboundEvent]:
    return [
        event(**({"chat": "1", "user": "1"} | fields | {"mid": f"{n}", "text": f"{n}"}))
        for n in range(first, last + 1)
    ]


async def waiting(kernel: Kernel) -> list[str]:
    rows = await kernel.fetch("SELECT content FROM waiting ORDER BY stored_at, arrival")
    return [row[0] for row in rows]


async def set_aside(kernel: Kernel) -> list[tuple[str, str, str]]:
    rows = await kernel.fetch(
        "SELECT reason, detail, convert_from(body, 'utf8')::json ->> 'text' FROM dead_letters"
        " ORDER BY stored_at"
    )
    return [tuple(row) for row in rows]


async def test_what_is_over_the_limit_of_a_chat_is_set_aside_with_its_body(
    kernel: Kernel,
) -> None:
    await kernel.say_together(numbered(1, 5))
    assert await waiting(kernel) == ["1", "2", "3"]
    assert await set_aside(kernel) == [
        ("rate_limited", "limit per chat", "4"),
        ("rate_limited", "limit per chat", "5"),
    ]


async def test_the_chat_is_told_once_in_a_window(kernel: Kernel) -> None:
    await kernel.say_together(numbered(1, 9))
    (notice,) = kernel.relay.bodies("OUTBOUND")
    assert notice["kind"] == "notice"
    assert notice["target"]["message_id"] == "4"
    assert "At most 3 in 1m are" in notice["text"]
    await kernel.say_together(numbered(10, 19), DAY + MINUTE + SECOND)
    assert [its["out_seq"] for its in kernel.relay.bodies("OUTBOUND")] == [1, 2]


async def test_room_comes_back_evenly(kernel: Kernel) -> None:
    await kernel.say_together(numbered(1, 3))
    await kernel.say(numbered(4, 4)[0], DAY + 10 * SECOND)
    await kernel.say(numbered(5, 5)[0], DAY + 21 * SECOND)
    await kernel.say(numbered(6, 6)[0], DAY + 22 * SECOND)
    await kernel.say_together(numbered(7, 10), DAY + 10 * MINUTE)
    assert await waiting(kernel) == ["1", "2", "3", "5", "7", "8", "9"]


async def test_another_chat_has_its_own_room(kernel: Kernel) -> None:
    await kernel.say_together([*numbered(1, 4), *numbered(5, 7, chat="2", user="1")])
    assert await waiting(kernel) == ["1", "2", "3", "5", "6", "7"]


async def test_a_repeat_takes_no_room_and_is_not_set_aside(kernel: Kernel) -> None:
    await kernel.say_together([*numbered(1, 2), *numbered(1, 2), *numbered(1, 3)])
    assert await waiting(kernel) == ["1", "2", "3"]
    await kernel.say_together(numbered(1, 3))
    assert await set_aside(kernel) == []


async def test_timers_and_edits_are_not_counted(kernel: Kernel) -> None:
    await kernel.say_together(numbered(1, 3))
    later = DAY + SECOND
    await kernel.say(event(chat="1", kind="system", text="timer"), later)
    edit = event(chat="1", user="1", kind="edit", mid="1", version="2", text="!")
    await kernel.say(edit, later)
    assert await waiting(kernel) == ["!", "2", "3", "timer"]
    assert await set_aside(kernel) == []


async def test_another_router_counts_on(kernel: Kernel) -> None:
    await kernel.say_together(numbered(1, 2))
    other = kernel.restarted()
    await other.say_together(numbered(3, 6), DAY + SECOND)
    assert await waiting(kernel) == ["1", "2", "3"]


class LostError(Exception):
    """What a commit came to."""


async def decide_and_lose(kernel: Kernel, messages: list[LogMessage]) -> None:
    async with kernel.writer.begin() as unit_of_work:
        contents = [decoded(message, kernel.catalog) for message in messages]
        await BatchDecision(kernel.catalog, SLOTS).run(unit_of_work, contents)
        raise LostError


async def test_a_batch_that_is_decided_again_counts_once(kernel: Kernel) -> None:
    messages = [kernel.logged(one, DAY) for one in numbered(1, 2)]
    with pytest.raises(LostError):
        await decide_and_lose(kernel, messages)
    await kernel.decide(messages)
    await kernel.say(numbered(3, 3)[0])
    assert await waiting(kernel) == ["1", "2", "3"]


async def test_a_person_is_counted_over_all_chats_and_others_of_a_group_are_not(
    database_url: str,
) -> None:
    async with open_kernel(database_url, PER_SENDER) as kernel:
        await kernel.say_together(
            [
                *numbered(1, 2),
                *numbered(3, 4, **GROUP, user="1"),
                *numbered(5, 6, **GROUP, user="2"),
            ]
        )
        assert await waiting(kernel) == ["1", "2", "3", "5", "6"]
        assert await set_aside(kernel) == [("rate_limited", "limit per sender", "4")]


async def test_where_nobody_was_ever_answered_nobody_is_told(database_url: str) -> None:
    """Each new chat would get a message otherwise; a spammer makes as many as there can be."""
    async with open_kernel(database_url, PER_SENDER) as kernel:
        await kernel.say_together(numbered(1, 3))
        await kernel.say(numbered(4, 4, chat="new")[0])
        assert kernel.relay.bodies("OUTBOUND") == []
        assert [row[2] for row in await set_aside(kernel)] == ["4"]


async def test_what_was_set_aside_is_let_in_when_it_comes_again_later(kernel: Kernel) -> None:
    log = Log()
    await kernel.say_together(numbered(1, 4))
    letter = await kernel.value("SELECT id FROM dead_letters")
    await Retrying(kernel.store, log.publish).retry(letter)
    await kernel.say(numbered(4, 4)[0], DAY + 2 * MINUTE)
    await kernel.say(numbered(4, 4)[0], DAY + 3 * MINUTE)
    assert await waiting(kernel) == ["1", "2", "3", "4"]
    assert [row.subject.split(".")[2] for row in log.rows] == ["inbound"]


async def test_what_is_let_in_reaches_the_agent_in_order(kernel: Kernel) -> None:
    placed = await kernel.say_together(numbered(1, 5))
    assert texts(await kernel.claim_live(placed[0].session)) == ["1", "2", "3"]


async def test_full_buckets_are_forgotten_and_others_kept(kernel: Kernel) -> None:
    for chat in range(5):
        await kernel.say(event(chat=f"{chat}", user="1", mid="1"))
    await kernel.fetch(
        "UPDATE admission SET full_at = clock_timestamp() + interval '1 min'"
        " WHERE key = (SELECT min(key::text)::bytea FROM admission)"
    )
    await TableMaintenance(kernel.store.transaction).forget_full_buckets()
    assert await kernel.value("SELECT count(*) FROM admission") == 1


async def test_without_limits_nothing_is_counted(database_url: str) -> None:
    async with open_kernel(database_url) as kernel:
        await kernel.say_together(numbered(1, 50))
        assert len(await waiting(kernel)) == 50
        assert await kernel.value("SELECT count(*) FROM admission") == 0
