"""The FastStream broker of the API, on a connection of its own.

What a stranger asks for and what is answered never share a connection with the readers of the
logs: a client that NATS closes for good takes only the API with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from faststream.nats import NatsBroker
from faststream.nats.security import NatsCredentials, NatsSecurity, NatsToken, NatsUserPassword

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from faststream.nats import NatsRouter

    from chatlane.bus.connection import BusOptions

_PENDING_BYTES: Final = 16 * 1024 * 1024
# Claims in work when the process stops are answered; a worker repeats what is not.
_GRACEFUL_SECONDS: Final = 5.0


def build_broker(
    options: BusOptions, router: NatsRouter, *, on_closed: Callable[[], None]
) -> NatsBroker:
    """Return the broker, not yet connected.

    Args:
        options: How to reach NATS, and as whom.
        router: What `build_router` returned.
        on_closed: Called when the connection is gone for good, also at the end of `stop`.
    """

    async def closed() -> None:
        on_closed()

    arguments = options.connect_arguments()
    return NatsBroker(
        arguments["servers"],
        name=f"{options.name}-api",
        security=_security(options, arguments["tls"]),
        inbox_prefix=options.inbox_prefix,
        connect_timeout=arguments["connect_timeout"],
        reconnect_time_wait=arguments["reconnect_time_wait"],
        max_reconnect_attempts=-1,
        pending_size=_PENDING_BYTES,
        error_cb=_already_logged,
        closed_cb=closed,
        graceful_timeout=_GRACEFUL_SECONDS,
        apply_types=False,
        logger=None,
        routers=[router],
    )


async def _already_logged(error: Exception) -> None:
    """Keep nats-py from printing: the other connection to the same server logs its state."""
    del error


def _security(options: BusOptions, context: ssl.SSLContext | None) -> NatsSecurity:
    if options.token is not None:
        return NatsToken(options.token, ssl_context=context)
    if options.user is not None:
        return NatsUserPassword(options.user, options.password or "", ssl_context=context)
    if options.creds_file is not None:
        return NatsCredentials(str(options.creds_file), ssl_context=context)
    return NatsSecurity(ssl_context=context)
