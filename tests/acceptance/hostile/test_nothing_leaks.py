"""What people write, who they are, and secrets: in no log, metric, trace, complaint or reason."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
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
from chatlane_schemas import encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.inbound import Attachment, Kind
from chatlane_schemas.topology import subjects
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import with_login
from tests.support.servers.locked_servers import LockedNats, Secrets, login_with
from tests.support.service.load_users import Person
from tests.support.service.processes import (
    ACCOUNT,
    PLATFORM,
    STREAM_AGENT,
    TURN_AGENT,
    Process,
)
from tests.support.service.raw_publisher import publish_raw
from tests.support.service.scene import Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]

# In ids, names, texts, titles, headers and subjects, in every password and key that a router has; the
# password of the database's owner is the other word.
CANARY: Final = "canary"
LOGIN: Final = "chatlane_leaking_login"
SECRETS: Final = {
    "postgres__password": f"{CANARY}-of-postgres",
    "nats__password": f"{CANARY}-of-nats",
    "log__digest_key": f"{CANARY}-of-digests",
    "prompt__redaction_key": f"{CANARY}-of-redaction",
}
ANN: Final = Person(f"{CANARY}-ann", TURN_AGENT)
BOB: Final = Person(f"{CANARY}-bob", STREAM_AGENT)
FILES: Final = (
    Attachment(
        url=f"https://files.example/{CANARY}?signature={CANARY}",
        key=f"{CANARY}/file",
        media_type="image/png",
        name=f"{CANARY}.png",
    ),
)
TRACEPARENT: Final = b"NATS/1.0\r\ntraceparent: 00-%032x-%016x-01\r\nbaggage: name=%s\r\n\r\n"
PROCESSES: Final = 4
# What people run by hand, with settings of which one is wrong or leads to nobody.
MISTAKES: Final = (
    ("admin migrate", "CHATLANE_POSTGRES__DSN", f"postgresql://ann:{CANARY}@127.0.0.1:1/{CANARY}"),
    ("admin migrate", "CHATLANE_POSTGRES__DSN", f"postgresql://ann:{CANARY}@[127.0.0.1/chat"),
    (
        "admin grants --apply",
        "CHATLANE_POSTGRES__DSN",
        f"postgresql://ann:{CANARY}@[127.0.0.1/chat",
    ),
    (
        "admin verify",
        "CHATLANE_POSTGRES__DSN",
        f"postgresql://ann:{CANARY}@127.0.0.1:{CANARY}/chat",
    ),
    ("admin verify", "CHATLANE_POSTGRES__PASSWORD", f"{CANARY}@"),
    ("admin apply", "CHATLANE_NATS__URL", f"nats://ann:{CANARY}@127.0.0.1:1"),
    ("sessions", "CHATLANE_NATS__TOKEN", CANARY),
    ("router", "CHATLANE_POSTGRES__DSN", f"host={CANARY}"),
    ("router", "CHATLANE_ROUTER__LEASE", CANARY),
    ("router", "CHATLANE_NATS__PASSWORD", CANARY),
)
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


@dataclass
class Stage:
    """What is played on, and what was seen of it meanwhile.

    Attributes:
        seen: By what it is: command lines, what commands said, logs of the servers.
    """

    scene: Scene
    secrets: Secrets
    server_logs: list[Path]
    seen: dict[str, str] = field(default_factory=dict)

    def look_at_command_lines(self) -> None:
        """Note what everybody on the machine can read of every process."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                self.seen["command lines"] = f"{self.seen.get('command lines', '')}{line}\n"


@asynccontextmanager
async def playing(
    directory: Path, database_url: str, server_log: Path | None, collector: Collector
) -> AsyncIterator[Stage]:
    """Run a router, a worker and a subscriber that log all they can, with secrets in files."""
    debug = {"CHATLANE_LOG__LEVEL": "debug"}
    secrets = Secrets(directory / "secrets")
    secrets.put(**SECRETS)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        nats = await enter(LockedNats(directory / "nats").running(SECRETS["nats__password"]))
        dsn = await enter(login_with(database_url, LOGIN, SECRETS["postgres__password"]))
        scene = await enter(open_scene(directory, nats.url, database_url, [ANN, BOB]))
        places = {
            **secrets.variables,
            "CHATLANE_POSTGRES__DSN": dsn,
            "CHATLANE_NATS__USER": "router",
            "CHATLANE_TRACING__ENDPOINT": collector.url,
        }
        router = scene.service.router("router 1", variables={**debug, **places})
        scene.service.worker("worker-1", variables=debug)
        scene.service.subscriber("subscriber 1")
        await scene.service.until_started(router)
        logs = [nats.log_path, *([server_log] if server_log else [])]
        yield Stage(scene, secrets, logs)


async def publish(scene: Scene, subject: str, body: bytes, headers: bytes | None = None) -> None:
    verdict = await publish_raw(scene.service.nats_url, subject.encode(), body, headers)
    assert verdict.sequence is not None, verdict


