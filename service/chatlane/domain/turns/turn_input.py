"""Decide which waiting messages a running turn may take in. Pure, as `lifecycle`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane_schemas.source import Source


class SteeringHead(NamedTuple):
    """A waiting message, as far as its use as input of a running turn depends on it."""

    arrival: int
    size_bytes: int
    source: Source
    has_files: bool
    is_of_person: bool = True


def steerable(
    heads: Sequence[SteeringHead], place: Source, *, max_messages: int, max_bytes: int
) -> Sequence[SteeringHead]:
    """Return the waiting messages that a turn takes in: text from its own chat, bounded.

    The first message that cannot be taken in, for example one with files, stays for the next turn,
    and so do all after it: messages keep the order in which they were written.
    """
    taken = size = 0
    for head in heads[: max(0, max_messages)]:
        size += head.size_bytes
        if head.has_files or size > max_bytes or _where(head.source) != _where(place):
            break
        taken += 1
    return heads[:taken]


def _where(source: Source) -> tuple[str | None, ...]:
    chat = None if source.chat is None else source.chat.id
    return source.platform, source.account, source.scope, chat, source.thread_id
