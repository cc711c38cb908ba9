"""Streams and durables that somebody changes: who starts refuses, who runs says so within 15 s."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from chatlane.nats.jetstream import JetStream
from tests.support.eventually import eventually
from tests.support.service.processes import TURN_AGENT, apply_topology
from tests.support.service.scene import Scene

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]

NOTICED_WITHIN = timedelta(seconds=15)
# A machine with other work to do gets some more.
PATIENCE = 2 * NOTICED_WITHIN


async def readiness(port: int) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=2) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/readyz")
    return {"status": answer.status_code, **answer.json()}


def becomes(port: int, state: str) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        told = await readiness(port)
        assert told["state"] == state, told
        return True

    return is_so


async def test_a_durable_that_is_deleted_is_noticed_and_made_again(scene: Scene) -> None:
    await scene.start(routers=1, workers=1, subscribers=1)
    router = scene.process("router 1")
    port = (await router.until_logged("router_started"))["port"]
    async with scene.users.talking(30):
        await scene.until_answers_flow(10)
        jetstream = JetStream(scene.client)
        await jetstream.request(f"CONSUMER.DELETE.TURNS.{TURN_AGENT}")
        await eventually(becomes(port, "degraded"), PATIENCE)
        told = await router.until_logged("topology_differs")
        assert told["detail"].startswith(f"durable {TURN_AGENT} on TURNS is missing")
        await apply_topology(scene.service.settings)
        await eventually(becomes(port, "ready"), PATIENCE)
        await scene.until_answers_flow(10)
    await scene.verify()


async def test_who_starts_refuses_what_is_not_as_declared(scene: Scene) -> None:
    jetstream = JetStream(scene.client)
    state = await jetstream.get_stream("INBOUND")
    await jetstream.request("STREAM.UPDATE.INBOUND", {**state.config, "max_bytes": 1024})
    await jetstream.request("CONSUMER.DELETE.ROUTED.desk-0")
    router = scene.service.router("router 1")
    await eventually(lambda: router.exit_code is not None, PATIENCE)
    assert router.exit_code == 1
    said = router.log_path.read_text("utf-8")
    assert "stream INBOUND: max_bytes is 1024" in said
    assert "durable desk-0 on ROUTED is missing" in said
