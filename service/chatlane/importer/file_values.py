"""Parse single values of the old files; a value may have any type or be damaged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from pydantic_core import PydanticCustomError

from chatlane.importer.records import OldEntry, OldMessage, OldUse, Origin
from chatlane_schemas.fields import MAX_AMOUNT, amount_text, scrubbed, scrubbed_json
from chatlane_schemas.results import MAX_REASONING_BYTES, Role
from chatlane_schemas.session_api.session_changes import checked_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

# Prefix of content that is stored as a JSON list of parts.
_JSON_CONTENT: Final = "\0json:"
_ROLES: Final = frozenset(Role)
USED_COLUMNS: Final = (
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "api_call_count"),
)
"""Columns of a session that count what it used."""
_SECONDS_AFTER: Final = 253_402_300_800.0  # the year 10000


class UnreadableError(ValueError):
    """Raised for a record that cannot be imported; the message gives the reason and quotes no value."""


def text_of(value: object) -> str | None:
    """Return an id or name as text, or None if the value cannot be one."""
    if value is None or value == "" or isinstance(value, (bool, float, list, dict)):
        return None
    return scrubbed(str(value)) or None


def instant_of(value: object) -> datetime | None:
    """Convert seconds since 1970 to a UTC time, or return None if the value is no valid time."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    if not 0 < seconds < _SECONDS_AFTER:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def wall_time_of(value: object, zone: tzinfo | None) -> datetime | None:
    """Parse an ISO time and return it in UTC.

    A time without an offset is in `zone`; None is the zone of the system. A number is read as
    seconds since 1970.
    """
    if not isinstance(value, str):
        return instant_of(value)
    try:
        parsed = datetime.fromisoformat(value)
        if parsed.tzinfo is None and zone is not None:
            parsed = parsed.replace(tzinfo=zone)
        return parsed.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def object_of(value: object) -> Mapping[str, object] | None:
    """Return a JSON object, parsed if it is given as text; None for any other value."""
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def origin_of(value: object) -> Origin | None:
    """Return the address in a routing entry or a session row, or None if it names no platform."""
    fields = object_of(value)
    platform = None if fields is None else text_of(fields.get("platform"))
    if fields is None or platform is None:
        return None
    return Origin(
        platform=platform,
        chat_type=text_of(fields.get("chat_type")) or "dm",
        chat_id=text_of(fields.get("chat_id")),
        thread_id=text_of(fields.get("thread_id")),
        user_id=text_of(fields.get("user_id")),
        user_id_alt=text_of(fields.get("user_id_alt")),
        scope=text_of(fields.get("scope_id")) or text_of(fields.get("guild_id")),
        profile=text_of(fields.get("profile")),
    )


def entry_of(key: str, value: object, zone: tzinfo | None) -> OldEntry:
    """Parse a routing entry.

    Raises:
        UnreadableError: It names no session, or its times cannot be read.
    """
    fields = object_of(value)
    if fields is None:
        raise UnreadableError("not an object")
    session_id = text_of(fields.get("session_id"))
    if session_id is None:
        raise UnreadableError("names no session")
    updated_at = wall_time_of(fields.get("updated_at"), zone)
    created_at = wall_time_of(fields.get("created_at"), zone) or updated_at
    if updated_at is None or created_at is None:
        raise UnreadableError("its times cannot be read")
    return OldEntry(
        key=scrubbed(key),
        session_id=session_id,
        created_at=created_at,
        updated_at=updated_at,
        origin=origin_of(fields.get("origin")),
        is_suspended=fields.get("suspended") is True,
    )


