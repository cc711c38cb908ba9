"""Cases C14, C15 and C19: what is a repeat, what only looks like one, and for how long."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from chatlane.domain.addressing.dedupe import digests
from chatlane.domain.addressing.sources import address_of
from chatlane.domain.catalog import Catalog
from chatlane.domain.effects import Publication
from chatlane.outbox.redrive import NotRetriedError, Retrying
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]


async def test_a_message_number_counts_inside_its_chat_only(kernel: Kernel) -> None:
    """C14."""
    said = [
        await kernel.say(event(chat="701", user="701", mid="250", text="from Ann"), at("09:00")),
        await kernel.say(event(chat="702", user="702", mid="250", text="from Bob"), at("09:00")),
        await kernel.say(
            event(kind_of_chat="group", chat="-80", user="701", mid="250", text="in group"),
            at("09:00"),
        ),
        await kernel.say(
            event("discord", chat="701", user="701", mid="250", text="other platform"),
            at("09:00"),
        ),
        await kernel.say(event(chat="701", user="701", mid="250", text="from Ann"), at("09:01")),
        await kernel.say(event(chat="701", user="701", text="no id 1"), at("09:02")),
        await kernel.say(event(chat="701", user="701", text="no id 2"), at("09:02")),
        await kernel.say(event(chat="701", user="701", mid="", text="no id 3"), at("09:02")),
    ]
    await kernel.run_all()
    assert [await kernel.runs(one) for one in said] == [1, 1, 1, 1, 0, 1, 1, 1]
    assert kernel.metrics.counts["duplicates", "inbound"] == 1


async def test_equal_words_are_no_repeat(kernel: Kernel) -> None:
    """C14: a person says "ok" twice; only the platform's number or our envelope tells a copy."""
    ok: Fields = {"chat": "701", "user": "701", "text": "ok"}
    placed = await kernel.say(event(**ok, mid="1"), at("09:00"))
    await kernel.say(event(**ok, mid="2"), at("09:00"))
    unnumbered = event(**ok)
    await kernel.say(unnumbered, at("09:01"))
    await kernel.say(unnumbered, at("09:02"))
    assert await kernel.waiting(placed.session) == ["ok", "ok", "ok"]


@pytest.mark.parametrize(
    "apart",
    [
        pytest.param({"account": "other"}, id="account"),
        pytest.param({"scope": "T1"}, id="scope"),
        pytest.param({"chat": "702"}, id="chat"),
    ],
)
async def test_whatever_makes_the_place_another_makes_the_message_another(
    kernel_with: KernelWith, apart: Fields
) -> None:
    """C14 with C03."""
    kernel = await kernel_with(catalog(accounts=["bot", "other"]))
    here: Fields = {"platform": "slack", "chat": "701", "user": "701", "mid": "250", "text": "a"}
    first = await kernel.say(event(**here), at("09:00"))
    second = await kernel.say(event(**(here | apart)), at("09:01"))
    assert second.session != first.session


async def test_the_same_number_is_a_copy_whatever_else_differs(kernel: Kernel) -> None:
    """C14: thread, profile spelling, files and dates of a retold message may differ."""
    here: Fields = {"chat": "701", "user": "701", "mid": "250"}
    first = await kernel.say(event(**here, text="a"), at("09:00"))
    retold: list[Fields] = [
        {"text": "a", "thr": "9"},
        {
            "text": "a",
            "attachments": [{"url": "https://example.org/a?signed=2", "media_type": "a/b"}],
        },
        {"text": "a", "profile": "default"},
        {"text": "a", "sent_at": "2026-05-11T09:00:00Z"},
        {"text": "a", "mid": 250},
    ]
    for more in retold:
        again = await kernel.say(event(**(here | more)), at("09:01"))
        assert (again.session_id, again.dead) == (None, None)
    assert await kernel.waiting(first.session) == ["a"]


FIRST: Fields = {"chat": "701", "user": "701", "mid": "250", "text": "pay 5"}
PRESS: Fields = {"chat": "701", "user": "701", "mid": "9", "kind": "action", "event_id": "q1"}
LOCATION = {"latitude": 52.5, "longitude": 13.4}


