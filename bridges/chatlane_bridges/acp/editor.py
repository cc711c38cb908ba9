"""The editor at the other end of the pipe: what it can do, and messages to it."""

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS
from acp.schema import ClientCapabilities

from chatlane_schemas.content.editor_calls import EditorMethod

Update: TypeAlias = dict[str, Any]
"""A `session/update`, as JSON."""


class Wire(Protocol):
    """A connection of JSON-RPC."""

    async def send_request(self, method: str, params: Any = None) -> Any:  # noqa: ANN401 - any JSON
        """Send a request and return its result."""

    async def send_notification(self, method: str, params: Any = None) -> None:  # noqa: ANN401 - any JSON
        """Send a notification."""


class Editor:
    """Sends updates and questions to the editor."""

    def __init__(self) -> None:
        self._wire: Wire | None = None
        self.has_forms = False
        self.methods: frozenset[EditorMethod] = frozenset()

    def connect(self, wire: Wire) -> None:
        """Use a connection."""
        self._wire = wire

    def learn(self, able: ClientCapabilities | None) -> None:
        """Note what the editor can do."""
        elicitation = None if able is None else able.elicitation
        self.has_forms = elicitation is not None and elicitation.form is not None
        files = None if able is None else able.fs
        announced = {
            EditorMethod.READ_TEXT_FILE: files is not None and files.read_text_file,
            EditorMethod.WRITE_TEXT_FILE: files is not None and files.write_text_file,
            EditorMethod.RUN_COMMAND: able is not None and able.terminal,
        }
        self.methods = frozenset(method for method, is_able in announced.items() if is_able)

    async def show(self, session_id: str, updates: Iterable[Update]) -> None:
        """Show updates of a session, in order."""
        for update in updates:
            params = {"sessionId": session_id, "update": update}
            await self._open().send_notification(CLIENT_METHODS["session_update"], params)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of a request; None if the editor refuses it."""
        try:
            return await self.request(method, params)
        except RequestError:
            return None

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request.

        Raises:
            RequestError: The editor refuses it.
        """
        result = await self._open().send_request(CLIENT_METHODS[method], params)
        return result if isinstance(result, dict) else {}

    def _open(self) -> Wire:
        if self._wire is None:
            raise RuntimeError("the editor is not connected yet")
        return self._wire
