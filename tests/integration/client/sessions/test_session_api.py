"""The client that changes sessions, against a router."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client import (
    AdapterClient,
    ConflictingRequestError,
    ForbiddenRequestError,
    InvalidAnswerError,
    RefusedRequestError,
    SessionApi,
    SessionLifeApi,
    SessionNotFoundError,
    StaleRequestError,
    TranscriptApi,
    open_connection,
)
from chatlane_schemas import Person, Preference, SessionReply, SessionView, encode, new_envelope_id
from chatlane_schemas.session_api.session_state import ModelOverride
from chatlane_schemas.topology import subjects
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import ACCOUNT, PLATFORM, PRINCIPAL, said
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    """A connection to a server with a router."""
    async with (
        real_router(tmp_path, nats_url, database_url),
        open_connection(nats_url, name="test") as connection,
    ):
        yield connection


def person(chat: str) -> Person:
    return Person(platform=PLATFORM, account=ACCOUNT, id=f"person-{chat}")


def acting_for(client: Client, chat: str) -> SessionApi:
    return SessionApi(client, principal=PRINCIPAL, acting_for=person(chat))


async def opened(client: Client, chat: str) -> SessionView:
    """Let a person say something, and return their session."""
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    await adapter.publish(said("hello", chat=chat))
    api = acting_for(client, chat)
    key = f"agent:main:{PLATFORM}:{ACCOUNT}:dm:{chat}"
    await eventually(lambda: api.peek(key))
    found = await api.peek(key)
    assert found is not None
    return found


async def test_a_session_is_changed_found_and_followed_by_another(client: Client) -> None:
    session = await opened(client, "1")
    api = acting_for(client, "1")

    updated = await api.update(session.id, cwd="/srv", model="small-1", config={"a": 1})
    cleared = await api.update(session.id, clear=[Preference.CONFIG])
    titled = await api.set_title(session.id, "plan")

    assert (updated.cwd, updated.model, updated.config) == ("/srv", "small-1", {"a": 1})
    assert (cleared.model, cleared.config) == ("small-1", None)
    assert await api.find("plan") == (titled,)
    ended = await api.end(session.id)
    assert (await api.reopen(session.id)).ended_at is None
    following = await api.reset(session.id)
    assert (ended.end_reason, following.session_key) == ("requested", session.session_key)
    with pytest.raises(ConflictingRequestError):
        await api.set_title(following.id, "plan")
    with pytest.raises(StaleRequestError):
        await api.reset(session.id)


async def test_a_change_made_from_an_older_version_is_refused(client: Client) -> None:
    api = acting_for(client, "1")
    life = SessionLifeApi(client, principal=PRINCIPAL, acting_for=person("1"))
    session = await opened(client, "1")

    changed = await api.update(
        session.id, config_patch={"a": {"b": 1}}, expected_version=session.version
    )

    older = session.version
    for change in (
        api.update(session.id, model="small-1", expected_version=older),
        api.set_title(session.id, "plan", expected_version=older),
        api.archive(session.id, expected_version=older),
        life.override_model(session.id, ModelOverride(model="large-2"), expected_version=older),
        life.leave_note(session.id, "ann waits", expected_version=older),
    ):
        with pytest.raises(StaleRequestError) as caught:
            await change
        assert caught.value.current == changed
    assert await api.get(session.id) == changed
    noted = await life.leave_note(session.id, "ann waits", expected_version=changed.version)
    assert (noted.note, noted.config) == ("ann waits", {"a": {"b": 1}})


async def test_a_chat_is_led_back_and_on_to_a_branch(client: Client) -> None:
    first = await opened(client, "1")
    api = acting_for(client, "1")
    key = first.session_key
    second = await api.reset(first.id)

    back = await api.switch(key, first.id, expected_session_id=second.id)
    branch = await api.fork(first.id, session_key=key)

    assert (back.id, back.ended_at) == (first.id, None)
    assert await api.peek(key) == branch
    assert (await api.get(second.id)).end_reason == "switched"
    with pytest.raises(StaleRequestError):
        await api.switch(key, second.id, expected_session_id=first.id)
    with pytest.raises(RefusedRequestError):
        await api.fork(branch.id, through_seq=99)


async def test_f02_a_reset_says_how_many_waiting_messages_are_not_answered(client: Client) -> None:
    session = await opened(client, "1")
    api = acting_for(client, "1")
    await api.submit(session.id, "and the weather?")

    reply = await api.reset_reply(session.id)

    transcripts = TranscriptApi(client, principal=PRINCIPAL, acting_for=person("1"))
    rows = await transcripts.newest(session.id)
    assert reply.session is not None
    assert [(row.content, row.unanswered) for row in rows] == [
        ("hello", "session_ended"),
        ("and the weather?", "session_ended"),
    ]
    assert reply.dropped == len(rows)


async def test_sessions_are_listed_counted_and_put_away(client: Client) -> None:
    first = await opened(client, "1")
    await opened(client, "2")
    api = acting_for(client, "1")
    second = await api.reset(first.id)

    archived = await api.archive(first.id)

    listed = [one.id async for one in api.list_all(page_size=1)]
    assert listed == [second.id, first.id]
    assert [one async for one in api.list_all(archived=True)] == [archived]
    counts = await api.count(platform=PLATFORM)
    assert (counts.total, counts.open, counts.archived) == (2, 1, 1)
    assert (await api.archive(first.id, archived=False)).archived_at is None
    everybodys = SessionApi(client, principal=PRINCIPAL)
    assert (await everybodys.count(origin="chat")).total == 3


async def test_a_session_is_opened_and_spoken_in_without_a_chat(client: Client) -> None:
    api = acting_for(client, "1")

    created = await api.create(origin="acp", cwd="/srv", request_id="create-1")
    again = await api.create(origin="acp", cwd="/srv", request_id="create-1")
    said_in = await api.submit(created.id, "hello")

    assert (again, created.cwd, created.origin) == (created, "/srv", "acp")
    assert (said_in.session.id, said_in.session.is_busy) == (created.id, True)
    with pytest.raises(SessionNotFoundError):
        await acting_for(client, "2").submit(created.id, "hello")


async def test_sessions_are_deleted_and_pruned(client: Client) -> None:
    api = acting_for(client, "1")
    created = [(await api.create(origin="acp")).id for _ in range(3)]

    await api.remove(created[0])
    assert await acting_for(client, "2").clean_up("acp") == 0
    assert await api.clean_up("acp", page_size=1) == 2

    for one in created:
        with pytest.raises(SessionNotFoundError):
            await api.get(one)
    everybodys = SessionApi(client, principal=PRINCIPAL)
    assert await everybodys.prune(1) == 0
    with pytest.raises(ForbiddenRequestError):
        await api.prune(1)


async def test_a_request_is_made_once_over_a_restart(client: Client) -> None:
    session = await opened(client, "1")
    first = await acting_for(client, "1").reset(session.id, request_id="reset-1")
    second = await acting_for(client, "1").reset(session.id, request_id="reset-1")

    assert first == second


async def test_nobody_finds_the_session_of_another(client: Client) -> None:
    session = await opened(client, "1")
    stranger = acting_for(client, "2")

    assert await stranger.peek(session.session_key) is None
    assert await stranger.find("plan") == ()
    for attempt in (stranger.get, stranger.end, stranger.reopen, stranger.reset):
        with pytest.raises(SessionNotFoundError):
            await attempt(session.id)
    everybodys = SessionApi(client, principal=PRINCIPAL)
    assert (await everybodys.get(session.id)).ended_at is None


async def test_a_bad_value_is_refused_for_good(client: Client) -> None:
    session = await opened(client, "1")

    with pytest.raises((RefusedRequestError, ValueError)):
        await acting_for(client, "1").update(session.id, config={"api_key": "k"})


async def test_a_worker_is_shown_the_sessions_of_its_agent(client: Client) -> None:
    session = await opened(client, "1")
    workers = SessionApi(client, principal=PRINCIPAL, agent=session.agent)
    others = SessionApi(client, principal=PRINCIPAL, agent="desk")

    assert (await workers.get(session.id)).id == session.id
    with pytest.raises(SessionNotFoundError):
        await others.get(session.id)


async def test_an_answer_without_a_session_is_no_answer(nats_url: str) -> None:
    """The service says which error it is; else it is one that follows another contract."""

    async def answer(request: Msg) -> None:
        await request.respond(encode(SessionReply(id=new_envelope_id(), at=datetime.now(UTC))))

    async with open_connection(nats_url, name="test") as other:
        api = SessionApi(other, principal=PRINCIPAL)
        await other.subscribe(subjects.wildcards(subjects.API), cb=answer)

        with pytest.raises(InvalidAnswerError):
            await api.get(UUID(int=0))
        assert await api.peek("agent:main:test:bot:dm:1") is None
