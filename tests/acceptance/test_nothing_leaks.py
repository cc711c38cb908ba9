"""What people write, who they are, and secrets: in no log, metric, trace, complaint or reason."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from typing_extensions import override

from chatlane_client import RefusedRequestError, SessionApi
from chatlane_schemas import encode, subjects
from tests.support.crowd import Person
from tests.support.eventually import eventually
from tests.support.raw_publisher import publish_raw
from tests.support.scene import Scene, open_scene
from tests.support.service import ACCOUNT, PLATFORM, STREAM_AGENT, TURN_AGENT

pytestmark = pytest.mark.acceptance

# In ids, names, texts, titles, headers and subjects; the password of the database is the other word.
CANARY: Final = "canary"
ANN: Final = Person(f"{CANARY}-ann", TURN_AGENT)
BOB: Final = Person(f"{CANARY}-bob", STREAM_AGENT)
TRACEPARENT: Final = b"NATS/1.0\r\ntraceparent: 00-%032x-%016x-01\r\nbaggage: name=%s\r\n\r\n"
PROCESSES: Final = 3
# The database refuses these rows, and says what is in them.
REFUSE_SQL: Final = """
ALTER TABLE messages ADD CONSTRAINT refused CHECK (content NOT LIKE '%refuse%') NOT VALID;
ALTER TABLE waiting ADD CONSTRAINT refused CHECK (content NOT LIKE '%refuse%') NOT VALID
"""
HANG_UP_SQL: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
TOLD_SQL: Final = "SELECT concat_ws(' ', stage, reason, detail) FROM dead_letters"
TURNS_SQL: Final = "SELECT concat_ws(' ', state, outcome, worker, id) FROM turns"


@dataclass
class Collector:
    """Takes what OpenTelemetry exports, as it comes."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)


@pytest.fixture
def collector() -> Iterator[Collector]:
    its = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            its.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        @override
        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    its.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    yield its
    server.shutdown()
    thread.join()
    server.server_close()


@asynccontextmanager
async def playing(
    directory: Path, nats_url: str, database_url: str, collector: Collector
) -> AsyncIterator[Scene]:
    """Run a router, a worker and a subscriber that log all they can."""
    variables = {"CHATLANE_LOG__LEVEL": "debug", "CHATLANE_TRACING__ENDPOINT": collector.url}
    async with open_scene(directory, nats_url, database_url, [ANN, BOB]) as scene:
        router = scene.service.router("router 1", variables=variables)
        scene.service.worker("worker-1", variables={"CHATLANE_LOG__LEVEL": "debug"})
        scene.service.subscriber("subscriber 1")
        await scene.service.until_started(router)
        yield scene


async def publish(scene: Scene, subject: str, body: bytes, headers: bytes | None = None) -> None:
    verdict = await publish_raw(scene.service.nats_url, subject.encode(), body, headers)
    assert verdict.sequence is not None, verdict


async def say_everything(scene: Scene) -> None:
    """Let people and programs do what is right, what is wrong, and what fails."""
    for person in (ANN, BOB):
        await scene.crowd.say(person)
        await scene.crowd.say(person, f"{CANARY} tells a secret to {person.agent}")
    await scene.until_all_is_heard()
    for command in (f"/title {CANARY} title", "/status", "/sessions", f"/resume {CANARY}", "/new"):
        await scene.crowd.say(ANN, command)
        scene.crowd.unheard.pop(command, None)
    place = subjects.inbound(PLATFORM, ACCOUNT, subjects.chat_token(ANN.name))
    whole = ANN.event(f"{CANARY} text", f"{CANARY}-id")
    for body in (
        f"{CANARY} is no JSON".encode(),
        encode(whole).replace(b'"text"', b'"text":7,"x"'),
        encode(whole.model_copy(update={"profile": f"{CANARY}-profile"})),
        encode(whole).replace(b'"kind":"dm"', b'"kind":{"a":"canary"}'),
    ):
        await publish(scene, place, body)
    await publish(scene, f"chat.v1.inbound.{PLATFORM}.{ACCOUNT}.{CANARY}", encode(whole))
    await publish(scene, subjects.result(TURN_AGENT, uuid4()), f'{{"error":"{CANARY}"}}'.encode())
    traced = TRACEPARENT % (uuid4().int, 7, CANARY.encode())
    await publish(scene, place, encode(ANN.event(f"{CANARY} is traced", "traced")), traced)
    api = SessionApi(scene.client, principal="tests")
    assert await api.peek(f"{CANARY}-key") is None
    with pytest.raises(RefusedRequestError):
        await api.set_title(uuid4(), f"{CANARY} title")


