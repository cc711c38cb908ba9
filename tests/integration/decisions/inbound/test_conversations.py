"""Cases C01 to C10: which conversation a message belongs to, with everything behind the key."""

from collections.abc import Awaitable, Callable

import pytest

from chatlane.domain.addressing.keys import parse_session_key
from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.policy import KeyRules
from tests.support.worlds.kernel import Fields, Kernel, Placed, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]


def sessions(*placed: Placed) -> int:
    """Return how many different sessions these messages went to."""
    return len({one.session for one in placed})


async def test_separator_inside_an_id_keeps_conversations_apart(kernel: Kernel) -> None:
    """C01."""
    group: Fields = {"platform": "custom", "kind_of_chat": "group", "user": "1"}
    said = [
        await kernel.say(event(**group, chat="a:b", thr="c", mid="1", text="one"), at("09:00")),
        await kernel.say(event(**group, chat="a", thr="b:c", mid="2", text="two"), at("09:01")),
        await kernel.say(event("custom", chat="x", user="1", mid="3", text="three"), at("09:02")),
        await kernel.say(event("custom", chat="x:", user="1", mid="4", text="four"), at("09:03")),
        await kernel.say(event("custom", chat="%3A", user="1", mid="5", text="five"), at("09:04")),
        await kernel.say(event("custom", chat=":", user="1", mid="6", text="six"), at("09:05")),
    ]
    assert sessions(*said) == 6
    assert len({one.key for one in said}) == 6
    parsed = [parse_session_key(one.key) for one in said]
    assert [(one.chat, one.thread) for one in parsed] == [
        ("a:b", "c"),
        ("a", "b:c"),
        ("x", None),
        ("x:", None),
        ("%3A", None),
        (":", None),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"chat": "a", "user": "b"}, {"chat": "a:user=b"}, id="user in the chat"),
        pytest.param(
            {"chat": "a", "thr": "b"}, {"chat": "a:thread=b", "user": None}, id="thread in the chat"
        ),
        pytest.param(
            {"chat": "a", "thr": "b:scope=c"}, {"chat": "a", "thr": "b", "scope": "c"}, id="scope"
        ),
        pytest.param({"chat": "a", "user": None}, {"chat": "a:", "user": None}, id="last colon"),
        pytest.param({"chat": "a%3Ab"}, {"chat": "a:b"}, id="escaped already"),
        pytest.param({"chat": "a b"}, {"chat": "a+b"}, id="space and plus"),
        pytest.param({"chat": "a"}, {"chat": " a"}, id="leading space"),
        pytest.param({"chat": "a|b"}, {"chat": "a/b"}, id="other separators"),
        pytest.param({"chat": "é"}, {"chat": "e\N{COMBINING ACUTE ACCENT}"}, id="normal forms"),
        pytest.param({"chat": "None"}, {}, id="the word None"),
    ],
)
async def test_no_id_can_be_written_to_look_like_another(
    kernel: Kernel, one: dict[str, str | None], other: dict[str, str | None]
) -> None:
    """C01, more of its kind."""
    shape: Fields = {"platform": "custom", "kind_of_chat": "group", "user": "1"}
    first = await kernel.say(event(**(shape | one), mid="1", text="a"), at("09:00"))
    second = await kernel.say(event(**(shape | other), mid="2", text="b"), at("09:01"))
    assert sessions(first, second) == 2


async def test_ids_keep_their_case(kernel: Kernel) -> None:
    """C02."""
    room: Fields = {"platform": "matrix", "kind_of_chat": "group", "user": "@u:ex.org"}
    said = [
        await kernel.say(event(**room, chat="!AbC:ex.org", mid="$e1", text="hi"), at("09:00")),
        await kernel.say(event(**room, chat="!abc:ex.org", mid="$e2", text="hi"), at("09:01")),
        await kernel.say(
            event(**room, chat="!AbC:ex.org", thr="$ThR1", mid="$e3", text="x"), at("09:02")
        ),
        await kernel.say(
            event(**room, chat="!AbC:ex.org", thr="$thr1", mid="$e4", text="y"), at("09:03")
        ),
        await kernel.say(event("custom", user="Ann", mid="5", text="me"), at("09:04")),
        await kernel.say(event("custom", user="ann", mid="6", text="me too"), at("09:05")),
    ]
    assert sessions(*said) == 6

    await kernel.run_all(at("09:06"))
    targets = [answer["target"] for answer in await kernel.published("OUTBOUND")]
    addresses = {(one["chat"].get("id"), one.get("thread_id")) for one in targets}
    assert {
        ("!AbC:ex.org", None),
        ("!abc:ex.org", None),
        ("!AbC:ex.org", "$ThR1"),
        ("!AbC:ex.org", "$thr1"),
        (None, None),
    } == addresses


