"""Apply edits and deletes to the messages that they refer to, in whatever order they come.

A waiting message is changed in place, so its turn only sees the new content. A message in a
transcript is changed there, and its old content is kept as a revision. An edit whose message has
not come is remembered: the message then arrives with the content of its newest edit, or not at all.

Changes apply in log order, except that an edit which the platform made before the applied one
changes nothing. A deleted message never comes back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_core import from_json, to_json

from chatlane.domain.effects import (
    EARLY,
    EarlyRow,
    RevisionRow,
    RoutedChange,
    RowChange,
    SeenRow,
    WaitingChange,
    WaitingRow,
)
from chatlane_schemas.content.elements import EDITED_FIELDS
from chatlane_schemas.inbound import Kind
from chatlane_schemas.session_api.transcripts import RowState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from chatlane.domain.counts import ChangeOutcome
    from chatlane.domain.effects import Effects, MessageRow
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane_schemas.inbound import Attachment

_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*", re.ASCII)
# The field of `details` that names the edit which a message stands at.
_EDIT: Final = "edit"
# The details that a deleted message keeps: its kind, the trace of its turn, and whether it is
# context only.
_OF_DELETED: Final = frozenset({"kind", "traceparent", "observed"})

Order = tuple[int, tuple[int, ...], bytes]


class Edit(NamedTuple):
    """The content that an edit gives to a message, and the ids of the edit.

    `content` holds the parts besides text and files; None if they are not known.
    """

    text: str | None
    attachments: tuple[Attachment, ...]
    version: str | None
    event_id: str | None
    size_bytes: int
    content: Mapping[str, object] | None = None


def edit_of(arrived: ResolvedMessage) -> Edit:
    """Return the content of an `edit` event."""
    event = arrived.event
    return Edit(
        text=event.text,
        attachments=event.attachments,
        version=event.version or None,
        event_id=event.event_id or None,
        size_bytes=arrived.size_bytes,
        content=event.model_dump(mode="json", include=set(EDITED_FIELDS), exclude_none=True),
    )


def is_older(edit: Edit, version: str | None, event_id: str | None) -> bool:
    """Return whether the platform made an edit before the one with these ids.

    False without comparable ids: then the later one in the log is the newer one.
    """
    if edit.version and version and edit.version != version:
        return _order(edit.version) < _order(version)
    if edit.event_id and event_id and _is_number(edit.event_id) and _is_number(event_id):
        return _order(edit.event_id) < _order(event_id)
    return False


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _order(text: str) -> Order:
    """Return the sort key of a version: numbers first, then all others by their bytes."""
    if _is_number(text):
        return 0, tuple(map(int, text.split("."))), b""
    return 1, (), text.encode()


@dataclass(slots=True)
class Original:
    """A routed message with its place and current content.

    Attributes:
        place: Its arrival while it waits, its seq once it is written.
        size_bytes: While it waits: its part of the size of its turn.
        turn_id: Once it is written, the turn that was claimed with it.
        message_id: Its internal id; rows that were imported or appended, and copies, have none.
        copies: Its rows in branches of its session, and in the archive.
        removal: The change that archived it; 0 while it waits or is in a transcript.
    """

    session_id: UUID
    place: int
    is_waiting: bool
    content: str | None
    details: Mapping[str, object]
    platform_message_id: str
    size_bytes: int = 0
    turn_id: UUID | None = None
    message_id: UUID | None = None
    state: str | None = None
    copies: list[Original] = field(default_factory=list)
    removal: int = 0

    @property
    def edit(self) -> tuple[str | None, str | None]:
        """Return version and event id of the last edit applied to it."""
        mark = self.details.get(_EDIT)
        if not isinstance(mark, dict):
            return None, None
        return mark.get("version"), mark.get("event_id")

    @property
    def words(self) -> tuple[str | None, bytes]:
        """Return the content for a comparison."""
        parts = [self.details.get(name) or None for name in ("attachments", *EDITED_FIELDS)]
        return self.content, to_json(parts)


def _original_of(row: WaitingRow | MessageRow) -> Original:
    is_waiting = isinstance(row, WaitingRow)
    return Original(
        session_id=row.session_id,
        place=row.arrival if isinstance(row, WaitingRow) else row.seq,
        is_waiting=is_waiting,
        content=row.content,
        details=from_json(row.details or "{}"),
        platform_message_id=row.platform_message_id or "",
        message_id=row.message_id if isinstance(row, WaitingRow) else row.id,
    )


@dataclass(slots=True)
class Originals:
    """The messages that the edits and deletes of a batch refer to.

    Attributes:
        found: By digest, those that are waiting or written.
        awaited: Digests of messages of which only edits have come.
        early: The newest of these edits, by digest.
        emptied: Turns that lost a message to a delete.
    """

    found: dict[bytes, Original] = field(default_factory=dict)
    awaited: set[bytes] = field(default_factory=set)
    early: dict[bytes, Edit] = field(default_factory=dict)
    emptied: set[UUID] = field(default_factory=set)
    _resuming: set[bytes] = field(default_factory=set)

    def placed(self, digests: Iterable[bytes], row: WaitingRow | MessageRow) -> None:
        """Record a message of this batch, so that later events of the batch can change it."""
        original = _original_of(row)
        for digest in digests:
            self.found[digest] = original

    def end_of(self, targets: Iterable[bytes]) -> datetime | None:
        """Return when the message that an edit is about disappears, if it does."""
        for digest in targets:
            ends_at = self.found[digest].details.get("expires_at") if digest in self.found else None
            if isinstance(ends_at, str):
                return datetime.fromisoformat(ends_at)
        return None

    def turns_of(self, digests: Iterable[bytes]) -> set[UUID]:
        """Return the turns that answer these messages, as far as they are written."""
        found = (self.found[digest] for digest in digests if digest in self.found)
        return {original.turn_id for original in found if original.turn_id is not None}

    def is_awaited(self, known: Iterable[bytes]) -> bool:
        """Return whether only edits of a message have come so far."""
        return self.awaited.issuperset(known)

    def edited(
        self, arrived: ResolvedMessage, effects: Effects, edit: Edit | None = None
    ) -> ResolvedMessage:
        """Return a message with the content of the newest edit that came before it."""
        for digest in arrived.digests:
            if digest in self.awaited:
                self._resuming.add(digest)
                early = self._pop_early(digest, effects)
                edit = _newer(edit, early) if early else edit
        if edit is None:
            return arrived
        changes = {"text": edit.text, "attachments": edit.attachments}
        return arrived._replace(
            event=arrived.event.model_copy(update=changes),
            details=_json(_edited(from_json(arrived.details), edit)),
            size_bytes=edit.size_bytes,
        )

    def as_message(self, arrived: ResolvedMessage, effects: Effects) -> ResolvedMessage:
        """Return an edit as the message that it counts as."""
        message = arrived._replace(
            event=arrived.event.model_copy(update={"kind": Kind.MESSAGE}),
            digests=(*arrived.targets, *arrived.digests),
            details=_json(from_json(arrived.details) | {"kind": Kind.MESSAGE}),
            targets=(),
        )
        return self.edited(message, effects, edit_of(arrived))

    def without_resumed(self, marks: list[SeenRow], effects: Effects) -> list[SeenRow]:
        """Return the marks to insert; marks of early edits are updated to point to the message."""
        new = []
        for mark in marks:
            if mark.digest in self.awaited:
                self._pop_early(mark.digest, effects)
                effects.resumed.append(mark)
            elif mark.digest in self._resuming:
                self._resuming.discard(mark.digest)
                effects.resumed.append(mark)
            else:
                new.append(mark)
        return new

    def change(
        self, arrived: ResolvedMessage, known: set[bytes], effects: Effects
    ) -> ChangeOutcome:
        """Apply an edit or a delete, and return the outcome.

        Args:
            known: Those of its target digests that were seen.

        Returns:
            `new` if it is to be routed as a message.
        """
        original = next(
            (self.found[digest] for digest in arrived.targets if digest in self.found), None
        )
        is_delete = arrived.event.kind is Kind.DELETE
        if not is_delete and arrived.event.is_empty:
            # Such as the preview of a link, which the platform adds later.
            return "same"
        # A delete counts whatever its sender; but an edit of a bot that may not speak is ignored.
        if arrived.is_ignored and not is_delete:
            return "gone"
        if original is not None:
            return self._change_original(original, arrived, effects)
        if not self.is_awaited(known):
            return "gone"
        if is_delete:
            return self._forget(arrived.targets, effects)
        return "new" if arrived.event.counts_as_new else self._remember(arrived, effects)

    def _change_original(
        self, original: Original, arrived: ResolvedMessage, effects: Effects
    ) -> ChangeOutcome:
        for copy in original.copies:
            self._change_one(copy, arrived, effects)
        return self._change_one(original, arrived, effects)

    def _change_one(
        self, original: Original, arrived: ResolvedMessage, effects: Effects
    ) -> ChangeOutcome:
        if original.state == RowState.DELETED:
            return "gone"
        if arrived.event.kind is Kind.DELETE:
            return self._delete(original, arrived.stored_at, effects)
        return _edit(original, edit_of(arrived), arrived.stored_at, effects)

    def _delete(self, original: Original, at: datetime, effects: Effects) -> ChangeOutcome:
        """Blank the row of a message; a waiting message becomes such a row."""
        if original.is_waiting:
            effects.revisions.append(_revision(original, RowState.DELETED, at))
            effects.deleted_waiting.append((original.session_id, original.place))
            for digest in [key for key, message in self.found.items() if message is original]:
                del self.found[digest]
            return "applied"
        effects.revisions.append(_revision(original, RowState.DELETED, at))
        original.details = kept_when_deleted(original.details)
        original.content = None
        original.state = RowState.DELETED
        if original.turn_id is not None and not original.removal:
            self.emptied.add(original.turn_id)
        _note_routed(original, effects)
        _write(original, effects)
        return "applied"

    def _remember(self, arrived: ResolvedMessage, effects: Effects) -> ChangeOutcome:
        """Keep an edit whose message has not come."""
        edit = edit_of(arrived)
        outcome: ChangeOutcome = "early"
        for digest in arrived.targets:
            known = self.early.get(digest)
            if known is not None and is_older(edit, known.version, known.event_id):
                outcome = "older"
                continue
            if digest not in self.awaited:
                self.awaited.add(digest)
                effects.seen.append(SeenRow(digest, None, EARLY))
            self.early[digest] = edit
            effects.early.append(_early_row(digest, edit))
        return outcome

    def _forget(self, targets: Iterable[bytes], effects: Effects) -> ChangeOutcome:
        """Mark a message as seen that was deleted before it came."""
        for digest in targets:
            mark = SeenRow(digest, None, None)
            if digest in self.awaited:
                self._pop_early(digest, effects)
                effects.resumed.append(mark)
            else:
                effects.seen.append(mark)
        return "early"

    def _pop_early(self, digest: bytes, effects: Effects) -> Edit | None:
        self.awaited.discard(digest)
        effects.early_over.append(digest)
        return self.early.pop(digest, None)


def kept_when_deleted(details: Mapping[str, object]) -> dict[str, object]:
    """Return the details that a deleted message keeps."""
    return {name: value for name, value in details.items() if name in _OF_DELETED}


def _edit(original: Original, edit: Edit, at: datetime, effects: Effects) -> ChangeOutcome:
    if is_older(edit, *original.edit):
        return "older"
    before = original.words
    revision = _revision(original, RowState.EDITED, at)
    original.details = _edited(original.details, edit)
    original.content = edit.text
    original.size_bytes = edit.size_bytes
    changed = original.words != before
    if changed and not original.is_waiting:
        original.state = RowState.EDITED
        effects.revisions.append(revision)
        _note_routed(original, effects)
    _write(original, effects)
    return "applied" if changed else "same"


def _edited(details: Mapping[str, object], edit: Edit) -> dict[str, object]:
    """Return the stored details of a message after an edit."""
    replaced = {"attachments", _EDIT} | (set() if edit.content is None else set(EDITED_FIELDS))
    kept = {name: value for name, value in details.items() if name not in replaced}
    kept |= edit.content or {}
    if edit.attachments:
        kept["attachments"] = [
            file.model_dump(mode="json", exclude_none=True) for file in edit.attachments
        ]
    mark = {"version": edit.version, "event_id": edit.event_id}
    return kept | {_EDIT: {name: value for name, value in mark.items() if value is not None}}


def _json(value: Mapping[str, object]) -> str:
    return to_json(value).decode()


def _newer(known: Edit | None, other: Edit) -> Edit:
    return other if known is None or not is_older(other, known.version, known.event_id) else known


def _early_row(digest: bytes, edit: Edit) -> EarlyRow:
    attachments = [file.model_dump(mode="json", exclude_none=True) for file in edit.attachments]
    return EarlyRow(
        digest=digest,
        content=edit.text,
        attachments=to_json(attachments).decode(),
        version=edit.version,
        event_id=edit.event_id,
        size_bytes=edit.size_bytes,
    )


def _revision(original: Original, reason: RowState, at: datetime) -> RevisionRow:
    attachments = original.details.get("attachments")
    return RevisionRow(
        session_id=original.session_id,
        platform_message_id=original.platform_message_id,
        message_id=original.message_id,
        content=original.content,
        attachments=None if not attachments else to_json(attachments).decode(),
        reason=reason,
        at=at,
    )


def _note_routed(original: Original, effects: Effects) -> None:
    """Record the change of a message of a stream agent, which may not be delivered yet."""
    is_routed = original.turn_id is None and not original.details.get("observed")
    if is_routed and not original.removal and original.message_id is not None:
        effects.routed_changes.append(RoutedChange(original.message_id, original.session_id))


def _write(original: Original, effects: Effects) -> None:
    details = _json(original.details)
    if original.is_waiting:
        effects.waiting_changes.append(
            WaitingChange(
                session_id=original.session_id,
                arrival=original.place,
                size_bytes=original.size_bytes,
                content=original.content,
                details=details,
            )
        )
    else:
        effects.row_changes.append(
            RowChange(
                session_id=original.session_id,
                seq=original.place,
                content=original.content,
                details=details,
                state=original.state,
                removal=original.removal,
            )
        )
