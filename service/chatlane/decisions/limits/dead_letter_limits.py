"""Limit how many dead letters one account or agent causes in an hour.

A publisher that sends invalid messages would otherwise fill the database with their bodies. Above
the limits a message gets no separate dead letter and its body is not kept: one summary for each
owner, reason and hour holds their number and their range of sequences.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.domain.counts import CountName
from chatlane.domain.effects import DeadRow, Publication
from chatlane.domain.ids import derived_id
from chatlane.domain.limits.shares import label_of, owner_of
from chatlane.observability.logs import get_logger
from chatlane.store import dead_letter_shares, dead_letters
from chatlane.store.dead_letter_shares import Share, ShareRow, Used
from chatlane_schemas.codec import encode
from chatlane_schemas.dead import Cause, DeadLetter, DeadReason, Stage, cause_of
from chatlane_schemas.topology.streams import StreamName
from chatlane_schemas.topology.subjects import dead as dead_subject

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import Effects
    from chatlane.domain.log import LogName

# Errors that only the sender can fix. Dead letters of a bug or a loss in chatlane are not limited.
_BOUNDED: Final = frozenset({Cause.PUBLISHER, Cause.SENDER})
_NONE: Final = Used(0, 0)
_MOST_BYTES_SHOWN: Final = 2**31 - 1
_ANNOUNCED: Final = 100
# Most cached shares, one for each owner and hour; those of past hours are not used again.
_MOST_KNOWN: Final = 1000

_log = get_logger("dead_letter_limits")


@dataclass(slots=True, kw_only=True)
class DeadLetterLimits:
    """Keep a limited number of dead letters of one owner in an hour.

    Attributes:
        letters: Maximum number of dead letters.
        body_bytes: Maximum size of their bodies.
        owners: The declared accounts and agents, by log; all others share one limit.
        announced: Maximum number of them announced on DEAD; that stream has a long retention,
            and one owner must not fill it.
    """

    letters: int
    body_bytes: int
    owners: Mapping[LogName, Collection[str]]
    announced: int = _ANNOUNCED
    _known: dict[Share, dict[str, Used]] = field(default_factory=dict, init=False)

    def share_of(self, row: DeadRow) -> Share | None:
        """Return the share to which a dead letter counts, or None if it is always kept."""
        if row.stored_at is None or row.subject is None:
            return None
        if cause_of(DeadReason(row.reason)) not in _BOUNDED:
            return None
        hour = row.stored_at.replace(minute=0, second=0, microsecond=0)
        for log in self.owners:
            if row.log == log:
                return Share(log, label_of(owner_of(log, row.subject), self.owners[log]), hour)
        return None

    async def apply(self, connection: PoolConnectionProxy, effects: Effects) -> None:
        """Remove dead letters over the limit from the effects, and write their summaries."""
        shares = {
            row.id: share for row in effects.dead if (share := self.share_of(row)) is not None
        }
        if not shares:
            return
        used = await self._used(connection, set(shares.values()))
        tallies = self._tally(effects.dead, shares, used)
        added = [tally.row(share, reason) for (share, reason), tally in tallies.items()]
        sums = await dead_letter_shares.add(connection, added)
        for row in sums:
            # If this transaction fails, this is too high until the next letter of this reason.
            by_reason = self._known.setdefault(Share(row.log, row.owner, row.hour), {})
            by_reason[row.reason] = Used(row.kept, row.kept_bytes)
        silent = {str(letter) for tally in tallies.values() for letter in tally.silent_ids}
        if not silent:
            return
        effects.publications[:] = [
            publication
            for publication in effects.publications
            if publication.stream != StreamName.DEAD or publication.message_id not in silent
        ]
        dropped = {letter for tally in tallies.values() for letter in tally.dropped_ids}
        if not dropped:
            return
        effects.dead[:] = [row for row in effects.dead if row.id not in dropped]
        for row in added:
            effects.count((CountName.DEAD_LETTERS_DROPPED, row.log, row.owner), row.dropped)
        await _summarize(connection, sums, tallies, effects)

    async def _used(
        self, connection: PoolConnectionProxy, shares: Collection[Share]
    ) -> dict[Share, Used]:
        """Return how much of each share is used; cached shares are not read again.

        Each sum that is written returns the letters of other routers as well, so a share may
        slightly exceed its limit.
        """
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        if unknown := sorted(share for share in shares if share not in self._known):
            self._known |= await dead_letter_shares.read(connection, unknown)
        return {
            share: Used(
                sum(used.letters for used in self._known[share].values()),
                sum(used.body_bytes for used in self._known[share].values()),
            )
            for share in shares
        }

    def _tally(
        self, rows: Sequence[DeadRow], shares: Mapping[UUID, Share], used: dict[Share, Used]
    ) -> Tallies:
        tallies: Tallies = defaultdict(_Tally)
        # Equal bytes that were stored at the same time are one letter.
        for row in {row.id: row for row in rows}.values():
            if (share := shares.get(row.id)) is None:
                continue
            before = used.get(share, _NONE)
            after = Used(before.letters + 1, before.body_bytes + row.size_bytes)
            is_kept = after.letters <= self.letters and after.body_bytes <= self.body_bytes
            if is_kept:
                used[share] = after
            is_silent = not is_kept or after.letters > self.announced
            tallies[share, row.reason].add(row, is_kept=is_kept, is_silent=is_silent)
        return tallies


async def _summarize(
    connection: PoolConnectionProxy, sums: Sequence[ShareRow], tallies: Tallies, effects: Effects
) -> None:
    """Write the summaries of the letters that were not kept, and announce new summaries."""
    letters: dict[UUID, DeadLetter] = {}
    owners: dict[UUID, str] = {}
    for row in sums:
        tally = tallies[Share(row.log, row.owner, row.hour), row.reason]
        if tally.dropped_ids:
            letter = _summary(row, tally.stage)
            letters[UUID(letter.id)] = letter
            owners[UUID(letter.id)] = row.owner
    rows = [_row(letter_id, letter) for letter_id, letter in letters.items()]
    for letter_id in await dead_letters.write_summaries(connection, rows):
        letter = letters[letter_id]
        owner = owners[letter_id]
        _log.warning("dead_letters_over_limit", log=letter.log, owner=owner, reason=letter.reason)
        subject = dead_subject(letter.stage)
        effects.publications.append(
            Publication(None, StreamName.DEAD, subject, letter.id, encode(letter))
        )


@dataclass(slots=True)
class _Tally:
    """Count the letters of one reason that a batch adds to a share."""

    stage: Stage = Stage.INBOUND
    kept: int = 0
    kept_bytes: int = 0
    dropped_ids: list[UUID] = field(default_factory=list)
    silent_ids: list[UUID] = field(default_factory=list)
    dropped_bytes: int = 0
    places: list[int] = field(default_factory=list)

    def add(self, row: DeadRow, *, is_kept: bool, is_silent: bool) -> None:
        self.stage = Stage(row.stage)
        if is_silent:
            self.silent_ids.append(row.id)
        if is_kept:
            self.kept += 1
            self.kept_bytes += row.size_bytes
            return
        self.dropped_ids.append(row.id)
        self.dropped_bytes += row.size_bytes
        self.places += [] if row.sequence is None else [row.sequence]

    def row(self, share: Share, reason: str) -> ShareRow:
        return ShareRow(
            *share,
            reason=reason,
            kept=self.kept,
            kept_bytes=self.kept_bytes,
            dropped=len(self.dropped_ids),
            dropped_bytes=self.dropped_bytes,
            first_dropped=min(self.places, default=None),
            last_dropped=max(self.places, default=None),
        )


Tallies = dict[tuple[Share, str], _Tally]


def _summary(row: ShareRow, stage: Stage) -> DeadLetter:
    """Return the summary of the letters that were not kept; its id is the same for the hour."""
    trigger = f"{row.log}:{row.owner}".encode()
    kind = f"dead letters over the limit:{row.reason}"
    return DeadLetter(
        id=str(derived_id(row.hour, trigger, kind)),
        at=row.hour,
        stage=stage,
        reason=DeadReason(row.reason),
        log=row.log,
        sequence=row.first_dropped,
        digest=sha256(b"").hexdigest(),
        size_bytes=min(row.dropped_bytes, _MOST_BYTES_SHOWN),
        detail=f"{row.owner}: {row.dropped} more in this hour were not kept, "
        f"{row.dropped_bytes} bytes, sequences {row.first_dropped} to {row.last_dropped}",
    )


def _row(letter_id: UUID, letter: DeadLetter) -> DeadRow:
    return DeadRow(
        id=letter_id,
        stage=letter.stage,
        reason=letter.reason,
        log=letter.log,
        partition=None,
        sequence=letter.sequence,
        stored_at=letter.at,
        subject=None,
        session_id=None,
        digest=bytes.fromhex(letter.digest),
        size_bytes=letter.size_bytes,
        detail=letter.detail,
        body=None,
    )
