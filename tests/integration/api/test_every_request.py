"""Whatever is asked, on every subject of the contract: typed answers, and nothing half done.

The requests are those of the contract's table, so a new one is tried without a line here. Real
decisions on a real database; only NATS is not there.
"""

import itertools
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.api.handlers import every_handler
from chatlane.api.operators.service_state import StreamReads
from chatlane.domain.log import PartitionId
from chatlane.importer.exports.uploads import ImportLimits
from chatlane.observability.metrics import Metrics
from chatlane.reconciliation.stream_contents import Backlog
from chatlane.store.audit import ReadNotes
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.sessions import ApiErrorCode, ApiReply
from chatlane_schemas.topology.channels import REQUESTS, Channel
from chatlane_schemas.topology.streams import DurableSpec
from chatlane_schemas.topology.subjects import partition_of
from tests.support.worlds.kernel import PARTITIONS, SLOTS, Kernel, event

pytestmark = pytest.mark.integration

MESSAGES: Final = Path(__file__).parents[2] / "contract" / "messages"
CHANNELS: Final = {channel.name: channel for channel in REQUESTS}
FOR_PEOPLE: Final = [
    name for name, channel in CHANNELS.items() if "acting_for" in channel.message.model_fields
]
NUMBERS: Final = itertools.count(1)
STRANGER: Final = {"platform": "telegram", "account": "bot", "id": "stranger"}

shared_database = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def method_of(channel: Channel) -> str:
    return ".".join(channel.address.split(".")[4:])


def message_of(channel: Channel, kind: str) -> dict[str, Any]:
    """Return a message of the contract's own examples, under an id of its own."""
    path = MESSAGES / f"{channel.message.__name__}.{kind}.json"
    message: dict[str, Any] = json.loads(path.read_bytes())
    return message | {"id": new_envelope_id()}


async def nothing_stored(platform: str, account: str, chat: str) -> tuple[PartitionId, int]:
    return PartitionId("inbound", partition_of(PARTITIONS, platform, account, chat)), 0


async def no_lags(_: Mapping[PartitionId, int]) -> Mapping[PartitionId, timedelta]:
    return {}


async def no_backlog(_: DurableSpec) -> Backlog | None:
    return None


NO_STREAMS: Final = StreamReads(no_lags, no_backlog, ())


class Api:
    """All handlers as a router has them, and a look at everything behind them."""

    def __init__(self, kernel: Kernel, streams: StreamReads = NO_STREAMS) -> None:
        self.kernel = kernel
        self._look = ""
        reads = SessionReads(kernel.store)
        notes = ReadNotes(kernel.store)
        request_handler = RequestHandler(Metrics(), agent_of=reads.agent_of, note_read=notes.note)
        self.handles = every_handler(
            kernel.store,
            kernel.writer,
            kernel.catalog,
            SLOTS,
            request_handler,
            find_newest=nothing_stored,
            streams=streams,
            import_limits=ImportLimits(),
        )

    async def ask(self, channel: Channel, body: bytes, **subject: Any) -> bytes:  # noqa: ANN401 - what a subject says
        return await self.handles[method_of(channel)](ApiRequest("someone", body, **subject))

    async def opened(self) -> UUID:
        """Return a session of its own with a row and its answer, and one that waits."""
        chat = f"chat-{next(NUMBERS)}"
        session = (await self.kernel.say(event(chat=chat, user=chat, mid="1", text="a"))).session
        await self.kernel.run_turn(session)
        await self.kernel.say(event(chat=chat, user=chat, mid="2", text="b"))
        return session

    async def everything(self) -> dict[str, str | None]:
        """Return what a request could change: a digest of each table."""
        if not self._look:
            tables = await self.kernel.fetch(TABLES)
            self._look = " UNION ALL ".join(DIGEST.format(row["relname"]) for row in tables)
        # Workers of the database may take the tables side by side: in no order.
        return dict(await self.kernel.fetch(self._look))


TABLES: Final = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
  AND relname NOT IN ('api_requests', 'audit') ORDER BY relname
