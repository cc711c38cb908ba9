"""The connection of an operator, and what tools ask the service over it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, TypedDict

import nats.errors
from mcp.server.mcpserver.exceptions import ToolError
from nats.aio.client import Client
from pydantic import ValidationError

from chatlane_bridges.mcp.settings import McpSettings
from chatlane_client import (
    ChatlaneClientError,
    RefusedRequestError,
    SessionApi,
    SessionNotFoundError,
    TranscriptApi,
    TransientError,
)
from chatlane_client.api.dead_letters import DeadLetterApi
from chatlane_client.api.explanations import ExplanationApi
from chatlane_client.api.requests import Api
from chatlane_schemas.session_api.transcripts import (
    TranscriptHits,
    TranscriptLoad,
    TranscriptReply,
    TranscriptSearch,
)
from chatlane_schemas.topology.streams import StreamName

_API: Final = "$JS.API"
_CONNECTED_WITHIN: Final = timedelta(seconds=10)
_PATIENCE: Final = timedelta(seconds=20)
_STREAM_SECONDS: Final = 5.0


class PageApi(Api):
    """Reads single pages, whose cursors the agent keeps."""

    async def rows(self, **wanted: Any) -> TranscriptReply:  # noqa: ANN401 - fields of the request
        """Return a page of a transcript; takes the fields of `TranscriptLoad`."""
        request = TranscriptLoad(**self._stamp(), **wanted)
        return await self._ask("transcript", "load", request, TranscriptReply)

    async def hits(self, **wanted: Any) -> TranscriptHits:  # noqa: ANN401 - fields of the request
        """Return a page of rows that match a query; takes the fields of `TranscriptSearch`."""
        request = TranscriptSearch(**self._stamp(), **wanted)
        return await self._ask("transcript", "search", request, TranscriptHits)


class _Rights(TypedDict):
    principal: str
    is_operator: bool
    patience: timedelta


class OperatorLink:
    """Connects once, and says so to tools that come earlier."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._client: asyncio.Future[Client] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Stay connected for the length of the block; it begins before there is a connection."""
        self._client = asyncio.get_running_loop().create_future()
        connecting = asyncio.create_task(self._stay_connected(self._client))
        try:
            yield
        finally:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            self._client.cancel()

    async def _stay_connected(self, opened: asyncio.Future[Client]) -> None:
        try:
            async with self._settings.connection("mcp bridge") as client:
                opened.set_result(client)
                await asyncio.Event().wait()
        except (OSError, ValueError) as exc:
            opened.set_exception(exc)

    async def client(self) -> Client:
        """Return the connection.

        Raises:
            ToolError: There is none yet.
        """
        assert self._client is not None  # noqa: S101 - `open` has made it
        try:
            async with asyncio.timeout(_CONNECTED_WITHIN.total_seconds()):
                return await asyncio.shield(self._client)
        except TimeoutError:
            raise ToolError("NATS does not answer; try again later.") from None
        except (OSError, ValueError):
            raise ToolError("The settings of NATS cannot be used.") from None

    async def sessions(self) -> SessionApi:
        """Return the requests about sessions."""
        return SessionApi(await self.client(), **self._rights)

    async def transcripts(self) -> TranscriptApi:
        """Return the requests about transcripts."""
        return TranscriptApi(await self.client(), **self._rights)

    async def pages(self) -> PageApi:
        """Return the requests for single pages."""
        return PageApi(await self.client(), **self._rights)

    async def dead_letters(self) -> DeadLetterApi:
        """Return the requests about dead letters."""
        return DeadLetterApi(await self.client(), **self._rights)

    async def explanations(self) -> ExplanationApi:
        """Return the requests for explanations."""
        return ExplanationApi(await self.client(), **self._rights)

    @property
    def _rights(self) -> _Rights:
        return _Rights(principal=self._settings.principal, is_operator=True, patience=_PATIENCE)

    async def stream_state(self, name: StreamName) -> dict[str, Any] | None:
        """Return the state of a stream as JetStream has it; None if it does not exist.

        Raises:
            ToolError: JetStream did not answer.
        """
        client = await self.client()
        try:
            message = await client.request(
                f"{_API}.STREAM.INFO.{name}", b"{}", timeout=_STREAM_SECONDS
            )
        except (nats.errors.Error, TimeoutError):
            raise ToolError("NATS does not answer; try again.") from None
        answer: dict[str, Any] = json.loads(message.data)
        state: dict[str, Any] | None = answer.get("state")
        return state


@contextmanager
def told_errors() -> Iterator[None]:
    """Translate the errors of the client library within a block; never what a person wrote."""
    try:
        yield
    except SessionNotFoundError as exc:
        raise ToolError("There is no such session.") from exc
    except RefusedRequestError as exc:
        raise ToolError(exc.message) from exc
    except TransientError as exc:
        raise ToolError("The service does not answer; try again.") from exc
    except ValidationError as exc:
        problems = "; ".join(f"{error['loc']}: {error['msg']}" for error in exc.errors())
        raise ToolError(problems) from exc
    except ChatlaneClientError as exc:
        raise ToolError("The request failed.") from exc
