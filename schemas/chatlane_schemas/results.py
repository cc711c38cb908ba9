"""Answers of workers: the result of a turn, or the answer to a routed message."""

from enum import StrEnum
from typing import Annotated, Final, Self
from uuid import UUID

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError, to_json

from chatlane_schemas.content.buttons import Buttons, TextFormat
from chatlane_schemas.envelope import Envelope, Record
from chatlane_schemas.fields import (
    Amounts,
    Counters,
    EnvelopeId,
    Flag,
    JsonObject,
    Number,
    PlatformId,
    Text,
    ToolCalls,
    is_left_out,
)
from chatlane_schemas.inbound import Attachments
from chatlane_schemas.session_api.session_state import Note

MAX_PARTS: Final = 100
MAX_TRANSCRIPT_ROWS: Final = 1000
MAX_ANSWERED: Final = 200
MAX_REASONING_BYTES: Final = 64 * 1024
LONGEST_PAUSE_MS: Final = 30_000

PauseMs = Annotated[int, Field(strict=True, ge=0, le=LONGEST_PAUSE_MS)]


class Outcome(StrEnum):
    """How a turn ended."""

    OK = "ok"
    FAILED = "failed"
    NO_REPLY = "no_reply"


class HandBack(StrEnum):
    """Why an attempt ends without counting.

    `unavailable`: the agent cannot answer now, for example because its model is away. `stopping`:
    its worker was told to stop.
    """

    UNAVAILABLE = "unavailable"
    STOPPING = "stopping"


class Role(StrEnum):
    """Author of a transcript row."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class Part(Record):
    """One message to the chat; an answer may be several."""

    text: Text | None = Field(default=None, description="Text of the message.")
    attachments: Attachments = Field(default=(), description="References to files.")
    format: TextFormat | None = Field(
        default=None, description="Format in which the text is written; plain if missing."
    )
    buttons: Buttons | None = Field(default=None, description="Buttons under the message.")
    reply_to: PlatformId | None = Field(
        default=None,
        description="Platform's id of the message in the chat that this one answers; without it, the "
        "last message of the turn.",
    )
    edits: UUID | None = Field(
        default=None,
        description="Id of an earlier `OutboundMessage` of the session; this message replaces its "
        "content in the chat.",
    )
    pause_before_ms: PauseMs | None = Field(
        default=None,
        # Left out if None, so that the digest of a request is the same as in older routers.
        exclude_if=is_left_out,
        description="How long the adapter waits before it sends the message, in milliseconds; it "
        "shows typing meanwhile.",
    )


def _bounded(data: list[JsonObject]) -> list[JsonObject]:
    if len(to_json(data)) > MAX_REASONING_BYTES:
        raise PydanticCustomError("reasoning_size", "data is too large")
    return data


class Reasoning(Record):
    """The reasoning of a model before a row: text for people, and data for the model's provider."""

    text: Annotated[Text, Field(max_length=MAX_REASONING_BYTES)] | None = Field(
        default=None, repr=False, description="What the model thought."
    )
    data: Annotated[ToolCalls, AfterValidator(_bounded)] | None = Field(
        default=None,
        repr=False,
        description="Objects of the provider, such as signatures, at most 64 KiB as JSON; they come "
        "back as they are.",
    )


class TranscriptRow(Record):
    """A row the worker adds to the transcript: tool calls, their results, answers."""

    role: Role = Field(description="Author of the row.")
    content: Text | None = Field(default=None, description="Text of the row.")
    tool_calls: ToolCalls | None = Field(default=None, description="Tool calls of the model.")
    tool_call_id: Text | None = Field(
        default=None, description="Id of the call that this row answers."
    )
    tool_name: Text | None = Field(default=None, description="Tool that produced this row.")
    reasoning: Reasoning | None = Field(
        default=None,
        # Left out if None, so that the digest of a request is the same as in older routers.
        exclude_if=is_left_out,
        description="What the model thought before a row of the assistant.",
    )

    @model_validator(mode="after")
    def _only_assistants_think(self) -> Self:
        if self.reasoning is not None and self.role is not Role.ASSISTANT:
            raise PydanticCustomError("reasoning_role", "reasoning of another role")
        return self


class ResultMessage(Envelope):
    """The result of a turn (`turn_id`), or a stream answer (`reply_to`); never both.

    The router accepts a turn result only with the turn, attempt and token of its claim. It accepts
    the first stream answer for each (session, reply_to, part).
    """

    session_id: UUID = Field(description="Session of the answer.")
    turn_id: UUID | None = Field(default=None, description="Turn that ended.")
    attempt: Number | None = Field(default=None, description="Attempt from the claim reply.")
    token: EnvelopeId | None = Field(
        default=None, repr=False, description="Token from the claim reply."
    )
    outcome: Outcome | None = Field(default=None, description="How the turn ended.")
    retry: Flag = Field(default=False, description="Whether a failed turn is worth repeating.")
    hand_back: HandBack | None = Field(
        default=None,
        description="On a failed turn with `retry`: why the attempt does not count. The turn waits for "
        "another attempt, and rows of `transcript` count.",
    )
    again_in_ms: Number | None = Field(
        default=None,
        description="When the agent can probably answer again, if it is `unavailable`. Until then no "
        "turn of the agent is tried, and then one.",
    )
    error: Text | None = Field(default=None, description="Reason of the failure, for people.")
    parts: Annotated[tuple[Part, ...], Field(max_length=MAX_PARTS, fail_fast=True)] = Field(
        default=(),
        description="Messages to the chat, in order.",
    )
    transcript: Annotated[
        tuple[TranscriptRow, ...],
        Field(max_length=MAX_TRANSCRIPT_ROWS, fail_fast=True),
    ] = Field(
        default=(),
        description="Rows to append to the transcript, in order; rows of a failed turn count only if "
        "the turn is given up.",
    )
    message_ids: Annotated[tuple[UUID, ...], Field(max_length=MAX_ANSWERED, fail_fast=True)] = (
        Field(
            default=(),
            description="Ids of the messages that the turn answers, from the claim reply.",
        )
    )
    usage: Counters = Field(default={}, description="Named counts, such as tokens.")
    costs: Amounts = Field(
        default={},
        description="Named amounts with fractions, such as `cost_usd`; decimals in text.",
    )
    gauges: Counters = Field(
        default={},
        description="Named values that replace the ones before, such as `context_tokens`, "
        "`context_limit` and `last_prompt_tokens`.",
    )
    carry_over: Note | None = Field(
        default=None,
        description="Note for the next session; replaces the previous note.",
    )
    reply_to: EnvelopeId | None = Field(
        default=None,
        description="Envelope id of the routed message that is answered.",
    )
    part: Number = Field(default=0, description="Number of the part of a stream answer.")
    text: Text | None = Field(default=None, description="Text of a stream answer.")
    attachments: Attachments = Field(default=(), description="Files of a stream answer.")
    format: TextFormat | None = Field(
        default=None, description="Format of the text of a stream answer; plain if missing."
    )
    buttons: Buttons | None = Field(default=None, description="Buttons of a stream answer.")

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.turn_id is None) == (self.reply_to is None):
            raise PydanticCustomError("result_kind", "exactly one of turn_id and reply_to")
        if self.turn_id is not None and (
            self.attempt is None or self.token is None or self.outcome is None
        ):
            raise PydanticCustomError("turn_result", "attempt, token and outcome are missing")
        return self
