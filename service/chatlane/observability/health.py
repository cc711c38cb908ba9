"""Health of a process over HTTP: `/livez`, `/readyz` and `/metrics`.

Liveness checks only the event loop: a dependency that is down must not restart the process.
Readiness checks the dependencies, by a write instead of a ping: a demoted primary still answers
`SELECT 1`, and an open TCP connection does not reveal a stalled reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import uvicorn
from faststream.asgi import AsgiFastStream, AsgiResponse, get
from faststream.asgi.types import Scope  # noqa: TC002 - FastStream reads the signatures
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from chatlane.errors import ChatlaneError
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from faststream.nats import NatsBroker

_log = get_logger("health")

BEAT_INTERVAL: Final = timedelta(milliseconds=250)
# Probes and scrapes are few. Above this limit, the connection that has been idle longest is closed.
_MOST_CONNECTIONS: Final = 64
# How long a connection may stay open without a complete request, or without reading the answer.
_IDLE: Final = timedelta(seconds=5)
# A batch may block the loop for tens of milliseconds; ten seconds without a turn is a hang.
DEAD_AFTER: Final = timedelta(seconds=10)


class Heartbeat:
    """Records when the event loop last ran the heartbeat, and how late it was."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._last_beat = time.monotonic()

    @property
    def age(self) -> timedelta:
        """Time since the event loop last ran the heartbeat."""
        return timedelta(seconds=time.monotonic() - self._last_beat)

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await asyncio.sleep(BEAT_INTERVAL.total_seconds())
            late = self.age - BEAT_INTERVAL
            self._last_beat = time.monotonic()
            self._metrics.loop_lag.set(max(late.total_seconds(), 0.0))


@dataclass(frozen=True, slots=True)
class Probes:
    """The checks behind `/readyz`, and the heartbeat behind `/livez`.

    Attributes:
        heartbeat: Runs in the event loop that does the work.
        is_bus_connected: Returns whether NATS is connected.
        write: Writes to Postgres and returns after the commit; raises if it cannot. None if the
            process has no database.
        is_reader_moving: Returns whether every owned partition was recently polled and answered.
            None if the process reads none.
        complaints: Returns problems that need an operator, although the process works.
        notices: Returns problems of single accounts or agents; the service is healthy.
        streams: Returns the streams that accept no new messages, each as "missing" or "full".
        timeout: Deadline of the write.
    """

    heartbeat: Heartbeat
    is_bus_connected: Callable[[], bool]
    write: Callable[[], Awaitable[object]] | None = None
    is_reader_moving: Callable[[], bool] | None = None
    complaints: Callable[[], Sequence[str]] = tuple
    notices: Callable[[], Sequence[str]] = tuple
    streams: Callable[[], Mapping[str, str]] = dict
    timeout: timedelta = timedelta(seconds=1)

    def is_alive(self) -> bool:
        """Return whether the event loop runs."""
        return self.heartbeat.age < DEAD_AFTER

    async def readiness(self) -> Mapping[str, bool]:
        """Return each dependency and whether it works now."""
        checks = {"nats": self.is_bus_connected()}
        if self.write is not None:
            checks["postgres"] = await self._can_write(self.write)
        if self.is_reader_moving is not None:
            checks["reader"] = self.is_reader_moving()
        return checks

    async def _can_write(self, write: Callable[[], Awaitable[object]]) -> bool:
        try:
            async with asyncio.timeout(self.timeout.total_seconds()):
                await write()
        except TimeoutError:
            _log.warning("readiness_write_failed", reason="timeout")
        except (ChatlaneError, OSError) as exc:
            _log.warning("readiness_write_failed", reason=type(exc).__qualname__)
        else:
            return True
        return False


