"""Keep one connection to NATS, reconnect without a limit, and signal when it is closed for good.

nats-py closes a connection permanently when the server rejects what the client sent, for example
a payload that is too large, even with unlimited reconnects. `Bus.closed` is the event to exit on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nkeys import NkeysError  # type: ignore[import-untyped]

from chatlane.errors import BusUnavailableError
from chatlane.nats.nats_patches import harden
from chatlane.observability.logs import get_logger
from chatlane_client.transport.secured import (
    OnRefused,
    Refusal,
    read_key_again,
    refusal_in,
    trusted_by,
    without_chats,
)
from chatlane_schemas.topology.permissions import inbox_prefix

# Half-open connections are found after two unanswered pings.
_PING_INTERVAL: Final = timedelta(seconds=5)
_MAX_OUTSTANDING_PINGS: Final = 2
# Above this the client waits for the socket, so a burst of large publishes blocks no other caller.
_PENDING_BYTES: Final = 16 * 1024 * 1024
_FLUSH_TIMEOUT: Final = timedelta(seconds=2)

_log = get_logger("bus")

Callback = Callable[[], None]
Told = str | Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BusOptions:
    """Addresses and credentials of a NATS connection.

    Attributes:
        url: One address, or several separated by commas.
        name: Shown on the server's monitoring port.
        user: A value or a callable, like password and token. The client calls a callable at every
            connect and reconnect.
        creds_file: JWT and key; read again at every reconnect.
        nkey_seed_file: Seed of a key; read again at every reconnect.
        principal: The name that our permissions are bound to. It sets the prefix of reply
            subjects, so that no principal can read the replies of another.
    """

    url: str
    name: str = "chatlane"
    user: Told | None = None
    password: Told | None = field(default=None, repr=False)
    token: Told | None = field(default=None, repr=False)
    creds_file: Path | None = None
    nkey_seed_file: Path | None = None
    tls_ca_file: Path | None = None
    principal: str | None = None
    connect_timeout: timedelta = timedelta(seconds=2)
    reconnect_wait: timedelta = timedelta(milliseconds=250)

    def connect_arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of nats-py."""
        return {
            "servers": [part.strip() for part in self.url.split(",") if part.strip()],
            "name": self.name,
            "user": self.user,
            "password": self.password,
            "token": self.token,
            "user_credentials": str(self.creds_file) if self.creds_file else None,
            "nkeys_seed": str(self.nkey_seed_file) if self.nkey_seed_file else None,
            "tls": trusted_by(self.tls_ca_file) if self.tls_ca_file else None,
            "inbox_prefix": inbox_prefix(self.principal) if self.principal else "_INBOX",
            "connect_timeout": self.connect_timeout.total_seconds(),
            "reconnect_time_wait": self.reconnect_wait.total_seconds(),
            "ping_interval": _PING_INTERVAL.total_seconds(),
            "max_outstanding_pings": _MAX_OUTSTANDING_PINGS,
        }


