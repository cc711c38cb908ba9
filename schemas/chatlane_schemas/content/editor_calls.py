"""Define calls of running turns to the editor of a person: its files and its terminal."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import Flag, Number, Text

# With its envelope, a result in a JSON text fits into a message of 256 KiB.
LARGEST_CALL: Final = 120 * 1024
_MAX_ARGUMENTS: Final = 256
_MAX_PATH: Final = 4096

Path = Annotated[Text, Field(min_length=1, max_length=_MAX_PATH)]


class EditorMethod(StrEnum):
    """Kinds of calls that an editor answers."""

    READ_TEXT_FILE = "read_text_file"
    WRITE_TEXT_FILE = "write_text_file"
    RUN_COMMAND = "run_command"


class EditorError(StrEnum):
    """Why an editor did not do what it was asked for.

    `unsupported`: it cannot. `refused`: its person did not allow it. `failed`: it tried.
    """

    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    FAILED = "failed"


class EditorCall(Record):
    """A call to an editor: `path` is for files, and `command` for a terminal."""

    method: EditorMethod = Field(description="What is to be done.")
    path: Path | None = Field(default=None, description="Absolute path of the file.")
    line: Number | None = Field(default=None, description="First line to read, from 1.")
    limit: Number | None = Field(default=None, description="Most lines to read.")
    content: Annotated[Text, Field(max_length=LARGEST_CALL)] | None = Field(
        default=None, repr=False, description="The new content of the file."
    )
    command: Path | None = Field(default=None, description="The program to run.")
    arguments: Annotated[tuple[Text, ...], Field(max_length=_MAX_ARGUMENTS)] = Field(
        default=(), description="Its arguments."
    )
    cwd: Path | None = Field(
        default=None, description="Absolute path of its directory; that of the session if missing."
    )
    timeout_ms: Number | None = Field(
        default=None, description="Time after which the command is killed."
    )
    output_limit_bytes: Annotated[Number, Field(le=LARGEST_CALL)] | None = Field(
        default=None, description="Most bytes of output; the end of a longer one is kept."
    )


class EditorResult(Record):
    """The result of a call to an editor, or why there is none.

    As JSON text, it is the `value` of the `TurnReply` to a question of the kind `call`.
    """

    error: EditorError | None = Field(default=None, description="Why it was not done.")
    message: Text | None = Field(default=None, description="The error in words.")
    content: Text | None = Field(default=None, repr=False, description="The lines of the file.")
    output: Text | None = Field(default=None, repr=False, description="The output of the command.")
    truncated: Flag = Field(default=False, description="Whether a part of the output is missing.")
    exit_code: int | None = Field(default=None, description="Exit code of the command.")
    signal: Text | None = Field(default=None, description="Signal that ended the command.")
    timed_out: Flag = Field(default=False, description="Whether the command took too long.")
