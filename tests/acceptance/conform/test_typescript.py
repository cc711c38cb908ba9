"""The examples of the TypeScript client: judged, and with the rights of their users alone."""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from nats.aio.client import Client

from chatlane_client import SessionApi, TranscriptApi, open_connection
from chatlane_devkit.conform.judge_run import judge_adapter, open_installation
from chatlane_devkit.conform.judged_process import JudgedProcess
from chatlane_devkit.conform.report import Finding, Outcome
from chatlane_devkit.conform.scenes.scripted import open_scripted_scene
from chatlane_devkit.conform.worker.judge_run import judge_worker, open_worker_installation
from chatlane_devkit.platforms.scripted.chats import Chat
from chatlane_devkit.platforms.scripted.server import ChatServer, open_chat_server
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_marks import TitleSource
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import free_port
from tests.chaos import languages
from tests.integration.client.real_router import real_router
from tests.support.bridges.editor_machine import ABLE, EditorMachine, chosen
from tests.support.bridges.plain_editor import Editors
from tests.support.chaos import run_chaos
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database
from tests.support.servers.secured_nats import SecuredNats, open_secured_nats
from tests.support.service.installation import CONFIG, Installation
from tests.support.service.processes import Process
from tests.support.typescript import build_client

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

PLATFORM, ACCOUNT = "telegram", "assistant"
VIOLATIONS: Final = ("Violation", "authentication error")
# As the rights of the shipped users have it.
SLOTS: Final = 2
SETTINGS: Final = f"""
[agents.main]
lease = "3s"

[agents.notes]
delivery = "stream"
ack_wait = "3s"

[profiles.notes]
agent = "notes"

[platforms.{PLATFORM}.accounts.{ACCOUNT}]
profiles = ["default", "notes"]
"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the built examples."""
    return build_client(tmp_path_factory.mktemp("client")) / "dist" / "examples"


def faults_in(findings: list[Finding]) -> dict[str, str]:
    """Return the reasons of the checks that did not pass."""
    assert findings
    return {it.check: it.reason for it in findings if it.outcome is not Outcome.PASSED}


def lines_of(chat: Chat) -> list[str]:
    """Return the lines of the bot in a chat; messages of one turn are answered in one message."""
    return [line for text in chat.said for line in (text or "").splitlines()]


async def test_the_worker_passes_every_check(examples: Path, tmp_path: Path) -> None:
    command = shlex.join(["node", str(examples / "conform_worker.js")])
    with server_directory() as directory:
        async with open_worker_installation(directory) as installation:
            findings = await judge_worker(command, installation, tmp_path, patience=40)
    assert faults_in(findings) == {}


async def test_the_adapter_passes_every_check(examples: Path, tmp_path: Path) -> None:
    command = shlex.join(["node", str(examples / "chat_adapter.js")])
    with server_directory() as directory:
        async with (
            open_scripted_scene() as scene,
            open_installation(directory, scene) as installation,
        ):
            findings = await judge_adapter(command, installation, scene, tmp_path, patience=40)
    assert faults_in(findings) == {}


@dataclass
class Company:
    """Secured servers, a router, a platform, and where the examples are."""

    nats: SecuredNats
    platform: ChatServer
    examples: Path

    def environment(self, user: str) -> dict[str, str]:
        """Return how an example connects as a user."""
        return {
            "NATS_URL": self.nats.url,
            "PRINCIPAL": user,
            "NKEY_SEED_FILE": str(self.nats.seed_file(f"production/{user}")),
            "TLS_CA_FILE": str(self.nats.ca_file),
            "PATH": os.environ["PATH"],
        }

    @property
    def adapter_variables(self) -> dict[str, str]:
        """Return what an adapter has to know besides."""
        return {"PLATFORM": PLATFORM, "ACCOUNT": ACCOUNT, "CHAT_URL": self.platform.url}

    @asynccontextmanager
    async def running(
        self, program: str, user: str, **variables: str
    ) -> AsyncIterator[JudgedProcess]:
        """Run an example as a user; it must end when it is told to."""
        log = self.examples / f"{user}.log"
        command = shlex.join(["node", str(self.examples / program)])
        process = JudgedProcess(command, self.environment(user) | variables, log)
        process.start()
        try:
            yield process
        finally:
            assert await process.stop(timedelta(seconds=30))

    def open_front_end(self) -> AbstractAsyncContextManager[Client]:
        """Connect as the user of a front end."""
        return open_connection(
            self.nats.url,
            name="web",
            principal="web",
            nkey_seed_file=str(self.nats.seed_file("production/web")),
            tls_ca_file=str(self.nats.ca_file),
        )


