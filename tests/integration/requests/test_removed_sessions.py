"""Sessions that are deleted, and those that end because nobody writes in them any more.

Real decisions on a real database; only NATS is not there.
"""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.observability.metrics import Metrics
from chatlane.requests import bulk_session_operations
from chatlane.requests.change_service import ChangeService
from chatlane_schemas.codec import decode
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.session_sweeps import SessionSweepReply
from chatlane_schemas.session_api.sessions import ApiErrorCode
from tests.integration.requests.test_session_changes import (
    ANN,
    BEN,
    Caller,
    everything,
    person,
    request,
)
from tests.integration.requests.test_session_creation import created
from tests.integration.requests.test_switched_sessions import six_rows
from tests.support.worlds.kernel import DAY, SESSION_EVENTS, SLOTS, Kernel, event

pytestmark = pytest.mark.integration

# Tables that name a session and keep the name when it is removed: marks of messages that must
# not run again, what is on its way out, and what operators read.
KEPT = {"seen", "outbox", "dead_letters", "audit"}


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


async def sweep(kernel: Kernel, verb: str, **fields: Any) -> SessionSweepReply:  # noqa: ANN401 - any field of a request
    service = ChangeService(kernel.store, kernel.writer, kernel.catalog, SLOTS)
    handlers = RequestHandler(Metrics()).changes(service.change)
    body = {"v": 1, "id": uuid4().hex, "at": DAY.isoformat()} | fields
    handle = handlers[f"session.{verb}"]
    return decode(SessionSweepReply, await handle(ApiRequest("web", json.dumps(body).encode())))


async def swept(kernel: Kernel, verb: str, **fields: Any) -> int:  # noqa: ANN401 - any field of a request
    """Return how many went, over all pages."""
    done = 0
    cursor: dict[str, str] = {}
    while True:
        reply = await sweep(kernel, verb, **fields, **cursor)
        assert reply.error is None
        done += reply.done
        if reply.next_cursor is None:
            return done
        cursor = {"cursor": str(reply.next_cursor)}


async def ids(kernel: Kernel, where: str = "true") -> set[UUID]:
    return {row["id"] for row in await kernel.fetch(f"SELECT id FROM sessions WHERE {where}")}  # noqa: S608 - of the tests


async def test_a_removed_session_is_gone_with_all_that_was_said(
    kernel: Kernel, caller: Caller
) -> None:
    """R21.1."""
    session = await six_rows(kernel)
    await kernel.say(event(**ANN, mid="9", text="waits"))
    other = (await kernel.say(event(**BEN, mid="1", text="b"))).session

    reply = await caller.ask("remove", session, acting_for=person("701"))

    assert (reply.error, reply.session) == (None, None)
    assert await ids(kernel) == {other}
    tables = await kernel.fetch(
        "SELECT DISTINCT table_name FROM information_schema.columns JOIN pg_class"
        " ON relname = table_name AND NOT relispartition"
        " WHERE table_schema = 'public' AND column_name = 'session_id'"
    )
    named = {row["table_name"] for row in tables}
    assert named > KEPT
    for table in named - KEPT:
        left = f"SELECT count(*) FROM {table} WHERE session_id = $1"  # noqa: S608 - of the schema
        assert await kernel.value(left, session) == 0, table
    reasons = [one.get("reason") for one in kernel.relay.bodies("EVENTS", SESSION_EVENTS)]
    assert reasons.count("removed") == 1
    assert await caller.refused("remove", session) is ApiErrorCode.NOT_FOUND


async def test_the_lane_of_a_removed_session_starts_anew(kernel: Kernel, caller: Caller) -> None:
    said = event(**ANN, mid="1", text="a")
    session = (await kernel.say(said)).session
    await kernel.run_all()
    await caller.ask("remove", session)
    assert await kernel.value("SELECT count(*) FROM lanes") == 0

    again = await kernel.say(said)
    placed = await kernel.say(event(**ANN, mid="2", text="b"))

    assert again.session_id is None
    assert placed.session != session
    found = await caller.reads.find_by_key("agent:main:telegram:bot:dm:701")
    assert found is not None
    assert found.id == placed.session


async def test_a_branch_keeps_its_copy(kernel: Kernel, caller: Caller) -> None:
    parent = await six_rows(kernel)
    branch = await caller.changed("fork", parent)

    await caller.ask("remove", parent)

    assert await kernel.said(branch.id) == ["u1", "a1", "u2", "a2", "u3", "a3"]


