"""C11: a question and the thread that our answer opens are one conversation, and stay one."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_core import to_json

from chatlane.domain.catalog import Catalog
from chatlane.domain.policy import KeyRules
from chatlane_client import thread_opened
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.outbound import OutboundMessage
from tests.support.worlds.kernel import Fields, Kernel, Placed, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
CHANNEL: Fields = {"kind_of_chat": "channel", "chat": "C5"}
OURS = frozenset({"UBOT"})
SLACK = catalog(own_ids=OURS)


def said(mid: str, text: str, user: str = "U1", **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return event("slack", **(CHANNEL | {"user": user, "mid": mid, "text": text} | fields))


def our_answer(mid: str = "1770.02", **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    answer: Fields = {"thr": "1770.01", "reply_to": "1770.01", "is_bot": True}
    return said(mid, "my own answer", **(answer | {"user": "UBOT"} | fields))


async def asked(kernel: Kernel) -> Placed:
    question = await kernel.say(said("1770.01", "plan the trip"), at("09:00"))
    await kernel.run_turn(question.session, "to the sea")
    return question


@pytest.mark.parametrize("is_told_by", ["our answer as it comes back", "the adapter"])
async def test_the_thread_of_an_answer_goes_on_with_its_question(
    kernel_with: KernelWith, is_told_by: str
) -> None:
    """C11, as told: two people, restarts, and a thread in a direct message."""
    kernel = await kernel_with(SLACK)
    question = await asked(kernel)
    report = our_answer()
    if is_told_by == "the adapter":
        (answer,) = await kernel.published("OUTBOUND")
        report = thread_opened(OutboundMessage.model_validate_json(to_json(answer)), "1770.01")
    assert (await kernel.say(report, at("09:01"))).session_id is None
    two = await kernel.say(said("1770.09", "make it cheaper", thr="1770.01"), at("09:05"))
    three = await kernel.say(said("1770.10", "and by train", "U2", thr="1770.01"), at("09:06"))
    kernel = kernel.restarted()
    four = await kernel.say(said("1770.20", "go on", thr="1770.01"), at("09:10"))
    assert {two.session, three.session, four.session} == {question.session}
    claimed = await kernel.run_turn(question.session)
    assert texts(claimed) == ["make it cheaper", "and by train", "go on"]
    assert claimed.source is not None
    assert claimed.source.thread_id == "1770.01"
    assert await kernel.said(question.session) == [
        "plan the trip",
        "to the sea",
        "make it cheaper",
        "and by train",
        "go on",
        "ok",
    ]
    direct: Fields = {"kind_of_chat": "dm", "chat": "D5", "thr": "1770.50"}
    five = await kernel.say(said("1770.51", "x", **direct), at("09:11"))
    six = await kernel.restarted().say(said("1770.52", "y", **direct), at("09:12"))
    assert five.session == six.session != question.session


async def test_the_channel_goes_on_beside_its_thread(kernel_with: KernelWith) -> None:
    """Two lanes of one session take turns; each answer goes where it was asked."""
    kernel = await kernel_with(SLACK)
    question = await asked(kernel)
    await kernel.say(our_answer(), at("09:01"))
    inside = await kernel.say(said("1770.09", "cheaper", thr="1770.01"), at("09:05"))
    beside = await kernel.say(said("1770.10", "and the weather?"), at("09:06"))
    assert inside.session == beside.session == question.session
    claims = await kernel.run_all()
    assert [texts(one) for one in claims] == [["cheaper"], ["and the weather?"]]
    assert [one.source.thread_id for one in claims if one.source] == ["1770.01", None]


async def test_a_thread_that_talks_already_goes_on_as_it_is(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(SLACK)
    question = await asked(kernel)
    early = await kernel.say(said("1770.09", "hello", thr="1770.01"), at("09:05"))
    await kernel.say(our_answer(), at("09:06"))
    later = await kernel.say(said("1770.10", "again", thr="1770.01"), at("09:07"))
    assert early.session == later.session != question.session


async def test_a_thread_on_what_nobody_knows_is_its_own(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(SLACK)
    question = await asked(kernel)
    await kernel.say(our_answer(thr="1", reply_to="unknown"), at("09:01"))
    await kernel.say(our_answer("2", thr="2", reply_to=None), at("09:01"))
    await kernel.say(our_answer("3", thr="3", user="OTHER"), at("09:01"))
    await kernel.say(our_answer("4", chat="C6"), at("09:01"))
    assert await kernel.value("SELECT count(*) FROM lanes") == 1
    inside = await kernel.say(said("1770.09", "x", thr="1"), at("09:02"))
    assert inside.session != question.session


async def test_a_thread_on_a_conversation_that_is_over_is_its_own(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(SLACK)
    question = await asked(kernel)
    await kernel.fetch("UPDATE sessions SET ended_at = now(), end_reason = 'requested'")
    await kernel.say(our_answer(), at("09:01"))
    inside = await kernel.say(said("1770.09", "x", thr="1770.01"), at("09:02"))
    assert inside.session != question.session


async def test_a_thread_speaks_to_the_profile_that_was_asked(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(own_ids=OURS, profiles={"sales": "main"}))
    sales = await kernel.say(said("1770.01", "offer?", profile="sales"), at("09:00"))
    await kernel.say(our_answer(), at("09:01"))
    stranger = await kernel.say(said("1770.09", "x", thr="1770.01"), at("09:02"))
    await kernel.say(our_answer("1770.03", profile="sales"), at("09:03"))
    inside = await kernel.say(said("1770.10", "y", thr="1770.01", profile="sales"), at("09:04"))
    assert inside.session == sales.session != stranger.session


async def test_where_people_have_threads_of_their_own_the_asker_goes_on(
    kernel_with: KernelWith,
) -> None:
    rules = KeyRules(thread_sessions_per_user=True)
    kernel = await kernel_with(catalog(own_ids=OURS, keys=rules))
    question = await asked(kernel)
    (answer,) = await kernel.published("OUTBOUND")
    report = thread_opened(OutboundMessage.model_validate_json(to_json(answer)), "1770.01")
    await kernel.say(our_answer(), at("09:01"))
    await kernel.say(report, at("09:01"))
    inside = await kernel.say(said("1770.09", "x", thr="1770.01"), at("09:02"))
    other = await kernel.say(said("1770.10", "y", "U2", thr="1770.01"), at("09:03"))
    assert inside.session == question.session != other.session
    assert await kernel.value("SELECT count(*) FROM lanes WHERE session_key LIKE '%UBOT%'") == 0


async def test_a_private_conversation_is_not_taken_along(kernel_with: KernelWith) -> None:
    """A person may go on in a channel with what was private, but a thread has other readers."""
    kernel = await kernel_with(SLACK)
    question = await asked(kernel)
    await kernel.fetch(
        "UPDATE sessions SET session_key = 'agent:main:slack:bot:dm:D1' WHERE id = $1",
        question.session,
    )
    await kernel.say(our_answer(), at("09:01"))
    inside = await kernel.say(said("1770.09", "x", "U2", thr="1770.01"), at("09:02"))
    assert inside.session != question.session


async def test_a_thread_finds_where_its_question_went_on(kernel_with: KernelWith) -> None:
    """Also when it was summed up into another session before the thread was opened."""
    kernel = await kernel_with(SLACK)
    question = await asked(kernel)
    heir = await kernel.value(
        "INSERT INTO sessions (id, session_key, agent, platform, started_at, parent_id, link_kind)"
        " SELECT gen_random_uuid(), session_key, agent, platform, now(), id, 'compression'"
        " FROM sessions WHERE id = $1 RETURNING id",
        question.session,
    )
    await kernel.fetch(
        "UPDATE sessions SET ended_at = now(), end_reason = 'compression' WHERE id = $1",
        question.session,
    )
    await kernel.say(our_answer(), at("09:01"))
    inside = await kernel.say(said("1770.09", "x", thr="1770.01"), at("09:02"))
    assert inside.session == heir


@pytest.mark.parametrize("platform", ["discord", "slack", "telegram", "custom"])
@pytest.mark.parametrize("kind_of_chat", ["dm", "group", "channel"])
async def test_c76_messages_with_a_thread_each_are_one_conversation(
    kernel: Kernel, platform: str, kind_of_chat: str
) -> None:
    """The answer keeps the thread of its message as its address."""
    place: Fields = {"chat": "5", "user": "7", "kind_of_chat": kind_of_chat, "is_forum": False}
    sessions = set()
    for number in ("11", "12", "13"):
        one = event(platform, **place, mid=number, thr=f"t{number}", text="hi")
        placed = await kernel.say(one)
        sessions.add(placed.session)
        await kernel.run_turn(placed.session)
    assert len(sessions) == 1
    threads = [out["target"]["thread_id"] for out in await kernel.published("OUTBOUND")]
    assert threads == ["t11", "t12", "t13"]


@pytest.mark.parametrize(
    ("kind_of_chat", "rules", "count"),
    [
        ("dm", KeyRules(), 2),
        ("dm", KeyRules(dm_threads=False), 1),
        ("group", KeyRules(dm_threads=False), 2),
        ("group", KeyRules(group_threads=False), 1),
    ],
)
@pytest.mark.parametrize("platform", ["discord", "telegram", "custom"])
async def test_c76_a_platform_declares_whether_threads_are_conversations(
    kernel_with: KernelWith, platform: str, kind_of_chat: str, rules: KeyRules, count: int
) -> None:
    kernel = await kernel_with(catalog(keys=rules))
    place: Fields = {"chat": "5", "user": "7", "kind_of_chat": kind_of_chat}
    placed = [
        await kernel.say(event(platform, **place, mid=number, thr=number, text="hi"))
        for number in ("11", "12")
    ]
    assert len({one.session for one in placed}) == count
    # The event itself decides before the settings.
    flagged = [
        await kernel.say(
            event(platform, **place, mid=f"9{number}", thr=number, text="hi", is_forum=True)
        )
        for number in ("11", "12")
    ]
    assert len({one.session for one in flagged}) == 2
