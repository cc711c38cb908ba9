"""Limits and formats of the turns that an agent of a framework answers."""

from dataclasses import dataclass
from datetime import timedelta

from chatlane_client.turn import Turn
from chatlane_schemas import Part
from chatlane_schemas.content.buttons import TextFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """How turns are answered.

    Attributes:
        history_rows: How many rows before the turn the model gets.
        approve_within: How long a person may take to allow a tool call.
        max_file_bytes: Larger files are only mentioned to the model.
        has_local_files: Files may be fetched from private addresses, such as a store in the same
            network.
        text_format: Format of the answers of the model.
    """

    history_rows: int = 100
    approve_within: timedelta = timedelta(hours=1)
    max_file_bytes: int = 20 * 1024 * 1024
    has_local_files: bool = False
    text_format: TextFormat = TextFormat.MARKDOWN

    def part(self, text: str) -> Part:
        """Return a text of the model as a message."""
        return Part(text=text, format=self.text_format)


def instructions_of(turn: Turn) -> str | None:
    """Return the prompt about the chat and the session before, or None."""
    note = turn.opening_note and f"Note from the conversation before:\n{turn.opening_note}"
    return "\n\n".join(text for text in (turn.prompt_context, note) if text) or None