"""
DIGEST: Final = """
SELECT '{0}', md5(string_agg(t::text, chr(10) ORDER BY t::text)) FROM {0} AS t
"""


@pytest.fixture
async def api(kernel: Kernel) -> Api:
    return Api(kernel)


# Only the worker that holds a turn may send these: `integration/client/test_questions.py`, `turns/test_steps.py`.
OF_WORKERS: Final = {"turn.say", "turn.ask", "turn.answer", "turn.step", "turn.keep"}


async def test_every_request_of_the_contract_is_answered(api: Api) -> None:
    methods = {method_of(channel) for channel in CHANNELS.values()}
    assert api.handles.keys() == methods | OF_WORKERS


READS: Final = {
    *("explain.event", "explain.session"),
    *("letter.count", "letter.get", "letter.list"),
    *("service.catalog", "service.overview"),
    *("delivery.get", "delivery.find", "person.erasure", "project.list"),
    *("session.count", "session.find", "session.get", "session.list", "session.peek"),
    *("session.rounds", "transcript.load", "transcript.removed", "transcript.revisions"),
    "transcript.search",
    "turn.question",
}


@pytest.mark.parametrize("name", sorted(CHANNELS))
async def test_what_an_operator_does_is_audited_and_what_others_do_is_not(
    api: Api, name: str
) -> None:
    channel = CHANNELS[name]
    method = method_of(channel)
    body = message_of(channel, "minimal")
    if "session_id" in channel.message.model_fields:
        body["session_id"] = str(await api.opened())
    async with api.kernel.store.transaction() as connection:
        router = await connection.fetchval("SELECT session_user")
    await api.kernel.fetch("TRUNCATE audit")
    for subject in ({}, {"agent": "main"}, {"account": ("telegram", "bot")}):
        body |= {"id": new_envelope_id()}
        reply = json.loads(await api.ask(channel, json.dumps(body).encode(), **subject))
        lines = await api.kernel.fetch(
            "SELECT action, actor, outcome, detail ->> 'request', db_role"
            " FROM audit WHERE actor IS NOT NULL"
        )
        if subject:
            assert lines == []
            continue
        outcome = (reply.get("error") or {}).get("code", "done")
        # Who only looks may do so again; of what is changed each request is a line.
        request = None if method in READS else body["id"]
        assert [tuple(line) for line in lines] == [
            (method, "nats:someone", outcome, request, router)
        ]
        await api.kernel.fetch("TRUNCATE audit")


async def test_who_goes_on_looking_leaves_one_line_for_each_session_and_minute(api: Api) -> None:
    load, listed = CHANNELS["transcriptLoad"], CHANNELS["sessionList"]
    one, other = [str(await api.opened()) for _ in range(2)]
    await api.kernel.fetch("TRUNCATE audit")

    async def look(channel: Channel, session: str | None = None) -> None:
        its = {"session_id": session} if session else {}
        await api.ask(channel, json.dumps(message_of(channel, "minimal") | its).encode())

    async def looked() -> list[tuple[str, str | None]]:
        rows = await api.kernel.fetch("SELECT action, session_id::text FROM audit ORDER BY id")
        return [tuple(row) for row in rows]

    for _ in range(3):
        await look(load, one)
        await look(listed)
    await look(load, other)
    expected = [("transcript.load", one), ("session.list", None), ("transcript.load", other)]
    assert await looked() == expected
    await api.kernel.fetch("UPDATE audit SET at = at - interval '2 minutes'")
    await look(load, one)
    assert await looked() == [*expected, ("transcript.load", one)]


async def test_what_cannot_be_noted_is_not_told(api: Api) -> None:
    session = str(await api.opened())
    channel = CHANNELS["transcriptLoad"]
    body = json.dumps(message_of(channel, "minimal") | {"session_id": session}).encode()
    await api.kernel.fetch("ALTER TABLE audit RENAME TO elsewhere")
    try:
        reply = await api.ask(channel, body)
    finally:
        await api.kernel.fetch("ALTER TABLE elsewhere RENAME TO audit")
    error = decode(ApiReply, reply).error
    assert error is not None
    assert error.code is ApiErrorCode.UNAVAILABLE
    assert b'"rows"' not in reply


HOSTILE: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from(
        ["", "\0", "..", "*", ">", "9" * 30, "2026-02-30T00:00:00Z", str(UUID(int=0)), "0.0"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
FORMS: Final[list[dict[str, Any]]] = [
    {},
    {},
    {"agent": "main"},
    {"agent": "notes"},
    {"account": ("telegram", "bot")},
]


def spoiled(message: dict[str, Any], data: st.DataObject) -> None:
    """Put something else into the place of a value, also of one inside another."""
    place: Any = message
    while True:
        name = data.draw(st.sampled_from(sorted(place)))
        inner = place[name]
        if not (isinstance(inner, dict) and inner and data.draw(st.booleans())):
            place[name] = data.draw(HOSTILE)
            return
        place = inner


@given(st.data())
@shared_database
async def test_what_is_refused_is_said_why_and_changes_nothing(
    api: Api, data: st.DataObject
) -> None:
    channel = CHANNELS[data.draw(st.sampled_from(sorted(CHANNELS)))]
    message = message_of(channel, data.draw(st.sampled_from(["full", "minimal"])))
    if "session_id" in message and data.draw(st.booleans()):
        message["session_id"] = str(await api.opened())
    for _ in range(data.draw(st.integers(0, 3))):
        spoiled(message, data)
    body = json.dumps(message).encode()
    before = await api.everything()

    reply = await api.ask(channel, body, **data.draw(st.sampled_from(FORMS)))

    error = decode(ApiReply, reply).error
    if error is None:
        decode(channel.replies[0], reply)
        decode(channel.message, body)
        return
    assert error.code is not ApiErrorCode.UNAVAILABLE
    assert error.message
    assert await api.everything() == before
    try:
        decode(channel.message, body)
    except DecodeError:
        assert error.code is ApiErrorCode.INVALID


@given(st.binary(max_size=200))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_bytes_get_a_typed_error(api: Api, body: bytes) -> None:
    for channel in CHANNELS.values():
        error = decode(ApiReply, await api.ask(channel, body)).error
        assert error is not None
        assert error.code is ApiErrorCode.INVALID


@pytest.mark.parametrize("name", sorted(FOR_PEOPLE))
@pytest.mark.parametrize("kind", ["full", "minimal"])
async def test_who_acts_for_another_person_finds_and_changes_nothing(
    api: Api, name: str, kind: str
) -> None:
    """C33, for every request there is: in the words for what does not exist."""
    channel = CHANNELS[name]
    session = await api.opened()
    key = await api.kernel.value("SELECT session_key FROM sessions")
    turn = await api.kernel.value("SELECT active_turn FROM sessions")
    await api.kernel.fetch("UPDATE sessions SET title = 'Weather', title_scope = owner")
    message = message_of(channel, kind) | {"acting_for": STRANGER}
    theirs = {
        "session_id": str(session),
        "turn_id": str(turn),
        "session_key": key,
        "expected_session_id": str(session),
        "title": "Weather",
    }
    message |= {field: value for field, value in theirs.items() if field in message}
    before = await api.everything()

    reply = await api.ask(channel, json.dumps(message).encode(), account=("telegram", "bot"))

    about = channel.message.model_fields.get("session_id")
    is_about_one = about is not None and about.is_required()
    assert str(session).encode() not in reply
    error = decode(ApiReply, reply).error
    if error is None:
        assert not is_about_one
    else:
        assert error.code in {ApiErrorCode.NOT_FOUND, ApiErrorCode.INVALID}
        assert await api.everything() == before
    if is_about_one:
        gone = message | {"session_id": str(UUID(int=9)), "id": new_envelope_id()}
        if "expected_session_id" in gone:
            gone["expected_session_id"] = str(session)
        nobodys = await api.ask(channel, json.dumps(gone).encode())
        assert decode(ApiReply, nobodys).error == error


@pytest.mark.parametrize("name", sorted(CHANNELS))
async def test_who_acts_for_people_has_to_name_one(api: Api, name: str) -> None:
    """Whatever is asked on the subject of an account is asked for somebody who talks to it."""
    message = message_of(CHANNELS[name], "minimal")
    other = message | {"acting_for": STRANGER | {"account": "two"}}
    before = await api.everything()

    for body in (message, other):
        reply = await api.ask(
            CHANNELS[name], json.dumps(body).encode(), account=("telegram", "bot")
        )
        error = decode(ApiReply, reply).error
        assert error is not None
        assert error.code is ApiErrorCode.FORBIDDEN
    assert await api.everything() == before