def message_of(
    place: int, fields: Mapping[str, object], created_at: datetime | None, before: datetime
) -> OldMessage:
    """Parse a transcript row.

    Args:
        created_at: The row's own time, or None if it cannot be read.
        before: The time of the previous row, used if `created_at` is None.

    Raises:
        UnreadableError: The row has an unknown role, or neither text nor a tool call.
    """
    role = fields.get("role")
    if role not in _ROLES:
        raise UnreadableError("not said by user, assistant, system or tool")
    calls = _calls(fields.get("tool_calls"))
    details: dict[str, object] = {
        "tool_calls": calls,
        "tool_call_id": text_of(fields.get("tool_call_id")),
        "tool_name": text_of(fields.get("tool_name")),
    }
    kept = {name: value for name, value in details.items() if value is not None}
    content = _content(fields.get("content"))
    if content is None and not kept:
        raise UnreadableError("neither text nor tool call")
    if role == Role.USER and fields.get("observed") == 1:
        kept["observed"] = True
    reasoning, left_out = _reasoning(fields) if role == Role.ASSISTANT else (None, None)
    return OldMessage(
        place=place,
        role=str(role),
        content=content,
        created_at=created_at or before,
        platform_message_id=text_of(fields.get("platform_message_id"))
        or text_of(fields.get("message_id")),
        details=json.dumps(kept, ensure_ascii=False) if kept else None,
        reasoning=reasoning,
        left_out=left_out,
    )


def _reasoning(fields: Mapping[str, object]) -> tuple[dict[str, object] | None, str | None]:
    """Return the reasoning before a row, and why a part of it cannot be kept."""
    texts = (fields.get(name) for name in ("reasoning", "reasoning_content"))
    text = next((scrubbed(text) for text in texts if isinstance(text, str) and text), None)
    given: dict[str, object] = {}
    left_out = None
    if text is not None and len(text) > MAX_REASONING_BYTES:
        left_out = "longer than 64 KiB"
    elif text is not None:
        given["text"] = text
    data: list[object] = []
    for name in ("reasoning_details", "codex_reasoning_items"):
        try:
            found = _calls(fields.get(name))
        except UnreadableError:
            left_out = "its provider's data cannot be read"
            continue
        data += found or []
    if len(json.dumps(data).encode()) > MAX_REASONING_BYTES:
        left_out = "longer than 64 KiB"
    elif data:
        given["data"] = data
    return given or None, left_out


def use_of(fields: Mapping[str, object]) -> OldUse:
    """Return the settings and the usage of a conversation.

    Raises:
        UnreadableError: Its configuration cannot be kept.
    """
    config = dict(object_of(fields["model_config"]) or {})
    cwd = text_of(fields["cwd"]) or text_of(config.pop("cwd", None))
    # Names with an underscore are notes of the gateway about links of sessions.
    kept = {name: value for name, value in config.items() if not name.startswith("_")}
    try:
        cleaned = scrubbed_json(kept)
        checked = checked_config(cleaned) if isinstance(cleaned, dict) else None
    except PydanticCustomError as exc:
        raise UnreadableError(exc.message()) from exc
    counts = {name: fields[name] for name in USED_COLUMNS}
    usage = {name: count for name, count in counts.items() if isinstance(count, int) and count > 0}
    cost = fields["actual_cost_usd"]
    if cost is None:
        cost = fields["estimated_cost_usd"]
    return OldUse(
        cwd=cwd,
        model=text_of(fields["model"]),
        config=json.dumps(checked) if checked else None,
        usage=json.dumps(usage) if usage else None,
        costs=_cost(cost),
    )


def _cost(value: object) -> str | None:
    if not isinstance(value, (int, float)) or not 0 < value <= MAX_AMOUNT:
        return None
    return json.dumps({"cost_usd": amount_text(Decimal(str(value)))})


def _content(value: object) -> str | None:
    """Return the text of a message; a part without text becomes its type in brackets."""
    if isinstance(value, str) and value.startswith(_JSON_CONTENT):
        try:
            value = json.loads(value.removeprefix(_JSON_CONTENT))
        except (ValueError, RecursionError) as exc:
            raise UnreadableError("its parts cannot be read") from exc
    if isinstance(value, list):
        value = "\n".join(filter(None, map(_part, value)))
    elif isinstance(value, dict):
        value = _part(value)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return None if value is None or value == "" else scrubbed(str(value))


def _part(part: object) -> str:
    if not isinstance(part, dict):
        return str(part)
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"


def _calls(value: object) -> list[object] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as exc:
            raise UnreadableError("its tool calls cannot be read") from exc
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(call, dict) for call in value):
        raise UnreadableError("its tool calls cannot be read")
    try:
        return [scrubbed_json(call) for call in value]
    except ValueError as exc:
        raise UnreadableError("its tool calls cannot be stored") from exc