async def test_names_of_platforms_are_folded(kernel: Kernel) -> None:
    """C02: a platform is a declared name, however an adapter spells it."""
    first = await kernel.say(event("telegram", chat="7", user="7", mid="1", text="a"), at("09:00"))
    second = await kernel.say(event("Telegram", chat="7", user="7", mid="2", text="b"), at("09:01"))
    assert sessions(first, second) == 1


async def test_workspaces_with_equal_channel_ids_stay_apart(kernel: Kernel) -> None:
    """C03."""
    channel: Fields = {"platform": "slack", "kind_of_chat": "group", "user": "U1"}
    said = [
        await kernel.say(
            event(**channel, chat="C9", scope="T_ACME", mid="1770.000100", text="acme plan"),
            at("09:00"),
        ),
        await kernel.say(
            event(**channel, chat="C9", scope="T_OTHER", mid="1770.000100", text="other plan"),
            at("09:01"),
        ),
        await kernel.say(
            event(
                **channel,
                chat="C8",
                thr="1770.000100",
                scope="T_ACME",
                mid="1770.000300",
                text="a",
            ),
            at("09:02"),
        ),
        await kernel.say(
            event(
                **channel,
                chat="C9",
                thr="1770.000100",
                scope="T_ACME",
                mid="1770.000400",
                text="b",
            ),
            at("09:03"),
        ),
    ]
    assert sessions(*said) == 4
    await kernel.run_all()
    assert [await kernel.runs(one) for one in said] == [1, 1, 1, 1]
    unscoped = await kernel.say(event(**channel, chat="C9", mid="1", text="c"), at("09:04"))
    assert sessions(*said, unscoped) == 5


async def test_one_bot_never_reads_what_was_said_to_another(kernel_with: KernelWith) -> None:
    """C03: the account is ours, and as much a part of the place as the workspace."""
    kernel = await kernel_with(catalog(accounts=["bot", "other"]))
    ann: Fields = {"chat": "7", "user": "7", "mid": "1", "text": "a"}
    first = await kernel.say(event(**ann), at("09:00"))
    second = await kernel.say(event(**ann, account="other"), at("09:01"))
    assert sessions(first, second) == 2


SALES = {"sales": "main", "support": "main"}


async def test_no_profile_adopts_the_session_of_another(kernel_with: KernelWith) -> None:
    """C04."""
    kernel = await kernel_with(catalog(profiles=SALES))
    ann: Fields = {"chat": "700", "user": "700"}
    first = await kernel.say(event(**ann, mid="10", text="for sales", profile="sales"), at("09:00"))
    await kernel.run_all()
    kernel = kernel.restarted()
    second = await kernel.say(
        event(**ann, mid="11", text="for support", profile="support"), at("09:05")
    )
    third = await kernel.say(
        event(**ann, mid="12", text="sales again", profile="sales"), at("09:06")
    )
    fourth = await kernel.say(event(**ann, mid="13", text="no profile"), at("09:07"))
    await kernel.run_all()

    assert first.session == third.session
    assert sessions(first, second, fourth) == 3
    assert await kernel.said(second.session) == ["for support", "ok"]
    assert await kernel.said(first.session) == ["for sales", "ok", "sales again", "ok"]