async def say_everything(scene: Scene) -> None:
    """Let people and programs do what is right, what is wrong, and what fails."""
    for person in (ANN, BOB):
        await scene.users.say(person)
        await scene.users.say(person, f"{CANARY} tells a secret to {person.agent}")
    await scene.until_all_is_heard()
    for command in (f"/title {CANARY} title", "/status", "/sessions", f"/resume {CANARY}", "/new"):
        await scene.users.say(ANN, command)
        scene.users.unheard.pop(command, None)
    place = subjects.inbound(PLATFORM, ACCOUNT, subjects.chat_token(ANN.name))
    whole = ANN.event(f"{CANARY} text", f"{CANARY}-id")
    for body in (
        f"{CANARY} is no JSON".encode(),
        encode(whole).replace(b'"text"', b'"text":7,"x"'),
        encode(whole.model_copy(update={"profile": f"{CANARY}-profile"})),
        encode(whole).replace(b'"kind":"dm"', b'"kind":{"a":"canary"}'),
        encode(whole.model_copy(update={"id": new_envelope_id(), "attachments": FILES})),
        encode(whole.model_copy(update={"id": new_envelope_id(), "kind": Kind.EDIT})),
        encode(whole.model_copy(update={"attachments": FILES})).replace(b"image", b"ima\\ud800"),
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
        await scene.recorder.fetch(statement)
    for person in (ANN, BOB):
        await scene.users.say(person, f"{CANARY}: refuse this")
    scene.users.unheard.clear()
    await eventually(lambda: _count_dead(scene, "internal_error", 2))
    log = scene.process("router 1").log_path

    async def is_noticed() -> bool:
        await scene.recorder.fetch(HANG_UP_SQL)
        text = log.read_text("utf-8")
        return "Postgres is unavailable" in text or "Postgres does not answer" in text

    await eventually(is_noticed)
    for person in (ANN, BOB):
        await scene.users.say(person)
    await scene.until_all_is_heard()


async def refuse_a_router(stage: Stage) -> None:
    """Let a second router come with passwords that no server takes, until it is told so."""
    wrong = Secrets(stage.secrets.directory.with_name("wrong"))
    wrong.put(postgres__password=f"{CANARY}-wrong", nats__password=f"{CANARY}-wrong")
    dsn = with_login(stage.scene.service.dsn, LOGIN, "")
    for user in ("router", "anybody"):
        variables = {
            "CHATLANE_LOG__LEVEL": "debug",
            "CHATLANE_POSTGRES__DSN": dsn,
            "CHATLANE_NATS__USER": user,
        }
        if user == "anybody":
            wrong.put(nats__password="-")  # noqa: S106 # as the server has it
        router = stage.scene.service.router("router 2", variables={**variables, **wrong.variables})
        words = "Authorization Violation" if user == "router" else "sqlstate=28P01"
        await _until_logged(router, words)
        stage.look_at_command_lines()
        await router.kill()


async def _until_logged(process: Process, words: str) -> None:
    await eventually(lambda: words in process.log_path.read_text("utf-8"))


async def mistype_commands(stage: Stage) -> None:
    """Run commands with settings that are wrong, and read all that they say."""
    await asyncio.gather(*(_mistype(stage, *mistake) for mistake in MISTAKES))


async def _mistype(stage: Stage, command: str, variable: str, value: str) -> None:
    config = str(stage.scene.service.config)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "chatlane", *command.split(), "--config", config),
        env={**os.environ, variable: value},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = asyncio.create_task(process.communicate())
    while not said.done():
        stage.look_at_command_lines()
        await asyncio.wait({said}, timeout=0.5)
    stage.seen[f"{command}, {variable}"] = said.result()[0].decode()
    assert process.returncode, command


async def _count_dead(scene: Scene, reason: str, count: int) -> bool:
    dead = await scene.recorder.dead()
    assert dead[reason] == count, dead
    return True


async def everything_told(stage: Stage, collector: Collector) -> dict[str, str]:
    """Return all that is shown of it to anybody who is not in the conversation."""
    scene = stage.scene
    stage.look_at_command_lines()
    started = await scene.process("router 1").until_logged("router_started")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{started['port']}") as client:
        told = {path: (await client.get(path)).text for path in ("/metrics", "/readyz", "/livez")}
    told["dead letters"] = "\n".join(row[0] for row in await scene.recorder.fetch(TOLD_SQL))
    told["turns"] = "\n".join(row[0] for row in await scene.recorder.fetch(TURNS_SQL))
    told["DEAD"] = "\n".join(raw.data.decode() for raw in await scene.recorder.stream("DEAD"))
    for name in ("router 1", "worker-1"):
        await scene.process(name).stop()
    told |= {path.name: path.read_text("utf-8") for path in scene.service.directory.glob("*.log")}
    await eventually(lambda: collector.bodies)
    told |= stage.seen
    told |= {f"log of {path.parent.name}": path.read_text("utf-8") for path in stage.server_logs}
    told["traces"] = b"\n".join(collector.bodies).decode("latin-1")
    return told


@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_what_was_said_is_in_nothing_that_is_told(
    database_url: str, postgres_server: RunningPostgres, tmp_path: Path, collector: Collector
) -> None:
    # In a container it goes to the engine.
    server_log = getattr(postgres_server, "log_path", None)
    async with playing(tmp_path, database_url, server_log, collector) as stage:
        await say_everything(stage.scene)
        await fail_in_the_database(stage.scene)
        await refuse_a_router(stage)
        await mistype_commands(stage)
        told = await everything_told(stage, collector)

    for reason in ("not_json", "invalid", "unknown_profile", "subject_mismatch", "internal_error"):
        assert reason in told["dead letters"], "this was to be seen to say nothing more"
    assert len([name for name in told if name.endswith(".log")]) == PROCESSES
    for word in ("batch_failed", "CheckViolationError", "Postgres "):
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
