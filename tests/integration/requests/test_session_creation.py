"""Sessions that no message opened, and messages that no chat brought.

Real decisions on a real database; only NATS is not there.
"""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.domain.catalog import Agent
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.session_api.sessions import ApiErrorCode, SessionReply, SessionView
from tests.integration.requests.test_session_changes import (
    ANN,
    BEN,
    Caller,
    everything,
    person,
    request,
)
from tests.integration.requests.test_switched_sessions import compacted
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, SESSION_EVENTS, Kernel, catalog, event

pytestmark = pytest.mark.integration

ANNS = "agent:main:telegram:bot:dm:701"
NEW = "agent:main:telegram:bot:dm:900"


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


async def create(caller: Caller, **fields: Any) -> SessionReply:  # noqa: ANN401 - any field of a request
    body = {"v": 1, "id": uuid4().hex, "at": DAY.isoformat()} | fields
    reply = await caller.send("create", body)
    assert isinstance(reply, SessionReply)
    return reply


async def created(caller: Caller, **fields: Any) -> SessionView:  # noqa: ANN401 - any field of a request
    reply = await create(caller, **fields)
    assert reply.session is not None, reply.error
    return reply.session


async def not_created(caller: Caller, **fields: Any) -> ApiErrorCode:  # noqa: ANN401 - any field of a request
    reply = await create(caller, **fields)
    assert reply.error is not None
    return reply.error.code


async def test_a_session_without_a_lane_is_spoken_in_by_its_id(
    kernel: Kernel, caller: Caller
) -> None:
    session = await created(caller, origin="acp", cwd="/srv", model="small-1", config={"a": 1})
    await caller.changed("submit", session.id, text="hello")
    await caller.changed("submit", session.id, text="and more")
    [claimed] = await kernel.run_all()

    assert (session.origin, session.platform, session.agent) == ("acp", "acp", "main")
    assert (session.cwd, session.model, session.config) == ("/srv", "small-1", {"a": 1})
    assert [message.text for message in claimed.messages] == ["hello", "and more"]
    assert await kernel.said(session.id) == ["hello", "and more", "ok"]
    [answer] = kernel.relay.bodies("OUTBOUND")
    assert answer["target"]["account"] == "web"
    assert answer["target"]["chat"]["id"] == str(session.id)
    assert await kernel.value("SELECT count(*) FROM lanes") == 0
    started = kernel.relay.bodies("EVENTS", SESSION_EVENTS)[0]
    assert started["session_id"] == str(session.id)
    assert "previous_session_id" not in started


async def test_the_origin_of_a_session_without_a_lane_may_be_the_name_of_a_platform(
    kernel: Kernel, caller: Caller
) -> None:
    """A console opens sessions of origin `console`, also where people of `console` are declared."""
    session = await created(caller, origin="slack")
    await caller.changed("submit", session.id, text="hello")
    await kernel.run_all()

    assert (session.origin, session.platform, session.agent) == ("slack", "slack", "main")
    assert await kernel.said(session.id) == ["hello", "ok"]
    assert await not_created(caller, origin="slack", profile="none") is ApiErrorCode.INVALID


async def test_a_session_on_a_lane_is_where_its_next_message_goes(
    kernel: Kernel, caller: Caller
) -> None:
    session = await created(caller, session_key=NEW, origin="cli")

    placed = await kernel.say(event(chat="900", user="900", mid="1", text="hello"))

    assert placed.session == session.id
    mine = await caller.changed("end", session.id, acting_for=person("900"))
    assert mine.origin == "cli"
    following = await created(caller, session_key=NEW)
    assert (await caller.reads.find_by_key(NEW)) == following
    again = await kernel.say(event(chat="900", user="900", mid="2", text="again"))
    assert again.session == following.id


async def test_a_lane_whose_session_goes_on_is_not_taken(kernel: Kernel, caller: Caller) -> None:
    await kernel.say(event(**ANN, mid="1", text="a"))
    before = await everything(kernel)

    assert await not_created(caller, session_key=ANNS) is ApiErrorCode.CONFLICT
    assert await everything(kernel) == before


async def test_who_acts_for_a_person_takes_only_a_lane_of_theirs(
    kernel: Kernel, caller: Caller
) -> None:
    """C33: else a lane that nobody has used yet could be taken by a stranger."""
    anns = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await caller.changed("end", anns)
    ben = person("702")

    assert await not_created(caller, session_key=ANNS, acting_for=ben) is ApiErrorCode.NOT_FOUND
    assert await not_created(caller, session_key=NEW, acting_for=ben) is ApiErrorCode.NOT_FOUND
    own = await created(caller, session_key=ANNS, acting_for=person("701"))
    assert (await caller.changed("end", own.id, acting_for=person("701"))).id == own.id
    alone = await created(caller, acting_for=ben)
    assert await caller.refused("end", alone.id, acting_for=person("701")) is ApiErrorCode.NOT_FOUND
    assert (await caller.changed("end", alone.id, acting_for=ben)).id == alone.id


@pytest.mark.parametrize(
    "fields",
    [
        {"origin": "chat"},
        {"origin": "A"},
        {"profile": "unknown"},
        {"session_key": "telegram:701"},
        {"session_key": "agent:main:telegram:other:dm:1"},
        {"session_key": "agent:unknown:telegram:bot:dm:1"},
        {"session_key": NEW, "profile": "main"},
        {"config": {"api_key": "k"}},
        {"config": {"headers": [{"name": "Authorization", "value": "Bearer x"}]}},
        {"cwd": "https://ann:hunter2@git.example/notes"},
        {"model": "Bearer 4f9d2c6f"},
        {"acting_for": person("nobody", "whatsapp")},
    ],
)
async def test_what_cannot_be_opened_is_invalid(
    kernel: Kernel, caller: Caller, fields: dict[str, object]
) -> None:
    before = await everything(kernel)

    assert await not_created(caller, **fields) is ApiErrorCode.INVALID
    assert await everything(kernel) == before


