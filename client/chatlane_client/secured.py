"""What a connection has to prove and be shown: keys, certificates, and what NATS refuses."""

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

from chatlane_schemas import subjects

Refused: TypeAlias = Literal["publish", "subscribe", "connect"]

# nats-py hands on what the server says in lower case.
_VIOLATION: Final = "permissions violation for "
_PUBLISH: Final = f"{_VIOLATION}publish"
_NO_ENTRY: Final = ("authorization violation", "authentication expired", "authentication revoked")
_GOODBYE: Final = timedelta(seconds=1)
_CHAT_TOKEN: Final = re.compile(rf"\b[0-9a-f]{{{subjects.CHAT_TOKEN_DIGITS}}}\b")


class Refusal(NamedTuple):
    """Something that NATS did not let a connection do.

    Attributes:
        what: To publish, to subscribe, or to connect at all.
        detail: What the server said, with the subject.
    """

    what: Refused
    detail: str


OnRefused: TypeAlias = Callable[[Refusal], None]


def refusal_in(error: Exception) -> Refusal | None:
    """Return what was refused, if an error that nats-py reports is of that kind.

    A refused publish shows nowhere else: its caller sees a timeout at most, and a refused
    subscription is silent.
    """
    text = str(error)
    said = text.lower()
    if isinstance(error, AuthorizationError) or any(words in said for words in _NO_ENTRY):
        return Refusal("connect", text)
    if _VIOLATION in said:
        return Refusal("publish" if _PUBLISH in said else "subscribe", text)
    return None


def without_chats(text: str) -> str:
    """Return what the server said for a log: its subjects without what stands in them for a chat.

    That is a digest without a key, from which a phone number can be found by trying all there are.
    """
    return _CHAT_TOKEN.sub("…", text)


def trusted_by(ca_file: str | Path) -> ssl.SSLContext:
    """Return a context that takes only certificates of this authority, for the name that is dialled.

    Raises:
        OSError: The file cannot be read or holds no certificate.
    """
    return ssl.create_default_context(cafile=ca_file)


class SecuredClient(Client):
    """A client that stays away from servers that do not encrypt although it is expected to.

    And that goes on where to encrypt fails, or where a server says nothing more.
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
    """Run what nats-py does when a server answers; let a connection go that does not come up.

    nats-py waits until it is told that a connection is closed. Where to encrypt fails, be it for a
    certificate or because the server goes away, nobody tells it, so that neither another attempt
    nor `close` ever came about; and it keeps the socket of each attempt that was refused. Where a
    server says nothing more, TLS waits half a minute for its goodbye, before another server is
    dialled. There is no public place for this (a test pins the names).
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
    """Refuse to go on where a server does not speak TLS although it is expected to.

    nats-py encrypts when the server asks for it, so whoever answers in the server's place could
    have everything in plain text by not asking. It is expected where a context was given, and
    where the address begins with `tls://`. To be called before the client says who it is, for
    which there is no public place (a test pins the names).

    Raises:
        NatsError: It does not.
    """
    server = client._current_server  # noqa: SLF001
    is_expected = "tls" in client.options or (server is not None and server.uri.scheme == "tls")
    if is_expected and not client._server_info.get("tls_required"):  # noqa: SLF001
        raise NatsError("nats: the server does not speak TLS")


def read_key_again(client: Client) -> Exception | None:
    """Take the key of the next connection from its file, where the client has one.

    nats-py reads the seed for every signature, but the public key that goes with it only once.

    Returns:
        Why it cannot be used: the former one stays, and the server says what that is good for.
    """
    if client._nkeys_seed is None:  # noqa: SLF001
        return None
    try:
        client._setup_nkeys_seed_connect()  # noqa: SLF001
    except (OSError, NkeysError) as error:
        return error
    return None
