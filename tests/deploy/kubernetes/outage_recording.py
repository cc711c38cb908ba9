"""Records what routers show while a server is away, for the tests of their autoscaler.

    .venv/bin/python -m tests.deploy.kubernetes.outage_recording

Three routers serve thirty people who write steadily. After a minute Postgres, or nats-server, is
killed for two minutes; two more minutes follow. `outages.json` has the values of each series, one
for each scrape.
"""

import asyncio
import json
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import EmbeddedServer, open_nats, open_postgres
from tests.support.servers.databases import migrated, open_database
from tests.support.service.processes import Process
from tests.support.service.scene import open_scene

RECORDED: Final = Path(__file__).with_name("outages.json")
INTERVAL: Final = 5
PER_SECOND: Final = 60
PARTITIONS: Final = 32
AWAY: Final = range(60, 180)
END: Final = 300
SERIES: Final = {
    "chatlane_batches_total",
    "chatlane_build_info",
    "chatlane_partition_lag_seconds",
    "chatlane_turns",
}
CPU: Final = "process_cpu_seconds_total"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def _scrape(client: httpx.AsyncClient, port: int, router: Process) -> dict[str, float]:
    """Return the values of a router by the name of their series; none if it does not answer."""
    try:
        page = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    except httpx.TransportError:
        return {}
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name in SERIES and sample.labels.get("outcome", "committed") == "committed":
                labels = {**sample.labels, "job": "chatlane", "instance": router.name}
                inside = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
                found[f"{sample.name}{{{inside}}}"] = round(sample.value, 1)
    found[f'{CPU}{{instance="{router.name}"}}'] = _cpu_seconds(router.pid)
    return found


def _cpu_seconds(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _record(victim: str, directory: Path) -> dict[str, list[float | None]]:
    """Return the values of each series while a server goes and comes back."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        servers: dict[str, EmbeddedServer] = {
            "nats": await enter(open_nats(directory / "nats")),
            "postgres": (postgres := await enter(open_postgres(directory / "postgres"))),
        }
        name = await enter(open_database(postgres.url))
        dsn = postgres.dsn(name)
        await migrated(dsn)
        place = directory / "service"
        place.mkdir()
        scene = await enter(open_scene(place, servers["nats"].url, dsn, partitions=PARTITIONS))
        scene.service.forks = False
        routers = {
            scene.service.router(
                f"router-{number}", variables={"CHATLANE_HTTP__PORT": str(port)}
            ): port
            for number in range(3)
            if (port := _free_port())
        }
        scene.service.worker("worker-1")
        scene.service.subscriber("subscriber-1")
        await scene.service.until_started(*routers)
        client = await enter(httpx.AsyncClient(trust_env=False, timeout=4))
        await enter(scene.users.talking(PER_SECOND))
        await scene.until_answers_flow()
        loop = asyncio.get_running_loop()
        begin = loop.time()
        values: dict[str, dict[int, float]] = {}
        for second in range(0, END + 1, INTERVAL):
            await asyncio.sleep(begin + second - loop.time())
            if second == AWAY.start:
                await servers[victim].kill()
            if second == AWAY.stop:
                await servers[victim].start()
            pages = [_scrape(client, port, router) for router, port in routers.items()]
            for page in await asyncio.gather(*pages):
                for series, value in page.items():
                    values.setdefault(series, {})[second] = value
        return {
            series: [found.get(second) for second in range(0, END + 1, INTERVAL)]
            for series, found in sorted(values.items())
        }


async def main() -> None:
    """Record both outages and write the file."""
    recorded = {}
    for victim in ("postgres", "nats"):
        with server_directory() as directory:
            recorded[victim] = await _record(victim, directory)
    lines = [
        f'"{victim}": {{\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        + "\n}"
        for victim, rows in recorded.items()
    ]
    RECORDED.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    asyncio.run(main())