async def fail_in_the_database(scene: Scene) -> None:
    """Let the database say what it was given, and go away."""
    for statement in REFUSE_SQL.split(";"):
        await scene.witness.fetch(statement)
    for person in (ANN, BOB):
        await scene.crowd.say(person, f"{CANARY}: refuse this")
    scene.crowd.unheard.clear()
    await eventually(lambda: _count_dead(scene, "internal_error", 2))
    log = scene.process("router 1").log_path

    async def is_noticed() -> bool:
        await scene.witness.fetch(HANG_UP_SQL)
        return "postgres unavailable" in log.read_text("utf-8")

    await eventually(is_noticed)
    for person in (ANN, BOB):
        await scene.crowd.say(person)
    await scene.until_all_is_heard()


async def _count_dead(scene: Scene, reason: str, count: int) -> bool:
    dead = await scene.witness.dead()
    assert dead[reason] == count, dead
    return True


async def everything_told(scene: Scene, collector: Collector) -> dict[str, str]:
    """Return all that is shown of it to anybody who is not in the conversation."""
    started = await scene.process("router 1").until_told("router_started")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{started['port']}") as client:
        told = {path: (await client.get(path)).text for path in ("/metrics", "/readyz", "/livez")}
    told["dead letters"] = "\n".join(row[0] for row in await scene.witness.fetch(TOLD_SQL))
    told["turns"] = "\n".join(row[0] for row in await scene.witness.fetch(TURNS_SQL))
    told["DEAD"] = "\n".join(raw.data.decode() for raw in await scene.witness.stream("DEAD"))
    for name in ("router 1", "worker-1"):
        await scene.process(name).stop()
    told |= {path.name: path.read_text("utf-8") for path in scene.service.directory.glob("*.log")}
    await eventually(lambda: collector.bodies)
    told["traces"] = b"\n".join(collector.bodies).decode("latin-1")
    return told


async def test_what_was_said_is_in_nothing_that_is_told(
    nats_url: str, database_url: str, tmp_path: Path, collector: Collector
) -> None:
    async with playing(tmp_path, nats_url, database_url, collector) as scene:
        await say_everything(scene)
        await fail_in_the_database(scene)
        told = await everything_told(scene, collector)

    for reason in ("not_json", "invalid", "unknown_profile", "subject_mismatch", "internal_error"):
        assert reason in told["dead letters"], "this was to be seen to say nothing more"
    assert len([name for name in told if name.endswith(".log")]) == PROCESSES
    for word in ("batch_failed", "CheckViolationError", "postgres unavailable"):
        assert word in told["router-1.log"], "so were these"
    assert "route batch" in told["traces"]
    password = urlsplit(database_url).password
    secret = re.compile(f"{CANARY}|{re.escape(password)}" if password else CANARY, re.IGNORECASE)
    hits = {name: found for name, text in told.items() if (found := _around(secret, text))}
    assert hits == {}


def _around(secret: re.Pattern[str], text: str) -> list[str]:
    """Return the lines that hold it, and where."""
    return [
        line[max(0, its.start() - 200) : its.end() + 80]
        for line in text.splitlines()
        if (its := secret.search(line))
    ]
