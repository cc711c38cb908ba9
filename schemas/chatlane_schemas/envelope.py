"""The envelope of every message: version, id and time."""

from typing import Annotated, ClassVar, Final
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict

from chatlane_schemas.fields import EnvelopeId, Instant

VERSION: Final = 1
# Not a Literal, which would accept true and 1.0 for 1.
Version = Annotated[
    int,
    Field(strict=True, ge=VERSION, le=VERSION),
    WithJsonSchema({"type": "integer", "const": VERSION}),
]
MAX_BODY_BYTES: Final = 256 * 1024
MAX_PAYLOAD_BYTES: Final = 1024 * 1024


class Record(BaseModel):
    """A part of a message: immutable, and never shows its input in errors.

    Readers ignore unknown fields, so an older reader understands a newer writer.
    """

    # Built at once: `to_json` writes parts of messages, and cannot build what is deferred.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


def _require_version(schema: JsonDict) -> None:
    """Require `v` in JSON Schema, as `decode` does; its default is for writers only."""
    required = schema.get("required")
    others = required if isinstance(required, list) else []
    schema["required"] = ["v", *others]


class Envelope(Record):
    """Fields that every message has.

    The defaults are for writers in Python; `decode` rejects a body without `v`.
    """

    max_bytes: ClassVar[int] = MAX_BODY_BYTES
    """The largest body that `decode` accepts, in bytes."""

    model_config = ConfigDict(json_schema_extra=_require_version, defer_build=True)

    v: Version = Field(default=VERSION, description="Version of the envelope; always written.")
    id: EnvelopeId = Field(
        description="Random id that the sender keeps over its retries; also the Nats-Msg-Id.",
    )
    at: Instant = Field(description="When the sender created the message; data, never a clock.")


class ServiceEnvelope(Envelope):
    """A message from the service, which may be larger than the message it was made from."""

    max_bytes: ClassVar[int] = MAX_PAYLOAD_BYTES


def new_envelope_id() -> str:
    """Return a random envelope id.

    With guessable ids, an account could publish an id first and have another account's message
    dropped as a duplicate.
    """
    return uuid4().hex
