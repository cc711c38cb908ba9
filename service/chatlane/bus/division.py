"""Into how many partitions the server divides a log: changed, and waited for."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from chatlane.bus.topology import LOG_STREAMS, partition_count, stream_config
from chatlane.errors import BusUnavailableError
from chatlane_schemas.streams import declared_streams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatlane.bus.jetstream import StreamState
    from chatlane.domain.log import LogName

# For so long a leader must stay and its replicas must keep up before nothing of what it was sent
# under the former division can still be on its way into the log.
SETTLING: Final = timedelta(seconds=2)
_PATIENCE: Final = timedelta(seconds=30)
_PAUSE: Final = timedelta(milliseconds=200)
_TRANSFORM: Final = "subject_transform"


class Requests(Protocol):
    """What is asked of JetStream; see `JetStream`."""

    async def request(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request."""
        ...

    async def get_stream(self, stream: str) -> StreamState:
        """Return the state of a stream."""
        ...


async def divide(jetstream: Requests, log: LogName, count: int) -> bool:
    """Have the server store what comes from now on by another number of partitions.

    Returns:
        Whether that was a change.

    Raises:
        ApiRefusedError: The server does not do it, or has no such stream.
        BusUnavailableError: No answer in time; it may be done.
    """
    stream = LOG_STREAMS[log]
    state = await jetstream.get_stream(stream)
    if partition_count(state.config) == count:
        return False
    [spec] = [one for one in declared_streams(count) if one.name is stream]
    # An update replaces the whole configuration, so everything else goes back as it is.
    config = {**state.config, _TRANSFORM: stream_config(spec)[_TRANSFORM]}
    await jetstream.request(f"STREAM.UPDATE.{stream}", config)
    return True


async def until_settled(
    jetstream: Requests, log: LogName, settling: timedelta = SETTLING
) -> StreamState:
    """Wait until the log stores by its present division only; return how far it goes then.

    One server changes between two messages. Of several each changes for itself: a message may be
    on its way between them, and who becomes the leader may not have heard of the change.

    Raises:
        BusUnavailableError: The servers do not come to rest, or do not answer.
    """
    stream = LOG_STREAMS[log]
    loop = asyncio.get_running_loop()
    began = calm_since = loop.time()
    leader: str | None = None
    while True:
        info = await jetstream.request(f"STREAM.INFO.{stream}")
        if info["config"].get("num_replicas", 1) == 1:
            break
        cluster = info.get("cluster") or {}
        now = loop.time()
        if not _is_calm(cluster):
            leader = None
        elif cluster["leader"] != leader:
            leader, calm_since = cluster["leader"], now
        elif now - calm_since >= settling.total_seconds():
            break
        if now - began > _PATIENCE.total_seconds():
            raise BusUnavailableError(f"the replicas of {stream} are not in step")
        await asyncio.sleep(_PAUSE.total_seconds())
    return await jetstream.get_stream(stream)


def _is_calm(cluster: Mapping[str, Any]) -> bool:
    """Tell whether a stream has a leader, and all of its replicas keep up with it."""
    replicas = cluster.get("replicas") or []
    return bool(cluster.get("leader")) and all(
        one.get("current") and not one.get("offline") for one in replicas
    )


class LogDivisions:
    """The logs as a change of their division sees them.

    All methods raise BusUnavailableError when there is no answer in time.

    Args:
        jetstream: Where they are.
    """

    def __init__(self, jetstream: Requests) -> None:
        self._jetstream = jetstream

    async def divided_into(self, log: LogName) -> int | None:
        """Return into how many partitions the server divides a log."""
        return partition_count((await self.get_state(log)).config)

    async def get_state(self, log: LogName) -> StreamState:
        """Return how far a log goes."""
        return await self._jetstream.get_stream(LOG_STREAMS[log])

    async def divide(self, log: LogName, count: int) -> None:
        """Have the server store by another number from now on."""
        await divide(self._jetstream, log, count)

    async def until_settled(self, log: LogName) -> StreamState:
        """Wait until it does, and nothing else is on its way; return how far the log goes."""
        return await until_settled(self._jetstream, log)
