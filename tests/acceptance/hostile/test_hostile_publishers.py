"""Nothing a publisher can send closes the NATS connection of a router or stops a partition."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import pytest

from chatlane_client import SessionApi
from chatlane_schemas.topology import subjects
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import NatsServer, open_nats
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database
from tests.support.service.load_users import Person, people
from tests.support.service.processes import ACCOUNT, PLATFORM, STREAM_AGENT, TURN_AGENT
from tests.support.service.raw_publisher import publish_raw
from tests.support.service.scene import Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]

# By the third part of what their streams store; other subjects are in no partition.
LOGS: Final = {"log": "inbound", "rlog": "results"}
KIB: Final = 1024
LITTLE: Final = 64 * KIB
# What messages leave of it: some come out too large as they are, some with their headers.
ROOM_LEFT: Final = range(150, 1650, 60)
INBOUND: Final = f"chat.v1.inbound.{PLATFORM}.{ACCOUNT}.".encode()
ANN: Final = subjects.inbound(PLATFORM, ACCOUNT, subjects.chat_token("p00")).encode()
RESULT: Final = f"chat.v1.result.{TURN_AGENT}.".encode()


@dataclass(frozen=True, slots=True)
class Attack:
    """Something to publish; `reason` of the dead letter that comes of it, if any does."""

    subject: bytes
    body: bytes = b"{}"
    headers: bytes | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Something to ask."""

    subject: bytes
    body: bytes = b"{}"
    reply: bytes = b"_INBOX.nobody"
    headers: bytes | None = None


def event(text: str = "hi", **fields: object) -> bytes:
    """Return a good event of p00."""
    its = Person("p00").event(text, uuid4().hex).model_dump(mode="json", exclude_none=True)
    return json.dumps(its | fields).encode()


