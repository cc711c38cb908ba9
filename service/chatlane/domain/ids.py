"""Derive ids from their causes, so that a repeated decision gives the same ids.

They are not secrets.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Final
from uuid import UUID

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MAX_MS: Final = 2**48 - 1
_VERSION_8: Final = 0x8 << 76
_VARIANT: Final = 0b10 << 62
_RANDOM: Final = (2**12 - 1) << 64 | 2**62 - 1


def derived_id(stored_at: datetime, trigger: bytes, effect: str, n: int = 0) -> UUID:
    """Return the UUIDv8 of an effect of a trigger.

    48 bits of milliseconds, so that ids sort by time, then 74 bits of a hash over trigger,
    effect and number, around the version and variant bits.

    Args:
        stored_at: When the trigger was stored, aware.
        trigger: The cause: a digest, or the bytes of an id.
        effect: The kind of thing that the id identifies.

    Source: RFC 9562, sections 5.8 and 6.5.
    """
    hashed = sha256(_head(len(trigger), effect, n) + trigger).digest()
    return UUID(int=_fixed(stored_at) | int.from_bytes(hashed[:16]) & _RANDOM)


# A message has several effects, and all messages have the same ones.
@lru_cache(maxsize=1024)
def _head(trigger_length: int, effect: str, n: int) -> bytes:
    """Return the hash input before the trigger; its length prefixes make it unambiguous."""
    return f"{trigger_length}:{len(effect)}:{n}:{effect}".encode()


@lru_cache(maxsize=64)
def _fixed(stored_at: datetime) -> int:
    """Return the bits that do not come from the hash."""
    milliseconds = min(max((stored_at - _EPOCH) // _MILLISECOND, 0), _MAX_MS)
    return milliseconds << 80 | _VERSION_8 | _VARIANT


def first_id_at(moment: datetime) -> UUID:
    """Return a lower bound of all ids that are derived at a time or later."""
    return UUID(int=max((moment - _EPOCH) // _MILLISECOND, 0) << 80)


def time_of(derived: UUID) -> datetime:
    """Return the time in a derived id, in UTC, cut to milliseconds."""
    return _EPOCH + (derived.int >> 80) * _MILLISECOND


def row_id_of(session_id: UUID, seq: int, revision: int = 0) -> UUID:
    """Return the UUIDv8 of a row that was written at a place of a session.

    A column of the row has the id only where this does not give it: once the row moved to another
    session, or if another row had the place before.

    Args:
        session_id: Session in which the row was written.
        seq: Place at which it was written.
        revision: Revision of the transcript, of a row that took the place of another one.
    """
    trigger = session_id.bytes + seq.to_bytes(8)
    if revision:
        trigger += revision.to_bytes(8)
    hashed = int.from_bytes(sha256(trigger).digest()[:16])
    return UUID(int=hashed & ~(0xF << 76 | 0b11 << 62) | _VERSION_8 | _VARIANT)
