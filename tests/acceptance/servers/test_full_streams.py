"""Streams without room, one behind the other up to the adapter, and then room again."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import httpx
import pytest

from chatlane.nats.jetstream import JetStream
from chatlane_schemas.topology.streams import StreamName
from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.service import untrimmed_router
from tests.support.service.scene import Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(300)]

PER_SECOND: Final = 60
PATIENCE: Final = timedelta(seconds=90)
# For some more messages, so that streams of the size that they have are soon full.
ROOM: Final = 40_000
ENOUGH: Final = 2**26


async def limit(scene: Scene, stream: StreamName, room: int) -> None:
    """Leave a stream so much room beyond what it holds."""
    jetstream = JetStream(scene.client)
    found = await scene.client.jetstream().stream_info(stream)
    config = (await jetstream.get_stream(stream)).config
    size = found.state.bytes + room
    await jetstream.request(f"STREAM.UPDATE.{stream}", {**config, "max_bytes": size})


def complains(port: int, *, is_full: bool) -> Callable[[], Awaitable[bool]]:
    """Ask a router whether a stream is full."""

    async def is_so() -> bool:
        async with httpx.AsyncClient(timeout=5) as client:
            told = (await client.get(f"http://127.0.0.1:{port}/readyz")).json()
        assert told["ready"], told
        assert ("stream_full" in told["complaints"]) is is_full, told
        return True

    return is_so


async def held_back(port: int, stream: StreamName) -> bool:
    async with httpx.AsyncClient(timeout=5) as client:
        page = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return f'chatlane_held_back_total{{stream="{stream}"}}' in page


@pytest.fixture
async def scene(nats_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """By default so much may wait in the database that it would take long."""
    async with open_scene(tmp_path, nats_url, database_url, router="outbox_rows = 0") as its:
        yield its


@pytest.mark.parametrize("stream", [StreamName.OUTBOUND, StreamName.TURNS, StreamName.ROUTED])
async def test_what_leads_to_a_full_stream_waits_and_all_goes_on_with_room(
    scene: Scene, report_line: ReportLine, stream: StreamName
) -> None:
    scene.patience = PATIENCE
    await scene.start(
        routers=1, workers=2, subscribers=1, router_script=Path(untrimmed_router.__file__)
    )
    port = (await scene.process("router 1").until_logged("router_started"))["port"]
    async with scene.users.talking(PER_SECOND):
        await scene.until_answers_flow(10)
        await limit(scene, stream, ROOM)
        await eventually(complains(port, is_full=True), PATIENCE)
        await eventually(lambda: held_back(port, stream), PATIENCE)
        # What waits in the log fills it, and then who writes is told.
        await limit(scene, StreamName.INBOUND, ROOM)
        await eventually(lambda: scene.users.refused, PATIENCE)
        await limit(scene, StreamName.INBOUND, ENOUGH)
        await limit(scene, stream, ENOUGH)
        await scene.until_answers_flow(50)
        await eventually(complains(port, is_full=False), PATIENCE)
    await scene.verify()
    scene.require_running()
    report_line(f"{len(scene.users.sent)} messages, refused {scene.users.refused} times")
