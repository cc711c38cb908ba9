"""Select the sessions and rows of a transcript so that they are consistent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import PlacedRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from chatlane_schemas.session_api.transcripts import AppendedRow, TranscriptEntry

# Far more than any conversation is compacted; stops the walk over links that form a loop.
MAX_HOPS: Final = 100
# The result that a model reads for a call that has none.
NO_RESULT: Final = "[No result: the call was interrupted, or has not ended.]"
# Kinds of links between sessions.
COMPRESSION: Final = "compression"
BRANCH: Final = "branch"
# A session of these kinds continues the conversation of its parent.
CONTINUES: Final = (COMPRESSION, BRANCH)


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a session to its parent."""

    session_id: UUID
    parent_id: UUID | None
    kind: str | None


def reading_order(links: Iterable[Link], start: UUID) -> tuple[UUID, ...]:
    """Return the sessions whose rows make up the whole conversation, newest first.

    A branch holds copies of its parent's rows up to the fork. So the parent itself is skipped, and
    the sessions that the parent continues come next. The walk ends after `MAX_HOPS`, at a link to
    an unknown session, and at a session that it has already passed.
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
    """Return how many of the first rows belong to a call in an earlier row that was cut off.

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
    if first or not rows or not _calls(rows[0]):
        return first
    # The page may begin between calls that the model made together. A result without a call then
    # belongs to one of those before, and all these calls and results to the page before.
    group = next(_groups(rows))
    if sum(len(_matched(part).rows) for part in _parts(group)) == len(group):
        return 0
    return max(place for place, row in enumerate(group, 1) if row.role is Role.TOOL)


def repaired(rows: Sequence[TranscriptEntry]) -> tuple[TranscriptEntry, ...]:
    """Return the rows with a result for every call, and without results that have no call.

    The results of calls are the tool rows before the next row that asks for calls; rows directly
    behind each other ask together. A call without a result gets a placeholder after its row. It
    tells the model that the call was interrupted and may have had effects.

    Args:
        rows: Oldest first.
    """
    parts = (part for group in _groups(rows) for part in _parts(group))
    return tuple(row for part in parts for row in _with_placeholders(*_matched(part)))


def without_open_calls(rows: Sequence[TranscriptEntry]) -> tuple[TranscriptEntry, ...]:
    """Return the rows without calls that have no result, and without results that have no call.

    For pages that placeholders would make too large. A row without text that contains only such
    calls is left out.

    Args:
        rows: Oldest first.
    """
    parts = (part for group in _groups(rows) for part in _parts(group))
    return tuple(row for part in parts for row in _without_calls(*_matched(part)))


def _groups(rows: Sequence[TranscriptEntry]) -> Iterator[Sequence[TranscriptEntry]]:
    """Yield the rows in groups; only the first rows of a group can contain calls."""
    start = 0
    for end in [*_starts_of_calls(rows), len(rows)]:
        if end > start:
            yield rows[start:end]
        start = end


def _starts_of_calls(rows: Sequence[TranscriptEntry]) -> list[int]:
    return [
        place
        for place, row in enumerate(rows)
        if _calls(row) and not (place and _calls(rows[place - 1]))
    ]


def _parts(group: Sequence[TranscriptEntry]) -> list[list[TranscriptEntry]]:
    """Return the rows of a group by the row with the calls to which they belong.

    A model may make several calls at once, each in a separate row, and their results follow all of
    them. A result is of the last row with such a call that has no result yet.
    """
    calling = [row for row in group if _calls(row)]
    if not calling[1:]:
        return [list(group)]
    parts = [[row] for row in calling]
    open_calls = [_named_calls(row) for row in calling]
    for row in group[len(calling) :]:
        place = len(parts) - 1
        if row.role is Role.TOOL:
            found = ((number, _call_of(row, calls)) for number, calls in enumerate(open_calls))
            named = [(number, call) for number, call in found if call is not None]
            if named:
                place, call = named[-1]
                open_calls[place].remove(call)
        parts[place].append(row)
    return parts


def _call_of(result: TranscriptEntry, calls: Sequence[_Call]) -> _Call | None:
    """Return the first of some calls that a result names; the empty id is none."""
    named = result.tool_call_id or None
    return next((call for call in calls if named in call.names), None)


class _Call(NamedTuple):
    """A tool call: the id that it is given out with, and all ids that a result may name."""

    id: str
    names: frozenset[str | None]


class _Matched(NamedTuple):
    """A group without results that have no call.

    Attributes:
        rows: The call first, then its results, then the other rows.
        open_calls: The calls without a result.
    """

    rows: list[TranscriptEntry]
    open_calls: list[_Call]


