"""Two callers that change one session at once: neither of them loses anything unnoticed."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from chatlane_schemas.session_api.sessions import ApiErrorCode, SessionReply, SessionView
from tests.integration.requests.test_session_changes import ANN, Caller
from tests.support.worlds.kernel import Fields, Kernel, event

pytestmark = pytest.mark.integration

# Each request that replaces a value: two changes of it, and where the session shows it.
REPLACING: dict[str, tuple[Fields, Fields, str]] = {
    "update cwd": ({"cwd": "/one"}, {"cwd": "/two"}, "cwd"),
    "update model": ({"model": "one"}, {"model": "two"}, "model"),
    "update config": ({"config": {"a": 1}}, {"config": {"b": 2}}, "config"),
    "update config_patch": ({"config_patch": {"a": 1}}, {"config_patch": {"a": 2}}, "config"),
    "title": ({"title": "one"}, {"title": "two"}, "title"),
    "archive": ({"archived": True}, {"archived": False}, "archived_at"),
    "override": ({"override": {"model": "one"}}, {"override": {"model": "two"}}, "model_override"),
    "note": ({"note": "one"}, {"note": "two"}, "note"),
    "label": ({"labels": ["one"]}, {"labels": ["two"]}, "labels"),
    "tree": ({"worktree": {"path": "/one"}}, {"worktree": {"path": "/two"}}, "worktree"),
}
each_replacing = pytest.mark.parametrize("name", REPLACING)


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


async def opened(kernel: Kernel) -> UUID:
    return (await kernel.say(event(**ANN, mid="1", text="a"))).session


async def seen(caller: Caller, session: UUID) -> SessionView:
    view = await caller.reads.find(session)
    assert view is not None
    return view


def changed(reply: SessionReply) -> bool:
    if reply.error is None:
        return True
    assert reply.error.code is ApiErrorCode.STALE
    return False


@each_replacing
async def test_a_change_made_from_an_older_version_is_refused_and_shows_the_session(
    kernel: Kernel, caller: Caller, name: str
) -> None:
    verb, (first, second, shown) = name.split(maxsplit=1)[0], REPLACING[name]
    session = await opened(kernel)
    before = await seen(caller, session)

    won = await caller.changed(verb, session, **first, expected_version=before.version)
    lost = await caller.ask(verb, session, **second, expected_version=before.version)

    assert getattr(won, shown) != getattr(before, shown)
    assert won.version != before.version
    assert not changed(lost)
    assert lost.session == won == await seen(caller, session)
    again = await caller.changed(verb, session, **second, expected_version=won.version)
    assert getattr(again, shown) != getattr(won, shown)


@each_replacing
async def test_without_a_version_the_last_change_counts_as_before(
    kernel: Kernel, caller: Caller, name: str
) -> None:
    verb, (first, second, shown) = name.split(maxsplit=1)[0], REPLACING[name]
    session = await opened(kernel)

    one = await caller.changed(verb, session, **first)
    other = await caller.changed(verb, session, **second)

    assert getattr(one, shown) != getattr(other, shown)


# Of a flag, one of two changes says what is there already, and both may be made.
@pytest.mark.parametrize("name", REPLACING.keys() - {"archive"})
async def test_of_two_changes_at_the_same_moment_one_is_made(kernel: Kernel, name: str) -> None:
    """R11.5, V23."""
    verb, (first, second, shown) = name.split(maxsplit=1)[0], REPLACING[name]
    caller = Caller(kernel)
    session = await opened(kernel)
    version = (await seen(caller, session)).version

    async def change(fields: Fields) -> SessionReply:
        return await Caller(kernel).ask(verb, session, **fields, expected_version=version)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(change(fields)) for fields in (first, second)]
    made, stale = sorted((task.result() for task in tasks), key=changed, reverse=True)

    assert changed(made)
    assert not changed(stale)
    assert made.session == stale.session == await seen(caller, session)
    assert getattr(made.session, shown) is not None


async def test_messages_and_answers_leave_the_version_as_it_is(
    kernel: Kernel, caller: Caller
) -> None:
    session = await opened(kernel)
    before = await seen(caller, session)

    await kernel.run_turn(session)
    await kernel.say(event(**ANN, mid="2", text="b"))

    now = await seen(caller, session)
    assert now.message_count > before.message_count
    assert now.version == before.version


async def test_a_command_in_the_chat_makes_another_version(kernel: Kernel, caller: Caller) -> None:
    session = await opened(kernel)
    version = (await seen(caller, session)).version
    await kernel.fetch("UPDATE sessions SET title = 'by the chat', title_scope = owner")

    reply = await caller.ask("title", session, title="by a window", expected_version=version)

    assert not changed(reply)
    assert reply.session is not None
    assert reply.session.title == "by the chat"


async def test_a_refused_change_that_is_repeated_is_refused_in_the_same_words(
    kernel: Kernel, caller: Caller
) -> None:
    session = await opened(kernel)
    version = (await seen(caller, session)).version
    await caller.changed("update", session, model="one")
    asked: dict[str, Any] = {"id": "again", "model": "two", "expected_version": version}

    first = await caller.ask("update", session, **asked)
    await caller.changed("update", session, clear=["model"])
    again = await caller.ask("update", session, **asked)

    assert not changed(first)
    assert again == first


async def test_patches_of_other_keys_at_once_are_all_kept(kernel: Kernel) -> None:
    session = await opened(kernel)
    patches = [
        {f"key{number}": {"deep": number}, "shared": {str(number): 1}} for number in range(8)
    ]

    async def patch(fields: Fields) -> None:
        await Caller(kernel).changed("update", session, config_patch=fields)

    async with asyncio.TaskGroup() as group:
        for fields in patches:
            group.create_task(patch(fields))

    config = (await seen(Caller(kernel), session)).config
    assert config == {f"key{number}": {"deep": number} for number in range(8)} | {
        "shared": {str(number): 1 for number in range(8)}
    }


async def test_null_in_a_patch_removes_a_key(kernel: Kernel, caller: Caller) -> None:
    session = await opened(kernel)
    await caller.changed("update", session, config={"a": 1, "b": {"c": 2, "d": [1, 2]}})

    view = await caller.changed(
        "update", session, config_patch={"a": None, "b": {"c": None, "d": [3]}, "none": None}
    )

    assert view.config == {"b": {"d": [3]}}


async def test_a_patch_of_no_config_begins_one(kernel: Kernel, caller: Caller) -> None:
    session = await opened(kernel)

    assert (await caller.changed("update", session, config_patch={"a": {"b": None}})).config == {
        "a": {}
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"config_patch": {"a": 1}, "config": {"a": 1}},
        {"config_patch": {"a": 1}, "clear": ["config"]},
        {"config_patch": {"api_key": "k"}},
        {"config_patch": {"text": "x" * 9_000}},
        {"config_patch": [{"a": 1}]},
        {"model": "one", "expected_version": ""},
        {"model": "one", "expected_version": 7},
    ],
)
async def test_what_cannot_be_patched_is_invalid_and_changes_nothing(
    kernel: Kernel, caller: Caller, fields: Fields
) -> None:
    session = await opened(kernel)
    before = await caller.changed("update", session, config={"other": "x" * 9_000})

    assert await caller.refused("update", session, **fields) is ApiErrorCode.INVALID
    assert await seen(caller, session) == before
