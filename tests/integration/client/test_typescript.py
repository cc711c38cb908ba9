"""The TypeScript client on a real server: chats that wait, dead processes, rooms and front ends.

A router is there only where a test needs it.
"""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from nats.aio.client import Client

from chatlane_client import AdapterClient, SessionApi, open_connection
from chatlane_devkit.conform.judged_process import JudgedProcess
from chatlane_devkit.platforms.scripted.server import ChatServer, open_chat_server
from chatlane_schemas import Chat, Sender
from chatlane_schemas.content.front_end import ContextEntry, FrontEnd, FrontEndTool
from chatlane_schemas.questions import OpenQuestionView
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, outbound_durable
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import (
    ACCOUNT,
    MAIN,
    PLATFORM,
    PRINCIPAL,
    Speaker,
    no_deliveries,
)
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer
from tests.support.typescript import build_client

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAMS: Final = Path(__file__).parents[2] / "support" / "service"
ROOM: Final = "!room:example.org"
ROOMS: Final = """
[platforms.matrix]
group_sessions_per_user = false
[platforms.matrix.accounts.bot]
rooms = "members"
"""
FRONT_END: Final = FrontEnd(
    tools=(FrontEndTool(name="set_colour"),), context=(ContextEntry(value="a page"),)
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_client(tmp_path_factory.mktemp("client"))


@pytest.fixture
async def platform() -> AsyncIterator[ChatServer]:
    async with open_chat_server() as server:
        yield server


@pytest.fixture
def speaker(client: Client) -> Speaker:
    return Speaker(client)


def node(url: str, log: Path, program: Path, *arguments: str, **variables: str) -> JudgedProcess:
    """Return a program on the client that connects to a server."""
    command = shlex.join(["node", str(program), *arguments])
    return JudgedProcess(command, {"NATS_URL": url, "PATH": os.environ["PATH"], **variables}, log)


@asynccontextmanager
async def delivering(
    package: Path, url: str, platform: ChatServer, log: Path
) -> AsyncIterator[JudgedProcess]:
    """Run the example of an adapter; it must end when it is told to."""
    example = package / "dist" / "examples" / "chat_adapter.js"
    about = {"PLATFORM": PLATFORM, "ACCOUNT": ACCOUNT, "CHAT_URL": platform.url}
    adapter = node(url, log, example, **about)
    adapter.start()
    try:
        yield adapter
    finally:
        assert await adapter.stop(timedelta(seconds=30)), adapter.last_words()


async def unacknowledged(client: Client) -> int:
    durable = outbound_durable(PLATFORM, ACCOUNT)
    info = await client.jetstream().consumer_info(StreamName.OUTBOUND, durable)
    return info.num_ack_pending or 0


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def test_c73_a_chat_that_waits_holds_up_no_other_and_keeps_its_order(
    package: Path,
    bus_url: str,
    client: Client,
    speaker: Speaker,
    *,
    platform: ChatServer,
    tmp_path: Path,
) -> None:
    good, bad = platform.chat("good"), platform.chat("bad")
    platform.limit(bad, 6)
    async with delivering(package, bus_url, platform, tmp_path / "adapter.log"):
        for number in range(1, 151):
            await speaker.say(number, chat="bad")
        await eventually(lambda: bad.calls > 0)
        for number in range(1, 4):
            await speaker.say(number, chat="good")
            await eventually(lambda: good.said == numbers(1, number))  # noqa: B023 - awaited here
        assert bad.said == []
        await eventually(lambda: bad.said[-1:] == ["150"])
        assert bad.said == numbers(1, 150)

        async def is_done() -> bool:
            return await unacknowledged(client) == 0

        await eventually(is_done)


async def test_what_waited_at_a_dead_process_comes_in_order_and_before_what_is_newer(
    package: Path,
    bus_url: str,
    client: Client,
    speaker: Speaker,
    *,
    platform: ChatServer,
    tmp_path: Path,
) -> None:
    chat = platform.chat("1")
    platform.limit(chat, 3600)

    async def all_are_out() -> bool:
        return await unacknowledged(client) == 60

    async with delivering(package, bus_url, platform, tmp_path / "adapter.log") as adapter:
        for number in range(1, 61):
            await speaker.say(number)
        await eventually(lambda: chat.calls > 0)
        await eventually(all_are_out)
        await adapter.kill()
        platform.limit(chat, 0)
        for number in range(61, 81):
            await speaker.say(number)
        adapter.start()
        await eventually(lambda: chat.said[-1:] == ["80"])
    assert chat.said == numbers(1, 80)


async def test_a_message_that_is_not_understood_is_no_message_of_a_lost_reader(
    package: Path, mortal_bus: RunningServer, platform: ChatServer, tmp_path: Path
) -> None:
    chat, log = platform.chat("1"), tmp_path / "adapter.log"

    def logged(event: str) -> int:
        return log.read_text("utf-8").count(f'"{event}"')

    async with (
        open_connection(mortal_bus.url, name="test") as client,
        no_deliveries(mortal_bus.url),
        delivering(package, mortal_bus.url, platform, log),
    ):
        speaker = Speaker(client)
        subject = subjects.outbound(PLATFORM, ACCOUNT, subjects.chat_token("other"))
        for body in (b"{", b'{"v": 2, "id": "1"}', b'{"v": 1, "id": "1"}'):
            await client.jetstream().publish(subject, body)
        await eventually(lambda: logged("outbound_not_understood") == 3)
        await mortal_bus.kill()
        await mortal_bus.start()
        await speaker.say(1)
        await eventually(lambda: chat.said == ["1"])
    assert logged("nats_reconnected") == 1
    assert logged("outbound_orphans_expected") == 0


async def test_an_adapter_reports_the_members_of_a_room(
    package: Path, tmp_path: Path, nats_url: str, database_url: str
) -> None:
    async def report(read_at: datetime, *members: str) -> str:
        program = PROGRAMS / "room_reporter.mjs"
        arguments = (str(package), "matrix", "bot", ROOM, read_at.isoformat(), *members)
        process = await asyncio.create_subprocess_exec(
            *("node", str(program), *arguments),
            env={"NATS_URL": nats_url, "PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output.decode().strip()

    async with (
        real_router(tmp_path, nats_url, database_url, more_config=ROOMS),
        open_connection(nats_url, name="test") as client,
    ):
        adapter = AdapterClient(client, platform="matrix", account="bot")
        await adapter.publish(
            adapter.event(
                message_id=uuid4().hex,
                chat=Chat(id=ROOM, kind="room"),
                sender=Sender(id="ann"),
                text="hello",
            )
        )
        ben = Person(platform="matrix", account="bot", id="ben")
        sessions = SessionApi(client, principal=PRINCIPAL, acting_for=ben)

        async def count() -> int:
            return len((await sessions.list_page(with_rooms=True)).sessions)

        async def is_shown() -> bool:
            return await count() == 1

        now = datetime.now(UTC)
        assert await report(now, "ann", "ben") == ""
        await eventually(is_shown)
        assert await report(now - timedelta(minutes=1), "ann") == "StaleRequestError"
        assert await count() == 1
        assert await report(datetime.now(UTC), "ann") == ""
        assert await count() == 0


async def test_another_attempt_gets_the_results_of_the_front_end_that_are_there(
    package: Path, tmp_path: Path, nats_url: str, database_url: str
) -> None:
    program = PROGRAMS / "page_worker.mjs"
    worker = node(nats_url, tmp_path / "worker.log", program, str(package), MAIN.name)
    async with (
        real_router(tmp_path, nats_url, database_url, retry_pause=timedelta(seconds=0.2)),
        open_connection(nats_url, name="test") as client,
    ):
        worker.start()
        sessions = SessionApi(client, principal=PRINCIPAL)
        session = await sessions.create()
        submitting = sessions.submit(session.id, "paint", front_end=FRONT_END, wait=True)
        answering = asyncio.create_task(submitting)
        calls = []

        async def find_call() -> OpenQuestionView | None:
            return await sessions.question(session.id, front_end_calls=True)

        for result in ("first", "second"):
            question = await eventually(find_call)
            assert question is not None
            assert question.front_end_call is not None
            calls.append(question.front_end_call)
            await sessions.reply(session.id, question.question_id, result)
        assert (await answering).answer == "first, second, a page"
        assert await worker.stop(timedelta(seconds=30))
    assert [call.arguments for call in calls] == ['{"colour": "blue"}'] * 2
    assert calls[0].id != calls[1].id
