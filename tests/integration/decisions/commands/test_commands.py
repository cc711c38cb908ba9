"""What people tell the router in a chat: /new, /title, /sessions, /status and /help."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.commands.command_words import CommandName, CommandRules
from chatlane.domain.policy import ResetPolicy
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import (
    DAY,
    SESSION_EVENTS,
    Fields,
    Kernel,
    at,
    catalog,
    event,
    texts,
)

pytestmark = pytest.mark.integration

ANN: Fields = {"chat": "701", "user": "701"}
BEN: Fields = {"chat": "702", "user": "702"}
GROUP: Fields = {"chat": "-90", "kind_of_chat": "supergroup"}


async def everything(kernel: Kernel) -> list[tuple[object, ...]]:
    """Return all that a command could touch; where the chat is told something is left out."""
    sessions = await kernel.fetch("SELECT * FROM sessions ORDER BY id")
    rows = [{**dict(row.items()), "next_out_seq": 0} for row in sessions]
    others = [
        await kernel.fetch("SELECT * FROM lanes ORDER BY session_key"),
        await kernel.fetch("SELECT * FROM turns ORDER BY id"),
        await kernel.fetch("SELECT * FROM waiting ORDER BY session_id, arrival"),
        await kernel.fetch("SELECT * FROM messages ORDER BY session_id, seq"),
    ]
    return [
        *(tuple(row.values()) for row in rows),
        *(tuple(row.values()) for found in others for row in found),
    ]


async def lane(kernel: Kernel, session_id: UUID) -> UUID:
    """Return where the lane leads that led to a session."""
    found: UUID = await kernel.value(
        "SELECT l.session_id FROM sessions s JOIN lanes l USING (session_key) WHERE s.id = $1",
        session_id,
    )
    return found


async def test_c32_a_command_is_ours_and_a_whole_word(kernel: Kernel) -> None:
    group = {**GROUP, "user": "7"}
    one = await kernel.say(event(**group, mid="1", text="remember fig"), at("09:00"))
    await kernel.say(event(**group, mid="2", text="/new@other_bot"), at("09:01"))
    three = await kernel.say(event(**group, mid="3", text="word?"), at("09:02"))
    assert await kernel.told() == []
    path = await kernel.say(event(**group, mid="4", text="/etc/hosts looks wrong"), at("09:03"))
    file = await kernel.say(event(**group, mid="5", text="/README.md please"), at("09:04"))
    runs = await kernel.run_all()
    reset = await kernel.say(event(**group, mid="6", text="/NEW@Our_Bot"), at("09:05"))
    seven = await kernel.say(event(**group, mid="7", text="word?"), at("09:06"))

    assert one.session == three.session == path.session == file.session
    assert reset.session_id is None
    assert seven.session != one.session
    assert [texts(claimed) for claimed in runs] == [
        ["remember fig", "word?", "/etc/hosts looks wrong", "/README.md please"]
    ]
    assert await kernel.waiting(seven.session) == ["word?"]
    assert await kernel.dead() == []


async def test_c45_new_is_durable_when_it_was_confirmed(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    await kernel.run_all()
    await kernel.say(event(**ANN, mid="2", text="/new"), at("09:01"))
    reply = (await kernel.published("OUTBOUND"))[-1]

    restarted = kernel.restarted()
    three = await restarted.say(event(**ANN, mid="3", text="b"), at("09:05"))

    assert three.session != one.session
    assert reply["session_id"] == str(three.session)
    assert (reply["out_seq"], reply["kind"], reply["reply_to"]) == (1, "notice", "2")
    await restarted.run_turn(three.session)
    assert (await restarted.said(three.session))[0] == "b"
    await restarted.say(event(**ANN, mid="4", text="/sessions"), at("09:06"))
    assert (await restarted.told())[-1].splitlines() == [
        "1. b (2026-05-11 09:01 UTC, 1 message, this one)",
        "2. a (2026-05-11 09:00 UTC, 1 message)",
    ]


async def test_new_ends_the_session_once_and_the_next_message_is_the_first(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    await kernel.say(event(**ANN, mid="2", text="/new"), at("09:01"))
    two = await kernel.say(event(**ANN, mid="3", text="b"), at("09:02"))

    _, ended, started = await kernel.published("EVENTS", f"{SESSION_EVENTS}%")
    assert (ended["session_id"], ended["reason"]) == (str(one.session), "requested")
    assert (started["session_id"], started["reason"]) == (str(two.session), "requested")
    assert started["previous_session_id"] == str(one.session)
    claimed = await kernel.run_turn(two.session)
    assert (claimed.session_is_new, claimed.reset_reason) == (True, "requested")
    row = (await kernel.fetch("SELECT * FROM sessions WHERE id = $1", two.session))[0]
    assert row["owner"] == await kernel.value(
        "SELECT owner FROM sessions WHERE id = $1", one.session
    )


@pytest.mark.parametrize(
    "command", ["/status", "/sessions", "/help", "/title", "/title plan", "/new", "/new plan"]
)
async def test_the_same_command_again_does_nothing_more(kernel: Kernel, command: str) -> None:
    await kernel.say(event(**ANN, mid="1", text="a"))
    first = event(**ANN, mid="2", text=command)
    await kernel.say(first, at("09:01"))
    after = await everything(kernel)
    told = await kernel.told()
    assert len(told) == 1

    again = event(**ANN, mid="2", text=command)
    await kernel.say(again, at("09:02"))
    await kernel.restarted().say(again, at("09:01", "2026-05-13"))

    assert await everything(kernel) == after
    assert await kernel.told() == told


@pytest.mark.parametrize("command", ["/status", "/sessions", "/help", "/title", "/new@other_bot"])
async def test_what_only_tells_changes_nothing(kernel: Kernel, command: str) -> None:
    await kernel.say(event(**ANN, mid="1", text="a"))
    before = await everything(kernel)
    await kernel.say(event(**ANN, mid="2", text=command), DAY + timedelta(days=3))
    assert await everything(kernel) == before


@pytest.mark.parametrize("command", ["/status", "/sessions", "/help", "/title", "/title plan"])
async def test_where_nobody_has_talked_a_command_opens_nothing(
    kernel: Kernel, command: str
) -> None:
    placed = await kernel.say(event(**ANN, mid="1", text=command))
    assert placed.session_id is None
    assert await everything(kernel) == []
    (reply,) = await kernel.published("OUTBOUND")
    assert (reply["out_seq"], reply["target"]["chat"]["id"]) == (1, "701")


async def test_new_where_nobody_has_talked_is_a_first_contact(kernel: Kernel) -> None:
    await kernel.say(event(**ANN, mid="1", text="/new plan"))
    two = await kernel.say(event(**ANN, mid="2", text="a"))
    (started,) = await kernel.published("EVENTS", f"{SESSION_EVENTS}%")
    assert started["session_id"] == str(two.session)
    assert "reason" not in started
    assert await kernel.value("SELECT title FROM sessions") == "plan"


async def test_a_command_is_no_activity(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=ResetPolicy("idle", idle=timedelta(hours=1))))
    one = await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    await kernel.run_all()
    await kernel.say(event(**ANN, mid="2", text="/title plan"), at("09:50"))
    await kernel.say(event(**ANN, mid="3", text="/status"), at("10:30"))
    assert await lane(kernel, one.session) == one.session
    four = await kernel.say(event(**ANN, mid="4", text="b"), at("10:31"))
    assert four.session != one.session


async def test_commands_act_while_a_turn_runs_and_in_their_place(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="long job"))
    running = await kernel.claim_live(one.session)
    await kernel.say_together(
        event(**ANN, mid=str(number), text=text)
        for number, text in enumerate(["A", "/status", "/title plan", "/new", "B", "/status"], 2)
    )
    first_status, titled, new, last_status = await kernel.told()
    assert "An answer is in progress. 1 message waits." in first_status
    assert titled == "This conversation is called “plan”."
    assert new.startswith("New conversation started.")
    assert last_status.startswith("This conversation began")
    assert "1 message" in last_status

    after = await lane(kernel, one.session)
    assert after != one.session
    assert await kernel.waiting(after) == ["B"]
    await kernel.answer(running, "late")
    assert await lane(kernel, one.session) == after
    assert await kernel.transcript(after) == []


@pytest.mark.parametrize("delivery", ["turns", "stream"])
async def test_a_batch_decides_what_its_commands_would_have_decided_alone(
    kernel_with: KernelWith, delivery: str
) -> None:
    agents = [Agent("main", delivery="stream" if delivery == "stream" else "turns")]
    texts = ["a", "/title x", "/new x", "b", "/title y", "/new", "/title", "/title x", "/sessions"]
    told: list[list[str]] = []
    for together in (False, True):
        kernel = await kernel_with(catalog(agents=agents))
        chat = {"chat": f"80{together:d}", "user": f"80{together:d}"}
        said = [event(**chat, mid=str(n), text=text) for n, text in enumerate(texts)]
        before = len(await kernel.told())
        if together:
            await kernel.say_together(said)
        else:
            for n, one in enumerate(said):
                await kernel.say(one, DAY + timedelta(milliseconds=n))
        told.append((await kernel.told())[before:])
    alone, at_once = told
    assert [_without_words(one) for one in at_once] == [_without_words(one) for one in alone]
    assert "Another conversation is called “x” already." in alone[1]
    assert alone[4] == "This conversation has no title."


def _without_words(told: str) -> str:
    """Leave out how a conversation without title began, which its own batch cannot show."""
    return told.replace(". a (", ". no title (").replace(". b (", ". no title (")


async def test_c34_titles_are_one_persons_own(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    await kernel.say(event(**ANN, mid="2", text="/title plan"), at("09:01"))
    await kernel.say(event(**ANN, mid="3", text="/new"), at("09:02"))
    four = await kernel.say(event(**ANN, mid="4", text="b"), at("09:03"))
    await kernel.say(event(**ANN, mid="7", text="/title plan"), at("09:06"))
    refused = (await kernel.told())[-1]
    await kernel.say(event(**BEN, mid="1", text="c"), at("09:07"))
    await kernel.say(event(**BEN, mid="2", text="/title plan"), at("09:08"))

    titles = "SELECT title FROM sessions WHERE id = $1"
    assert await kernel.value(titles, one.session) == "plan"
    assert await kernel.value(titles, four.session) is None
    assert refused == "Another conversation is called “plan” already. Choose another title."
    assert (await kernel.told())[-1] == "This conversation is called “plan”."


async def test_a_title_is_shown_changed_and_removed(kernel: Kernel) -> None:
    one = await kernel.say(event(**ANN, mid="1", text="a"))
    titles = [
        "/title",
        "/title  my\t plan\x07 ",
        "/title",
        "/title " + "x" * 101,
        "/title -",
        "/title",
    ]
    for number, text in enumerate(titles, 2):
        await kernel.say(event(**ANN, mid=str(number), text=text))
    assert await kernel.told() == [
        "This conversation has no title.",
        "This conversation is called “my plan”.",
        "This conversation is called “my plan”.",
        "A title has at most 100 characters.",
        "The title was removed.",
        "This conversation has no title.",
    ]
    assert await kernel.value("SELECT title FROM sessions WHERE id = $1", one.session) is None


async def test_a_title_that_is_given_up_is_free_in_the_same_batch(kernel: Kernel) -> None:
    await kernel.say(event(**ANN, mid="1", text="/new plan"))
    texts = ["/title old", "/new plan", "/title newer", "/new plan"]
    await kernel.say_together(event(**ANN, mid=f"b{n}", text=text) for n, text in enumerate(texts))
    found = await kernel.fetch("SELECT title FROM sessions ORDER BY title")
    assert [row[0] for row in found] == ["newer", "old", "plan"]


async def test_sessions_lists_what_a_person_said_here_and_nothing_else(kernel: Kernel) -> None:
    thread = {**GROUP, "thr": "5", "is_forum": True}
    await kernel.say(event(**ANN, mid="1", text="salary talk"), at("09:00"))
    await kernel.say(event(**ANN, mid="2", text="/title budget"), at("09:01"))
    await kernel.say(event(**BEN, mid="1", text="of ben"), at("09:02"))
    await kernel.say(event(**GROUP, user="701", mid="9", text="in the group"), at("09:03"))
    await kernel.say(event(**GROUP, user="702", mid="10", text="ben in the group"), at("09:03"))
    await kernel.say(event(**thread, user="702", mid="11", text="in the thread"), at("09:04"))

    await kernel.run_all()
    for asked in (
        event(**ANN, mid="20", text="/sessions"),
        event(**GROUP, user="701", mid="21", text="/sessions"),
        event(**thread, user="701", mid="22", text="/sessions"),
    ):
        await kernel.say(asked, at("09:10"))

    assert (await kernel.told())[1:] == [
        "1. “budget” (2026-05-11 09:00 UTC, 1 message, this one)",
        "1. in the group (2026-05-11 09:03 UTC, 1 message, this one)",
        "1. in the thread (2026-05-11 09:04 UTC, 1 message, this one)",
    ]


async def test_at_most_ten_sessions_are_listed(kernel: Kernel) -> None:
    for number in range(12):
        await kernel.say(
            event(**ANN, mid=f"n{number}", text=f"/new t{number}"), at(f"09:{number:02}")
        )
        await kernel.say(event(**ANN, mid=f"m{number}", text="a"), at(f"09:{number:02}:30"))
    await kernel.say(event(**ANN, mid="list", text="/sessions"), at("10:00"))
    listed = (await kernel.told())[-1].splitlines()
    assert len(listed) == 10
    assert listed[0].startswith("1. “t11”")
    assert listed[9].startswith("10. “t2”")


async def test_who_may_not_is_told_so_and_help_is_for_all(kernel_with: KernelWith) -> None:
    rules = CommandRules(access={"default": frozenset({"701"}), "status": frozenset({"*"})})
    kernel = await kernel_with(catalog(commands=rules))
    ben = await kernel.say(event(**BEN, mid="1", text="a"))
    await kernel.say(event(**BEN, mid="2", text="/new"))
    await kernel.say(event(**BEN, mid="3", text="/help"))
    await kernel.say(event(**ANN, mid="1", text="/help"))
    refused, bens, anns = await kernel.told()
    assert refused == "You may not use /new here."
    assert await lane(kernel, ben.session) == ben.session
    assert [line.partition(":")[0] for line in bens.splitlines()] == ["/status", "/help"]
    assert len(anns.splitlines()) == len(CommandName)
    assert kernel.metrics.counts["commands", "new", "refused"] == 1


async def test_a_person_with_several_ids_may_under_each(kernel_with: KernelWith) -> None:
    rules = CommandRules(access={"new": frozenset({"49123"})})
    kernel = await kernel_with(catalog(commands=rules))
    chat: Fields = {
        "platform": "whatsapp",
        "chat": "49123@s.whatsapp.net",
        "user": "49123:7@s.whatsapp.net",
    }
    await kernel.say(event(**chat, mid="1", text="/new"))
    assert "New conversation started" in (await kernel.told())[0]


async def test_a_person_known_under_two_ids_has_one_list(kernel: Kernel) -> None:
    phone: Fields = {"platform": "whatsapp", "chat": "49123@s.whatsapp.net"}
    hidden: Fields = {"platform": "whatsapp", "chat": "777@lid", "user": "777@lid"}
    await kernel.say(event(**phone, user="49123@s.whatsapp.net", mid="1", text="/new one"))
    await kernel.say(event(**phone, user="49123@s.whatsapp.net", mid="2", text="a"))
    linked: Fields = {**phone, "user": "49123@s.whatsapp.net", "aliases": ["777@lid"]}
    await kernel.say(event(**linked, mid="3", text="/new two"))
    await kernel.say(event(**hidden, mid="4", text="b"))
    await kernel.say(event(**hidden, mid="5", text="/sessions"))
    listed = (await kernel.told())[-1].splitlines()
    assert [line.split(" (")[0] for line in listed] == ["1. “two”", "2. “one”"]
    await kernel.say(event(**hidden, mid="6", text="/title one"))
    assert "already" in (await kernel.told())[-1]


async def test_bots_give_no_commands(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(bots_allowed=True))
    placed = await kernel.say(event(**GROUP, user="8", is_bot=True, mid="1", text="/new"))
    assert placed.session_id is None
    assert await kernel.told() == []


async def test_files_that_come_with_a_command_are_told_of(kernel: Kernel) -> None:
    files = [{"url": "https://example.org/a.png", "media_type": "image/png"}]
    await kernel.say(event(**ANN, mid="1", text="/new", attachments=files))
    assert (await kernel.told())[0].endswith("(Attachments on commands are ignored.)")


async def test_a_platform_has_a_prefix_and_switches_of_its_own(kernel_with: KernelWith) -> None:
    declared = catalog(commands=CommandRules("!", frozenset({CommandName.TITLE})))
    kernel = await kernel_with(declared)
    text = await kernel.say(event(**ANN, mid="1", text="/new"))
    await kernel.say(event(**ANN, mid="2", text="!title plan"))
    assert await kernel.waiting(text.session) == ["/new", "!title plan"]
    await kernel.say(event(**ANN, mid="3", text="!help"))
    (told,) = await kernel.told()
    assert "!title" not in told
    assert "!new [title]: start a new conversation" in told


async def test_two_routers_give_one_title_only_once(kernel: Kernel) -> None:
    """In two threads of one person, at the same time."""
    threads = [{**ANN, "thr": "1"}, {**ANN, "thr": "2"}]
    for thread in threads:
        await kernel.say(event(**thread, mid=f"a{thread['thr']}", text="a"))
    routers = [kernel.restarted(), kernel.restarted()]
    await asyncio.gather(
        *(
            router.decide_in_the_end(
                [router.logged(event(**thread, mid=f"b{thread['thr']}", text="/title plan"), DAY)]
            )
            for router, thread in zip(routers, threads, strict=True)
        )
    )
    assert sorted(await kernel.told()) == [
        "Another conversation is called “plan” already. Choose another title.",
        "This conversation is called “plan”.",
    ]


async def test_what_was_archived_is_not_listed_and_still_found(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    await kernel.run_all()
    await kernel.say(event(**ANN, mid="2", text="/title old"), at("09:01"))
    await kernel.say(event(**ANN, mid="3", text="/new"), at("09:02"))
    await kernel.fetch("UPDATE sessions SET archived_at = now() WHERE id = $1", first.session)
    await kernel.say(event(**ANN, mid="4", text="/sessions"), at("09:03"))
    assert "old" not in (await kernel.told())[-1]
    await kernel.say(event(**ANN, mid="5", text="/resume old"), at("09:04"))
    assert await lane(kernel, first.session) == first.session


async def test_c39_a_title_the_database_refuses_is_shown_all_the_same(kernel: Kernel) -> None:
    await kernel.say(event(**ANN, mid="1", text="a"))
    await kernel.say(event(**ANN, mid="2", text="/title plan\0 B"), at("09:01"))
    assert await kernel.told() == ["This conversation is called “plan\N{REPLACEMENT CHARACTER} B”."]


async def test_f09_titles_that_look_alike_are_one(kernel: Kernel) -> None:
    first = await kernel.say(event(**ANN, mid="1", text="/new caf\u00e9"), at("09:00"))
    assert first.session_id is None
    session = await kernel.value("SELECT id FROM sessions")
    for number, title in enumerate(["cafe\u0301", "c\u200baf\u00e9", "caf\u00e9\U000e0041"]):
        await kernel.say(event(**ANN, mid=f"n{number}", text=f"/new {title}"), at("09:01"))
        refused = (await kernel.told())[-1].splitlines()[-1]
        assert (
            refused == "Another conversation is called “caf\u00e9” already. Choose another title."
        )
    await kernel.say(event(**ANN, mid="2", text="/resume cafe\u0301\u2060"), at("09:02"))
    assert (await kernel.told())[-1] == "Back in “caf\u00e9”."
    assert await lane(kernel, session) == session


@pytest.mark.parametrize(
    ("title", "alike"),
    [
        pytest.param("Reise Köln", "REISE KO\u0308LN", id="case and form"),
        pytest.param("trip", "\uff54\uff52\uff49\uff50", id="width"),
        pytest.param("cope", "\u0441\u043e\u0440\u0435", id="another alphabet"),
        pytest.param("Οδός", "ΟΔΌΣ", id="greek"),
        pytest.param("week 10", "week lO", id="letters for digits"),
    ],
)
async def test_c81_a_title_like_another_is_refused_and_finds_it(
    kernel: Kernel, title: str, alike: str
) -> None:
    await kernel.say(event(**ANN, mid="1", text=f"/new {title}"), at("09:00"))
    session = await kernel.value("SELECT id FROM sessions")
    await kernel.say(event(**ANN, mid="2", text=f"/new {alike}"), at("09:01"))
    assert "already" in (await kernel.told())[-1]
    await kernel.say(event(**ANN, mid="3", text=f"/title {alike}"), at("09:02"))
    assert "already" in (await kernel.told())[-1]
    await kernel.say(event(**ANN, mid="4", text=f"/resume {alike}"), at("09:03"))
    assert (await kernel.told())[-1] == f"Back in “{title}”."
    assert await lane(kernel, session) == session
    # In its own conversation the title may take any form.
    await kernel.say(event(**ANN, mid="5", text=f"/title {alike}"), at("09:04"))
    assert "already" not in (await kernel.told())[-1]
    assert await kernel.value("SELECT count(*) FROM sessions WHERE title IS NOT NULL") == 1


async def test_c81_a_title_from_an_import_counts(kernel: Kernel) -> None:
    """It has no scope, and may be older than all that a list shows."""
    old = await kernel.say(event(**ANN, mid="1", text="a"), at("09:00"))
    await kernel.fetch("UPDATE sessions SET title = 'Rechnung', title_scope = NULL")
    for number in range(12):
        await kernel.say(event(**ANN, mid=f"n{number}", text="/new"), at("09:01"))
        await kernel.say(event(**ANN, mid=f"m{number}", text="b"), at("09:02"))
    await kernel.say(event(**ANN, mid="2", text="/title rechnung"), at("09:03"))
    assert "already" in (await kernel.told())[-1]
    await kernel.say(event(**ANN, mid="3", text="/resume RECHNUNG"), at("09:04"))
    assert await lane(kernel, old.session) == old.session


async def test_f09_a_title_of_before_is_found_by_what_people_see(kernel: Kernel) -> None:
    await kernel.say(event(**ANN, mid="1", text="/new plan"), at("09:00"))
    session = await kernel.value("SELECT id FROM sessions")
    await kernel.fetch("UPDATE sessions SET title = E'pl\\U000E0041an\\u0301'")
    await kernel.say(event(**ANN, mid="2", text="/new plan\u0301"), at("09:01"))
    assert "already" in (await kernel.told())[-1]
    await kernel.say(event(**ANN, mid="3", text="/resume pla\u0144"), at("09:02"))
    assert await lane(kernel, session) == session


async def test_f09_a_list_cuts_between_signs(kernel: Kernel) -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
    await kernel.say(event(**ANN, mid="1", text=family * 200), at("09:00"))
    await kernel.run_all()
    await kernel.say(event(**ANN, mid="2", text="/sessions"), at("09:01"))
    shown = (await kernel.told())[-1].removeprefix("1. ").partition(" (")[0]
    assert shown == family * 60 + "…"


@pytest.mark.parametrize(
    ("undone", "left"), [("1", "2 messages"), ("2", "1 message"), ("9", "0 messages")]
)
async def test_c94_status_does_not_count_what_was_undone(
    kernel: Kernel, undone: str, left: str
) -> None:
    for number in range(3):
        placed = await kernel.say(event(**ANN, mid=f"{number}", text=f"{number}"), at("10:00"))
        await kernel.run_turn(placed.session)
    for number, text in enumerate((f"/undo {undone}", "/status"), 10):
        await kernel.say(event(**ANN, mid=f"{number}", text=text), at("10:30"))
    status = (await kernel.told())[-1]
    assert left in status
