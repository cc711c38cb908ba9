"""Open NATS connections that wait for their server without a limit and log their state."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from ssl import SSLContext
from time import monotonic
from typing import Any, Final
from weakref import WeakKeyDictionary

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.errors import ConnectionClosedError
from chatlane_client.transport.connection_log import ConnectionLog
from chatlane_client.transport.secured import (
    OnRefused,
    SecuredClient,
    read_key_again,
    refusal_in,
    trusted_by,
)
from chatlane_schemas.topology.permissions import inbox_prefix

_log = logging.getLogger("chatlane_client")

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
_SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})
_RECONNECT_PAUSE: Final = timedelta(milliseconds=250)
# Two unanswered pings reveal a connection whose peer vanished. Workers and adapters may be idle for
# hours and would not notice otherwise.
_PING_SECONDS: Final = 5
_MAX_OUTSTANDING_PINGS: Final = 2
_LOOK_AGAIN: Final = timedelta(milliseconds=50)
_DRAIN_PATIENCE: Final = timedelta(seconds=5)
_PENDING_BYTES: Final = 8 * 1024 * 1024
# Longer than a leader election in a cluster, so that clients do not all reconnect during one.
_MOVES_AFTER: Final = timedelta(seconds=6)

_silent_since: WeakKeyDictionary[Client, float] = WeakKeyDictionary()
_principals: WeakKeyDictionary[Client, str] = WeakKeyDictionary()


@asynccontextmanager
async def open_connection(
    servers: str | list[str] = DEFAULT_URL,
    *,
    name: str,
    principal: str | None = None,
    credentials_file: str | None = None,
    nkey_seed_file: str | None = None,
    tls: SSLContext | None = None,
    tls_ca_file: str | None = None,
    on_refused: OnRefused | None = None,
) -> AsyncIterator[Client]:
    """Open a connection that reconnects without a limit, and drain it at the end.

    Args:
        servers: One URL or several of the same cluster.
        name: Name of the connection in the server's monitoring.
        principal: The name that the permissions of this connection are bound to; replies
            then arrive on subjects that only this principal may subscribe to.
        credentials_file: Path of a `.creds` file.
        nkey_seed_file: Path of the seed of an nkey; read again at every reconnect.
        tls: Context for an encrypted connection.
        tls_ca_file: Path of the certificates of the authority that verifies the servers,
            instead of a context. With either, or an address that begins with `tls://`, the
            client does not use a server without encryption.
        on_refused: Called with each operation that NATS denies, for example to count it. A
            denied publish appears only here and in the log.

    Raises:
        ValueError: `servers` names no server, or has an address that is not one of NATS.
    """
    _check_servers(servers)
    client = SecuredClient()
    log = ConnectionLog(name, servers)
    options: dict[str, Any] = {
        "name": name,
        "user_credentials": credentials_file,
        "nkeys_seed": nkey_seed_file,
        "tls": trusted_by(tls_ca_file) if tls is None and tls_ca_file is not None else tls,
        "inbox_prefix": inbox_prefix(principal) if principal else "_INBOX",
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": _seconds(_RECONNECT_PAUSE),
        "ping_interval": _PING_SECONDS,
        "max_outstanding_pings": _MAX_OUTSTANDING_PINGS,
        "pending_size": _PENDING_BYTES,
        "drain_timeout": _seconds(_DRAIN_PATIENCE),
        "error_cb": partial(_log_error, client, log, on_refused),
        "disconnected_cb": partial(_disconnected, client, log),
        "reconnected_cb": partial(_log_reconnect, log),
        "closed_cb": partial(_log_close, log),
    }
    try:
        await client.connect(servers, **options)
        if principal is not None:
            _principals[client] = principal
        yield client
    finally:
        log.is_closing = True
        await _close(client)


def checked_servers(servers: str) -> str:
    """Return addresses of NATS, separated by commas, as they are.

    Raises:
        ValueError: There is none, or one is no address of NATS.
    """
    _check_servers(servers)
    return servers


def _check_servers(servers: str | list[str]) -> None:
    # nats-py fails with an AssertionError or looks the text up in the DNS. The address itself may
    # carry a password.
    addresses = servers.split(",") if isinstance(servers, str) else servers
    if not addresses or not all(address.strip() for address in addresses):
        raise ValueError(f"an address of NATS is empty: write {DEFAULT_URL}")
    for address in addresses:
        scheme, separator, _ = address.strip().partition("://")
        if separator and scheme not in _SCHEMES:
            raise ValueError(f"{scheme!r} is no scheme of NATS: write the address as {DEFAULT_URL}")


def principal_of(client: Client) -> str | None:
    """Return the principal that a connection was opened with."""
    return _principals.get(client)


@asynccontextmanager
async def open_subscription(
    client: Client, subject: str, heard: Callable[[Msg], Awaitable[None]], *, queue: str = ""
) -> AsyncIterator[None]:
    """Subscribe to a subject for the length of the block.

    Args:
        client: An open connection.
        subject: Subject or wildcard.
        heard: Called with each message, one at a time.
        queue: Queue group, of which one member receives a message; None receives all messages.
    """
    subscription = await client.subscribe(subject, queue=queue, cb=heard)
    try:
        yield
    finally:
        with suppress(nats.errors.Error):
            await subscription.unsubscribe()


async def until_connected(client: Client) -> None:
    """Return once the connection is usable.

    Messages that are published while it is down pile up in the client and reach the server much
    later, so callers wait here first.

    Raises:
        ConnectionClosedError: The connection is closed for good.
    """
    while not client.is_connected:
        if client.is_closed or client.is_draining:
            raise ConnectionClosedError
        await asyncio.sleep(_LOOK_AGAIN.total_seconds())


def note_answer(client: Client) -> None:
    """Record that a stream replied over this connection."""
    _silent_since.pop(client, None)


async def note_silence(client: Client) -> None:
    """Record that no stream replied; connect to another server if that continues.

    A server that is cut off from the rest of its cluster keeps its clients and stores nothing.
    """
    since = _silent_since.setdefault(client, monotonic())
    if monotonic() - since < _MOVES_AFTER.total_seconds() or len(client.servers) < 2:  # noqa: PLR2004
        return
    del _silent_since[client]
    _log.warning("nats_server_left")
    await client.force_reconnect()


@contextmanager
def closed_error_first() -> Iterator[None]:
    """Raise only `ConnectionClosedError` if it is among the errors of a task group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if group.subgroup(ConnectionClosedError) is not None:
            raise ConnectionClosedError from group
        raise


def _seconds(span: timedelta) -> int:
    # nats-py annotates an int but accepts every value that asyncio accepts.
    return span.total_seconds()  # type: ignore[return-value]


async def _close(client: Client) -> None:
    if client.is_connected:
        await client.drain()
        return
    # A client that could not even begin, such as one without its key, has nothing to close.
    with suppress(AssertionError):
        await client.close()


async def _log_error(
    client: Client, log: ConnectionLog, on_refused: OnRefused | None, error: Exception
) -> None:
    refusal = refusal_in(error)
    if refusal is None:
        log.failed(error, is_connected=client.is_connected)
        return
    log.refused(refusal)
    if on_refused is not None:
        on_refused(refusal)


async def _disconnected(client: Client, log: ConnectionLog) -> None:
    log.disconnected()
    if error := read_key_again(client):
        log.key_unreadable(error)


async def _log_reconnect(log: ConnectionLog) -> None:
    log.reconnected()


async def _log_close(log: ConnectionLog) -> None:
    log.closed()
