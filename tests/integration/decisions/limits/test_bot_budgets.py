"""C38: our own echo never runs, and other bots inside a budget, durable and by the log's clock."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import structlog

from chatlane.domain.catalog import Catalog, Limit
from chatlane.store import keyed_rows
from chatlane_schemas.inbound import InboundEvent
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ROOM: Fields = {"kind_of_chat": "group", "chat": "111"}
ALLOWED = catalog(own_ids=frozenset({"UBOT"}), bots_allowed=True)


def chatter(number: int, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    said: Fields = {**ROOM, "user": "OTHER", "is_bot": True, "mid": str(number), "text": "@us ..."}
    return event("discord", **(said | fields))


def person(number: int, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    said: Fields = {**ROOM, "user": "7", "mid": str(number), "text": "@us help"}
    return event("discord", **(said | fields))


async def heard(kernel: Kernel, *events: InboundEvent, clock: str, every: float = 3) -> list[bool]:
    """Let events arrive one after the other; returns which were routed."""
    start = at(clock)
    placed = [
        await kernel.say(one, start + timedelta(seconds=every * number))
        for number, one in enumerate(events)
    ]
    return [one.session_id is not None for one in placed]


async def test_two_bots_that_answer_each_other_come_to_an_end(kernel_with: KernelWith) -> None:
    """C38, as told: own echoes, forty messages of another bot, then a person."""
    kernel = await kernel_with(ALLOWED)
    echo: Fields = {"user": "UBOT", "is_bot": True, "text": "my own answer"}
    dm = event("slack", chat="D5", thr="1770.5", mid="1", **echo)
    channel = event("slack", kind_of_chat="channel", chat="C5", mid="2", **echo)
    assert await heard(kernel, dm, channel, clock="09:00") == [False, False]
    with structlog.testing.capture_logs() as logs:
        ran = await heard(kernel, *map(chatter, range(3, 43)), clock="09:01")
    assert ran == [True] * 5 + [False] * 35
    assert [line["event"] for line in logs].count("bot_silenced") == 1
    assert kernel.metrics.counts["kept", "silenced_bot"] == 35
    asked = await kernel.say(person(43), at("09:05"))
    assert (await kernel.run_turn(asked.session)).status == "claimed"


async def test_what_is_not_heard_stays_unheard(kernel_with: KernelWith) -> None:
    """Also when it comes again after the silence."""
    kernel = await kernel_with(ALLOWED)
    await heard(kernel, *map(chatter, range(6)), clock="09:00")
    assert await heard(kernel, chatter(5), clock="09:10") == [False]


async def test_a_loop_that_goes_on_stays_unheard_and_a_quiet_bot_is_heard_again(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(ALLOWED)
    assert sum(await heard(kernel, *map(chatter, range(100)), clock="09:00")) == 5
    # The last one came at 09:04:57.
    assert await heard(kernel, chatter(100), clock="09:05:56") == [False]
    assert await heard(kernel, chatter(101), clock="09:06:56") == [True]


async def test_a_bot_that_says_little_is_always_heard(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    assert all(await heard(kernel, *map(chatter, range(20)), clock="09:00", every=13))


@pytest.mark.parametrize("are_shared", [False, True])
async def test_a_person_opens_it_again(kernel_with: KernelWith, *, are_shared: bool) -> None:
    """In a conversation of their own, too: a chat is one room for all who hear."""
    kernel = await kernel_with(ALLOWED)
    thread: Fields = {"thr": "5"} if are_shared else {}
    quiet = [chatter(number, **thread) for number in range(8)]
    assert sum(await heard(kernel, *quiet, clock="09:00")) == 5
    await kernel.say(person(50, **thread), at("09:00:30"))
    more = [chatter(number, **thread) for number in range(8, 16)]
    assert await heard(kernel, *more, clock="09:00:33") == [True] * 5 + [False] * 3


async def test_a_person_of_another_chat_opens_nothing(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    loop = [chatter(number, scope="guild") for number in range(9)]
    await heard(kernel, *loop[:8], clock="09:00")
    await kernel.say(person(50, scope="guild", chat="1112"), at("09:00:30"))
    await kernel.say(person(51, scope="other guild"), at("09:00:30"))
    assert await heard(kernel, loop[8], clock="09:00:33") == [False]


async def test_all_in_one_batch_is_as_one_after_the_other(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    events = [*map(chatter, range(7)), person(50), *map(chatter, range(7, 14))]
    placed = await kernel.say_together(events, at("09:00"))
    assert [one.session_id is not None for one in placed] == (
        [True] * 5 + [False] * 2 + [True] + [True] * 5 + [False] * 2
    )


async def test_each_bot_has_its_own_budget_in_each_chat(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    await heard(kernel, *map(chatter, range(8)), clock="09:00")
    others = (
        chatter(20, user="THIRD"),
        chatter(20, chat="112"),
        chatter(21, chat="112", thr="9"),
        chatter(20, account="bot", scope="guild"),
    )
    assert await heard(kernel, *others, clock="09:00:40") == [True] * 4


async def test_a_budget_outlives_its_router(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    assert all(await heard(kernel, *map(chatter, range(3)), clock="09:00"))
    kernel = kernel.restarted()
    assert sum(await heard(kernel, *map(chatter, range(3, 10)), clock="09:00:10")) == 2
    assert await heard(kernel.restarted(), chatter(10), clock="09:00:40") == [False]


async def test_a_repeat_spends_nothing(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    await heard(kernel, *(chatter(1) for _ in range(9)), clock="09:00", every=1)
    assert await heard(kernel, *map(chatter, range(2, 6)), clock="09:00:20") == [True] * 4


async def test_a_clock_that_steps_back_gives_nothing_more(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    await heard(kernel, *map(chatter, range(6)), clock="09:05")
    assert await heard(kernel, chatter(6), clock="09:00") == [False]


async def test_a_bot_is_no_person(kernel_with: KernelWith) -> None:
    """Design of activity: only people move the clock, and only they own a session."""
    kernel = await kernel_with(ALLOWED)
    await kernel.say(chatter(1), at("09:00"))
    assert await kernel.fetch("SELECT last_activity_at, owner FROM sessions") == [(None, None)]


async def test_who_allows_bots(kernel_with: KernelWith) -> None:
    """The account goes before the platform, both ways."""
    discord = ALLOWED.platforms["discord"]
    account = discord.accounts["bot"]

    def with_rules(*, platform: bool, own: bool | None) -> Catalog:
        changed = replace(
            discord,
            bots_allowed=platform,
            accounts={"bot": replace(account, bots_allowed=own)},
        )
        return replace(ALLOWED, platforms={**ALLOWED.platforms, "discord": changed})

    kernel = await kernel_with(ALLOWED)
    rules = (
        (True, None, True),
        (True, False, False),
        (False, True, True),
        (False, None, False),
    )
    for number, (platform, own, expected) in enumerate(rules):
        kernel = kernel.restarted(with_rules(platform=platform, own=own))
        assert await heard(kernel, chatter(number), clock="09:00") == [expected]


async def test_a_budget_of_ones_own(kernel_with: KernelWith) -> None:
    small = replace(ALLOWED.platforms["discord"], bot_budget=Limit(2, timedelta(seconds=10)))
    kernel = await kernel_with(replace(ALLOWED, platforms={**ALLOWED.platforms, "discord": small}))
    ran = await heard(kernel, *map(chatter, range(4)), clock="09:00", every=1)
    assert ran == [True, True, False, False]
    assert await heard(kernel, chatter(9), clock="09:00:13") == [True]


async def test_an_edit_that_counts_as_new_is_paid_for(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    edits = [chatter(number, kind="edit", counts_as_new=True) for number in range(7)]
    await heard(kernel, *edits, clock="09:00")
    assert kernel.metrics.counts["routed", "discord"] == 5
    assert kernel.metrics.counts["kept", "silenced_bot"] == 2


async def test_a_channel_we_post_for_may_be_declared_ours(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(own_ids=frozenset({"-500"})))
    posted: Fields = {"kind_of_chat": "group", "chat": "-50", "user": "777000", "is_bot": True}
    ours = await kernel.say(event(**posted, sender_chat="-500", text="x"))
    theirs = await kernel.say(event(**posted, sender_chat="-501", text="x"))
    assert (ours.session_id, theirs.session_id is not None) == (None, True)


async def test_what_quiet_bots_spent_is_forgotten(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    await heard(kernel, chatter(1), chatter(2, user="THIRD"), clock="09:00")
    await kernel.fetch(
        "UPDATE bot_budgets SET last_at = clock_timestamp() WHERE key = "
        "(SELECT min(key) FROM bot_budgets)"
    )
    query, unused = keyed_rows.EXPIRE_BUDGETS_SQL, timedelta(days=1)
    await keyed_rows.expire(kernel.store.transaction, query, unused, at_once=1)
    assert await kernel.value("SELECT count(*) FROM bot_budgets") == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        " \n ",
        "\u200b\ufeff",
        "⚠ no answer",
        "⚠\ufe0f Rate limit reached",
        "❌ something failed\nfor a reason",
        "Sorry, I could not answer this. Please try again.",
        "This is a new conversation: the last one ended after a quiet time.",
        "Too many messages: this one was not accepted. At most 5 in 1m are; please write again.",
        "New conversation started. The previous one is kept.",
        "/new",
        "/status@our_bot",
        "/weather@weather_bot Berlin",
        "@our_bot /stop",
    ],
)
async def test_f06_a_bot_that_asks_nothing_starts_nothing(
    kernel_with: KernelWith, text: str | None
) -> None:
    kernel = await kernel_with(ALLOWED)
    assert await heard(kernel, chatter(1, text=text), clock="09:00") == [False]
    assert await heard(kernel, chatter(2), clock="09:01") == [True]
    edit = chatter(3, text=text, kind="edit", counts_as_new=True)
    assert await heard(kernel, edit, clock="09:02") == [False]
    assert await kernel.told() == []
    assert await kernel.dead() == []


@pytest.mark.parametrize(
    "said",
    [
        {"text": "we had a warning: ⚠ no answer"},
        {"text": "see /new"},
        {"text": None, "attachments": [{"key": "k", "media_type": "image/png"}]},
    ],
)
async def test_f06_a_bot_that_asks_something_is_heard(
    kernel_with: KernelWith, said: Fields
) -> None:
    kernel = await kernel_with(ALLOWED)
    assert await heard(kernel, chatter(1, **said), clock="09:00") == [True]


async def test_f06_people_may_write_like_a_bot(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(ALLOWED)
    assert await heard(kernel, person(1, text="⚠ no answer"), clock="09:00") == [True]


async def test_f06_what_a_receipt_says_is_ours_never_runs(kernel_with: KernelWith) -> None:
    """Also where the account has another id than was declared."""
    kernel = await kernel_with(ALLOWED)
    asked = await kernel.say(person(1), at("09:00"))
    await kernel.run_turn(asked.session, "my answer")
    [answer] = await kernel.published("OUTBOUND")
    receipt = event("discord", **ROOM, kind="receipt", mid="2", delivered=answer["id"])
    echo = chatter(2, user="UNDECLARED", text="my answer")
    assert await heard(kernel, receipt, echo, echo, receipt, clock="09:01") == [False] * 4
    assert await heard(kernel, chatter(3), clock="09:02") == [True]
    read = event("discord", **ROOM, kind="receipt", mid="4")
    assert await heard(kernel, read, chatter(4), clock="09:03") == [False, True]
