"""What a user reaches that names subjects of others for its answers: nothing but its own rights."""

from typing import Final

import pytest

from chatlane_schemas.topology import subjects
from tests.integration.config.hostile_users import (
    ENVIRONMENT,
    Scene,
    State,
    attempts,
    direct_attempts,
    effects,
    effects_by_right,
    hostile_users,
    open_scene,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

USERS: Final = hostile_users()
# An adapter and a worker; the others take as long each.
QUICK: Final = {"telegram-assistant", "main-worker"}


@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
async def test_a1_every_right_with_every_reply_subject_changes_nothing_of_others(user: str) -> None:
    async with open_scene() as scene:
        before = await scene.state()
        found = await effects(scene, user, attempts(user), walls_only=False)
        assert found == [], await effects_by_right(user, walls_only=False)
        await require_own_rights_were_used(scene, before, user)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.slow
async def test_a1_no_server_of_a_cluster_lets_more_through(user: str) -> None:
    """Answers come from another server than the one that took the request."""
    async with open_scene(clustered=True) as scene:
        before = await scene.state()
        assert await effects(scene, user, attempts(user), walls_only=False) == []
        await require_own_rights_were_used(scene, before, user)


@pytest.mark.parametrize(
    "user",
    [user if user in QUICK else pytest.param(user, marks=pytest.mark.slow) for user in USERS],
)
async def test_a1_the_account_alone_holds_a_user_without_permissions(user: str) -> None:
    """Who listens to all in its account, and publishes on everything."""
    async with open_scene(walls_only=True) as scene:
        tried = [*direct_attempts(user), *attempts(user)]
        found = await effects(scene, user, tried, walls_only=True)
        assert found == [], await effects_by_right(user, walls_only=True)


async def require_own_rights_were_used(scene: Scene, before: State, user: str) -> None:
    """What is tried reaches the server: an adapter's events and a worker's results are stored."""
    stored = {
        "telegram-assistant": ("INBOUND", f"{subjects.ROOT}.log.*.telegram.assistant."),
        "slack-workbot": ("INBOUND", f"{subjects.ROOT}.log.*.slack.workbot."),
        "main-worker": ("RESULTS", f"{subjects.ROOT}.rlog.*.main."),
        "notes-worker": ("RESULTS", f"{subjects.ROOT}.rlog.*.notes."),
    }
    if user in stored:
        stream, pattern = stored[user]
        head, tail = pattern.split("*")
        added = await scene.stored_since(before, stream)
        assert any(its.startswith(head) and tail in its for its in added)


@pytest.mark.slow
@pytest.mark.parametrize("user", ["telegram-assistant", "main-worker", "notes-worker", "observer"])
async def test_a1_in_one_account_the_same_attempts_delete_streams_and_forge_messages(
    user: str,
) -> None:
    """As it was before accounts of their own, so that what is tried is worth trying."""
    async with open_scene(together=True) as scene:
        found = await effects(scene, user, attempts(user), walls_only=False)
    assert f"said in {ENVIRONMENT}: $JS.API.STREAM.DELETE.INBOUND" in found
    if user != "observer":
        assert "stream EVENTS is gone" in found