@pytest.mark.parametrize("is_together", [False, True])
@pytest.mark.parametrize(
    ("platform", "first", "changes"),
    [
        pytest.param("telegram", FIRST, {"text": "pay 500"}, id="words"),
        pytest.param("telegram", FIRST, {"text": "Pay 5"}, id="case"),
        pytest.param("slack", FIRST, {"text": None, "location": LOCATION}, id="a place"),
        pytest.param("telegram", FIRST | {"kind": "system"}, {"text": "pay"}, id="timer"),
        pytest.param(
            "discord",
            FIRST | {"kind_of_chat": "group", "chat": "-1"},
            {"user": "702"},
            id="sender",
        ),
        pytest.param("telegram", FIRST | {"text": "/status"}, {"text": "/stop"}, id="command"),
        pytest.param(
            "telegram",
            PRESS | {"press": {"value": "yes"}},
            {"press": {"value": "no"}},
            id="press",
        ),
        pytest.param(
            "telegram",
            {**FIRST, "kind": "edit", "version": "7"},
            {"text": "pay 6"},
            id="edits of one second",
        ),
        pytest.param(
            "matrix", {"chat": "!r", "user": "@a", "text": "a"}, {"text": "b"}, id="envelope"
        ),
        pytest.param(
            "matrix",
            {"chat": "!r", "user": "@a", "text": "a", "kind_of_chat": "room"},
            {"chat": "!s"},
            id="envelope of another chat",
        ),
    ],
)
async def test_c14_another_message_with_the_same_id_is_kept_for_operators(
    kernel: Kernel, platform: str, first: Fields, changes: Fields, *, is_together: bool
) -> None:
    envelope = event("telegram").id
    copies = [event(platform, **fields, id=envelope) for fields in (first, first | changes, first)]
    if is_together:
        placed = await kernel.say_together(copies, at("09:00"))
    else:
        placed = [await kernel.say(one, at(f"09:00:0{n}")) for n, one in enumerate(copies)]
    assert [one.dead for one in placed] == [None, "message_id_reused", None]
    assert kernel.metrics.counts["dead_letters", "inbound", "message_id_reused"] == 1
    assert kernel.metrics.counts["duplicates", "inbound"] == 1
    [letter] = await kernel.fetch("SELECT body, session_id, detail FROM dead_letters")
    assert letter["body"] == placed[1].message.body
    assert letter["session_id"] == placed[0].session_id
    assert "pay" not in letter["detail"]


async def test_c14_a_letter_with_the_id_of_another_message_is_not_retried(kernel: Kernel) -> None:
    await kernel.say(event(**FIRST), at("09:00"))
    await kernel.say(event(**FIRST | {"text": "pay 500"}), at("09:01"))
    later = await kernel.say(event(**FIRST | {"mid": "251"}, profile="unknown"), at("09:02"))
    assert later.dead == "unknown_profile"
    published: list[Publication] = []

    async def publish(publication: Publication) -> None:
        published.append(publication)

    retrying = Retrying(kernel.store, publish)
    reused, unknown = [
        row[0] for row in await kernel.fetch("SELECT id FROM dead_letters ORDER BY stored_at")
    ]
    with pytest.raises(NotRetriedError, match="an id of its own"):
        await retrying.retry(reused)
    # It keeps no later one of its chat from being tried again.
    await retrying.retry(unknown)
    assert len(published) == 1


async def test_c14_a_copy_with_more_ids_of_its_sender_is_a_copy(kernel: Kernel) -> None:
    here: Fields = {"mid": "1", "text": "hi", "kind_of_chat": "group", "chat": "-9"}
    await kernel.say(event("slack", **here, user="U1"), at("09:00"))
    again = event("slack", **here, user="U1", alt_user="stable-1", aliases=["x"])
    assert (await kernel.say(again, at("09:01"))).dead is None
    assert kernel.metrics.counts["duplicates", "inbound"] == 1


async def test_c14_a_copy_after_an_early_edit_is_a_copy(kernel: Kernel) -> None:
    edit = event(**FIRST | {"text": "pay 7"}, kind="edit", version="1")
    await kernel.say(edit, at("09:00"))
    placed = await kernel.say(event(**FIRST), at("09:01"))
    assert await kernel.waiting(placed.session) == ["pay 7"]
    assert (await kernel.say(event(**FIRST), at("09:02"))).dead is None
    assert (await kernel.say(event(**FIRST | {"text": "x"}), at("09:03"))).dead is not None


async def test_c14_a_mark_of_an_older_router_is_compared_with_nothing(kernel: Kernel) -> None:
    await kernel.say(event(**FIRST), at("09:00"))
    await kernel.fetch("UPDATE seen SET fingerprint = NULL")
    assert (await kernel.say(event(**FIRST | {"text": "x"}), at("09:01"))).dead is None


