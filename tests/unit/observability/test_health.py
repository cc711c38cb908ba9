"""Liveness, readiness and metrics over real HTTP, in the loop they report on."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest

from chatlane.errors import StoreUnavailableError
from chatlane.observability.health import (
    DEAD_AFTER,
    Heartbeat,
    Probes,
    build_asgi,
    open_http,
    open_worker_health,
)
from chatlane.observability.metrics import Metrics
from tests.support.eventually import eventually


class Dependencies:
    """What readiness asks, as a test wants it to be."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.heartbeat = Heartbeat(self.metrics)
        self.failure: Exception | None = None
        self.hangs = False
        self.is_connected = True
        self.is_moving = True
        self.writes = 0
        self.complaints: list[str] = []
        self.streams: dict[str, str] = {}

    async def write(self) -> None:
        self.writes += 1
        if self.failure is not None:
            raise self.failure
        if self.hangs:
            await asyncio.Event().wait()

    def probes(self) -> Probes:
        return Probes(
            write=self.write,
            is_bus_connected=lambda: self.is_connected,
            is_reader_moving=lambda: self.is_moving,
            heartbeat=self.heartbeat,
            complaints=lambda: self.complaints,
            streams=lambda: self.streams,
            timeout=timedelta(milliseconds=50),
        )


@pytest.fixture
def dependencies() -> Dependencies:
    return Dependencies()