async def test_profiles_off_and_on_again_change_no_stored_key(kernel_with: KernelWith) -> None:
    """C04."""
    kernel = await kernel_with(catalog(profiles=SALES))
    ann: Fields = {"chat": "700", "user": "700"}
    sales = await kernel.say(event(**ann, mid="1", text="a", profile="sales"), at("09:00"))
    plain = await kernel.say(event(**ann, mid="2", text="b"), at("09:01"))

    kernel = kernel.restarted(catalog())
    again = await kernel.say(event(**ann, mid="3", text="c"), at("09:02"))
    refused = await kernel.say(event(**ann, mid="4", text="d", profile="sales"), at("09:03"))

    kernel = kernel.restarted(catalog(profiles=SALES))
    back = await kernel.say(event(**ann, mid="5", text="e", profile="sales"), at("09:04"))
    assert (again.session, back.session) == (plain.session, sales.session)
    assert (again.key, back.key) == (plain.key, sales.key)
    assert refused.dead == "unknown_profile"


@pytest.mark.parametrize("spelling", [None, "", "default", "main"])
async def test_the_default_profile_has_one_session_in_every_spelling(
    kernel: Kernel, spelling: str | None
) -> None:
    """C04."""
    plain = await kernel.say(event(chat="700", user="700", mid="1", text="a"), at("09:00"))
    more: Fields = {} if spelling is None else {"profile": spelling}
    spelled = await kernel.say(event(chat="700", user="700", mid="2", text="b", **more))
    assert plain.session == spelled.session


async def test_a_profile_the_account_may_not_address_is_refused(kernel_with: KernelWith) -> None:
    """C04: never served by the default profile instead."""
    kernel = await kernel_with(catalog(profiles=SALES, allowed=["main", "sales"]))
    ann: Fields = {"chat": "700", "user": "700", "text": "a"}
    forbidden = await kernel.say(event(**ann, mid="1", profile="support"))
    unknown = await kernel.say(event(**ann, mid="2", profile="Sales"))
    assert (forbidden.dead, unknown.dead) == ("profile_forbidden", "unknown_profile")
    assert await kernel.value("SELECT count(*) FROM sessions") == 0


async def test_each_profile_is_served_by_its_own_agent(kernel_with: KernelWith) -> None:
    """C04: the persona in the key decides who is asked."""
    declared = catalog(profiles={"sales": "seller"}, agents=[Agent("seller")])
    kernel = await kernel_with(declared)
    sales = await kernel.say(event(chat="1", user="1", mid="1", text="a", profile="sales"))
    turn = await kernel.live_turn(sales.session)
    assert turn is not None
    assert (await kernel.claim(turn, "main")).status == "unknown"
    assert texts(await kernel.claim(turn, "seller")) == ["a"]


async def test_dm_without_chat_id_belongs_to_its_sender(kernel: Kernel) -> None:
    """C05."""
    said = [
        await kernel.say(event("custom", user="5", mid="1", text="my salary is"), at("09:00")),
        await kernel.say(event("custom", user="6", mid="2", text="what did I say?"), at("09:01")),
        await kernel.say(event("custom", chat="", user="5", mid="3", text="again"), at("09:02")),
        await kernel.say(event("custom", mid="4", text="nobody"), at("09:03")),
        await kernel.say(event("custom", mid="5", text="nobody else"), at("09:04")),
        await kernel.say(event("telegram", chat="701", user="701", mid="9"), at("09:05")),
        await kernel.say(event("telegram", chat="702", user="702", mid="9"), at("09:06")),
    ]
    assert said[0].session == said[2].session
    assert sessions(said[0], said[1], said[5], said[6]) == 4
    assert [said[3].dead, said[4].dead] == ["no_conversation", "no_conversation"]
    assert await kernel.value("SELECT count(*) FROM sessions") == 4
    letters = await kernel.published("DEAD")
    assert [one["reason"] for one in letters] == ["no_conversation", "no_conversation"]


@pytest.mark.parametrize("empty", [None, "", {}, {"id": ""}, {"id": "", "alt_id": ""}])
async def test_nobody_in_any_spelling_has_no_conversation(
    kernel: Kernel, empty: dict[str, str] | str | None
) -> None:
    """C05, more of its kind."""
    nobody: Fields = {"sender": empty} if isinstance(empty, dict) else {"user": empty}
    placed = await kernel.say(event("custom", chat=None, mid="1", text="x", thr="t9", **nobody))
    assert placed.dead == "no_conversation"