async def test_one_message_in_two_envelopes_runs_once(kernel: Kernel) -> None:
    """C15."""
    here: Fields = {"platform": "slack", "kind_of_chat": "channel", "chat": "C5", "user": "U1"}
    mention: Fields = {"mid": "1789.15", "text": "@bot hello"}
    first = await kernel.say(event(**here, **mention, event_id="Ev1"), at("09:00:00.00"))
    running = await kernel.claim_live(first.session)
    second = await kernel.say(event(**here, **mention, event_id="Ev2"), at("09:00:00.25"))
    third = await kernel.say(
        event(**(here | {"chat": "C6"}), **mention, event_id="Ev3"), at("09:00:01")
    )
    assert second.session_id is None
    assert await kernel.waiting(first.session) == []
    assert await kernel.published("OUTBOUND") == []
    await kernel.answer(running)
    await kernel.run_all()
    assert await kernel.said(first.session) == ["@bot hello", "ok"]
    assert await kernel.runs(third) == 1


async def test_both_envelopes_in_one_batch_run_once(kernel: Kernel) -> None:
    """C15."""
    one: Fields = {"platform": "slack", "chat": "C5", "user": "U1", "mid": "1", "text": "hi"}
    first, second = await kernel.say_together([event(**one), event(**one)])
    assert await kernel.runs(first) == await kernel.runs(second) == 0
    assert await kernel.turns_of(first.session) == 1
    assert second.session_id is None


@pytest.mark.parametrize("kind", ["message", "system", "edit"])
@pytest.mark.parametrize("is_known", [True, False])
async def test_two_replicas_at_the_same_instant_run_it_once(
    kernel: Kernel, kind: str, *, is_known: bool
) -> None:
    """C15: with a session that is there, and with one that both would have to make."""
    other = kernel.restarted()
    for number in range(20):
        one: Fields = {"platform": "slack", "chat": f"C{number}", "user": "U1", "kind": kind}
        if is_known:
            await kernel.say(event(**(one | {"kind": "message"}), mid="0", text="first"))
        envelopes = [event(**one, mid="1", text="hi", event_id="e") for _ in range(2)]
        first, second = (
            router.logged(envelope, at("09:00:01"))
            for router, envelope in zip((kernel, other), envelopes, strict=True)
        )
        await asyncio.gather(
            kernel.decide_in_the_end([first]),
            other.decide_in_the_end([second]),
        )
    sessions = 20 if is_known or kind != "edit" else 0
    assert await kernel.value("SELECT count(*) FROM sessions") == sessions
    assert await kernel.value("SELECT count(*) FROM turns") == sessions
    said = await kernel.value("SELECT count(*) FROM waiting WHERE content = 'hi'")
    assert said == (0 if kind == "edit" else 20)
    counts = kernel.metrics.counts + other.metrics.counts
    assert counts["duplicates", "inbound"] == 20


async def test_what_a_platform_tells_again_after_a_restart_runs_no_more(kernel: Kernel) -> None:
    """C19."""
    events = [
        event(chat="701", user="701", mid=str(number), text=f"m{number}") for number in range(1, 6)
    ]
    first, *_ = [await kernel.say(one, at(f"09:0{number}")) for number, one in enumerate(events)]
    await kernel.run_all()

    kernel = kernel.restarted()
    new = event(chat="701", user="701", mid="6", text="new one")
    again = await kernel.say_together([*events, new], at("09:10"))
    assert [one.session_id for one in again] == [None] * 5 + [first.session]
    assert [texts(claimed) for claimed in await kernel.run_all()] == [["new one"]]
    assert kernel.metrics.counts["duplicates", "inbound"] == 5


@pytest.mark.parametrize("days", [1, 2, 3])
async def test_marks_hold_longer_than_a_platform_remembers(kernel: Kernel, days: int) -> None:
    """C19: a gap of 26 hours touches two days, the replay window of the log four."""
    one = event(chat="701", user="701", mid="1", text="m1")
    await kernel.say(one, at("09:00"))
    await kernel.fetch("SELECT create_seen_days(current_date - 4, current_date)")
    await kernel.fetch("UPDATE seen SET day = day - $1::int", days)
    again = await kernel.say(one, at("09:00") + timedelta(days=days))
    assert again.session_id is None
    assert kernel.metrics.counts["duplicates", "inbound"] == 1