class Bus:
    """One connection to NATS and its state.

    Attributes:
        client: The nats-py client.
        closed: Set when the connection is lost for good without a call of `close`.
        refusal: The last refusal by NATS; None if there was none.
    """

    def __init__(self, on_refused: OnRefused | None = None) -> None:
        """Create a bus that is not connected yet.

        Args:
            on_refused: Called with every operation that NATS denies to this connection.
        """
        harden()
        self.client = Client()
        self.closed = asyncio.Event()
        self.refusal: Refusal | None = None
        self._is_closing = False
        self._moving: asyncio.Task[None] | None = None
        self._reported: set[str] = set()
        self._on_disconnected: set[Callback] = set()
        self._on_reconnected: set[Callback] = set()
        self._on_refused = on_refused

    @property
    def is_connected(self) -> bool:
        """Return True if the client is connected to a server now."""
        return bool(self.client.is_connected)

    def listen(
        self, *, disconnected: Callback | None = None, reconnected: Callback | None = None
    ) -> Callback:
        """Register callbacks for a lost and a restored connection.

        Returns:
            A callable that removes the callbacks.
        """
        pairs = ((self._on_disconnected, disconnected), (self._on_reconnected, reconnected))
        added = [(group, callback) for group, callback in pairs if callback]
        for group, callback in added:
            group.add(callback)

        def remove() -> None:
            for group, callback in added:
                group.discard(callback)

        return remove

    async def connect(self, options: BusOptions) -> None:
        """Connect and retry without a limit: a server that rejects us may accept us later.

        Raises:
            BusUnavailableError: The address, the key or the certificates cannot be used.
        """
        try:
            await self.client.connect(
                **options.connect_arguments(),
                max_reconnect_attempts=-1,
                # The publisher validates its subjects more strictly; we build all other subjects.
                skip_subject_validation=True,
                pending_size=_PENDING_BYTES,
                flush_timeout=_seconds(_FLUSH_TIMEOUT),
                error_cb=self._error,
                disconnected_cb=self._disconnected,
                reconnected_cb=self._reconnected,
                closed_cb=self._closed,
            )
        except (NatsError, NkeysError, OSError) as exc:
            raise BusUnavailableError(type(exc).__name__) from exc

    def move_on(self) -> None:
        """Reconnect to another server of the cluster, if there is one.

        A server that is partitioned from the others keeps its clients but answers no request.
        """
        if len(self.client.servers) > 1 and self._moving is None:
            self._moving = task = asyncio.create_task(self.client.force_reconnect())
            task.add_done_callback(self._moved)

    def _moved(self, task: asyncio.Task[None]) -> None:
        self._moving = None
        if not task.cancelled() and task.exception():
            _log.warning("bus_error_reported", kind=type(task.exception()).__name__)

    async def close(self) -> None:
        """Flush what was published, then close the connection."""
        self._is_closing = True
        await self.client.close()

    async def _error(self, error: Exception) -> None:
        if refusal := refusal_in(error):
            self.refusal = refusal
            if self._on_refused is not None:
                self._on_refused(refusal)
        # While the server is away the client reports every attempt.
        kind = type(error).__name__
        is_news = self.is_connected or kind not in self._reported
        self._reported.add(kind)
        report = _log.warning if is_news else _log.debug
        report("bus_error_reported", kind=kind, detail=without_chats(str(error)))

    async def _disconnected(self) -> None:
        if self._is_closing:
            return
        forget_unsent(self.client)
        if error := read_key_again(self.client):
            _log.warning("bus_key_unreadable", kind=type(error).__name__)
        _log.warning("bus_disconnected")
        for callback in tuple(self._on_disconnected):
            callback()

    async def _reconnected(self) -> None:
        self._reported.clear()
        _log.info("bus_reconnected")
        for callback in tuple(self._on_reconnected):
            callback()

    async def _closed(self) -> None:
        if self._is_closing:
            return
        _log.critical("bus_closed", kind=type(self.client.last_error).__name__)
        self.closed.set()


def forget_unsent(client: Client) -> None:
    """Discard what the client would send after a reconnect.

    A publish that waited there longer than the duplicate window would be stored a second time,
    because its sender gets no acknowledgement and repeats it. Subscriptions are safe: the client
    sends them again. nats-py has no public API for this (a test pins the two names).
    """
    client._pending.clear()  # noqa: SLF001
    client._pending_data_size = 0  # noqa: SLF001


@asynccontextmanager
async def open_bus(options: BusOptions, on_refused: OnRefused | None = None) -> AsyncIterator[Bus]:
    """Connect without a time limit, and close the connection at the end of the block.

    Raises:
        BusUnavailableError: The address, the key or the certificates cannot be used.
    """
    bus = Bus(on_refused)
    try:
        await bus.connect(options)
    except asyncio.CancelledError:
        await bus.close()
        raise
    try:
        yield bus
    finally:
        await bus.close()


def _seconds(span: timedelta) -> int:
    # nats-py is annotated with int but takes what asyncio takes.
    return span.total_seconds()  # type: ignore[return-value]
