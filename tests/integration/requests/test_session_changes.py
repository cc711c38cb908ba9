"""Changes that callers of the API make: once each, by the owner, with a typed answer.

Real decisions on a real database; only NATS is not there.
"""

import asyncio
import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.domain.policy import ResetPolicy
from chatlane.errors import TransientError
from chatlane.maintenance import TableMaintenance
from chatlane.observability.metrics import Metrics
from chatlane.requests.change_service import ChangeService
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import decode
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import ApiErrorCode, ApiReply, SessionReply, SessionView
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, SESSION_EVENTS, SLOTS, Fields, Kernel, catalog, event

pytestmark = pytest.mark.integration

ANN: Fields = {"chat": "701", "user": "701"}
BEN: Fields = {"chat": "702", "user": "702"}
VERBS = (
    *("update", "title", "end", "reopen", "reset"),
    *("suspend", "mark", "unmark", "hold", "release", "override", "note"),
)
# What each needs besides the session.
FIELDS: dict[str, Fields] = {
    "update": {"cwd": "/srv/notes", "model": "small-1", "config": {"temperature": 0.5}},
    "title": {"title": "budget"},
    "end": {},
    "reopen": {},
    "reset": {},
    "suspend": {},
    "mark": {"reason": "restart"},
    "unmark": {},
    "hold": {"name": "build", "lasts_s": 3600},
    "release": {"name": "build"},
    "note": {"note": "ann waits"},
    "override": {"override": {"model": "large-2", "base_url": "https://models.example/v1"}},
}


def person(identity: str, platform: str = "telegram", **fields: str) -> dict[str, str]:
    return {"platform": platform, "account": "bot", "id": identity, **fields}


class Caller:
    """Asks as one principal."""

    def __init__(self, kernel: Kernel, principal: str = "web") -> None:
        self.reads = SessionReads(kernel.store)
        service = ChangeService(kernel.store, kernel.writer, kernel.catalog, SLOTS)
        self._handlers = RequestHandler(Metrics()).changes(service.change)
        self._principal = principal

    async def send(self, verb: str, body: object) -> ApiReply:
        handle = self._handlers[f"session.{verb}"]
        reply = await handle(ApiRequest(self._principal, json.dumps(body).encode()))
        return decode(SessionReply, reply)

    async def ask(self, verb: str, session_id: UUID, **fields: Any) -> SessionReply:  # noqa: ANN401 - any field of a request
        reply = await self.send(verb, request(session_id, **fields))
        assert isinstance(reply, SessionReply)
        return reply

    async def changed(self, verb: str, session_id: UUID, **fields: Any) -> SessionView:  # noqa: ANN401 - any field of a request
        reply = await self.ask(verb, session_id, **fields)
        assert reply.session is not None, reply.error
        return reply.session

    async def refused(self, verb: str, session_id: UUID, **fields: Any) -> ApiErrorCode:  # noqa: ANN401 - any field of a request
        reply = await self.ask(verb, session_id, **fields)
        assert reply.error is not None
        assert reply.session is None
        return reply.error.code


def request(session_id: UUID, **fields: Any) -> Fields:  # noqa: ANN401 - any field of a request
    identity = fields.pop("id", None) or uuid4().hex
    return {"v": 1, "id": identity, "at": DAY.isoformat(), "session_id": str(session_id), **fields}


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


async def everything(kernel: Kernel) -> list[tuple[object, ...]]:
    """Return all that a change could touch."""
    sessions = await kernel.fetch("SELECT * FROM sessions ORDER BY id")
    lanes = await kernel.fetch("SELECT * FROM lanes ORDER BY session_key")
    outbox = await kernel.fetch("SELECT id FROM outbox ORDER BY id")
    holds = await kernel.fetch("SELECT * FROM session_holds ORDER BY session_id, name")
    return [tuple(row.values()) for row in (*sessions, *lanes, *outbox, *holds)]


