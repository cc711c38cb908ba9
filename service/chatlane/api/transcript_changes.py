"""Answers requests to change transcripts."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from chatlane_schemas.transcripts import (
    TranscriptAppend,
    TranscriptChange,
    TranscriptCompact,
    TranscriptReplace,
    TranscriptRetry,
    TranscriptRewind,
)

if TYPE_CHECKING:
    from typing import Protocol

    from chatlane.api.answering import Answering
    from chatlane.api.asked import Asked
    from chatlane_schemas.transcripts import TranscriptChanged

    class Changes(Protocol):
        """Decides changes, each with its answer in one transaction."""

        async def change(
            self, principal: str, request: TranscriptChange, digest: bytes
        ) -> TranscriptChanged:
            """Make a change once; a repeated request gets the first answer."""


ChangeT = TypeVar("ChangeT", bound=TranscriptChange)


class TranscriptChangeHandlers:
    """The handlers of `transcript.append`, `replace`, `compact`, `rewind` and `retry`."""

    def __init__(self, changes: Changes, answering: Answering) -> None:
        self._changes = changes
        self._answering = answering

    async def append(self, asked: Asked) -> bytes:
        """Answer `transcript.append`."""
        return await self._answer("transcript.append", TranscriptAppend, asked)

    async def replace(self, asked: Asked) -> bytes:
        """Answer `transcript.replace`."""
        return await self._answer("transcript.replace", TranscriptReplace, asked)

    async def compact(self, asked: Asked) -> bytes:
        """Answer `transcript.compact`."""
        return await self._answer("transcript.compact", TranscriptCompact, asked)

    async def rewind(self, asked: Asked) -> bytes:
        """Answer `transcript.rewind`."""
        return await self._answer("transcript.rewind", TranscriptRewind, asked)

    async def retry(self, asked: Asked) -> bytes:
        """Answer `transcript.retry`."""
        return await self._answer("transcript.retry", TranscriptRetry, asked)

    async def _answer(self, method: str, model: type[ChangeT], asked: Asked) -> bytes:
        async def act(request: ChangeT) -> TranscriptChanged:
            # One id for two kinds of request is as wrong as for two bodies; when it was sent
            # may differ, so that a caller can repeat it after a restart.
            said = request.model_dump_json(exclude={"at"}).encode()
            digest = sha256(method.encode() + b"\0" + said).digest()
            return await self._changes.change(asked.principal, request, digest)

        return await self._answering.answer(method, model, asked, act)