def build_asgi(metrics: Metrics | None, probes: Probes, *brokers: NatsBroker) -> AsgiFastStream:
    """Return the ASGI app with its routes; a path must match exactly.

    Without metrics there is no `/metrics`: scrapers take a process that has any for a router.

    Brokers given here are started and stopped by the app's `start_lifespan_context`.
    """

    @get(include_in_schema=False)
    async def livez(scope: Scope) -> AsgiResponse:
        del scope
        return AsgiResponse(b"", 204 if probes.is_alive() else 503)

    @get(include_in_schema=False)
    async def readyz(scope: Scope) -> AsgiResponse:
        del scope
        checks = await probes.readiness()
        complaints = list(probes.complaints())
        content = {
            "ready": all(checks.values()),
            "state": _state(checks, complaints),
            "checks": checks,
            "complaints": complaints,
            "notices": list(probes.notices()),
            "streams": dict(probes.streams()),
        }
        body = json.dumps(content).encode()
        headers = {"content-type": "application/json", "cache-control": "no-store"}
        return AsgiResponse(body, 200 if all(checks.values()) else 503, headers)

    @get(include_in_schema=False)
    async def page(scope: Scope) -> AsgiResponse:
        del scope
        body = b"" if metrics is None else metrics.render()
        return AsgiResponse(body, 200, {"content-type": CONTENT_TYPE})

    shown = [] if metrics is None else [("/metrics", page)]
    return AsgiFastStream(
        *brokers,
        asgi_routes=[("/livez", livez), ("/readyz", readyz), *shown],
        logger=None,
    )


def _state(checks: Mapping[str, bool], complaints: Sequence[str]) -> str:
    """Return the state as one word; a degraded process still routes and must stay in service."""
    if not all(checks.values()):
        return "unready"
    return "degraded" if complaints else "ready"


class _Server(uvicorn.Server):
    """A uvicorn server that leaves SIGTERM and SIGINT to its process."""

    @override
    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


class _Connection(H11Protocol):
    """A connection that is closed when it stays idle, or when others need its place.

    uvicorn limits only the idle time after an answer, and above its connection limit it refuses
    every request: connections without requests would make it refuse probes.
    """

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._idle_timer = self.loop.call_later(_IDLE.total_seconds(), self._close_if_idle)
        if len(self.connections) > _MOST_CONNECTIONS:
            peers = [peer for peer in self.connections if isinstance(peer, _Connection)]
            idle = [peer for peer in peers if peer.is_idle and peer is not self]
            # While all of them are busy, the new connection is closed and the client has to retry.
            min(idle, key=lambda peer: peer._idle_since, default=self).close()  # noqa: SLF001

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._idle_timer.cancel()
        super().connection_lost(exc)

    @override
    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """No request is being answered, or the client does not read the answer."""
        return self.cycle is None or self.cycle.response_complete or self.flow.write_paused

    def close(self) -> None:
        """End the connection at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _close_if_idle(self) -> None:
        left = self._idle_since + _IDLE.total_seconds() - self.loop.time()
        if self.is_idle and left <= 0:
            self.close()
        else:
            delay = left if left > 0 else _IDLE.total_seconds()
            self._idle_timer = self.loop.call_later(delay, self._close_if_idle)


@asynccontextmanager
async def open_http(app: AsgiFastStream, host: str, port: int) -> AsyncIterator[int]:
    """Serve `app` in this event loop and yield its port.

    The lifespan of the app does not run: the code that opened the dependencies closes them.

    Raises:
        OSError: The address cannot be bound.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=1,
        http=_Connection,
    )
    # Bound here, because uvicorn would exit the process when the port is taken.
    listener = _bound(host, port)
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def open_worker_health(
    is_bus_connected: Callable[[], bool], host: str, port: int
) -> AsyncIterator[int]:
    """Serve the health of a process that depends only on NATS; yield the port.

    Raises:
        OSError: The address cannot be bound.
    """
    heartbeat = Heartbeat(Metrics())
    beating = asyncio.create_task(heartbeat.run(), name="heartbeat")
    try:
        async with open_http(
            build_asgi(None, Probes(heartbeat, is_bus_connected)), host, port
        ) as served_port:
            yield served_port
    finally:
        beating.cancel()
        await asyncio.wait([beating])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