async def test_what_users_choose_is_set_kept_and_cleared(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session

    await caller.changed("update", session, cwd="/srv/notes", model="small-1")
    kept = await caller.changed("update", session, config={"tools": ["search"], "deep": {"a": 1}})
    cleared = await caller.changed("update", session, model="large-1", clear=["cwd"])

    assert (kept.cwd, kept.model) == ("/srv/notes", "small-1")
    assert kept.config == {"tools": ["search"], "deep": {"a": 1}}
    assert (cleared.cwd, cleared.model, cleared.config) == (None, "large-1", kept.config)
    assert await caller.reads.find(session) == cleared


@pytest.mark.parametrize(
    "fields",
    [
        {"cwd": ""},
        {"cwd": "/a", "clear": ["cwd"]},
        {"clear": ["title"]},
        {"config": []},
        {"config": {"api_key": "k"}},
        {"config": {"provider": {"openai-api-key": "k"}}},
        {"config": {"list": [{"accessToken": "ok", "access_token": "k"}]}},
        {"config": {"token": "k"}},
        {"config": {"github_token": "k"}},
        {"config": {"private-key": "k"}},
        {"config": {"refreshToken": "k"}},
        {"config": {"text": "x" * 20_000}},
        {"config": {"mcp": {"headers": [{"name": "Authorization", "value": "Bearer x"}]}}},
        {"config": {"headers": ["X-Api-Key: 4f9d2c"]}},
        {"config": {"env": ["GITHUB_TOKEN=4f9d2c"]}},
        {"config": {"url": "postgresql://ann:hunter2@db.example/chat"}},
        {"config": {"settings": '{"apiKey": "k"}'}},
        {"config_patch": {"headers": [{"key": "Cookie", "value": "a=b"}]}},
        {"cwd": "https://ann:hunter2@git.example/notes"},
        {"model": "sk-" + "4f9d2c6f1b0e4b6c8f0a7d3c"},
    ],
)
async def test_what_cannot_be_chosen_is_invalid(
    kernel: Kernel, caller: Caller, fields: Fields
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    before = await everything(kernel)

    assert await caller.refused("update", session, **fields) is ApiErrorCode.INVALID
    assert await everything(kernel) == before


async def test_a_patch_does_not_complete_a_credential(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    kept = await caller.changed("update", session, config={"header": {"name": "Authorization"}})

    patch = {"header": {"value": "x"}}
    reply = await caller.ask("update", session, config_patch=patch)

    assert reply.error is not None
    assert reply.error.code is ApiErrorCode.INVALID
    assert "credential" in reply.error.message
    assert await caller.reads.find(session) == kept


async def test_a_limit_of_tokens_is_no_credential(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session

    shown = await caller.changed("update", session, config={"max_tokens": 100})

    assert shown.config == {"max_tokens": 100}


async def test_titles_differ_for_one_owner_and_not_between_owners(
    kernel: Kernel, caller: Caller
) -> None:
    """C34."""
    first = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await caller.changed("title", first, title="  pl\x1ban ")
    second = await caller.changed("reset", first)
    other = (await kernel.say(event(**BEN, mid="1", text="b"))).session

    assert second.title is None
    assert await caller.refused("title", second.id, title="pl an") is ApiErrorCode.CONFLICT
    assert (await caller.changed("title", other, title="pl an")).title == "pl an"
    assert (await caller.changed("title", first, title="pl an")).title == "pl an"
    assert (await caller.changed("title", first, title=" \n")).title is None
    assert (await caller.changed("title", second.id, title="pl an")).title == "pl an"


async def test_a_title_is_found_by_its_owner_only(kernel: Kernel, caller: Caller) -> None:
    """C33: a guess gives nobody another one's history."""
    anns = (await kernel.say(event(**ANN, mid="1", text="salary"))).session
    bens = (await kernel.say(event(**BEN, mid="1", text="b"))).session
    await caller.changed("title", anns, title="budget")

    async def found(who: dict[str, str] | None) -> list[UUID]:
        asking = None if who is None else Person.model_validate(who)
        views = await caller.reads.find_by_title("budget", asking, limit=50)
        return [view.id for view in views]

    assert await found(person("701")) == [anns]
    assert await found(person("702")) == []
    assert await found(person("701", "discord")) == []
    await caller.changed("title", bens, title="budget")
    assert await found(None) == sorted([anns, bens], reverse=True)


@pytest.mark.parametrize("alike", ["BUDGET", "b\u200budget", "\uff22udget", "budg\u0435t"])
async def test_c81_a_title_of_a_request_is_compared_as_people_see_it(
    kernel: Kernel, caller: Caller, alike: str
) -> None:
    first = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await caller.changed("title", first, title="budget")
    second = await caller.changed("reset", first)
    assert await caller.refused("title", second.id, title=alike) is ApiErrorCode.CONFLICT
    asking = Person.model_validate(person("701"))
    [found] = await caller.reads.find_by_title(alike, asking, limit=9)
    assert found.id == first
    bens = (await kernel.say(event(**BEN, mid="1", text="b"))).session
    shown = (await caller.changed("title", bens, title=alike)).title
    assert shown is not None


async def test_two_who_take_a_title_at_once_are_not_both_given_it(kernel: Kernel) -> None:
    first = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    second = (await Caller(kernel).changed("reset", first)).id
    bodies = [request(one, title="plan") for one in (first, second)]

    async def take(body: Fields) -> ApiReply:
        while True:
            reply = await Caller(kernel).send("title", body)
            if reply.error is None or reply.error.code is not ApiErrorCode.UNAVAILABLE:
                return reply

    replies = await asyncio.gather(*map(take, bodies))

    codes = [reply.error.code if reply.error else None for reply in replies]
    assert sorted(codes, key=str) == [None, ApiErrorCode.CONFLICT]


async def test_an_ended_session_is_followed_by_another_one(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session

    ended = await caller.changed("end", session)
    again = await caller.changed("end", session)
    placed = await kernel.say(event(**ANN, mid="2", text="b"), DAY + timedelta(days=300))

    assert (ended.end_reason, ended.ended_at is None) == ("requested", False)
    assert again == ended
    assert placed.session != session
    assert [
        one["reason"] for one in kernel.relay.bodies("EVENTS", SESSION_EVENTS) if "reason" in one
    ] == ["requested"]


async def test_what_waits_in_an_ended_session_is_answered_there(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    claimed = await kernel.claim_live(session)
    await kernel.say(event(**ANN, mid="2", text="b"))

    await caller.changed("end", session)
    placed = await kernel.say(event(**ANN, mid="3", text="c"))
    await kernel.answer(claimed)
    await kernel.run_all()

    assert placed.session != session
    assert await kernel.said(session) == ["a", "ok", "b", "ok"]
    assert await kernel.said(placed.session) == ["c", "ok"]


async def test_an_end_is_taken_back(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await caller.changed("end", session)

    reopened = await caller.changed("reopen", session)
    placed = await kernel.say(event(**ANN, mid="2", text="b"))

    assert (reopened.ended_at, reopened.end_reason) == (None, None)
    assert placed.session == session
    assert await caller.changed("reopen", session) == await caller.reads.find(session)


async def test_the_policy_does_not_end_a_reopened_session_at_once(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(
        catalog(reset=ResetPolicy("both", idle=timedelta(hours=1), quiet=timedelta(0)))
    )
    caller = Caller(kernel)
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_all()
    reopened = await caller.changed("reopen", (await caller.changed("end", session)).id)

    placed = await kernel.say(
        event(**ANN, mid="2", text="b"), reopened.last_activity_at + timedelta(minutes=1)
    )

    assert placed.session == session


async def test_a_merged_session_stays_ended(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.fetch(
        "UPDATE sessions SET ended_at = now(), end_reason = 'merged' WHERE id = $1", session
    )

    assert await caller.refused("reopen", session) is ApiErrorCode.CONFLICT


async def test_a_reset_opens_the_next_session_of_the_lane(kernel: Kernel, caller: Caller) -> None:
    placed = await kernel.say(event(**ANN, mid="1", text="a"))
    await kernel.run_all()

    following = await caller.changed("reset", placed.session)
    after = await kernel.say(event(**ANN, mid="2", text="b"))
    [claimed] = await kernel.run_all()

    assert following.id != placed.session
    assert (following.session_key, following.message_count) == (placed.key, 0)
    assert after.session == following.id
    assert claimed.reset_reason == "requested"
    assert await caller.refused("reset", placed.session) is ApiErrorCode.STALE
    started = kernel.relay.bodies("EVENTS", SESSION_EVENTS)[-1]
    assert (started["reason"], started["previous_session_id"]) == (
        "requested",
        str(placed.session),
    )


async def test_a_session_that_was_ended_can_be_reset(kernel: Kernel, caller: Caller) -> None:
    placed = await kernel.say(event(**ANN, mid="1", text="a"))
    await caller.changed("end", placed.session)

    following = await caller.changed("reset", placed.session)

    peeked = await caller.reads.find_by_key(placed.key)
    assert peeked == following
    reasons = [
        one["reason"] for one in kernel.relay.bodies("EVENTS", SESSION_EVENTS) if "reason" in one
    ]
    assert reasons == ["requested", "requested"]


@pytest.mark.parametrize("verb", VERBS)
async def test_a_repeated_request_gets_the_first_answer(kernel: Kernel, verb: str) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    body = request(session, **FIELDS[verb])

    first = await Caller(kernel).send(verb, body)
    after = await everything(kernel)
    again = [
        await Caller(kernel.restarted()).send(verb, body | {"at": later})
        for later in ("2026-05-11T09:00:07Z", "2026-05-12T09:00:00Z")
    ]

    assert first.error is None
    assert again == [first, first]
    assert await everything(kernel) == after


@pytest.mark.parametrize("verb", VERBS)
async def test_requests_that_come_at_once_are_one(kernel: Kernel, verb: str) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    body = request(session, **FIELDS[verb])

    replies = await asyncio.gather(*(Caller(kernel).send(verb, body) for _ in range(5)))

    assert replies == [replies[0]] * 5
    assert replies[0].error is None


async def test_an_id_is_of_one_request_and_one_principal(kernel: Kernel) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    web, bot = Caller(kernel), Caller(kernel, "bot")
    await web.changed("title", session, id="r1", title="one")

    assert await web.refused("title", session, id="r1", title="two") is ApiErrorCode.CONFLICT
    assert await web.refused("end", session, id="r1") is ApiErrorCode.CONFLICT
    assert (await bot.changed("title", session, id="r1", title="three")).title == "three"


async def test_a_refusal_is_repeated_as_well(kernel: Kernel, caller: Caller) -> None:
    first = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    second = (await caller.changed("reset", first)).id
    body = request(first, id="r1")

    stale = await caller.send("reset", body)
    await caller.changed("end", second)

    assert stale.error is not None
    assert await caller.send("reset", body) == stale


async def test_a_change_that_fails_leaves_no_trace(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before the commit: the repetition finds nothing and makes the change."""
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    body = request(session)
    before = await everything(kernel)

    async def fail(*_: object) -> None:
        raise TransientError("lost")

    with monkeypatch.context() as broken:
        broken.setattr("chatlane.store.api_requests.finish", fail)
        failed = await Caller(kernel).send("end", body)
    assert failed.error is not None
    assert failed.error.code is ApiErrorCode.UNAVAILABLE
    assert await everything(kernel) == before

    assert (await Caller(kernel).send("end", body)).error is None


async def test_answers_are_forgotten_in_the_end(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await caller.changed("end", session)
    await caller.changed("end", session)
    await kernel.fetch(
        "UPDATE api_requests SET at = at - interval '8 days'"
        " WHERE id = (SELECT min(id) FROM api_requests)"
    )

    await TableMaintenance(kernel.store.transaction).forget_requests()

    assert await kernel.value("SELECT count(*) FROM api_requests") == 1


@pytest.mark.parametrize("verb", VERBS)
async def test_a_person_moves_only_what_is_theirs(
    kernel: Kernel, caller: Caller, verb: str
) -> None:
    """C33: refused with the words for a session that does not exist."""
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    before = await everything(kernel)
    fields = FIELDS[verb]

    nobodys = await caller.ask(verb, UUID(int=9), acting_for=person("702"), **fields)
    for stranger in (
        person("702"),
        person("701", "discord"),
        person("701", account="other"),
        person("701", scope="T1"),
    ):
        refused = await caller.ask(verb, session, acting_for=stranger, **fields)
        assert refused.error == nobodys.error
    assert await everything(kernel) == before

    await caller.changed(verb, session, acting_for=person("701"), **fields)


async def test_a_person_sees_only_what_is_theirs(kernel: Kernel, caller: Caller) -> None:
    placed = await kernel.say(event(**ANN, mid="1", text="a"))
    ann, ben = (Person.model_validate(person(one)) for one in ("701", "702"))

    assert await caller.reads.find(placed.session, ann) is not None
    assert await caller.reads.find(placed.session, ben) is None
    assert await caller.reads.find_by_key(placed.key, ann) is not None
    assert await caller.reads.find_by_key(placed.key, ben) is None


async def test_what_several_people_share_is_nobodys(kernel: Kernel, caller: Caller) -> None:
    thread: Fields = {"chat": "-90", "kind_of_chat": "supergroup", "is_forum": True, "thr": "7"}
    shared = (await kernel.say(event(**thread, user="701", mid="1", text="a"))).session
    own = (
        await kernel.say(
            event(chat="-90", kind_of_chat="group", user="701", mid="2", text="b"),
        )
    ).session

    refused = await caller.refused("end", shared, acting_for=person("701"))
    assert refused is ApiErrorCode.NOT_FOUND
    assert (await caller.changed("end", own, acting_for=person("701"))).id == own
    assert (await caller.changed("end", shared)).id == shared


async def test_a_session_a_timer_opened_is_of_who_writes_first(
    kernel: Kernel, caller: Caller
) -> None:
    timer = event(chat="701", kind="system", mid="t1", text="good morning")
    session = (await kernel.say(timer)).session
    refused = await caller.refused("end", session, acting_for=person("701"))

    placed = await kernel.say(event(**ANN, mid="1", text="a"))

    assert refused is ApiErrorCode.NOT_FOUND
    assert placed.session == session
    assert (await caller.changed("end", session, acting_for=person("701"))).id == session


async def test_a_session_from_elsewhere_is_of_who_writes_in_it(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.fetch("UPDATE sessions SET owner = NULL")

    await kernel.say(event(**ANN, mid="2", text="b"))

    await caller.changed("end", session, acting_for=person("701"))


async def test_a_person_is_known_under_every_id(kernel: Kernel, caller: Caller) -> None:
    placed = await kernel.say(
        event(
            "whatsapp",
            chat="4930123@s.whatsapp.net",
            user="4930123@s.whatsapp.net",
            aliases=["77@lid"],
            mid="1",
            text="a",
        )
    )

    for one in ("+4930123", "4930123:5@s.whatsapp.net", "77@lid"):
        asking = person(one, "whatsapp")
        await caller.changed("update", placed.session, acting_for=asking, cwd="/a")
    stranger = person("4930124", "whatsapp")
    refused = await caller.refused("end", placed.session, acting_for=stranger)
    assert refused is ApiErrorCode.NOT_FOUND


async def test_the_owner_stays_over_a_reset(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session

    following = await caller.changed("reset", session, acting_for=person("701"))

    ended = await caller.changed("end", following.id, acting_for=person("701"))
    assert ended.end_reason == "requested"


HOSTILE: tuple[object, ...] = (
    *(None, True, 0, -1, 1.5, 10**400, "", "\0", "\ud800", "a\0b", "*", ">", "é" * 200),
    *("x" * 5000, [], {}, [[]], [None], {"\0": 1}, {"": {}}, "2026-02-30T00:00:00Z"),
)


def places(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path to every value of an object."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            yield from places(inner, (*path, name))


def spoiled(body: Fields, path: tuple[str, ...], value: object) -> Fields:
    """Return a copy with another value at a path."""
    copy = deepcopy(body)
    *parents, last = path
    inner: Any = copy
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return copy


@pytest.mark.parametrize("verb", VERBS)
async def test_whatever_is_asked_is_answered_and_what_is_refused_changes_nothing(
    kernel: Kernel, caller: Caller, verb: str
) -> None:
    """Every value of a request replaced by everything that is no such value."""
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    whole = request(session, acting_for=person("701", scope=""), **FIELDS[verb])
    before = await everything(kernel)
    for path in places(whole):
        for value in HOSTILE:
            reply = await caller.send(verb, spoiled(whole, path, value) | {"id": uuid4().hex})
            if reply.error is None:
                before = await everything(kernel)
                session = (await caller.reads.find_by_key("agent:main:telegram:bot:dm:701")).id  # type: ignore[union-attr]
                whole["session_id"] = str(session)
            else:
                assert reply.error.code is not ApiErrorCode.UNAVAILABLE, (path, value)
                assert await everything(kernel) == before, (path, value)