async def test_what_a_worker_or_background_work_has_is_not_removed(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    claimed = await kernel.claim_live(session)
    assert await caller.refused("remove", session) is ApiErrorCode.CONFLICT
    await kernel.answer(claimed)
    held = await caller.changed("hold", session, name="index", lasts_s=3600)
    assert held.held_until is not None

    assert await caller.refused("remove", session) is ApiErrorCode.CONFLICT
    assert await kernel.said(session) == ["a", "ok"]
    await caller.changed("release", session, name="index")
    assert (await caller.ask("remove", session)).error is None


async def test_a_removal_is_made_once(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    body = request(session)

    first = await caller.send("remove", body)
    after = await everything(kernel)

    assert first.error is None
    assert await Caller(kernel.restarted()).send("remove", body) == first
    assert await everything(kernel) == after


async def test_only_what_the_kind_of_caller_opened_is_cleaned_up(
    kernel: Kernel, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    editors = [(await created(caller, origin="acp")).id for _ in range(5)]
    tool = (await created(caller, origin="cli")).id
    await caller.changed("submit", editors[0], text="in work")
    await kernel.claim_live(editors[0])
    await caller.changed("hold", editors[1], name="index", lasts_s=3600)
    await kernel.fetch("UPDATE sessions SET next_seq = 9 WHERE id = ANY($1)", editors[2:])
    monkeypatch.setattr(bulk_session_operations, "_ROWS_AT_ONCE", 10)

    assert (await sweep(kernel, "cleanup", origin="chat")).error is not None
    assert await swept(kernel, "cleanup", origin="acp", limit=2) == 3
    assert await ids(kernel) == {chat, tool, *editors[:2]}
    assert await swept(kernel, "cleanup", origin="acp") == 0


async def test_what_a_chat_was_led_to_is_not_cleaned_up(kernel: Kernel, caller: Caller) -> None:
    before = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    led_to = (await created(caller, origin="acp")).id
    await kernel.fetch("UPDATE lanes SET session_id = $1 WHERE session_id = $2", led_to, before)

    assert await swept(kernel, "cleanup", origin="acp") == 0
    assert await ids(kernel) == {before, led_to}


async def test_who_acts_for_a_person_cleans_up_what_is_theirs(
    kernel: Kernel, caller: Caller
) -> None:
    anns = (await created(caller, origin="acp", acting_for=person("701"))).id
    bens = (await created(caller, origin="acp", acting_for=person("702"))).id

    assert await swept(kernel, "cleanup", origin="acp", acting_for=person("701")) == 1
    assert await ids(kernel) == {bens}
    assert anns != bens


async def test_forgotten_sessions_end_and_the_next_message_opens_another(
    kernel: Kernel, caller: Caller
) -> None:
    now = await kernel.value("SELECT now()")
    long_ago = now - timedelta(days=40)
    old = [
        (await kernel.say(event(chat=str(n), user=str(n), mid="1", text="a"), long_ago)).session
        for n in range(1, 7)
    ]
    running, waiting, suspended, held, spoken, forgotten = old
    await kernel.claim_live(running)
    for session in (suspended, held, spoken, forgotten):
        await kernel.run_turn(session)
    await caller.changed("suspend", suspended)
    await caller.changed("hold", held, name="index", lasts_s=3600)
    await kernel.say(event(chat="5", user="5", mid="2", text="again"), now)
    await kernel.run_turn(spoken)
    young = (await kernel.say(event(**ANN, mid="1", text="a"), now)).session

    assert await swept(kernel, "prune", idle_days=30, limit=2) == 1
    assert await swept(kernel, "prune", idle_days=30) == 0

    ended = await caller.reads.find(forgotten)
    assert ended is not None
    assert ended.end_reason is EndReason.PRUNED
    assert await ids(kernel, "ended_at IS NULL") == {
        running,
        waiting,
        suspended,
        held,
        spoken,
        young,
    }
    placed = await kernel.say(event(chat="6", user="6", mid="2", text="hello"), now)
    assert placed.session not in old


@pytest.mark.parametrize("days", [0, -1, None, 1.5, "30", 10**9])
async def test_days_that_are_none_end_nothing(kernel: Kernel, days: object) -> None:
    await kernel.say(event(**ANN, mid="1", text="a"))
    before = await everything(kernel)

    reply = await sweep(kernel, "prune", idle_days=days)

    assert reply.error is not None
    assert reply.error.code is ApiErrorCode.INVALID
    assert await everything(kernel) == before