@pytest.fixture
async def http(dependencies: Dependencies) -> AsyncIterator[httpx.AsyncClient]:
    app = build_asgi(dependencies.metrics, dependencies.probes())
    async with (
        open_http(app, "127.0.0.1", 0) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        yield client


async def test_process_whose_loop_turns_is_alive_whatever_else_is_down(
    http: httpx.AsyncClient, dependencies: Dependencies
) -> None:
    dependencies.failure = StoreUnavailableError("57P01")
    dependencies.is_connected = dependencies.is_moving = False

    assert (await http.get("/livez")).status_code == 204
    assert dependencies.writes == 0


async def test_process_whose_heart_stopped_is_dead(
    http: httpx.AsyncClient, dependencies: Dependencies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies.heartbeat, "_last_beat", -DEAD_AFTER.total_seconds())

    assert (await http.get("/livez")).status_code == 503


async def test_heart_beats_and_tells_its_lag(dependencies: Dependencies) -> None:
    dependencies.heartbeat._last_beat -= 60
    beating = asyncio.create_task(dependencies.heartbeat.run())

    await eventually(lambda: dependencies.heartbeat.age < timedelta(seconds=30))

    beating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beating
    assert b"chatlane_event_loop_lag_seconds 6" in dependencies.metrics.render()


async def test_ready_means_that_a_write_arrived(
    http: httpx.AsyncClient, dependencies: Dependencies
) -> None:
    response = await http.get("/readyz")

    assert response.status_code == 200
    assert response.json() == {
        "ready": True,
        "state": "ready",
        "complaints": [],
        "notices": [],
        "streams": {},
        "checks": {"postgres": True, "nats": True, "reader": True},
    }
    assert dependencies.writes == 1


@pytest.mark.parametrize("failure", [StoreUnavailableError("25006"), ConnectionRefusedError()])
async def test_failing_write_is_not_ready(
    http: httpx.AsyncClient, dependencies: Dependencies, failure: Exception
) -> None:
    dependencies.failure = failure

    response = await http.get("/readyz")

    assert response.status_code == 503
    assert not response.json()["checks"]["postgres"]


async def test_hanging_write_is_not_waited_for(
    http: httpx.AsyncClient, dependencies: Dependencies
) -> None:
    dependencies.hangs = True

    response = await http.get("/readyz")

    assert response.status_code == 503


async def test_lost_connection_or_a_standing_reader_is_not_ready(
    http: httpx.AsyncClient, dependencies: Dependencies
) -> None:
    dependencies.is_moving = False
    standing = await http.get("/readyz")
    dependencies.is_moving, dependencies.is_connected = True, False
    lost = await http.get("/readyz")

    assert standing.status_code == lost.status_code == 503
    assert not standing.json()["checks"]["reader"]
    assert not lost.json()["checks"]["nats"]


async def test_what_a_person_should_look_at_is_degraded_and_still_ready(
    http: httpx.AsyncClient, dependencies: Dependencies
) -> None:
    dependencies.complaints = ["dead_letters"]
    degraded = await http.get("/readyz")
    dependencies.is_moving = False
    unready = await http.get("/readyz")

    assert (degraded.status_code, degraded.json()["state"]) == (200, "degraded")
    assert degraded.json()["complaints"] == ["dead_letters"]
    assert (unready.status_code, unready.json()["state"]) == (503, "unready")


async def test_readiness_names_the_streams_that_take_nothing(
    http: httpx.AsyncClient, dependencies: Dependencies
) -> None:
    dependencies.streams = {"EVENTS": "missing", "ROUTED": "full"}

    response = await http.get("/readyz")

    assert response.json()["streams"] == {"EVENTS": "missing", "ROUTED": "full"}


@pytest.mark.parametrize("begun", [b"", b"GET /livez HTTP/1.1\r\nHost: a\r\n", b"GET /livez HT"])
async def test_connections_that_ask_nothing_get_no_probe_refused(
    dependencies: Dependencies, begun: bytes
) -> None:
    app = build_asgi(dependencies.metrics, dependencies.probes())
    async with open_http(app, "127.0.0.1", 0) as port, contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(150):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(begun)
            readers.append(reader)
        async with httpx.AsyncClient(trust_env=False) as client:
            for path in ("livez", "readyz", "livez", "metrics"):
                response = await client.get(f"http://127.0.0.1:{port}/{path}")
                assert response.is_success
        # Their number is bounded, and those that are left do not stay.
        await eventually(lambda: sum(its.at_eof() for its in readers) >= 150 - 64)


async def test_a_connection_that_stays_idle_is_closed(
    dependencies: Dependencies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatlane.observability.health._IDLE", timedelta(milliseconds=50))
    app = build_asgi(dependencies.metrics, dependencies.probes())
    async with open_http(app, "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /readyz HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            assert (await reader.read()).startswith(b"HTTP/1.1 204")
        writer.close()


async def test_a_connection_that_does_not_read_its_answers_is_closed(
    dependencies: Dependencies, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_closed = asyncio.Event()
    monkeypatch.setattr("chatlane.observability.health._IDLE", timedelta(milliseconds=50))
    monkeypatch.setattr(
        "chatlane.observability.health.H11Protocol.connection_lost", lambda *_: is_closed.set()
    )
    app = build_asgi(dependencies.metrics, dependencies.probes())
    async with open_http(app, "127.0.0.1", 0) as port:
        with socket.socket() as client:
            # Set before the connection, so that the answers soon fill all buffers.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(0)
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
            client.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 1500)
            await asyncio.wait_for(is_closed.wait(), timeout=60)


async def test_metrics_are_served_as_prometheus_reads_them(
    http: httpx.AsyncClient, dependencies: Dependencies
) -> None:
    dependencies.metrics.record_decisions({("routed", "telegram"): 1})

    response = await http.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain")
    assert 'chatlane_messages_routed_total{platform="telegram"} 1.0' in response.text


@pytest.mark.parametrize("path", ["/", "/metrics/", "/docs"])
async def test_there_is_nothing_else(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404


async def test_server_leaves_signals_to_the_process(http: httpx.AsyncClient) -> None:
    received: list[int] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, received.append, signal.SIGTERM)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(lambda: received)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)

    assert (await http.get("/livez")).status_code == 204


async def test_port_that_is_taken_is_an_error_not_an_exit(dependencies: Dependencies) -> None:
    app = build_asgi(dependencies.metrics, dependencies.probes())

    async with open_http(app, "127.0.0.1", 0) as port:
        with pytest.raises(OSError, match="in use"):
            async with open_http(app, "127.0.0.1", port):
                pytest.fail("was served twice")


async def test_worker_shows_its_loop_and_its_connection_and_no_metrics() -> None:
    is_connected = False

    async with (
        open_worker_health(lambda: is_connected, "127.0.0.1", 0) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        alone = await client.get("/readyz")
        is_connected = True
        connected = await client.get("/readyz")
        alive = await client.get("/livez")
        metrics = await client.get("/metrics")

    assert (alone.status_code, alone.json()["checks"]) == (503, {"nats": False})
    assert (connected.status_code, connected.json()["state"]) == (200, "ready")
    assert (alive.status_code, metrics.status_code) == (204, 404)
