"""Pages: as many items as fit into one reply, and the error when there is nothing to page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from chatlane.api.endpoint import MAX_REPLY_BYTES
from chatlane_schemas.envelope import Record
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

ItemT = TypeVar("ItemT", bound=Record)

# Reserved for the envelope around the items.
ITEM_BYTES: Final = MAX_REPLY_BYTES - 1024


def fitting(items: Iterable[ItemT]) -> tuple[ItemT, ...]:
    """Return the first items that fit into a reply together; at least one if there is any.

    A single item always fits: it arrived in a body of at most 256 kB.
    """
    page: list[ItemT] = []
    left = ITEM_BYTES
    for item in items:
        left -= len(item.model_dump_json(exclude_none=True).encode()) + 1
        if left < 0 and page:
            break
        page.append(item)
    return tuple(page)


def no_such_session() -> ApiError:
    """Return the error for a session that does not exist."""
    return ApiError(code=ApiErrorCode.NOT_FOUND, message="there is no session with this id")