@pytest.fixture(scope="module")
async def company(
    examples: Path,
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Company]:
    """Run a router, a worker and an adapter, each as its own user; nothing may be refused."""
    directory = tmp_path_factory.mktemp("company")
    config = directory / "chatlane.toml"
    config.write_text(CONFIG + SETTINGS)
    async with (
        open_database(postgres_server.url, template_database) as name,
        open_secured_nats() as nats,
        open_chat_server() as platform,
        AsyncExitStack() as stack,
    ):
        dsn, port = postgres_server.dsn(name), free_port()
        place = nats.environment("production/provisioner")
        await Installation(directory, nats.url, dsn, port, place).done("admin", "apply")
        variables = {**nats.environment("production/router"), "CHATLANE_POSTGRES__DSN": dsn}
        variables |= {"CHATLANE_HTTP__PORT": str(port)}
        arguments = ["-m", "chatlane", "router", "--config", str(config)]
        router = Process("router", arguments, directory, **variables)
        router.start()
        stack.push_async_callback(router.stop)
        its = Company(nats, platform, examples)
        await stack.enter_async_context(
            its.running("conform_worker.js", "main-worker", AGENT="main")
        )
        yield its
        log = nats.server.log_path.read_text("utf-8")
        assert [line for line in log.splitlines() if any(it in line for it in VIOLATIONS)] == []


async def test_worker_and_adapter_have_the_rights_that_they_need(company: Company) -> None:
    chat = company.platform.chat("c1", "dm")

    async def ask(text: str, answer: str) -> None:
        company.platform.write(chat, text)
        await eventually(lambda: chat.said[-1:] == [answer])

    async with company.running(
        "chat_adapter.js", "telegram-assistant", **company.adapter_variables
    ) as adapter:
        await ask("echo one", "heard one")
        await ask("recall", "recalls echo one | heard one")
        # Longer than a lease, with pieces.
        await ask("work 4 two", "heard two")
        # The answer is the message that showed it while it was written.
        assert (chat.sent[-1] or "").startswith("tick")
        assert sum("tick" in (text or "") for text in chat.texts) > 1
        assert chat.typing
        await ask("ask three", "Go on with three?")
        await ask("yes", "told yes")
        company.platform.write(chat, "work 6 four")
        await eventually(lambda: "tick" in (chat.said[-1] or ""))
        await adapter.kill()
        adapter.start()
        await eventually(lambda: chat.said[-1:] == ["heard four"])
        # The draft of the killed process has become the answer, or is gone.
        assert chat.said[-2:] == ["told yes", "heard four"]


async def test_a_worker_gives_its_session_a_title(company: Company) -> None:
    chat = company.platform.chat("named", "dm")
    person = Person(platform=PLATFORM, account=ACCOUNT, id="person-named")
    async with (
        company.open_front_end() as client,
        company.running("chat_adapter.js", "telegram-assistant", **company.adapter_variables),
    ):
        sessions = SessionApi(client, principal="web", acting_for=person)

        async def title() -> tuple[str | None, TitleSource | None]:
            found = await sessions.peek(f"agent:main:{PLATFORM}:{ACCOUNT}:dm:named")
            assert found is not None
            return found.title, found.title_source

        async def is_titled() -> bool:
            return await title() == ("A trip", TitleSource.MODEL)

        company.platform.write(chat, "echo one")
        await eventually(lambda: chat.said[-1:] == ["heard one"])
        assert (await title())[0] is None
        company.platform.write(chat, "name A\u200b  trip")
        await eventually(is_titled)
        assert chat.said == ["heard one", "heard name A\u200b  trip"]


async def test_a_front_end_watches_a_turn(company: Company) -> None:
    chat = company.platform.chat("watched", "dm")
    person = {"PERSON": f"{PLATFORM}/{ACCOUNT}/person-watched"}
    async with company.running(
        "chat_adapter.js", "telegram-assistant", **company.adapter_variables
    ):
        company.platform.write(chat, "echo one")
        await eventually(lambda: chat.said == ["heard one"])
        company.platform.write(chat, "work 3 two")
        await eventually(lambda: "tick" in (chat.said[-1] or ""))
        watch = await asyncio.create_subprocess_exec(
            *("node", str(company.examples / "watch_session.js")),
            env=company.environment("web") | person,
            stdout=asyncio.subprocess.PIPE,
        )
        assert watch.stdout is not None
        lines: list[str] = []
        async with asyncio.timeout(60):
            while not lines or not lines[-1].startswith("ended"):
                lines.append((await watch.stdout.readline()).decode().strip())
        watch.terminate()
        await watch.wait()
    # The turn ran already: it begins with what was shown so far.
    assert lines[:2] == ["watching", "recap"]
    assert {*lines[2:-1]} == {"text: tick"}
    assert lines[-1] == "ended: ok"


