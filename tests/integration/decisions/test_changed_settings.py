"""What was declared may change between two starts; conversations go on with what is declared now."""

from collections.abc import Awaitable, Callable

import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.policy import KeyRules, ResetPolicy
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701", "profile": "sales"}


def served_by(agent: str) -> Catalog:
    return catalog(profiles={"sales": agent}, agents=[Agent("old"), Agent("new")])


async def test_a_profile_given_to_another_agent_takes_its_conversations_along(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(served_by("old"))
    placed = await kernel.say(event(**ANN, mid="1", text="to the old one"), at("09:00"))
    running = await kernel.claim_live(placed.session, "old")

    kernel = kernel.restarted(served_by("new"))
    second = await kernel.say(event(**ANN, mid="2", text="to the new one"), at("09:01"))
    assert second.session == placed.session
    await kernel.answer(running, "done", at("09:02"), "old")
    claimed = await kernel.claim_live(placed.session, "new")
    assert texts(claimed) == ["to the new one"]
    await kernel.answer(claimed, "done too", at("09:03"), "new")
    assert await kernel.dead() == []
    assert [one["agent"] for one in await kernel.published("OUTBOUND")] == ["old", "new"]


async def test_a_turn_nobody_claimed_is_told_to_the_agent_that_serves_the_session_now(
    kernel_with: KernelWith,
) -> None:
    """C20 in another dress: else the session would wait for workers that are gone."""
    kernel = await kernel_with(served_by("old"))
    placed = await kernel.say(event(**ANN, mid="1", text="anyone?"), at("09:00"))
    turn = await kernel.live_turn(placed.session)
    assert turn is not None
    kernel = kernel.restarted(served_by("new"))
    await kernel.say(event(**ANN, mid="2", text="hello?"), at("09:01"))
    kernel.unread["old"] = 1
    await kernel.expire(turn)
    rows = await kernel.fetch("SELECT subject FROM outbox WHERE stream = 'TURNS' ORDER BY id")
    assert [row[0] for row in rows] == ["chat.v1.turn.old", "chat.v1.turn.new"]
    assert texts(await kernel.claim(turn, "new")) == ["anyone?", "hello?"]


async def test_rules_for_keys_open_new_lanes_and_leave_the_old_ones(
    kernel_with: KernelWith,
) -> None:
    group: Fields = {"kind_of_chat": "group", "chat": "-1", "text": "x"}
    kernel = await kernel_with(catalog())
    own = await kernel.say(event(**group, user="7", mid="1"), at("09:00"))
    shared = kernel.restarted(catalog(keys=KeyRules(group_sessions_per_user=False)))
    all_of_them = await shared.say(event(**group, user="7", mid="2"), at("09:01"))
    kernel = kernel.restarted()
    back = await kernel.say(event(**group, user="7", mid="3"), at("09:02"))
    assert own.session == back.session != all_of_them.session


async def test_a_policy_that_comes_later_counts_from_the_start_of_the_session(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(catalog())
    first = await kernel.say(event(chat="1", user="1", mid="1", text="a"), at("09:00"))
    await kernel.run_all(at("09:00"))
    kernel = kernel.restarted(catalog(reset=ResetPolicy("daily", at_hour=12)))
    same_day = await kernel.say(event(chat="1", user="1", mid="2", text="b"), at("11:00"))
    await kernel.run_all(at("11:00"))
    after_noon = await kernel.say(event(chat="1", user="1", mid="3", text="c"), at("13:00"))
    assert first.session == same_day.session != after_noon.session
