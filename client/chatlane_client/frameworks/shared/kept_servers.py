"""Keep what tools of MCP servers return, for the OpenAI Agents SDK."""

import json
from typing import Any, Protocol

from mcp.types import CallToolResult

from chatlane_client.frameworks.shared.kept_calls import KeptCalls


class McpServer(Protocol):
    """A connected server, as the SDK calls it."""

    @property
    def name(self) -> str:
        """Its name for people."""

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool."""


class _FailedCall(Exception):  # noqa: N818 - the model gets it as a result
    """A tool has returned an error."""

    def __init__(self, result: CallToolResult) -> None:
        self.result = result


class KeptServer:
    """An MCP server whose calls of tools are steps of a turn; the server does everything else."""

    def __init__(self, server: McpServer, calls: KeptCalls) -> None:
        self._server = server
        self._calls = calls

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the server has
        return getattr(self._server, name)

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Call a tool, or return what an earlier attempt got; an error is not kept."""

        async def call() -> object:
            result = await self._server.call_tool(tool_name, arguments, meta)
            stored = result.model_dump(mode="json", by_alias=True)
            if stored.get("isError"):
                raise _FailedCall(result)
            return stored

        # Another server may have a tool of this name.
        key = json.dumps([self._server.name, arguments])
        try:
            return CallToolResult.model_validate(await self._calls.run(tool_name, key, call))
        except _FailedCall as exc:
            return exc.result
