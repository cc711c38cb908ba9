"""The client that holds, marks and suspends sessions, against a router."""

from datetime import timedelta

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client import ConflictingRequestError, SessionLifeApi, SessionNotFoundError
from chatlane_schemas import ModelOverride, Person, SessionUpdated, decode
from chatlane_schemas.topology import subjects
from tests.integration.client.routing import ACCOUNT, PLATFORM, PRINCIPAL
from tests.integration.client.sessions.test_session_api import client as client  # noqa: PLC0414 - a fixture
from tests.integration.client.sessions.test_session_api import opened
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


def acting_for(client: Client, chat: str) -> SessionLifeApi:
    person = Person(platform=PLATFORM, account=ACCOUNT, id=f"person-{chat}")
    return SessionLifeApi(client, principal=PRINCIPAL, acting_for=person)


async def test_a_session_is_held_marked_and_given_up(client: Client) -> None:
    session = await opened(client, "1")
    api = acting_for(client, "1")

    held = await api.hold(session.id, "build", timedelta(hours=1), request_id="hold-1")
    again = await api.hold(session.id, "build", timedelta(hours=1), request_id="hold-1")
    released = await api.release(session.id, "build")
    marked = await api.mark(session.id, "restart")
    unmarked = await api.unmark(session.id)

    assert held == again
    assert held.held_until is not None
    assert released.held_until is None
    assert marked.resume_pending is not None
    assert (marked.resume_pending.reason, unmarked.resume_pending) == ("restart", None)
    assert (await api.suspend(session.id)).is_suspended
    with pytest.raises(ConflictingRequestError):
        await api.mark(session.id)


async def test_another_model_is_set_and_taken_back(client: Client) -> None:
    session = await opened(client, "1")
    api = acting_for(client, "1")
    override = ModelOverride(model="large-2", provider="local")

    assert (await api.override_model(session.id, override)).model_override == override
    assert (await api.override_model(session.id, None)).model_override is None


async def test_rounds_are_those_of_ones_own_sessions(client: Client) -> None:
    session = await opened(client, "1")

    assert await acting_for(client, "1").count_rounds(session.id) == 0
    with pytest.raises(SessionNotFoundError):
        await acting_for(client, "2").count_rounds(session.id)


async def test_whoever_listens_is_told_that_a_session_has_changed(client: Client) -> None:
    told: list[SessionUpdated] = []

    async def heard(message: Msg) -> None:
        told.append(decode(SessionUpdated, message.data))

    await client.subscribe(subjects.event("session", "updated"), cb=heard)
    session = await opened(client, "1")
    await eventually(lambda: any(one.session_id == session.id for one in told))
    before = len(told)
    await acting_for(client, "1").hold(session.id, "build", timedelta(hours=1))

    await eventually(lambda: len(told) > before)
    assert {one.session_key for one in told} == {session.session_key}
    assert len({one.id for one in told}) == len(told)
