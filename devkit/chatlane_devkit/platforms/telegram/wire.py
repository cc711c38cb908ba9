"""Read the calls of bots: JSON, forms and multipart forms, and what is refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import BodyPartReader, web

Json: TypeAlias = dict[str, Any]


class RefusalError(Exception):
    """The Bot API refuses a call.

    Attributes:
        code: Status of HTTP, also `error_code`.
        description: Text for the bot.
        parameters: What a bot can act on: `retry_after` or `migrate_to_chat_id`.
    """

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


def bad_request(description: str) -> RefusalError:
    """Return the refusal of a call that is wrong."""
    return RefusalError(400, f"Bad Request: {description}")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file in a multipart form."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a bot.

    Attributes:
        method: Name of the method, in lower case.
        fields: Its parameters as they came: text from forms, any value from JSON.
        uploads: Files by the name of their part.
    """

    method: str
    fields: Mapping[str, Any]
    uploads: Mapping[str, Upload] = field(default_factory=dict)

    def value(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a parameter that is JSON, or None."""
        found = self.fields.get(name)
        if not isinstance(found, str):
            return found
        try:
            return json.loads(found)
        except ValueError as error:
            raise bad_request(f"can't parse {name} JSON object") from error

    def text(self, name: str) -> str | None:
        """Return a parameter that is text, or None."""
        found = self.fields.get(name)
        return None if found is None else str(found)

    def number(self, name: str) -> int | None:
        """Return a parameter that is a whole number, or None."""
        found = self.fields.get(name)
        if found is None or found == "":
            return None
        try:
            return int(found)
        except (TypeError, ValueError) as error:
            raise bad_request(f"{name} must be an Integer") from error

    def flag(self, name: str) -> bool:
        """Return whether a parameter is true."""
        return str(self.fields.get(name, "")).lower() in {"true", "1"}


async def read_call(request: web.Request) -> Call:
    """Return the call that a request makes."""
    method = request.match_info["method"].lower()
    fields: Json = dict(request.query)
    uploads: dict[str, Upload] = {}
    if request.content_type == "application/json":
        fields |= await request.json()
    elif request.content_type.startswith("multipart/"):
        reader = await request.multipart()
        while (part := await reader.next()) is not None:
            if not isinstance(part, BodyPartReader) or part.name is None:
                continue
            if part.filename is None:
                fields[part.name] = await part.text()
            else:
                media_type = part.headers.get("Content-Type", "application/octet-stream")
                content = bytes(await part.read())
                uploads[part.name] = Upload(part.filename, media_type, content)
    else:
        fields |= await request.post()
    return Call(method, fields, uploads)
