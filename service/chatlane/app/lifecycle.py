"""Start a router: wait for what it depends on, route until it is stopped, and end in order.

Only this package, `connections` and the command line read the settings.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from datetime import timedelta
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from chatlane.app.parts import open_parts
from chatlane.app.state import VERSION, App
from chatlane.connections import bus_options, declared_topology, store_of
from chatlane.domain.log import LOGS
from chatlane.errors import SchemaMismatchError, TransientError
from chatlane.garbage import collect_rarely
from chatlane.maintenance import SEEN_AHEAD
from chatlane.nats import topology
from chatlane.nats.connection import open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.nats.tasks import end_task
from chatlane.nats.topology import LOG_STREAMS
from chatlane.observability.health import Heartbeat, build_asgi, open_http
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import Metrics
from chatlane.observability.tracing import sending_traces
from chatlane.postgres.migrations import verify_schema
from chatlane.privacy.erasure_list import require_keys
from chatlane.store.addressing import dedupe_marks
from chatlane.store.logs import partitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from chatlane.config.settings import Settings
    from chatlane.connections import Topology
    from chatlane.nats.connection import Bus

_START_PAUSE: Final = timedelta(milliseconds=500)

_log = get_logger("app")


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    """Serve health for the length of the block; `route` does the work.

    Raises:
        SettingsError: No platform is declared.
        OSError: The port for health is taken.
    """
    metrics = Metrics(VERSION)
    heartbeat = Heartbeat(metrics)
    async with store_of(settings) as store:
        app = App(settings, settings.catalog(), store, metrics)
        asgi = build_asgi(metrics, app.probes(heartbeat))
        async with (
            open_http(asgi, settings.http.host, settings.http.port) as app.http_port,
            app.running("heartbeat", heartbeat.run()),
        ):
            yield app


async def run(settings: Settings) -> int:
    """Run a router until SIGTERM or SIGINT; return the exit code of the process."""
    collect_rarely()
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    with sending_traces(settings.tracing.endpoint, VERSION):
        return await _run(settings, stop)


async def _run(settings: Settings, stop: asyncio.Event) -> int:
    async with open_app(settings) as app:
        routing = asyncio.create_task(route(app, stop), name="route")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({routing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not routing.done() and app.intake is None:
            # Still waiting for its dependencies, so there is nothing to hand back.
            await end_task(routing)
        else:
            await routing
    return 1 if app.has_ended.is_set() else 0


async def route(app: App, stop: asyncio.Event) -> None:
    """Wait for the dependencies, then route until `stop` is set or the router has ended.

    Raises:
        SchemaMismatchError: Database or streams differ from what this release works with.
        BusUnavailableError: NATS refuses the connection.
    """
    options = bus_options(app.settings, "chatlane-router")
    async with open_bus(options, app.count_refusal) as app.bus:
        _show_connection(app.metrics, app.bus)
        began_at = await _until_dependencies_are_there(app, JetStream(app.bus.client))
        async with open_parts(app, app.bus, began_at):
            _log.info("router_started", router=str(app.router_id), port=app.http_port)
            waits = [stop.wait(), app.has_ended.wait(), app.bus.closed.wait()]
            tasks = [asyncio.create_task(wait) for wait in waits]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            if app.bus.closed.is_set():
                app.has_ended.set()
            app.is_stopping = True
            _log.info("router_stopping", router=str(app.router_id))
    _log.info("router_stopped", router=str(app.router_id))


def _show_connection(metrics: Metrics, bus: Bus) -> None:
    def reconnected() -> None:
        metrics.nats_connected.set(1)
        metrics.nats_reconnects.inc()

    metrics.nats_connected.set(int(bus.is_connected))
    bus.listen(
        disconnected=lambda: metrics.nats_connected.set(0),
        reconnected=reconnected,
    )


async def _until_dependencies_are_there(app: App, jetstream: JetStream) -> datetime:
    """Wait until Postgres and NATS are available and as this release needs them.

    Returns:
        The current time, by the clock of the logs.
    """
    declared = declared_topology(app.settings)
    while True:
        try:
            return await _verify(app, jetstream, declared)
        except TransientError as error:
            _log.warning("dependencies_awaited", reason=str(error))
            await asyncio.sleep(_START_PAUSE.total_seconds() * SystemRandom().uniform(0.5, 1))


async def _verify(app: App, jetstream: JetStream, declared: Topology) -> datetime:
    async with app.store.transaction() as connection:
        await verify_schema(connection)
        await require_keys(connection, app.settings.erasure_key())
    streams, durables = declared.streams, declared.durables
    if differences := await topology.verify(jetstream, streams, durables, is_starting=True):
        raise SchemaMismatchError(tuple(differences))
    await app.event_storage.look(jetstream)
    for log in LOGS:
        async with app.store.transaction() as connection:
            await partitions.ensure(connection, log, app.settings.router.partitions)
    async with app.store.transaction() as connection:
        await dedupe_marks.create_partitions(connection, SEEN_AHEAD)
    return (await jetstream.get_stream(LOG_STREAMS["inbound"])).answered_at