async def test_anonymous_dms_share_a_lane_only_where_that_is_set(kernel_with: KernelWith) -> None:
    """C05: a setting of its own for owners who want one brain; named senders stay apart."""
    kernel = await kernel_with(catalog(keys=KeyRules(anonymous_dm="shared")))
    nobody = await kernel.say(event("custom", mid="1", text="a"), at("09:00"))
    nobody_else = await kernel.say(event("custom", mid="2", text="b"), at("09:01"))
    ann = await kernel.say(event("custom", user="ann", mid="3", text="c"), at("09:02"))
    elsewhere = await kernel.say(event("webchat", mid="4", text="d"), at("09:03"))
    assert nobody.session == nobody_else.session
    assert sessions(nobody, ann, elsewhere) == 3


@pytest.mark.parametrize("one", ["group", "supergroup", "channel", "forum", "room", "thread"])
@pytest.mark.parametrize("other", ["channel", "Group"])
async def test_every_word_for_a_group_means_the_same_chat(
    kernel: Kernel, one: str, other: str
) -> None:
    """C06."""
    group: Fields = {"platform": "slack", "chat": "C7", "user": "U1"}
    first = await kernel.say(event(**group, kind_of_chat=one, mid="1.1", text="remember 42"))
    second = await kernel.say(event(**group, kind_of_chat=other, mid="1.2", text="which?"))
    dm = await kernel.say(event(**group, kind_of_chat="dm", mid="1.3", text="private"))
    assert first.session == second.session
    assert sessions(first, dm) == 2


@pytest.mark.parametrize("is_per_user", [True, False])
async def test_one_person_in_two_channels_has_two_histories(
    kernel_with: KernelWith, *, is_per_user: bool
) -> None:
    """C07."""
    kernel = await kernel_with(catalog(keys=KeyRules(group_sessions_per_user=is_per_user)))
    said = [
        await kernel.say(
            event("discord", kind_of_chat="group", chat="111", user="5", mid="1", text="secret")
        ),
        await kernel.say(
            event("discord", kind_of_chat="group", chat="222", user="5", mid="2", text="hi")
        ),
        await kernel.say(event("discord", chat="333", user="5", mid="3", text="hi")),
        await kernel.say(
            event("discord", kind_of_chat="group", chat="111", user="6", mid="4", text="hi")
        ),
    ]
    assert sessions(*said[:3]) == 3
    assert (said[0].session != said[3].session) is is_per_user


async def test_senders_that_are_nobody_in_particular_are_routed(kernel: Kernel) -> None:
    """C08."""
    group: Fields = {"kind_of_chat": "group"}
    anonymous: Fields = {"user": "1087968824", "is_bot": True}
    said = [
        await kernel.say(
            event(**group, **anonymous, chat="-50", sender_chat="-50", mid="1", text="ship it"),
            at("09:00"),
        ),
        await kernel.say(
            event(**group, **anonymous, chat="-51", sender_chat="-51", mid="1", text="status?"),
            at("09:01"),
        ),
        await kernel.say(event(**group, chat="-50", mid="2", text="post"), at("09:02")),
        await kernel.say(event(**group, chat="-50", user="7", mid="3", text="hello"), at("09:03")),
        await kernel.say(event(**group, chat="-50", sender={}, mid="4", text="post"), at("09:04")),
    ]
    assert sessions(*said[:4]) == 4
    assert said[4].session == said[2].session
    await kernel.run_all()
    assert [await kernel.runs(one) for one in said] == [1, 1, 1, 1, 1]