async def test_sessions_of_one_lane_that_are_opened_at_once_are_one(kernel: Kernel) -> None:
    async def one() -> ApiErrorCode | None:
        while True:
            reply = await create(Caller(kernel), session_key=NEW)
            code = None if reply.error is None else reply.error.code
            if code is not ApiErrorCode.UNAVAILABLE:
                return code

    codes = await asyncio.gather(*(one() for _ in range(3)))

    assert sorted(codes, key=str) == [None, ApiErrorCode.CONFLICT, ApiErrorCode.CONFLICT]
    assert await kernel.value("SELECT count(*) FROM sessions") == 1


async def test_the_same_request_again_opens_and_says_nothing_more(kernel: Kernel) -> None:
    body = {"v": 1, "id": "c1", "at": DAY.isoformat(), "origin": "acp"}
    first = await Caller(kernel).send("create", body)
    again = await Caller(kernel.restarted()).send("create", body)
    assert isinstance(first, SessionReply)
    assert first.session is not None
    said = request(first.session.id, text="hello")

    replies = [await Caller(kernel.restarted()).send("submit", said) for _ in range(2)]

    assert again == first
    assert replies[0] == replies[1]
    assert replies[0].error is None
    assert await kernel.waiting(first.session.id) == ["hello"]
    assert await kernel.turns_of(first.session.id) == 1


async def test_what_is_submitted_queues_like_a_message_of_the_chat(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    running = await kernel.claim_live(session)

    reply = await caller.ask("submit", session, text="b", acting_for=person("701"))
    await kernel.say(event(**ANN, mid="2", text="c"))
    await kernel.answer(running)
    [claimed] = await kernel.run_all()

    assert reply.message_id is not None
    assert [message.text for message in claimed.messages] == ["b", "c"]
    assert reply.message_id == claimed.messages[0].id
    assert await kernel.said(session) == ["a", "ok", "b", "c", "ok"]
    targets = [one["target"]["chat"]["id"] for one in kernel.relay.bodies("OUTBOUND")]
    assert targets == ["701", "701"]
    authors = await kernel.fetch("SELECT author FROM messages WHERE content = 'b'")
    assert [row["author"] for row in authors] == ["701"]


async def test_a_person_with_several_ids_writes_under_that_of_the_session(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    person = {"platform": "web", "account": "site", "id": "ann"}
    there = {"platform": "telegram", "account": "bot", "id": ANN["user"]}

    assert (
        await caller.refused("submit", session, text="b", acting_for=person)
        is ApiErrorCode.NOT_FOUND
    )
    await caller.changed("submit", session, text="b", acting_for={**person, "also": [there]})
    await kernel.run_all()

    authors = await kernel.fetch("SELECT author FROM messages WHERE role = 'user' ORDER BY seq")
    assert [row["author"] for row in authors] == [ANN["user"], ANN["user"]]


async def test_what_is_submitted_is_activity(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"), DAY - timedelta(days=9))).session

    shown = await caller.changed("submit", session, text="b")

    assert shown.last_activity_at > DAY - timedelta(days=9)


async def test_r3_3_two_windows_open_sessions_of_two_profiles(kernel_with: KernelWith) -> None:
    caller = Caller(await kernel_with(catalog(profiles={"notes": "main"})))

    opened = await asyncio.gather(
        *(created(caller, profile=profile, origin="console") for profile in ("notes", "main"))
    )
    unnamed = await created(caller, origin="console")

    assert [session.profile for session in (*opened, unnamed)] == ["notes", "main", "main"]


async def test_a_stream_agent_is_told_what_is_submitted(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(
        catalog(agents=[Agent("notes", delivery="stream")], profiles={"notes": "notes"})
    )
    caller = Caller(kernel)
    session = await created(caller, profile="notes", origin="acp")
    picture = Attachment(key="files/1", media_type="image/png")

    await caller.changed(
        "submit", session.id, text="", attachments=[picture.model_dump(exclude_none=True)]
    )

    [routed] = kernel.relay.bodies("ROUTED")
    assert (routed["seq"], routed["session_is_new"]) == (1, True)
    assert routed["attachments"][0]["key"] == "files/1"
    await kernel.decide([kernel.stream_answer(routed, "seen")])
    assert await kernel.said(session.id) == ["", "seen"]


async def test_what_is_said_in_a_compacted_session_is_heard_where_it_goes_on(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_all()
    tip = await compacted(kernel, session, 1)

    heard = await caller.changed("submit", session, text="b", acting_for=person("701"))

    assert heard.id == tip
    assert await kernel.waiting(tip) == ["b"]


async def test_nothing_is_said_in_what_is_over_or_anothers(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**BEN, mid="1", text="a"))).session
    before = await everything(kernel)

    stranger = await caller.refused("submit", session, text="b", acting_for=person("701"))
    nobody = await caller.refused("submit", UUID(int=9), text="b")
    nothing = await caller.refused("submit", session, text="")

    assert (stranger, nobody, nothing) == (
        ApiErrorCode.NOT_FOUND,
        ApiErrorCode.NOT_FOUND,
        ApiErrorCode.INVALID,
    )
    assert await everything(kernel) == before
    await caller.changed("suspend", session)
    assert await caller.refused("submit", session, text="b") is ApiErrorCode.CONFLICT
    await caller.changed("reopen", session)
    await caller.changed("submit", session, text="b")
    await caller.changed("end", session)
    assert await caller.refused("submit", session, text="b") is ApiErrorCode.CONFLICT
