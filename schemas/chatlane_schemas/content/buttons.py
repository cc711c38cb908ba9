"""The form of what an agent says: its text format and its buttons."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import Text

MAX_BUTTONS: Final = 100


class TextFormat(StrEnum):
    """How a text is written; an adapter translates it into the form of its platform.

    `markdown` is CommonMark with tables and strikethrough, as models write it.
    """

    PLAIN = "plain"
    MARKDOWN = "markdown"


class Button(Record):
    """A button under a message; a press arrives as an event of kind `action`."""

    label: Text = Field(description="Text on the button.")
    value: Text | None = Field(
        default=None,
        description="Data that a press returns; the label if missing. Platforms limit it, Telegram "
        "to 64 bytes.",
    )
    url: Text | None = Field(
        default=None, description="Page that the button opens, instead of a press."
    )


Buttons = Annotated[tuple[Button, ...], Field(max_length=MAX_BUTTONS, fail_fast=True)]