async def test_worker_and_adapter_outlast_a_killed_server(company: Company) -> None:
    chats = [company.platform.chat(f"outage-{number}", "dm") for number in range(8)]
    async with company.running(
        "chat_adapter.js", "telegram-assistant", **company.adapter_variables
    ):
        for chat in chats:
            company.platform.write(chat, "echo before")
        await eventually(lambda: all(chat.said == ["heard before"] for chat in chats))
        for chat in chats:
            company.platform.write(chat, "work 1 meanwhile")
        await company.nats.server.kill()
        for chat in chats:
            company.platform.write(chat, "echo after")
        await company.nats.server.start()
        # After a long outage, what was sent and not reported may be sent a second time.
        wanted = ["heard before", "heard meanwhile", "heard after"]
        await eventually(lambda: all([*dict.fromkeys(lines_of(chat))] == wanted for chat in chats))


async def test_a_front_end_asks_reads_and_stops(company: Company) -> None:
    person = {"PERSON": f"{PLATFORM}/{ACCOUNT}/ann"}
    front_end = await asyncio.create_subprocess_exec(
        *("node", str(company.examples / "session_client.js"), "echo one", "work 600 two"),
        env=company.environment("web") | person,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        output, _ = await front_end.communicate()
    said = output.decode().splitlines()
    assert front_end.returncode == 0
    assert said[:2] == ["ok: heard one", "stopped true"]
    assert said[2:4] == ["user: echo one", "assistant: heard one"]
    assert said[-1] == "listed as script"


async def test_a_killed_stream_worker_answers_each_message_once_and_in_order(
    company: Company,
) -> None:
    person = Person(platform=PLATFORM, account=ACCOUNT, id="ben")
    told = [f"message {number}" for number in range(12)]
    settings = {"AGENT": "notes", "SLOTS": str(SLOTS)}
    async with (
        company.open_front_end() as client,
        company.running("stream_worker.js", "notes-worker", **settings) as worker,
    ):
        sessions = SessionApi(client, principal="web", acting_for=person)
        transcripts = TranscriptApi(client, principal="web", acting_for=person)
        session = await sessions.create(profile="notes")

        async def answers() -> list[str]:
            rows = await transcripts.newest(session.id)
            return [(it.content or "").partition(" heard: ")[2] for it in rows if it.role != "user"]

        async def has_begun() -> bool:
            return bool(await answers())

        async def is_complete() -> bool:
            return len(await answers()) >= len(told)

        for place, text in enumerate(told):
            await sessions.submit(session.id, text)
            if place == len(told) // 2:
                await eventually(has_begun)
                await worker.kill()
                worker.start()
        await eventually(is_complete)
        assert await answers() == told


async def test_a_turn_uses_the_files_and_the_terminal_of_an_editor(
    examples: Path, tmp_path: Path, nats_url: str, database_url: str
) -> None:
    script, other = tmp_path / "project" / "it's.py", tmp_path / "other.py"
    script.parent.mkdir()
    for path in (script, other):
        path.write_text("print('done')\n", "utf-8")
    worker = JudgedProcess(
        shlex.join(["node", str(examples / "editor_worker.js")]),
        {"NATS_URL": nats_url, "PATH": os.environ["PATH"]},
        tmp_path / "worker.log",
    )
    editors = Editors(nats_url, tmp_path / "bridge.log")
    async with real_router(tmp_path, nats_url, database_url), editors.open(**ABLE) as editor:
        worker.start()
        editor.answer = machine = EditorMachine(editor, chosen("allow"))
        session = await editor.open(str(script.parent))
        await editor.prompt(session, str(script))
        titles = [
            request["params"]["toolCall"]["title"]
            for request in editor.requests
            if request["method"] == "session/request_permission"
        ]
        machine.permission = chosen("reject")
        await editor.prompt(session, str(other))
        await editor.prompt(session, str(script.parent / "missing.py"))
        assert await worker.stop(timedelta(seconds=30))
    assert editor.said()[:2] == [
        "exit code 0: done",
        "refused: the person did not allow it",
    ]
    assert editor.said()[2].startswith("failed: ")
    assert script.read_text("utf-8") == "# Run by an agent.\nprint('done')\n"
    assert titles[0] == f"Write {script}"
    assert titles[1].startswith("Run python3 ")
    assert machine.running == {}


@pytest.mark.timeout(300)
async def test_workers_in_both_languages_share_turns_while_processes_are_killed(
    examples: Path,
) -> None:
    with server_directory() as directory:
        outcome = await run_chaos(directory, languages.plan(300, examples.parents[1]))
        turns = languages.turns_of(directory)
    assert outcome.problems == ()
    assert outcome.fault_count >= 6
    assert turns.keys() == {"worker-1", "worker-2"}
