"""Publishes what no client library would: speaks NATS over a bare socket."""

import asyncio
import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_INBOX: Final = b"_INBOX.raw"
_OPTIONS: Final = {"verbose": False, "pedantic": False, "headers": True, "name": "raw"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the server made of a publish.

    Attributes:
        sequence: Where a stream stored it; None when it did not.
        error: What the server said.
    """

    sequence: int | None
    error: str = ""


async def publish_raw(
    url: str,
    subject: bytes,
    body: bytes = b"",
    headers: bytes | None = None,
    *,
    reply: bytes = _INBOX,
) -> Verdict:
    """Publish any bytes and return what came of it.

    With a reply subject of one's own no answer is waited for.
    """
    address = urlsplit(url)
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            await reader.readline()
            writer.write(b"CONNECT %s\r\nSUB %s 1\r\n" % (json.dumps(_OPTIONS).encode(), _INBOX))
            writer.write(_command(subject, reply, body, headers) + b"PING\r\n")
            return await _verdict(reader, is_answered=reply == _INBOX)
        finally:
            writer.close()


def _command(subject: bytes, reply: bytes, body: bytes, headers: bytes | None) -> bytes:
    if headers is None:
        return b"PUB %s %s %d\r\n%s\r\n" % (subject, reply, len(body), body)
    sizes = len(headers), len(headers) + len(body)
    return b"HPUB %s %s %d %d\r\n%s%s\r\n" % (subject, reply, *sizes, headers, body)


async def _verdict(reader: asyncio.StreamReader, *, is_answered: bool) -> Verdict:
    """Read until the server has answered; an acknowledgement may come after the PONG."""
    while line := await reader.readline():
        if line.startswith(b"-ERR"):
            return Verdict(None, line.decode(errors="replace").strip())
        if line.startswith(b"PONG") and not is_answered:
            return Verdict(None)
        if line.startswith((b"MSG", b"HMSG")):
            answer = await reader.readexactly(int(line.split()[-1]))
            return _acknowledged(answer)
    return Verdict(None, "closed")


def _acknowledged(answer: bytes) -> Verdict:
    if not answer.startswith(b"{"):
        return Verdict(None, answer.split(b"\r\n")[0].decode())
    told = json.loads(answer)
    if error := told.get("error"):
        return Verdict(None, error["description"])
    return Verdict(told["seq"])
