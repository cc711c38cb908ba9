"""Generate the contract documents: one JSON Schema per message and one AsyncAPI 3 document.

A schema describes what a reader accepts: a reader allows and ignores other fields.
"""

from typing import Final, TypeAlias

from pydantic import JsonValue
from pydantic.json_schema import models_json_schema

from chatlane_schemas.envelope import VERSION, Envelope
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.channels import Channel, Direction, every_channel, messages

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI_VERSION: Final = "3.0.0"

Document: TypeAlias = dict[str, JsonValue]

_INFO: Final[Document] = {
    "title": "chatlane",
    "version": f"{VERSION}.0.0",
    "description": (
        "Routes chat messages to AI agents over NATS JetStream. Bodies are UTF-8 JSON; the "
        "envelope id is sent as the header `Nats-Msg-Id` too."
    ),
    "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
}

_PARAMETERS: Final = {
    "platform": "Declared name of a platform.",
    "audience": "Who talks in the session: `person` for one person, `shared` for a chat of several.",
    "account": "Declared name of our identity on the platform.",
    "cursor": "Name that an adapter gives to a place in what its platform says.",
    "chat": (
        "First 16 hex digits of SHA-256 over the chat id, or over the sender id (`alt_id` before "
        "`id`) where there is no chat id; `none` where there is neither."
    ),
    "agent": "Declared name of an agent.",
    "slot": "Last 32 bits of the session id, modulo the number of slots.",
    "session": "Session id.",
    "turn": "Turn id.",
    "principal": "Name that the permissions of the connection allow in requests.",
    "stage": "Stage that rejected the message.",
}


def message_schema(message: type[Envelope]) -> Document:
    """Return the self-contained JSON Schema of one message."""
    return {"$schema": DIALECT, **message.model_json_schema()}


def asyncapi() -> Document:
    """Return the AsyncAPI document of all channels from the point of view of the service."""
    _, schemas = models_json_schema(
        [(message, "validation") for message in messages()],
        ref_template="#/components/schemas/{model}",
    )
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": _INFO,
        "defaultContentType": "application/json",
        "channels": _channels(),
        "operations": {
            _operation_name(channel, channel.direction): _operation(channel, channel.direction)
            for channel in every_channel()
            if channel.direction is not None
        },
        "components": {
            "messages": {message.__name__: _message(message) for message in messages()},
            "schemas": schemas["$defs"],
        },
    }


def _channels() -> Document:
    channels: Document = {}
    for channel in every_channel():
        channels[channel.name] = _channel(channel)
        if channel.replies:
            channels[_reply_name(channel)] = _reply_channel(channel)
    return channels


def _channel(channel: Channel) -> Document:
    document: Document = {
        "address": channel.address,
        "description": channel.description,
        "messages": _named(channel.message),
        "parameters": {
            name: {"description": _PARAMETERS[name]}
            for name in subjects.placeholders(channel.address)
        },
    }
    if channel.stream is not None:
        document["x-jetstream-stream"] = channel.stream.value
    return document


def _reply_channel(channel: Channel) -> Document:
    return {
        "address": None,
        "description": f"Replies to `{channel.name}`, on the reply subject of the request.",
        "messages": _named(*channel.replies),
    }


def _operation(channel: Channel, direction: Direction) -> Document:
    document: Document = {
        "action": direction,
        "channel": _reference("channels", channel.name),
        "messages": [_reference("channels", channel.name, "messages", channel.message.__name__)],
    }
    if channel.replies:
        name = _reply_name(channel)
        document["reply"] = {
            "channel": _reference("channels", name),
            "messages": [
                _reference("channels", name, "messages", reply.__name__)
                for reply in channel.replies
            ],
        }
    return document


def _message(message: type[Envelope]) -> Document:
    return {
        "name": message.__name__,
        "contentType": "application/json",
        "payload": _reference("components", "schemas", message.__name__),
    }


def _named(*messages: type[Envelope]) -> Document:
    names = [message.__name__ for message in messages]
    return {name: _reference("components", "messages", name) for name in names}


def _reference(*steps: str) -> Document:
    return {"$ref": "/".join(("#", *steps))}


def _operation_name(channel: Channel, direction: Direction) -> str:
    return f"{direction}{channel.name[0].upper()}{channel.name[1:]}"


def _reply_name(channel: Channel) -> str:
    return f"{channel.name}Reply"
