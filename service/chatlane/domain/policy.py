"""Define the policies for session keys and resets.

A boundary is an instant; the zone only determines which instants are boundaries. The zone data is
read once and kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from chatlane_schemas.events import ResetReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatlane.domain.states import Session

ResetMode = Literal["none", "idle", "daily", "both"]
# The rules of each mode. All code that depends on a mode uses this table.
RULES_OF_MODE: Final[Mapping[ResetMode, frozenset[ResetReason]]] = {
    "none": frozenset(),
    "idle": frozenset({ResetReason.IDLE}),
    "daily": frozenset({ResetReason.DAILY}),
    "both": frozenset({ResetReason.IDLE, ResetReason.DAILY}),
}
AnonymousDm = Literal["refuse", "shared"]

_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_LAST_HOUR: Final = 23


@dataclass(frozen=True, slots=True)
class KeyRules:
    """The parts of an address that count in the key, and the handling of an anonymous DM.

    Attributes:
        dm_threads: Whether a thread of a DM is a conversation, if the event does not say so.
        group_threads: The same for groups.
    """

    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    anonymous_dm: AnonymousDm = "refuse"
    dm_threads: bool = True
    group_threads: bool = True


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """The rules for when a message of a person opens a new session.

    Attributes:
        at_hour: Hour of the daily boundary on the wall clock of `timezone`, 0 to 23.
        idle: A conversation ends after a longer inactivity than this. Inactivity begins with the
            last message of a person, or with the end of the last turn that answered one.
        quiet: Minimum inactivity before a daily reset may end a conversation.
        resume_window: How long the mark of an interruption keeps a session; forever if it is not
            positive.
        notify: Whether the chat gets a notice of a reset by time, if it had an answer before.
        warning: How long before an end by time it is announced; 0 for not at all.
    """

    mode: ResetMode = "none"
    at_hour: int = 4
    timezone: str = "UTC"
    idle: timedelta = timedelta(hours=24)
    quiet: timedelta = timedelta(minutes=30)
    resume_window: timedelta = timedelta(hours=1)
    notify: bool = True
    warning: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        """Reject values here that could otherwise fail only when a message arrives."""
        if not 0 <= self.at_hour <= _LAST_HOUR:
            raise ValueError(f"hour of the daily boundary is not 0 to 23: {self.at_hour}")
        _zone(self.timezone)

    @property
    def is_timed(self) -> bool:
        """Return whether time alone ends a session."""
        return bool(RULES_OF_MODE[self.mode])

    @property
    def resets_idle(self) -> bool:
        """Return whether inactivity ends a session."""
        return ResetReason.IDLE in RULES_OF_MODE[self.mode]

    @property
    def resets_daily(self) -> bool:
        """Return whether a boundary ends a session."""
        return ResetReason.DAILY in RULES_OF_MODE[self.mode]


class SessionClock(NamedTuple):
    """The times of a session that a reset depends on.

    Attributes:
        last_activity_at: When a person last wrote; None if only timers have.
        served_boundary: The daily boundary in force when it started.
        started_at: Replaces the two above if they are unknown; without it they count as old.
        has_live_turn: A turn runs.
        held_until: When the last hold of background work ends.
        suspended_at: When it was suspended, if it was.
        resume_marked_at: When it was last marked as interrupted, if it is.
        asked_turn_ended_at: When the last turn ended that answered a person.
    """

    last_activity_at: datetime | None = None
    served_boundary: datetime | None = None
    started_at: datetime | None = None
    has_live_turn: bool = False
    held_until: datetime | None = None
    suspended_at: datetime | None = None
    resume_marked_at: datetime | None = None
    asked_turn_ended_at: datetime | None = None

    @classmethod
    def without_obstacles(cls, clock: SessionClock | Session) -> SessionClock:
        """Return the times that inactivity depends on, without anything that delays a reset."""
        return cls(
            clock.last_activity_at,
            clock.served_boundary,
            clock.started_at,
            asked_turn_ended_at=clock.asked_turn_ended_at,
        )


class _Boundary(NamedTuple):
    at: datetime
    day: date


def reset_reason(
    clock: SessionClock | Session, policy: ResetPolicy, now: datetime
) -> ResetReason | None:
    """Return why a person's message at `now` opens a new session, or None.

    A suspended session always ends. An interrupted one continues within the resume window whatever
    the policy, and ends after it. Then idle is tested before daily. A daily reset that was delayed
    by an active conversation, or by a hold, stays due until the next boundary replaces it: at most
    one for each local date.
    """
    if clock.suspended_at is not None:
        return ResetReason.SUSPENDED
    if clock.has_live_turn:
        return None
    if clock.resume_marked_at is not None:
        is_fresh = _is_fresh(clock.resume_marked_at, policy, now)
        return None if is_fresh else ResetReason.RESUME_PENDING_EXPIRED
    if not policy.is_timed or (clock.held_until is not None and now < clock.held_until):
        return None
    return _timed_reason(clock, policy, now)


def _is_fresh(marked_at: datetime, policy: ResetPolicy, now: datetime) -> bool:
    return policy.resume_window <= timedelta(0) or now - marked_at <= policy.resume_window


def _timed_reason(
    clock: SessionClock | Session, policy: ResetPolicy, now: datetime
) -> ResetReason | None:
    active_at = _active_at(clock)
    if policy.resets_idle and (active_at is None or now - active_at > policy.idle):
        return ResetReason.IDLE
    if not policy.resets_daily:
        return None
    is_quiet = active_at is None or now - active_at >= policy.quiet
    return ResetReason.DAILY if is_quiet and _is_due(clock, policy, now) else None


def _active_at(clock: SessionClock | Session) -> datetime | None:
    """Return the begin of inactivity: the last message of a person, or the end of its turn."""
    written_at = clock.last_activity_at or clock.started_at
    ended_at = clock.asked_turn_ended_at
    if written_at is None or ended_at is None:
        return written_at
    return max(written_at, ended_at)


def _is_due(clock: SessionClock | Session, policy: ResetPolicy, now: datetime) -> bool:
    served_at = clock.served_boundary
    if served_at is None:
        if clock.started_at is None:
            return True
        served_at = boundary_before(clock.started_at, policy)
    last = _last_boundary(now, policy)
    # The dates differ from the instants only after a change of the hour or the zone: a day that had
    # its reset gets no second one at the new hour.
    return last.at > served_at and last.day > _day_served(served_at, policy)


def _day_served(served_at: datetime, policy: ResetPolicy) -> date:
    last = _last_boundary(served_at, policy)
    if last.at == served_at:
        return last.day
    return served_at.astimezone(_zone(policy.timezone)).date()


class NextReset(NamedTuple):
    """The time from which a message would open a new session, if no person writes until then."""

    at: datetime
    reason: ResetReason


def next_reset(
    clock: SessionClock | Session, policy: ResetPolicy, now: datetime
) -> NextReset | None:
    """Return the first reset after inactivity from `now` on; None if none within days.

    A turn or hold that delays it now is expected to be over by then. An idle reset comes
    strictly after its time.
    """
    clock = SessionClock.without_obstacles(clock)
    active_at = _active_at(clock) or now
    found = []
    if policy.resets_idle:
        found.append(NextReset(max(active_at + policy.idle, now), ResetReason.IDLE))
    if policy.resets_daily:
        daily_only = replace(policy, mode="daily")
        ahead = (boundary.at for boundary in _boundaries_ahead(now, policy))
        for boundary in (now, *ahead):
            at = max(boundary, active_at + policy.quiet)
            if reset_reason(clock, daily_only, at) is not None:
                found.append(NextReset(at, ResetReason.DAILY))
                break
    return min(found, default=None)


def timed_end(clock: SessionClock | Session, policy: ResetPolicy) -> NextReset | None:
    """Return when inactivity since the last message ends a session, ignoring current delays."""
    if clock.resume_marked_at is not None:
        if policy.resume_window <= timedelta(0):
            return None
        ends_at = clock.resume_marked_at + policy.resume_window
        return NextReset(ends_at, ResetReason.RESUME_PENDING_EXPIRED)
    active_at = _active_at(clock)
    return None if active_at is None else next_reset(clock, policy, active_at)


def _boundaries_ahead(now: datetime, policy: ResetPolicy) -> list[_Boundary]:
    day = now.astimezone(UTC).date() + 2 * _DAY
    around = _boundaries_around(day, policy.at_hour, policy.timezone)
    return sorted(boundary for boundary in around if boundary.at > now)


def served_boundary_at(start: datetime, policy: ResetPolicy) -> datetime | None:
    """Return the boundary in force for a session that starts now; None without daily resets."""
    return boundary_before(start, policy) if policy.resets_daily else None


def boundary_before(now: datetime, policy: ResetPolicy) -> datetime:
    """Return the last daily boundary at or before `now`, in UTC.

    A local date that does not exist in the zone has no boundary.
    """
    return _last_boundary(now, policy).at


def _last_boundary(now: datetime, policy: ResetPolicy) -> _Boundary:
    day = now.date() if now.tzinfo is UTC else now.astimezone(UTC).date()
    around = _boundaries_around(day, policy.at_hour, policy.timezone)
    return next(boundary for boundary in around if boundary.at <= now)


@lru_cache(maxsize=1024)
def _boundaries_around(day: date, at_hour: int, timezone: str) -> tuple[_Boundary, ...]:
    """Return, latest first, every boundary that can be the last one on a UTC date.

    The local date is at most one day off. After a clock was set back across midnight, the boundary
    of tomorrow may have passed already. Yesterday may not exist.
    """
    zone = _zone(timezone)
    days = (day + offset * _DAY for offset in range(2, -4, -1))
    boundaries = (_boundary_of(local, at_hour, zone) for local in days)
    return tuple(boundary for boundary in boundaries if boundary is not None)


def _boundary_of(day: date, at_hour: int, zone: ZoneInfo) -> _Boundary | None:
    if _first_instant(datetime.combine(day, time()), zone).astimezone(zone).date() != day:
        return None
    return _Boundary(_first_instant(datetime.combine(day, time(at_hour)), zone), day)


def _first_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant at which the clocks of a zone show `wall` or later.

    That is the first of two in a fold, and the end of the gap in a gap.
    """
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return instant
    return _end_of_gap(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def _end_of_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    # zoneinfo does not expose its transitions, but they are at full seconds.
    offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
