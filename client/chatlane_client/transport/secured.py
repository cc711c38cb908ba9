"""Secure a connection: keys, certificates, required encryption, and errors of permissions."""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.errors import AuthorizationError
from nats.errors import Error as NatsError
from nkeys import NkeysError  # type: ignore[import-untyped]
from typing_extensions import override

from chatlane_schemas.topology import subjects

Refused: TypeAlias = Literal["publish", "subscribe", "connect"]

# nats-py passes on the error text of the server in lower case.
_VIOLATION: Final = "permissions violation for "
_PUBLISH: Final = f"{_VIOLATION}publish"
_NO_ENTRY: Final = ("authorization violation", "authentication expired", "authentication revoked")
_GOODBYE: Final = timedelta(seconds=1)
_CHAT_TOKEN: Final = re.compile(rf"\b[0-9a-f]{{{subjects.CHAT_TOKEN_DIGITS}}}\b")


class Refusal(NamedTuple):
    """An operation that NATS denied to a connection.

    Attributes:
        what: To publish, to subscribe, or to connect at all.
        detail: Error text of the server, with the subject.
    """

    what: Refused
    detail: str


OnRefused: TypeAlias = Callable[[Refusal], None]


def refusal_in(error: Exception) -> Refusal | None:
    """Return the denied operation if an error that nats-py reports is a denial.

    A denied publish appears nowhere else: its caller sees a timeout at most, and a denied
    subscription is silent.
    """
    text = str(error)
    folded = text.lower()
    if isinstance(error, AuthorizationError) or any(words in folded for words in _NO_ENTRY):
        return Refusal("connect", text)
    if _VIOLATION in folded:
        return Refusal("publish" if _PUBLISH in folded else "subscribe", text)
    return None


def without_chats(text: str) -> str:
    """Return the error text of the server for a log, without the chat tokens in its subjects.

    A chat token is a digest without a key, so trying all phone numbers would find the number behind
    it.
    """
    return _CHAT_TOKEN.sub("…", text)


def trusted_by(ca_file: str | Path) -> ssl.SSLContext:
    """Return a context that accepts only certificates of this authority, for the dialled name.

    Raises:
        OSError: The file cannot be read or holds no certificate.
    """
    return ssl.create_default_context(cafile=ca_file)


class SecuredClient(Client):
    """A client that leaves servers without TLS when encryption is required.

    It also goes on to the next server if the TLS handshake fails or a server stops responding.
    """

    @override
    async def _process_connect_init(self) -> None:
        await come_up(self, super()._process_connect_init)

    @override
    def _connect_command(self) -> bytes:
        require_encryption(self)
        command: bytes = super()._connect_command()
        return command


async def come_up(client: Client, process_connect_init: Callable[[], Awaitable[None]]) -> None:
    """Run the connect steps of nats-py; close the transport of a connection that fails.

    nats-py waits until a connection reports that it is closed. When the TLS handshake fails,
    because of a certificate or because the server closes the connection, that report never comes:
    neither another attempt nor `close` finishes. nats-py also keeps the socket of each refused
    attempt. When a server stops responding, TLS waits half a minute for its closing message before
    nats-py dials another server. nats-py has no public hook for this (a test pins the names).
    """
    transport = client._transport  # noqa: SLF001
    if isinstance(transport, TcpTransport):
        transport.wait_closed = partial(_closed_soon, transport)  # type: ignore[method-assign]
    try:
        await process_connect_init()
    except BaseException:
        if transport is not None:
            transport.close()  # type: ignore[no-untyped-call]
        client._transport = None  # noqa: SLF001
        raise


async def _closed_soon(transport: TcpTransport) -> None:
    try:
        async with asyncio.timeout(_GOODBYE.total_seconds()):
            await TcpTransport.wait_closed(transport)  # type: ignore[no-untyped-call]
    except TimeoutError:
        transport._io_writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001


def require_encryption(client: Client) -> None:
    """Raise an error if the server does not speak TLS although encryption is required.

    nats-py encrypts only if the server asks for it, so an impostor could get everything in plain
    text by not asking. Encryption is required if a context was given, or if the address begins with
    `tls://`. Call this before the client sends its credentials, for which nats-py has no public
    hook (a test pins the names).

    Raises:
        NatsError: The server does not speak TLS.
    """
    server = client._current_server  # noqa: SLF001
    is_expected = "tls" in client.options or (server is not None and server.uri.scheme == "tls")
    if is_expected and not client._server_info.get("tls_required"):  # noqa: SLF001
        raise NatsError("nats: the server does not speak TLS")


def read_key_again(client: Client) -> Exception | None:
    """Reload the key for the next connection from its file, if the client has one.

    nats-py reads the seed for every signature, but the matching public key only once.

    Returns:
        The error that makes the file unusable, or None. On an error the client keeps the earlier
        key, and the server decides whether it is still valid.
    """
    if client._nkeys_seed is None:  # noqa: SLF001
        return None
    try:
        client._setup_nkeys_seed_connect()  # noqa: SLF001
    except (OSError, NkeysError) as error:
        return error
    return None
