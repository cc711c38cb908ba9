"""The router itself, in this process, for the tests that any router must pass."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from string import Template
from typing import Final

from chatlane.app.lifecycle import open_app, route
from chatlane.app.state import App
from chatlane.config.settings import load_settings
from chatlane.connections import declared_topology
from chatlane.domain.catalog import BusyMode
from chatlane.nats.jetstream import JetStream
from chatlane.nats.topology import apply
from chatlane_client import open_connection
from tests.integration.client.routing import ACCOUNT, DESK, MAIN, PARTITIONS, PLATFORM, SLOTS
from tests.support.eventually import eventually

LEASE: Final = timedelta(seconds=15)
"""So long that a busy machine loses no turn."""
SHORT_LEASE: Final = timedelta(seconds=3)
"""For tests of lost claims."""

_CONFIG: Final = Template("""
[nats]
url = "$nats_url"
[postgres]
dsn = "$dsn"
[router]
partitions = $partitions
slots = $slots
outbox_rows = $outbox_rows
[http]
port = 0
[agents.$turn_agent]
lease = "$lease"
retry_pause = "$retry_pause"
busy = "$busy"
[agents.$stream_agent]
delivery = "stream"
ack_wait = "$ack_wait"
[profiles.$stream_agent]
[platforms.$platform.accounts.$account]
profiles = ["default", "$stream_agent"]
people_of = ["mail/desk"]
[platforms.mail.accounts.desk]
""")


@contextlib.asynccontextmanager
async def real_router(
    directory: Path,
    nats_url: str,
    dsn: str,
    *,
    busy: BusyMode = "collect",
    outbox_rows: int = 20_000,
    lease: timedelta = LEASE,
    retry_pause: timedelta = MAIN.retry_pause,
    more_config: str = "",
) -> AsyncIterator[App]:
    """Route until the end of the block; yields the running router.

    Args:
        directory: For the configuration.
        nats_url: A server whose streams may be changed.
        dsn: A migrated database.
        busy: What messages do to a running turn of the turn agent.
        outbox_rows: How many rows may wait for a full stream.
        lease: How long a claim of the turn agent lasts without a renewal.
        retry_pause: Pause of the turn agent after a failed attempt, times the number of attempts.
        more_config: Further lines of the configuration.
    """
    config = directory / "chatlane.toml"
    text = _CONFIG.substitute(
        nats_url=nats_url,
        dsn=dsn,
        partitions=PARTITIONS,
        slots=SLOTS,
        outbox_rows=outbox_rows,
        turn_agent=MAIN.name,
        lease=f"{lease.total_seconds():g}s",
        retry_pause=f"{retry_pause.total_seconds():g}s",
        busy=busy,
        stream_agent=DESK.name,
        ack_wait=f"{DESK.ack_wait.total_seconds():g}s",
        platform=PLATFORM,
        account=ACCOUNT,
    )
    config.write_text(text + more_config, "utf-8")
    settings = load_settings(config, {})
    declared = declared_topology(settings)
    async with open_connection(nats_url, name="admin") as client:
        await apply(JetStream(client), declared.streams, declared.durables)
    stop = asyncio.Event()
    async with open_app(settings) as app:
        routing = asyncio.create_task(route(app, stop))
        await eventually(lambda: app.intake is not None and len(app.intake.feeds) == 2 * PARTITIONS)
        try:
            yield app
        finally:
            stop.set()
            await routing