async def test_reply_chain_of_a_plain_group_is_no_topic(kernel: Kernel) -> None:
    """C09."""
    group: Fields = {"kind_of_chat": "group", "chat": "-60", "user": "7", "is_forum": False}
    said = [
        await kernel.say(event(**group, mid="41", text="start"), at("09:00")),
        await kernel.say(event(**group, thr="41", mid="42", text="reply to bot"), at("09:01")),
        await kernel.say(event(**group, thr="43", mid="44", text="other chain"), at("09:02")),
        await kernel.say(event(chat="7", thr="9", user="7", mid="45", text="topic"), at("09:03")),
        await kernel.say(event(chat="7", user="7", mid="46", text="main line"), at("09:04")),
    ]
    assert sessions(*said[:3]) == 1
    assert sessions(said[0], said[3], said[4]) == 3


async def test_answer_goes_out_under_the_thread_the_message_came_with(kernel: Kernel) -> None:
    """C09: the thread is no part of the key there, and stays part of the address."""
    group: Fields = {"kind_of_chat": "group", "chat": "-60", "user": "7", "is_forum": False}
    threads = [None, "41", "43"]
    for mid, thread in enumerate(threads):
        placed = await kernel.say(event(**group, thr=thread, mid=str(mid), text="a"), at("09:00"))
        await kernel.run_turn(placed.session)
    answers = await kernel.published("OUTBOUND")
    assert [one["target"].get("thread_id") for one in answers] == threads


async def test_topics_of_a_forum_stay_apart_and_general_is_one(kernel: Kernel) -> None:
    """C10."""
    forum: Fields = {"kind_of_chat": "group", "chat": "-70", "is_forum": True}
    said = [
        *await kernel.say_together(
            [
                event(**forum, thr="10", user="7", mid="1", text="ten"),
                event(**forum, thr="11", user="7", mid="2", text="eleven"),
            ],
            at("09:00"),
        ),
        await kernel.say(event(**forum, user="7", mid="3", text="general a"), at("09:01")),
        await kernel.say(event(**forum, thr="1", user="7", mid="4", text="general b"), at("09:02")),
        await kernel.say(event(**forum, thr="10", user="8", mid="5", text="Bob"), at("09:03")),
        await kernel.say(event(**forum, thr="", user="7", mid="6", text="general c"), at("09:04")),
        await kernel.say(event(**forum, thr="0", user="7", mid="7", text="general d"), at("09:05")),
        await kernel.say(event(**forum, thr=0, user="7", mid="8", text="general e"), at("09:06")),
    ]
    assert sessions(said[0], said[1], said[2]) == 3
    assert sessions(said[2], said[3], *said[5:]) == 1
    assert said[4].session == said[0].session

    turns = [texts(claimed) for claimed in await kernel.run_all()]
    assert sorted(turns, key=str) == [
        ["eleven"],
        ["general a", "general b", "general c", "general d", "general e"],
        ["ten", "Bob"],
    ]


@pytest.mark.parametrize("thread", [None, "", "0", "1"])
async def test_no_thread_is_invented_for_an_answer(kernel: Kernel, thread: str | None) -> None:
    """C10: what came goes back, whatever the key made of it."""
    forum: Fields = {"kind_of_chat": "group", "chat": "-70", "is_forum": True}
    placed = await kernel.say(event(**forum, thr=thread, user="7", mid="3", text="general"))
    await kernel.run_turn(placed.session)
    (answer,) = await kernel.published("OUTBOUND")
    assert answer["target"].get("thread_id") == thread


@pytest.mark.parametrize(("is_per_user", "is_per_thread"), [(True, True), (False, True)])
async def test_threads_are_split_by_person_only_when_both_rules_say_so(
    kernel_with: KernelWith, *, is_per_user: bool, is_per_thread: bool
) -> None:
    """C10."""
    rules = KeyRules(group_sessions_per_user=is_per_user, thread_sessions_per_user=is_per_thread)
    kernel = await kernel_with(catalog(keys=rules))
    topic: Fields = {
        "kind_of_chat": "group",
        "chat": "-70",
        "thr": "10",
        "is_forum": True,
        "text": "a",
    }
    ann = await kernel.say(event(**topic, user="7", mid="1"))
    bob = await kernel.say(event(**topic, user="8", mid="2"))
    assert (ann.session != bob.session) is (is_per_user and is_per_thread)
