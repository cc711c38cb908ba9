"""What a transcript shows: which sessions it runs through, and which rows make sense together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane_schemas.results import Role
from chatlane_schemas.transcripts import PlacedRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from chatlane_schemas.transcripts import AppendedRow, TranscriptEntry

# Far more than any conversation is compacted; ends a walk over rows that contradict each other.
MAX_HOPS: Final = 100
# What a model reads as the result of a call that has none.
NO_RESULT: Final = "[No result: the call was interrupted, or has not ended.]"
# Kinds of links between sessions.
COMPRESSION: Final = "compression"
BRANCH: Final = "branch"
# A session of these kinds goes on with what was said in its parent.
CONTINUES: Final = (COMPRESSION, BRANCH)


@dataclass(frozen=True, slots=True)
class Link:
    """How a session hangs on another one."""

    session_id: UUID
    parent_id: UUID | None
    kind: str | None


def reading_order(links: Iterable[Link], start: UUID) -> tuple[UUID, ...]:
    """Return the sessions whose rows make up the whole conversation, the newest first.

    A branch holds copies of its parent's rows up to the fork, so the parent itself is passed
    over, and what the parent continues comes next. Ends after `MAX_HOPS`, at a link to an
    unknown session, and where a chain bites its own tail.
    """
    known = {link.session_id: link for link in links}
    if start not in known:
        return ()
    order = [start]
    passed = {start}
    link: Link | None = known[start]
    for _ in range(MAX_HOPS):
        if link is None or link.kind not in CONTINUES or link.parent_id in passed:
            break
        parent = known.get(link.parent_id) if link.parent_id else None
        if parent is None:
            break
        passed.add(parent.session_id)
        if link.kind == COMPRESSION:
            order.append(parent.session_id)
        link = parent
    return tuple(order)


def clean_start(rows: Sequence[TranscriptEntry]) -> int:
    """Return how many of the first rows belong to a call that is further up.

    Args:
        rows: Part of a transcript, oldest first, cut off at its beginning.

    Returns:
        The place of the first row that a page may begin with; `len(rows)` if there is none.
    """
    first = 0
    for place, row in enumerate(rows):
        if _calls(row):
            break
        if row.role is Role.TOOL:
            first = place + 1
    return first


def repaired(rows: Sequence[TranscriptEntry]) -> tuple[TranscriptEntry, ...]:
    """Return the rows with a result for every call, and without results that have no call.

    The results of a call are the tool rows before the next row that asks for calls. A call
    without a result gets a placeholder behind its row, so that a model is told that the call was
    interrupted: it may have had effects.

    Args:
        rows: Oldest first.
    """
    groups = _groups(rows)
    return tuple(row for group in groups for row in _with_placeholders(*_matched(group)))


def without_open_calls(rows: Sequence[TranscriptEntry]) -> tuple[TranscriptEntry, ...]:
    """Return the rows without calls that have no result, and without results that have no call.

    For pages that placeholders would make too large. A row that asked for nothing but such
    calls, and said nothing, is left out.

    Args:
        rows: Oldest first.
    """
    groups = _groups(rows)
    return tuple(row for group in groups for row in _without_calls(*_matched(group)))


def _groups(rows: Sequence[TranscriptEntry]) -> Iterator[Sequence[TranscriptEntry]]:
    """Yield the rows in groups of which only the first row can have called for the others."""
    start = 0
    for end in [*_starts_of_calls(rows), len(rows)]:
        if end > start:
            yield rows[start:end]
        start = end


def _starts_of_calls(rows: Sequence[TranscriptEntry]) -> list[int]:
    return [place for place, row in enumerate(rows) if _calls(row)]


class _Matched(NamedTuple):
    """A group without results that have no call, and the ids of its calls without a result."""

    rows: list[TranscriptEntry]
    open_calls: list[str | None]


def _matched(group: Sequence[TranscriptEntry]) -> _Matched:
    open_calls = [_call_id(call) for call in _calls(group[0])]
    kept: list[TranscriptEntry] = []
    for row in group:
        if row.role is Role.TOOL:
            if row.tool_call_id not in open_calls:
                continue
            open_calls.remove(row.tool_call_id)
        kept.append(row)
    return _Matched(kept, open_calls)


def _with_placeholders(
    rows: list[TranscriptEntry], open_calls: list[str | None]
) -> Iterable[TranscriptEntry]:
    if not open_calls:
        return rows
    calling = rows[0]
    missing = [
        calling.model_copy(
            update={
                "role": Role.TOOL,
                "content": NO_RESULT,
                "tool_calls": None,
                "tool_call_id": call_id,
                "attachments": (),
                "is_placeholder": True,
            }
        )
        for call_id in open_calls
    ]
    return [calling, *missing, *rows[1:]]


def _without_calls(
    rows: list[TranscriptEntry], open_calls: list[str | None]
) -> Iterable[TranscriptEntry]:
    if not open_calls:
        return rows
    calling, *others = rows
    left = list(open_calls)
    answered: list[Mapping[str, object]] = []
    # From the end: of two calls with the same id the first is the answered one.
    for call in reversed(_calls(calling)):
        if _call_id(call) in left:
            left.remove(_call_id(call))
        else:
            answered.insert(0, call)
    if not answered and not calling.content and not calling.attachments:
        return others
    return [calling.model_copy(update={"tool_calls": answered or None}), *others]


def _calls(row: TranscriptEntry) -> Sequence[Mapping[str, object]]:
    return row.tool_calls or () if row.role is Role.ASSISTANT else ()


def _call_id(call: Mapping[str, object]) -> str | None:
    """Return the id of a call, by which its result is found; models name it in two ways."""
    for name in ("id", "call_id"):
        value = call.get(name)
        if isinstance(value, str):
            return value
    return None


@dataclass(frozen=True, slots=True)
class Version:
    """What a transcript is: any change of its rows gives another one.

    Attributes:
        revision: How often rows were taken out.
        next_seq: Place of the next row.
    """

    revision: int
    next_seq: int

    @property
    def text(self) -> str:
        """Return it as callers get it."""
        return f"{self.revision}.{self.next_seq}"

    @classmethod
    def parsed(cls, text: str) -> Version:
        """Return what `text` gave, of the form that the contract demands."""
        revision, _, next_seq = text.partition(".")
        return cls(int(revision), int(next_seq))

    def has_only_grown_to(self, later: Version) -> bool:
        """Return whether all rows of this version are still there in a later one."""
        return self.revision == later.revision and self.next_seq <= later.next_seq


@dataclass(frozen=True, slots=True)
class KnownRow:
    """Where a message already is; `seq` is None where it waits or was taken out."""

    seq: int | None


def placements(
    rows: Sequence[AppendedRow], known: Mapping[int, KnownRow], next_seq: int
) -> tuple[PlacedRow, ...]:
    """Return where each row is or goes, so that one message becomes one row.

    Two rows are the same message if their message ids are equal, or their platform's ids.

    Args:
        rows: What is brought, in order.
        known: By place in `rows`: what is stored already.
        next_seq: Place of the first new row.
    """
    placed: list[PlacedRow] = []
    brought: dict[object, PlacedRow] = {}
    for number, row in enumerate(rows):
        names = [name for name in (row.message_id, row.platform_message_id or None) if name]
        before = known.get(number)
        twin = next((brought[name] for name in names if name in brought), None)
        if before is not None:
            here = PlacedRow(seq=before.seq, is_repeat=True)
        elif twin is not None:
            here = PlacedRow(seq=twin.seq, is_repeat=True)
        else:
            here = PlacedRow(seq=next_seq)
            next_seq += 1
        placed.append(here)
        brought.update((name, here) for name in names)
    return tuple(placed)


@dataclass(frozen=True, slots=True)
class UserRow:
    """A row of a person: where it is, and the turn that answers it, if it was one's."""

    seq: int
    turn_id: UUID | None


def turn_starts(newest_first: Iterable[UserRow]) -> list[int]:
    """Return the places where turns begin, the newest first.

    All that a turn was claimed with begins it together; a row of no turn is one of its own.
    """
    starts: list[int] = []
    turn_id: UUID | None = None
    for row in newest_first:
        if row.turn_id is not None and row.turn_id == turn_id:
            starts[-1] = row.seq
        else:
            starts.append(row.seq)
        turn_id = row.turn_id
    return starts
