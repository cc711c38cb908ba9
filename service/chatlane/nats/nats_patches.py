"""Patch nats-py so that it survives arbitrary bytes and enforces TLS.

The server accepts any bytes except blanks in a subject, a reply or headers. nats-py 2.16 decodes
subjects strictly and does not validate headers: an exception there ends its read loop silently,
and it takes a form feed in a subject for a protocol error. A router then receives nothing, or
reconnects without end, because the log delivers the same message again. nats-py would also talk in
plain text to a server that does not ask for TLS. It has no hook for any of this, and FastStream
creates its clients itself, so this module patches the class.

`publish_with_id` writes the command of a publish itself: nats-py takes four times as long to check
and encode headers that have one known name. `DirectDelivery` handles a message where nats-py reads
it; the queue and the task of a subscription cost as much as the reading.

Further faults of nats-py that the patches fix: it waits without a limit for the end of a connection
attempt that could not be encrypted. It waits half a minute for the close of an encrypted server
that is silent. It leaks the socket of every attempt that the server rejects, four per second while
a password is wrong.
"""

import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol import parser

from chatlane.observability.logs import get_logger
from chatlane_client.transport.secured import come_up, require_encryption

_log = get_logger("bus")

# The format of the server: only blanks end a subject, and two blanks stand for an empty reply, as
# in some answers of JetStream.
_MESSAGE: Final = re.compile(rb"\AMSG ([^ \t\r\n]+) (\d+) +(([^ \t\r\n]+) )?(\d+)\r\n")
_MESSAGE_WITH_HEADERS: Final = re.compile(
    rb"\AHMSG ([^ \t\r\n]+) (\d+) +(([^ \t\r\n]+) )?(\d+) (\d+)\r\n"
)

_ONLY_THE_ID: Final = re.compile(rb"NATS/1\.0\r\nNats-Msg-Id: ([!-~]+)\r\n\r\n")

_process_headers = Client._process_headers  # noqa: SLF001 # see the module
_connect_command = Client._connect_command  # noqa: SLF001
_process_connect_init = Client._process_connect_init  # noqa: SLF001


@wraps(_process_headers)
async def _headers_or_none(self: Client, headers: bytes) -> Any:  # noqa: ANN401 # as nats-py has it
    """Return the headers, or None if nats-py cannot parse them."""
    # Nearly all messages have this single header, which nats-py would parse byte by byte.
    if headers and (only := _ONLY_THE_ID.fullmatch(headers)):
        return {"Nats-Msg-Id": only[1].decode()}
    try:
        return await _process_headers(self, headers)
    except (IndexError, UnicodeDecodeError):
        return None


def _message(  # noqa: PLR0917 # as nats-py calls it
    self: Client,
    sid: int,
    subject: bytes,
    reply: bytes,
    data: bytes,
    headers: dict[str, str] | None,
) -> object:
    """Build a message; replace undecodable subject bytes by U+FFFD, which our subjects never hold."""
    return self.msg_class(
        subject=subject.decode(errors="replace"),
        reply=reply.decode(errors="replace"),
        data=data,
        headers=headers,
        _client=self,
        _sid=sid,
    )


@wraps(_process_connect_init)
async def _connected_or_let_go(self: Client) -> None:
    """Send the handshake, and close a connection that does not come up."""
    await come_up(self, partial(_process_connect_init, self))


@wraps(_connect_command)
def _encrypted_or_nothing(self: Client) -> bytes:
    """Return the CONNECT command; raise if encryption is required and the connection lacks it."""
    require_encryption(self)
    command: bytes = _connect_command(self)
    return command


async def publish_with_id(
    client: Client, subject: str, payload: bytes, message_id: str, reply: str = ""
) -> None:
    """Publish with the header `Nats-Msg-Id`, as `Client.publish` does.

    Args:
        client: A connected client.
        subject: A valid subject, which is not checked again.
        payload: At most as large as the server takes.
        message_id: Printable ASCII without blanks.
        reply: A valid subject, or empty for none.
    """
    headers = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n\r\n"
    size = len(headers)
    head = f"HPUB {subject} {reply} {size} {size + len(payload)}\r\n{headers}"
    client.stats["out_msgs"] += 1
    client.stats["out_bytes"] += len(payload)
    await client._send_command(b"%b%b\r\n" % (head.encode(), payload))  # noqa: SLF001
    flush_queue = client._flush_queue  # noqa: SLF001
    if flush_queue is not None and flush_queue.empty():
        await client._flush_pending()  # noqa: SLF001


class DirectDelivery:
    """Passes each message of a subscription to a function as soon as it is read.

    `Client.subscribe` takes it as the future of a request, and completes it once per message.

    Args:
        receive: Handles a message and must be fast: nothing else is read meanwhile. An error is
            logged and loses only this message.
    """

    def __init__(self, receive: Callable[[Msg], None]) -> None:
        self._receive = receive

    async def subscribe(self, client: Client, subject: str) -> Subscription:
        """Subscribe to a subject.

        Raises:
            nats.errors.Error: The connection is closed.
        """
        return await client.subscribe(subject, future=self)  # type: ignore[arg-type]

    def cancelled(self) -> bool:
        """Return False: more messages may come."""
        return False

    def set_result(self, message: Msg) -> None:
        """Handle a message."""
        try:
            self._receive(message)
        except Exception as error:  # noqa: BLE001 - it would end the read loop of nats-py
            _log.exception("bus_message_failed", kind=type(error).__name__)


def harden() -> None:
    """Patch nats-py for this process; repeated calls have no further effect."""
    parser.MSG_RE = _MESSAGE
    parser.HMSG_RE = _MESSAGE_WITH_HEADERS
    Client._process_headers = _headers_or_none  # type: ignore[method-assign]  # noqa: SLF001
    Client._connect_command = _encrypted_or_nothing  # type: ignore[method-assign]  # noqa: SLF001
    Client._build_message = _message  # type: ignore[method-assign]  # noqa: SLF001
    Client._process_connect_init = _connected_or_let_go  # type: ignore[method-assign]  # noqa: SLF001
