"""Show what a run does while it goes on."""

from typing import Final

from chatlane_client.turn import Turn
from chatlane_schemas import LivePiece, PieceKind, StepState

_MAX_SHOWN_CHARACTERS: Final = 2_000


class Display:
    """Shows text, thoughts and tool calls of a run to readers.

    Attributes:
        text: The text of the running response so far.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.text = ""

    def begin_response(self) -> None:
        """Forget the text of the response before."""
        self.text = ""

    async def show_text(self, text: str | None) -> None:
        """Show the next piece of the answer."""
        if text:
            self.text += text
            await self._turn.delta(text)

    async def show_thought(self, text: str | None) -> None:
        """Show the next piece of what the model thinks."""
        if text:
            await self._turn.show(LivePiece(kind=PieceKind.THOUGHT, text=text))

    async def show_call(self, call_id: str, name: str) -> None:
        """Show that a tool runs."""
        await self._turn.show(
            LivePiece(
                kind=PieceKind.TOOL_CALL,
                tool_id=call_id,
                tool_name=name,
                state=StepState.RUNNING,
            )
        )

    async def show_result(self, call_id: str, text: str, *, is_done: bool = True) -> None:
        """Show that a tool ended, and what it returned."""
        state = StepState.DONE if is_done else StepState.FAILED
        await self._turn.show(LivePiece(kind=PieceKind.TOOL_CALL, tool_id=call_id, state=state))
        shown = text[:_MAX_SHOWN_CHARACTERS]
        await self._turn.show(LivePiece(kind=PieceKind.TOOL_RESULT, tool_id=call_id, text=shown))
