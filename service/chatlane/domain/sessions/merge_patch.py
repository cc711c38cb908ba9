"""Patch parts of a JSON object as defined by RFC 7396 (JSON Merge Patch). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue


def merge_patch(target: JsonValue, patch: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the target with the patch applied; neither of them is changed.

    Args:
        target: The current value; anything but an object counts as an empty one.
        patch: Objects are merged key by key, null removes a key, everything else replaces.
    """
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge_patch(merged.get(key), value)
        else:
            merged[key] = value
    return merged
