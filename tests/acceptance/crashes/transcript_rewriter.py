"""A process that writes a transcript anew, again and again, until it is killed in the middle."""

import asyncio
import os
import signal
import threading
import time
from datetime import UTC, datetime
from random import Random
from typing import Final
from uuid import UUID

from chatlane.postgres.pool import open_store
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.codec import encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import AppendedRow, TranscriptReplace
from tests.support.worlds.kernel import change_service

AT: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rewrite_until_killed(dsn: str, session_id: UUID, seed: int, kept: tuple[str, ...]) -> None:
    """Write `kept` behind a summary, under another summary each time, until SIGKILL comes.

    Args:
        dsn: Of the database.
        session_id: Whose transcript.
        seed: When to die: some time after the first rewrite.
        kept: What stays of the transcript.
    """
    asyncio.run(_rewrite(dsn, session_id, seed, kept))


async def _rewrite(dsn: str, session_id: UUID, seed: int, kept: tuple[str, ...]) -> None:
    async with open_store(dsn) as store:
        service, reads = change_service(store), TranscriptReads(store)

        async def rewrite(number: int) -> None:
            version = await reads.version(session_id)
            assert version is not None
            rows = [f"s{seed}.{number}", *kept]
            request = TranscriptReplace(
                id=new_envelope_id(),
                at=AT,
                session_id=session_id,
                expected_version=version.text,
                rows=tuple(AppendedRow(role=Role.USER, content=text) for text in rows),
            )
            await service.change("rewriter", request, encode(request))

        began = time.monotonic()
        await rewrite(0)
        # However long one takes here and now: killed at any moment of the next ones.
        life = 2 * (time.monotonic() - began) * Random(seed).random()  # noqa: S311 - no secret
        threading.Timer(life, os.kill, (os.getpid(), signal.SIGKILL)).start()
        for number in range(1, 100_000):
            await rewrite(number)