def _matched(group: Sequence[TranscriptEntry]) -> _Matched:
    """Match the results of a group with its calls.

    A strict model endpoint wants the results directly after their call, and under its id. So a
    message that came in between follows them, and a result that names another id of its call gets
    the first one.
    """
    calls = _named_calls(group[0])
    if not calls:
        return _Matched([row for row in group if row.role is not Role.TOOL], [])
    open_calls = list(calls)
    results: list[TranscriptEntry] = []
    others: list[TranscriptEntry] = []
    for row in group[1:]:
        if row.role is not Role.TOOL:
            others.append(row)
            continue
        answered = _call_of(row, open_calls)
        if answered is not None:
            open_calls.remove(answered)
            is_same = row.tool_call_id == answered.id
            update = {"tool_call_id": answered.id}
            results.append(row if is_same else row.model_copy(update=update))
    return _Matched([_with_ids(group[0], calls), *results, *others], open_calls)


def _with_ids(calling: TranscriptEntry, calls: Sequence[_Call]) -> TranscriptEntry:
    """Return a row whose calls have their id as text under `id`."""
    stored = _calls(calling)
    if all(call.get("id") == known.id for call, known in zip(stored, calls, strict=True)):
        return calling
    tool_calls = [{**call, "id": known.id} for call, known in zip(stored, calls, strict=True)]
    return calling.model_copy(update={"tool_calls": tool_calls})


def _with_placeholders(
    rows: list[TranscriptEntry], open_calls: list[_Call]
) -> Iterable[TranscriptEntry]:
    if not open_calls:
        return rows
    calling = rows[0]
    missing = [
        calling.model_copy(
            update={
                "row_id": None,
                "role": Role.TOOL,
                "content": NO_RESULT,
                "tool_calls": None,
                "reasoning": None,
                "tool_call_id": call.id,
                "attachments": (),
                "is_placeholder": True,
            }
        )
        for call in open_calls
    ]
    return [calling, *missing, *rows[1:]]


def _without_calls(
    rows: list[TranscriptEntry], open_calls: list[_Call]
) -> Iterable[TranscriptEntry]:
    if not open_calls:
        return rows
    calling, *others = rows
    left = list(open_calls)
    answered: list[Mapping[str, object]] = []
    # From the end: of two calls with the same id the first is the answered one.
    for call, known in zip(reversed(_calls(calling)), reversed(_named_calls(calling)), strict=True):
        if known in left:
            left.remove(known)
        else:
            answered.insert(0, call)
    if not answered and not calling.content and not calling.attachments:
        return others
    return [calling.model_copy(update={"tool_calls": answered or None}), *others]


def _calls(row: TranscriptEntry) -> Sequence[Mapping[str, object]]:
    return row.tool_calls or () if row.role is Role.ASSISTANT else ()


def _named_calls(row: TranscriptEntry) -> list[_Call]:
    """Return the ids of the calls of a row; some models give a call two, and some give numbers.

    A call without an id gets one, which strict model endpoints need.
    """
    named = []
    for number, call in enumerate(_calls(row)):
        values = (call.get(name) for name in ("id", "call_id"))
        ids = [
            str(value)
            for value in values
            if isinstance(value, str | int) and not isinstance(value, bool) and value != ""
        ]
        names: frozenset[str | None] = frozenset(ids) if ids else frozenset({None})
        named.append(_Call(ids[0] if ids else f"call-{row.seq}-{number}", names))
    return named


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a transcript: every change of its rows gives another one.

    Attributes:
        revision: How often rows were taken out.
        next_seq: Place of the next row.
    """

    revision: int
    next_seq: int

    @property
    def text(self) -> str:
        """Return the text form that API callers get."""
        return f"{self.revision}.{self.next_seq}"

    @classmethod
    def parsed(cls, text: str) -> Version:
        """Parse the text form, which the contract has validated."""
        revision, _, next_seq = text.partition(".")
        return cls(int(revision), int(next_seq))

    def has_only_grown_to(self, later: Version) -> bool:
        """Return whether all rows of this version are still in a later one."""
        return self.revision == later.revision and self.next_seq <= later.next_seq


@dataclass(frozen=True, slots=True)
class KnownRow:
    """The place of a stored message; `seq` is None if it waits or was taken out."""

    seq: int | None


def placements(
    rows: Sequence[AppendedRow], known: Mapping[int, KnownRow], next_seq: int
) -> tuple[PlacedRow, ...]:
    """Return the place of each row, so that one message becomes one row.

    Two rows are the same message if their message ids are equal, or their platform's ids.

    Args:
        rows: The rows to append, in order.
        known: Stored messages, by place in `rows`.
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
    """A row of a person: its place, and the turn that answers it, if there is one."""

    seq: int
    turn_id: UUID | None


def turn_starts(newest_first: Iterable[UserRow]) -> list[int]:
    """Return the places where turns begin, newest first.

    All messages that a turn was claimed with begin it together. A row without a turn counts as a
    turn by itself.
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