async def test_a_replay_is_no_activity_and_resets_nothing(kernel: Kernel) -> None:
    """C19 with C24: the row of the session is as it was."""
    one = event(chat="701", user="701", mid="1", text="m1")
    placed = await kernel.say(one, at("09:00"))
    await kernel.run_all()
    query = "SELECT * FROM sessions WHERE id = $1"
    before = await kernel.fetch(query, placed.session)
    await kernel.say(one, at("19:00"))
    assert await kernel.fetch(query, placed.session) == before


SAID: Fields = {"chat": "C1", "kind_of_chat": "channel", "mid": "5", "text": "hello"}
TWO_PROFILES = catalog(profiles={"sales": "main"}, own_ids=frozenset({"UBOT"}), bots_allowed=True)


@pytest.mark.parametrize("is_together", [False, True])
@pytest.mark.parametrize(
    "ignored",
    [
        pytest.param({"user": "U1", "is_bot": True}, id="bot"),
        pytest.param({"user": "U1", "text": "/new@other_bot"}, id="for another bot"),
    ],
)
async def test_an_ignored_copy_does_not_use_up_a_message(
    kernel: Kernel, ignored: Fields, *, is_together: bool
) -> None:
    copies = [event(**(SAID | ignored)), event(**SAID, user="U1"), event(**SAID, user="U1")]
    if is_together:
        placed = await kernel.say_together(copies, at("09:00"))
    else:
        placed = [await kernel.say(one, at(f"09:00:0{n}")) for n, one in enumerate(copies)]
    assert [one.session_id is not None for one in placed] == [False, True, False]
    assert await kernel.waiting(placed[1].session) == ["hello"]


async def test_the_copy_of_a_silenced_bot_does_not_use_up_a_message(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(TWO_PROFILES)
    for number in range(5):
        said = event(**(SAID | {"mid": f"b{number}"}), user="OTHER", is_bot=True)
        await kernel.say(said, at(f"09:00:0{number}"))
    silenced = event(**SAID, user="OTHER", is_bot=True)
    assert (await kernel.say(silenced, at("09:00:06"))).session_id is None
    person = await kernel.say(event(**SAID, user="U1"), at("09:00:07"))
    assert await kernel.waiting(person.session) == ["hello"]
    # Now the bot may speak again, and what it said before stays unheard.
    assert (await kernel.say(silenced, at("09:00:08"))).session_id is None
    assert kernel.metrics.counts["duplicates", "inbound"] == 1


@pytest.mark.parametrize("is_together", [False, True])
async def test_one_message_to_two_profiles_is_one_of_each(
    kernel_with: KernelWith, *, is_together: bool
) -> None:
    kernel = await kernel_with(TWO_PROFILES)
    copies = [event(**SAID, user="U1", profile=its) for its in (None, "sales", "default", "sales")]
    if is_together:
        placed = await kernel.say_together(copies, at("09:00"))
    else:
        placed = [await kernel.say(one, at(f"09:00:0{n}")) for n, one in enumerate(copies)]
    assert [one.session_id is not None for one in placed] == [True, True, False, False]
    assert placed[0].session != placed[1].session
    edit = event(**(SAID | {"text": "hello!"}), user="U1", profile="sales", kind="edit")
    await kernel.say(edit, at("09:01"))
    assert await kernel.waiting(placed[0].session) == ["hello"]
    assert await kernel.waiting(placed[1].session) == ["hello!"]


@pytest.mark.parametrize("profile", [None, "sales"])
async def test_a_message_that_an_older_router_marked_is_a_repeat(
    kernel_with: KernelWith, profile: str | None
) -> None:
    """That router did not tell profiles apart."""
    kernel = await kernel_with(TWO_PROFILES)
    one = event(**SAID, user="U1", profile=profile)
    placed = await kernel.say(one, at("09:00"))
    without = event(**SAID, user="U1")
    [mark] = digests(without, address_of(without))
    # It is marked for such routers as well, and they mark nothing else.
    await kernel.fetch("DELETE FROM seen WHERE digest <> $1", mark)
    again = event(**SAID, user="U1", profile=profile)
    assert (await kernel.say(again, at("09:01"))).session_id is None
    assert await kernel.waiting(placed.session) == ["hello"]
    other = event(**SAID, user="U1", profile="sales" if profile is None else "main")
    heard = (await kernel.say(other, at("09:02"))).session_id is not None
    # Whose a mark of the main profile is cannot be told: a repeat is worse than one that is lost.
    assert heard is (profile is None)
