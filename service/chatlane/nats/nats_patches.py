"""Makes nats-py read on, whatever bytes a publisher puts into a subject, a reply or headers.

The server takes any bytes but blanks there. nats-py 2.16 decodes subjects strictly and parses
headers on trust: an exception there ends its read loop without a word, and a form feed in a
subject is a protocol error to it. A router then hears nothing, or reconnects for ever, because
the log gives it the same message again. And it would talk in plain text to whoever does not ask
for TLS. There is no hook for any of this, and FastStream makes clients of its own, so the class
itself is mended.

It also waits for ever for the end of an attempt to connect that could not be encrypted, half a
minute for the goodbye of an encrypted server that says nothing more, and forgets the socket of
every attempt that the server refused, four a second for as long as a password is wrong.
"""

import re
from functools import partial, wraps
from typing import Any, Final

from nats.aio.client import Client
from nats.protocol import parser

from chatlane_client.secured import come_up, require_encryption

# As the server writes them: only blanks end a subject, and there are two where a reply is empty,
# as in some answers of JetStream.
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
    """Return the headers, or none where there is nothing that nats-py can read."""
    # Nearly all have one header, which nats-py would take apart byte by byte.
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
    """Build a message; what is no text in its subject becomes U+FFFD, which no subject of ours has."""
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
    """Say who we are, and leave a connection that does not come up."""
    await come_up(self, partial(_process_connect_init, self))


@wraps(_connect_command)
def _encrypted_or_nothing(self: Client) -> bytes:
    """Say who we are, unless that would be in plain text although it was to be encrypted."""
    require_encryption(self)
    command: bytes = _connect_command(self)
    return command


def harden() -> None:
    """Mend nats-py for this process; once is enough, more does no harm."""
    parser.MSG_RE = _MESSAGE
    parser.HMSG_RE = _MESSAGE_WITH_HEADERS
    Client._process_headers = _headers_or_none  # type: ignore[method-assign]  # noqa: SLF001
    Client._connect_command = _encrypted_or_nothing  # type: ignore[method-assign]  # noqa: SLF001
    Client._build_message = _message  # type: ignore[method-assign]  # noqa: SLF001
    Client._process_connect_init = _connected_or_let_go  # type: ignore[method-assign]  # noqa: SLF001
