"""The Matrix adapter on a real homeserver reports who is in a room, and the members see it."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from chatlane_client import SessionApi, open_connection
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import Access, SessionView
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.integration.adapters.matrix.conftest import World

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


async def seen_by(world: "World", user_id: str, room: str) -> list[SessionView]:
    """Return the sessions of a room that a person sees in lists."""
    async with open_connection(world.stage.nats_url, name="front end") as client:
        person = Person(platform="matrix", account="bot", id=user_id)
        sessions = SessionApi(client, principal="front-end", acting_for=person)
        return [
            view
            async for view in sessions.list_all(with_rooms=True)
            if room.removeprefix("!") in view.session_key.replace("%3A", ":")
        ]


async def until_seen(world: "World", user_id: str, room: str, count: int) -> list[UUID]:
    """Wait until a person sees so many sessions of a room."""
    found: list[SessionView] = []

    async def are_seen() -> bool:
        found[:] = await seen_by(world, user_id, room)
        return len(found) == count

    await eventually(are_seen)
    assert all(view.access is Access.MEMBER for view in found)
    return [view.id for view in found]


async def test_people_see_a_room_from_their_join_to_their_leave(world: "World") -> None:
    bob = world.bob.account.user_id
    room = await world.open_chat(world.bob)
    mention = {"m.mentions": {"user_ids": [world.bot.user_id]}}
    await world.ann.say(room, "who is here", **mention)

    (session,) = await until_seen(world, bob, room, 1)
    assert await until_seen(world, world.ann.account.user_id, room, 1) == [session]
    await world.bob.leave(room)

    await until_seen(world, bob, room, 0)
    assert await until_seen(world, world.ann.account.user_id, room, 1) == [session]


async def test_who_was_removed_sees_nothing(world: "World") -> None:
    bob = world.bob.account.user_id
    room = await world.open_chat(world.bob)
    mention = {"m.mentions": {"user_ids": [world.bot.user_id]}}
    await world.ann.say(room, "who stays", **mention)
    await until_seen(world, bob, room, 1)

    await world.ann.kick(room, bob)

    await until_seen(world, bob, room, 0)


async def test_nobody_sees_a_room_that_the_account_has_left(world: "World") -> None:
    room = await world.open_chat(world.bob)
    mention = {"m.mentions": {"user_ids": [world.bot.user_id]}}
    await world.ann.say(room, "who goes", **mention)
    await until_seen(world, world.ann.account.user_id, room, 1)

    await world.ann.kick(room, world.bot.user_id)

    await until_seen(world, world.ann.account.user_id, room, 0)
