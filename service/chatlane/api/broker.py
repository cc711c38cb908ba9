"""The FastStream broker of the API, on its own connection.

API traffic never shares a connection with the readers of the logs: when NATS closes a client for
good, only the API loses its connection.
"""

from __future__ import annotations

import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

from faststream.nats import NatsBroker
from faststream.nats.security import (
    NatsCredentials,
    NatsNKey,
    NatsSecurity,
    NatsToken,
    NatsUserPassword,
)
from nats.errors import Error as NatsError

from chatlane.api.turn_responder import answering_turns
from chatlane.nats.nats_patches import harden
from chatlane.observability.logs import get_logger
from chatlane_client.transport.secured import OnRefused, read_key_again, refusal_in, without_chats

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from faststream.nats import NatsRouter
    from nats.aio.client import Client

    from chatlane.api.turns import TurnHandlers
    from chatlane.nats.connection import BusOptions

_PENDING_BYTES: Final = 16 * 1024 * 1024
# Claims in progress when the process stops are answered; a worker repeats the others.
_GRACEFUL_SECONDS: Final = 5.0
_READY_SECONDS: Final = 5.0

_log = get_logger("api")


def build_broker(
    options: BusOptions,
    router: NatsRouter,
    *,
    on_closed: Callable[[], None],
    on_refused: OnRefused | None = None,
) -> NatsBroker:
    """Return the broker, not yet connected.

    Args:
        options: NATS connection options, with credentials.
        router: The router that `build_router` returned.
        on_closed: Called when the connection is gone for good, also at the end of `stop`.
        on_refused: Called with each operation that NATS does not permit this connection.
    """

    async def closed() -> None:
        on_closed()

    async def disconnected() -> None:
        if error := read_key_again(broker.connection):
            _log.warning("api_key_unreadable", kind=type(error).__name__)

    arguments = options.connect_arguments()
    broker = NatsBroker(
        arguments["servers"],
        name=f"{options.name}-api",
        security=_security(options, arguments["tls"]),
        inbox_prefix=arguments["inbox_prefix"],
        connect_timeout=arguments["connect_timeout"],
        reconnect_time_wait=arguments["reconnect_time_wait"],
        # Otherwise it would keep a dead connection to a server that disappeared, and receive no
        # request.
        ping_interval=arguments["ping_interval"],
        max_outstanding_pings=arguments["max_outstanding_pings"],
        max_reconnect_attempts=-1,
        pending_size=_PENDING_BYTES,
        error_cb=_failed(on_refused),
        disconnected_cb=disconnected,
        closed_cb=closed,
        graceful_timeout=_GRACEFUL_SECONDS,
        apply_types=False,
        # Otherwise FastStream builds an unused model of the argument for each subject.
        serializer=None,
        logger=None,
        routers=[router],
    )
    return broker


@asynccontextmanager
async def open_api(
    options: BusOptions,
    router: NatsRouter,
    turns: Iterable[TurnHandlers] = (),
    *,
    on_closed: Callable[[], None],
    on_refused: OnRefused | None = None,
) -> AsyncIterator[NatsBroker]:
    """Answer requests for the length of the block; at its end finish those in progress."""
    harden()
    broker = build_broker(options, router, on_closed=on_closed, on_refused=on_refused)
    await broker.start()
    # FastStream raises a refused login, which happens while passwords change, out of the reconnect
    # loop of nats-py. The loop would end, and no request would arrive again (a test pins it).
    broker.connection._error_cb = _failed(on_refused)  # noqa: SLF001
    try:
        async with answering_turns(broker.connection, turns):
            # If the server disappears meanwhile, the client subscribes again when it reconnects.
            with contextlib.suppress(NatsError, TimeoutError):
                await _subscriptions_known(broker.connection)
            yield broker
    finally:
        try:
            await broker.stop()
        except* NatsError as group:
            # The connection is gone for good, and `on_closed` has run.
            _log.warning("api_stopped_unconnected", errors=len(group.exceptions))


def _failed(on_refused: OnRefused | None) -> Callable[[Exception], Awaitable[None]]:
    async def failed(error: Exception) -> None:
        # The other connection to the same server logs all other errors.
        if refusal := refusal_in(error):
            detail = without_chats(refusal.detail)
            _log.warning("api_refused", kind=refusal.what, detail=detail)
            if on_refused is not None:
                on_refused(refusal)

    return failed


async def _subscriptions_known(client: Client) -> None:
    """Wait until the server has taken every subscription made so far.

    A message to this client's own inbox follows them in the client's buffer; the ping of `flush`
    would overtake it.
    """
    inbox = client.new_inbox()
    echo = await client.subscribe(inbox, max_msgs=1)
    await client.publish(inbox)
    await echo.next_msg(timeout=_READY_SECONDS)


def _security(options: BusOptions, context: ssl.SSLContext | None) -> NatsSecurity:
    if options.token is not None:
        return NatsToken(options.token, ssl_context=context)
    if options.user is not None:
        # Annotated as text, but FastStream hands it on to nats-py, which also takes a function.
        user, password = cast("str", options.user), cast("str", options.password or "")
        return NatsUserPassword(user, password, ssl_context=context)
    if options.creds_file is not None:
        return NatsCredentials(str(options.creds_file), ssl_context=context)
    if options.nkey_seed_file is not None:
        return NatsNKey(options.nkey_seed_file, ssl_context=context)
    return NatsSecurity(ssl_context=context)
