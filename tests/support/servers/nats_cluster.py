"""Three nats-servers that hold every stream three times, and whose routes can be cut."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import ParseResult

import httpx
from nats.aio.client import Client

from chatlane.nats.jetstream import JetStream
from chatlane_servers.embedded import LOOPBACK, NatsServer, free_port
from tests.support.eventually import eventually
from tests.support.servers.route_links import RouteLinks

SIZE: Final = 3
_ELECTED_WITHIN: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class NatsCluster:
    """Servers by their names, and what lies between them."""

    servers: dict[str, NatsServer]
    links: RouteLinks

    @property
    def urls(self) -> list[str]:
        """Where clients connect; each server tells them of the others."""
        return [server.url for server in self.servers.values()]

    def name_of(self, url: ParseResult | None) -> str:
        """Return the server that a client is connected to."""
        assert url is not None, "it is not connected"
        return next(name for name, its in self.servers.items() if its.port == url.port)

    async def isolate(self, name: str) -> None:
        """Cut a server off from the others, both ways."""
        others = [other for other in self.servers if other != name]
        await self.links.block(*((name, it) for it in others), *((it, name) for it in others))

    async def mute(self, name: str) -> None:
        """Let a server hear the others, and nobody it."""
        await self.links.block(*((name, it) for it in self.servers if it != name))

    async def heal(self) -> None:
        """Join all servers again."""
        await self.links.heal()

    async def stream_leader(self, client: Client, stream: str) -> str:
        """Return who leads a stream, once somebody does."""

        async def leader() -> str:
            info = await JetStream(client).request(f"STREAM.INFO.{stream}")
            return str(info["cluster"].get("leader", ""))

        return await eventually(leader, _ELECTED_WITHIN)

    async def meta_leader(self) -> str:
        """Return who leads the cluster, as most of its running servers know."""

        async def leader() -> str:
            told = [await _jsz(server) for server in self.servers.values() if server.is_running]
            named = [str(its["meta_cluster"].get("leader", "")) for its in told]
            return max(named, key=named.count)

        return await eventually(leader, _ELECTED_WITHIN)

    async def until_complete(self) -> None:
        """Wait until the leader takes all the others for present; until then it places nothing."""

        async def is_complete() -> bool:
            leader = self.servers[await self.meta_leader()]
            peers = (await _jsz(leader))["meta_cluster"].get("replicas") or []
            present = [its for its in peers if its.get("current") and not its.get("offline")]
            return len(present) == SIZE - 1

        await eventually(is_complete, _ELECTED_WITHIN)

    async def until_equal(self, streams: Sequence[str], within: timedelta) -> None:
        """Wait until all servers hold the same messages of some streams."""

        async def are_equal() -> bool:
            told = [_held(await _jsz(server)) for server in self.servers.values()]
            for stream in streams:
                held = [its.get(stream) for its in told]
                assert held.count(held[0]) == SIZE, f"{stream}: {held}"
            return True

        await eventually(are_equal, within)


async def _jsz(server: NatsServer) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=2) as client:
        address = f"{server.monitoring_url}/jsz?accounts=true&streams=true"
        answer = await client.get(address)
    told: dict[str, Any] = answer.json()
    return told


def _held(told: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Return first and last sequence and number of messages of each stream."""
    details = [one for its in told["account_details"] for one in its["stream_detail"]]
    return {
        one["name"]: (
            one["state"]["first_seq"],
            one["state"]["last_seq"],
            one["state"]["messages"],
        )
        for one in details
    }


def _cluster_config(name: str, route_ports: dict[str, int], link_ports: dict[str, int]) -> str:
    config = {
        "name": "chatlane",
        "listen": f"{LOOPBACK}:{route_ports[name]}",
        "advertise": f"{LOOPBACK}:{link_ports[name]}",
        "routes": [
            f"nats-route://{LOOPBACK}:{port}" for other, port in link_ports.items() if other != name
        ],
    }
    return f"cluster: {json.dumps(config)}"


@asynccontextmanager
async def open_nats_cluster(
    directory: Path, *, extra_config: str = ""
) -> AsyncIterator[NatsCluster]:
    """Run three servers as they are to run in production: every write synced, R3 possible.

    Args:
        directory: For their files.
        extra_config: More lines of the configuration of each, such as accounts.
    """
    async with AsyncExitStack() as stack:
        links = RouteLinks()
        names = [f"chatlane-{number}" for number in range(1, SIZE + 1)]
        route_ports = {name: free_port() for name in names}
        link_ports = {
            name: await stack.enter_async_context(links.open(name, port))
            for name, port in route_ports.items()
        }
        servers = {
            name: NatsServer(
                directory / name,
                server_name=name,
                sync_always=True,
                extra_config="\n".join(
                    [_cluster_config(name, route_ports, link_ports), extra_config]
                ),
            )
            for name in names
        }
        for server in servers.values():
            stack.push_async_callback(server.kill)
        # Each answers only once they have elected a leader.
        await asyncio.gather(*(server.start() for server in servers.values()))
        cluster = NatsCluster(servers, links)
        await cluster.until_complete()
        yield cluster
