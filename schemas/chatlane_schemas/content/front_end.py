"""Define what the front end of a person gives to an agent: its tools, its state, and what it shows."""

import json
from operator import not_
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import Flag, Text, is_left_out

MOST_TOOLS: Final = 64
MOST_ENTRIES: Final = 64
# They are stored with each message, and have to fit into one with its text.
LARGEST_TOOLS: Final = 64 * 1024
LARGEST_CONTEXT: Final = 32 * 1024
LARGEST_STATE: Final = 32 * 1024
# Results and arguments are kept as steps of a turn; JSON in a JSON text is up to twice as long.
LARGEST_ARGUMENTS: Final = 60 * 1024

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
CallId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


def _json_object(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise PydanticCustomError("json_object", "text is no JSON object")
    return text


JsonObjectText = Annotated[Text, AfterValidator(_json_object)]


class FrontEndTool(Record):
    """A tool that runs in the front end of a person. The front end wrote all of it."""

    name: ToolName = Field(description="Name of the tool.")
    description: Text = Field(default="", repr=False, description="What it does, for a model.")
    parameters: JsonObjectText = Field(
        default="{}", repr=False, description="JSON Schema of its arguments, as JSON text."
    )

    def schema_of_arguments(self) -> dict[str, Any]:
        """Return the JSON Schema of its arguments; without any, an object of anything."""
        schema: dict[str, Any] = json.loads(self.parameters)
        return {"type": "object", "properties": {}, **schema}


class ContextEntry(Record):
    """Something that the front end shows or knows."""

    description: Text = Field(default="", repr=False, description="What it is.")
    value: Text = Field(repr=False, description="Its value, as text.")


def _checked_tools(tools: tuple[FrontEndTool, ...]) -> tuple[FrontEndTool, ...]:
    if len({tool.name for tool in tools}) < len(tools):
        raise PydanticCustomError("tool_names", "two tools have the same name")
    texts = (text for it in tools for text in (it.name, it.description, it.parameters))
    if sum(len(text.encode()) for text in texts) > LARGEST_TOOLS:
        limit = {"most": LARGEST_TOOLS}
        raise PydanticCustomError("large_tools", "the tools have more than {most} bytes", limit)
    return tools


def _checked_context(entries: tuple[ContextEntry, ...]) -> tuple[ContextEntry, ...]:
    texts = (text for entry in entries for text in (entry.description, entry.value))
    if sum(len(text.encode()) for text in texts) > LARGEST_CONTEXT:
        limit = {"most": LARGEST_CONTEXT}
        raise PydanticCustomError("large_context", "the context has more than {most} bytes", limit)
    return entries


def _checked_state(text: str) -> str:
    if len(text.encode()) > LARGEST_STATE:
        limit = {"most": LARGEST_STATE}
        raise PydanticCustomError("large_state", "the state has more than {most} bytes", limit)
    return text


State = Annotated[JsonObjectText, AfterValidator(_checked_state)]
Tools = Annotated[
    tuple[FrontEndTool, ...],
    Field(max_length=MOST_TOOLS, fail_fast=True),
    AfterValidator(_checked_tools),
]
Context = Annotated[
    tuple[ContextEntry, ...],
    Field(max_length=MOST_ENTRIES, fail_fast=True),
    AfterValidator(_checked_context),
]


class FrontEnd(Record):
    """Tools and context that a front end gives to the turn that answers a message."""

    tools: Tools = Field(
        default=(), repr=False, description="Its tools, each under a name of its own."
    )
    context: Context = Field(default=(), repr=False, description="What it shows or knows.")
    state: State | None = Field(
        default=None,
        repr=False,
        exclude_if=is_left_out,
        description="The state that it shares with the agent, as JSON text of at most 32 KiB; without "
        "it the front end shares none.",
    )

    def shared_state(self) -> dict[str, Any]:
        """Return the state that it shares; without any, an empty one."""
        state: dict[str, Any] = json.loads(self.state or "{}")
        return state


class FrontEndCall(Record):
    """A call of a tool of the front end, or a new state for it.

    The `value` of the `TurnReply` to its question is the result, as the front end wrote it. The reply
    to a new state has an empty one.
    """

    id: CallId = Field(
        description="Id of the call in its turn. Each attempt at the turn gives the same call the "
        "same id; the service keeps its result for the next attempt. A new state is not kept."
    )
    name: ToolName = Field(description="Name of the tool.")
    arguments: Annotated[JsonObjectText, Field(max_length=LARGEST_ARGUMENTS)] = Field(
        default="{}", repr=False, description="The arguments, or the new state, as JSON text."
    )
    is_state: Flag = Field(
        default=False,
        # Left out if false, so that the digest of a request is the same as in older routers.
        exclude_if=not_,
        description="Whether the front end is to replace its state by the arguments, and to run no "
        "tool.",
    )

    @model_validator(mode="after")
    def _has_room_for_its_state(self) -> Self:
        if self.is_state:
            _checked_state(self.arguments)
        return self