def headers(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


MISMATCH: Final = "subject_mismatch"
ATTACKS: Final = {
    "no UTF-8 in the subject": Attack(INBOUND + b"\xff\xfe", reason=MISMATCH),
    "NUL in the subject": Attack(INBOUND + b"a\0b", reason=MISMATCH),
    "a vertical tab in the subject": Attack(INBOUND + b"a\x0bb", reason=MISMATCH),
    "a form feed in the subject": Attack(INBOUND + b"a\x0cb", reason=MISMATCH),
    "other controls in the subject": Attack(INBOUND + b"a\x1c\x1d\x1e\x1fb", reason=MISMATCH),
    "a subject that is almost too long": Attack(INBOUND + b"a" * 3900, reason=MISMATCH),
    "a subject of a transform": Attack(INBOUND + b"{{wildcard(1)}}", reason=MISMATCH),
    "no UTF-8 in the subject of a result": Attack(RESULT + b"\xff\xfe", reason=MISMATCH),
    "NUL in the subject of a result": Attack(RESULT + b"a\0b", reason=MISMATCH),
    "a form feed in the subject of a result": Attack(RESULT + b"a\x0cb", reason=MISMATCH),
    "headers of three bytes": Attack(ANN, event(), b"abc"),
    "headers without an end": Attack(ANN, event(), b"NATS/1.0"),
    "headers of zeros": Attack(ANN, event(), b"\0" * 64),
    "headers that are no text": Attack(ANN, event(), headers(b"\xff\xfe: \xfd", b"\0: \0")),
    "an inline status": Attack(ANN, event(), b"NATS/1.0 503\r\n\r\n"),
    "an inline status that is no text": Attack(ANN, event(), b"NATS/1.0 \xff\xff\xff\r\n\r\n"),
    "an inline status with a bad word": Attack(ANN, event(), b"NATS/1.0 409 \xff\xfe\r\n\r\n"),
    "a heartbeat": Attack(
        ANN, event(), b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: x\r\n\r\n"
    ),
    "a status header": Attack(ANN, event(), headers(b"Status: 503", b"Description: gone")),
    "two ids": Attack(ANN, event(), headers(b"Nats-Msg-Id: a", b"Nats-Msg-Id: b")),
    "an id that is no text": Attack(ANN, event(), headers(b"Nats-Msg-Id: \xff\xfe")),
    "headers of 200 kB": Attack(ANN, event(), headers(b"x: " + b"y" * 200 * KIB)),
    "ten thousand headers": Attack(ANN, event(), headers(*[b"x: y"] * 10_000)),
    "a rollup": Attack(ANN, event(), headers(b"Nats-Rollup: all")),
    "a time to live": Attack(ANN, event(), headers(b"Nats-TTL: 1s")),
    "an expectation": Attack(ANN, event(), headers(b"Nats-Expected-Last-Sequence: 999999")),
    "another stream": Attack(ANN, event(), headers(b"Nats-Expected-Stream: X")),
    "a trace": Attack(ANN, event(), headers(b"Nats-Trace-Dest: nowhere")),
    "a schedule": Attack(ANN, event(), headers(b"Nats-Schedule: @every 1s")),
    "a counter": Attack(ANN, event(), headers(b"Nats-Incr: 1")),
    "nothing": Attack(ANN, b"", reason="not_json"),
    # Accepted; what fails is the worker's answer, which repeats it and adds a word.
    "exactly 256 kB": Attack(ANN, event("x" * (256 * KIB - len(event("")))), reason="turn_failed"),
    "one byte more than 256 kB": Attack(
        ANN, event("x" * (256 * KIB - len(event("")) + 1)), reason="oversized"
    ),
    "all that the server takes": Attack(ANN, b"[" * (1024 * KIB), reason="oversized"),
    "headers and body that just fit": Attack(
        ANN, b"x" * (1024 * KIB - 20), headers(b"a: 2345"), reason="oversized"
    ),
    "control characters in ids": Attack(
        ANN.replace(ANN.split(b".")[-1], subjects.chat_token("\x01" * 256).encode()),
        event(chat={"id": "\x01" * 256}, thread_id="\x02" * 256, scope="\x03" * 256),
    ),
    "a name of 200 kB": Attack(ANN, event(sender={"id": "p00", "name": '"' * 100 * KIB})),
    "a result of all that the server takes": Attack(
        RESULT + str(uuid4()).encode(), b"x" * 1024 * KIB, reason="oversized"
    ),
}


# The server's transform passes wildcards over, so they are in no partition; its index of subjects
# holds no DEL, so a filter may or may not find one.
HIDDEN: Final = (b"*", b">", b"a\x7fb")
API: Final = b"chat.v1.api.tests.session.list"
REQUESTS: Final = {
    "a principal that is no text": Request(b"chat.v1.api.\xff\xfe.session.list"),
    "a principal with a form feed": Request(b"chat.v1.api.a\x0cb.session.list"),
    "a reply that is no text": Request(API, reply=b"_INBOX.\xff\xfe"),
    "a reply with a form feed": Request(API, reply=b"_INBOX.a\x0cb"),
    "a reply with NUL": Request(API, reply=b"_INBOX.a\0b"),
    "a reply that is almost too long": Request(API, reply=b"_INBOX." + b"a" * 3900),
    "a reply to everybody": Request(API, reply=b"_INBOX.>"),
    "a reply into a log": Request(API, reply=ANN),
    "headers of three bytes": Request(API, headers=b"abc"),
    "an inline status that is no text": Request(API, headers=b"NATS/1.0 \xff\xff\xff\r\n\r\n"),
    "a type of content": Request(API, headers=headers(b"content-type: application/json")),
    "a correlation": Request(API, headers=headers(b"correlation_id: " + b"x" * 100 * KIB)),
    "a correlation that leaves no room for an answer": Request(
        API, headers=headers(b"correlation_id: " + b"x" * (1024 * KIB - 40))
    ),
    "no body": Request(API, b""),
    "nothing but brackets": Request(API, b"[" * 1024 * KIB),
    "a claim of nothing": Request(b"chat.v1.api.tests.turn.claim.main", b"\xff"),
}


@dataclass(slots=True)
class Fortress:
    """A router under attack, and the server that tells of its connections."""

    scene: Scene
    server: NatsServer

    async def connections(self) -> list[tuple[str, int]]:
        """Return name and id of every connection of a router."""
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{self.server.monitoring_url}/connz?limit=1024")
        return sorted(
            (its["name"], its["cid"])
            for its in answer.json()["connections"]
            if its.get("name", "").startswith("chatlane-router")
        )

    async def until_decided(self, stream: str, sequence: int) -> None:
        """Wait until the partition of a message is decided up to there."""
        stored = await self.scene.client.jetstream().get_msg(stream, sequence)
        *_, kind, partition, _ = (stored.subject or "").split(".", 4)
        if kind not in LOGS:
            return
        query = "SELECT cursor FROM partitions WHERE log = $1 AND id = $2"

        async def is_decided() -> bool:
            cursor = await self.scene.recorder.value(query, LOGS[kind], int(partition))
            assert cursor >= sequence, f"{sequence} of {stored.subject!r} waits behind {cursor}"
            return True

        await eventually(is_decided)


@pytest.fixture(scope="module")
async def fortress(
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Fortress]:
    """One router with a worker and a subscriber; its server has a monitoring port."""
    with server_directory() as directory:
        async with (
            open_nats(directory / "nats") as server,
            open_database(postgres_server.url, template_database) as name,
            open_scene(
                tmp_path_factory.mktemp("fortress"),
                server.url,
                postgres_server.dsn(name),
                people(4, [TURN_AGENT, STREAM_AGENT]),
            ) as scene,
        ):
            await scene.start(routers=1, workers=1, subscribers=1)
            yield Fortress(scene, server)


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_router_keeps_its_connection_and_goes_on(fortress: Fortress, name: str) -> None:
    attack, scene = ATTACKS[name], fortress.scene
    before, dead_before = await fortress.connections(), await scene.recorder.dead()
    verdict = await publish_raw(scene.service.nats_url, attack.subject, attack.body, attack.headers)
    for person in scene.users.members:
        await scene.users.say(person)
    await scene.until_all_is_heard()
    if verdict.sequence is not None:
        stream = "RESULTS" if attack.subject.startswith(RESULT) else "INBOUND"
        await fortress.until_decided(stream, verdict.sequence)
    expected = [attack.reason] if attack.reason and verdict.sequence is not None else []

    async def is_buried() -> bool:
        assert [*(await scene.recorder.dead() - dead_before).elements()] == expected
        return True

    await eventually(is_buried)
    assert await fortress.connections() == before
    assert len(before) == 2
    scene.require_running()


@pytest.mark.parametrize("token", HIDDEN)
async def test_what_the_server_itself_cannot_find_holds_nobody_up(
    fortress: Fortress, token: bytes
) -> None:
    before = await fortress.connections()
    await publish_raw(fortress.scene.service.nats_url, INBOUND + token)
    for person in fortress.scene.users.members:
        await fortress.scene.users.say(person)
    await fortress.scene.until_all_is_heard()
    assert await fortress.connections() == before
    fortress.scene.require_running()


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_router_keeps_answering(fortress: Fortress, name: str) -> None:
    request, scene = REQUESTS[name], fortress.scene
    before, dead_before = await fortress.connections(), await scene.recorder.dead()
    its = request.subject, request.body, request.headers
    await publish_raw(scene.service.nats_url, *its, reply=request.reply)
    assert await SessionApi(scene.client, principal="tests").peek("nobody") is None
    assert await scene.recorder.dead() == dead_before
    assert await fortress.connections() == before
    scene.require_running()


async def take_less(server: NatsServer) -> None:
    """Start the server anew with a small limit: no router would start on it."""
    await server.stop()
    server._max_payload_bytes = LITTLE
    await server.start()


@pytest.mark.slow
async def test_what_comes_out_larger_than_it_went_in_is_set_aside(
    database_url: str, tmp_path: Path
) -> None:
    """The server takes less than before; people write what only just fits, workers repeat it all."""
    members = people(2 * len(ROOM_LEFT), [TURN_AGENT, STREAM_AGENT])
    with server_directory() as directory:
        async with (
            open_nats(directory / "nats") as server,
            open_scene(tmp_path, server.url, database_url, members) as scene,
        ):
            await scene.start(routers=1, workers=1, subscribers=1)
            await take_less(server)
            await eventually(lambda: scene.client.max_payload == LITTLE)
            before = await Fortress(scene, server).connections()
            for person, room in zip(members, sorted([*ROOM_LEFT, *ROOM_LEFT]), strict=True):
                size = LITTLE - room - len(person.event("", uuid4().hex).model_dump_json())
                await scene.users.say(person, "x" * size)
            scene.users.unheard.clear()
            await scene.recorder.until_taken(len(members))
            await scene.recorder.until_settled(scene.users)
            for person in members:
                await scene.users.say(person)
            await scene.until_all_is_heard()
            assert (await scene.recorder.dead()).keys() <= {"oversized_outbound", "turn_failed"}
            assert await Fortress(scene, server).connections() == before
            scene.require_running()
