"""Answers requests to change transcripts."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from chatlane_schemas.transcripts import (
    TranscriptAppend,
    TranscriptChange,
    TranscriptCompact,
    TranscriptReplace,
    TranscriptRetry,
    TranscriptRewind,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from chatlane.api.answering import Answering
    from chatlane.api.asked import Asked, Handle
    from chatlane_schemas.transcripts import TranscriptChanged

    class Changes(Protocol):
        """Decides changes, each with its answer in one transaction."""

        async def change(
            self, principal: str, request: TranscriptChange, digest: bytes
        ) -> TranscriptChanged:
            """Make a change once; a repeated request gets the first answer."""


ChangeT = TypeVar("ChangeT", bound=TranscriptChange)


REQUESTS: Final[Mapping[str, type[TranscriptChange]]] = MappingProxyType(
    {
        "transcript.append": TranscriptAppend,
        "transcript.replace": TranscriptReplace,
        "transcript.compact": TranscriptCompact,
        "transcript.rewind": TranscriptRewind,
        "transcript.retry": TranscriptRetry,
    }
)


class TranscriptChangeHandlers:
    """The handlers of requests that change a transcript."""

    def __init__(self, changes: Changes, answering: Answering) -> None:
        self._changes = changes
        self._answering = answering

    def requests(self) -> dict[str, Handle]:
        """Return what answers each request."""
        return {method: partial(self._answer, method, model) for method, model in REQUESTS.items()}

    async def _answer(self, method: str, model: type[ChangeT], asked: Asked) -> bytes:
        return await self._answering.answer_once(method, model, asked, self._changes.change)
