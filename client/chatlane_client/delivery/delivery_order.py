"""Decide which outbound messages may go to their chat now.

The module is pure: time is an argument. Every session numbers its outbound messages 1, 2, 3, ...
without a gap, so a missing number shows a missing message. A duplicate is recognised by its id,
because a database that was restored to an earlier time assigns numbers a second time.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

T = TypeVar("T")


class Place(Enum):
    """Position of a message relative to its session's progress."""

    IN_ORDER = auto()
    EARLY = auto()
    """An earlier message is missing; this message is kept back."""
    LATE = auto()
    """Passed over, or older than any message seen by this process; delivered late, not lost."""
    REUSED = auto()
    """Another message had the same number before; the new message is delivered."""
    REPEAT = auto()


class Admission(NamedTuple, Generic[T]):
    """Outcome of a message's arrival; `ready` is in order, also after a duplicate."""

    place: Place
    ready: tuple[T, ...] = ()


class PassedOver(NamedTuple, Generic[T]):
    """Numbers that did not arrive in time, and the messages that need not wait for them."""

    session_id: UUID
    missing: range
    ready: tuple[T, ...]


class _Kept(NamedTuple, Generic[T]):
    """An entry that waits for a gap to close; without an item it only occupies its number."""

    item: T | None
    patient_until: float


@dataclass(slots=True)
class _Progress(Generic[T]):
    """Progress of one session; `following` is 0 until its first number is known."""

    first: int = 0
    following: int = 0
    skipped: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    early: dict[int, _Kept[T]] = field(default_factory=dict)

    @property
    def patient_until(self) -> float:
        return self.early[min(self.early)].patient_until

    def begin(self, number: int) -> None:
        self.first = self.following = number

    def is_repeat(self, number: int) -> bool:
        was_passed = self.first <= number < self.following and number not in self.skipped
        return was_passed or number in self.late or number in self.early

    def accept_late(self, number: int) -> None:
        if number in self.skipped:
            self.skipped.discard(number)
        else:
            self.late.add(number)

    def take_early(self) -> Iterator[T]:
        while self.following in self.early:
            item = self.early.pop(self.following).item
            self.following += 1
            if item is not None:
                yield item

    def pass_over(self) -> range:
        """Step over the first gap and return it."""
        missing = range(self.following or min(self.early), min(self.early))
        self.skipped.update(missing)
        if not self.following:
            self.begin(missing.stop)
        self.following = missing.stop
        return missing


@dataclass(slots=True)
class DeliveryNumbers:
    """Counts the deliveries of a durable that this process did not get.

    The server numbers the deliveries of a durable 1, 2, 3, ..., across all requests. It delivers a
    message for the first time only after all older messages of its session. So if no number is
    missing, neither another process nor a lost connection holds an older message.

    Attributes:
        missed: Number of deliveries to other readers since the last `restart`.
    """

    missed: int = 0
    _last: int | None = None

    def restart(self, last: int) -> None:
        """Start after a delivery up to which the state of all deliveries is known."""
        self.missed, self._last = 0, last

    def count(self, number: int) -> int:
        """Record a delivery, and return how many deliveries since the last one went elsewhere.

        A recreated durable, or a new leader, may start at a lower number.
        """
        skipped = 0 if self._last is None else max(0, number - self._last - 1)
        self._last = number
        self.missed += skipped
        return skipped


class SessionOrder(Generic[T]):
    """Puts the messages of every session into the order of their numbers.

    Args:
        max_sessions: How many sessions' progress is remembered.
        max_ids: How many ids are remembered, over all sessions. A redelivered message whose
            number is known but whose id is forgotten is treated as a duplicate.
    """

    def __init__(self, max_sessions: int = 50_000, max_ids: int = 100_000) -> None:
        self._max_sessions = max_sessions
        self._max_ids = max_ids
        self._places: OrderedDict[str, tuple[UUID, int]] = OrderedDict()
        self._newest: dict[tuple[UUID, int], str] = {}
        self._sessions: OrderedDict[UUID, _Progress[T]] = OrderedDict()
        self._waiting: dict[UUID, _Progress[T]] = {}

    def admit(
        self,
        session_id: UUID,
        number: int,
        message_id: str,
        item: T,
        *,
        patient_until: float,
        may_lead: bool,
    ) -> Admission[T]:
        """Place a message that arrived.

        Args:
            session_id: Session of the message.
            number: Its number in the session.
            message_id: The same in every copy of the message, whatever its number.
            item: Returned once the message is ready.
            patient_until: How long to wait for missing earlier messages.
            may_lead: Whether the first number seen of a session is taken as its next one.
                False while older messages of other processes may still arrive.
        """
        progress = self._progress(session_id)
        is_known = message_id in self._places
        is_taken = progress.is_repeat(number)
        if is_taken:
            if is_known or (session_id, number) not in self._newest:
                return Admission(Place.REPEAT)
            self._remember(message_id, session_id, number)
            return Admission(Place.REUSED, (item,))
        self._remember(message_id, session_id, number)
        if is_known:
            # Delivered under another number, so the order does not wait for this number.
            progress.early[number] = _Kept(None, patient_until)
            if not progress.following and may_lead:
                progress.begin(min(progress.early))
            return Admission(Place.REPEAT, self._advance(session_id, progress).ready)
        if not progress.following and (may_lead or number == 1):
            progress.begin(min((number, *progress.early)))
        if progress.following and number < progress.following:
            progress.accept_late(number)
            return Admission(Place.LATE, (item,))
        progress.early[number] = _Kept(item, patient_until)
        return self._advance(session_id, progress)

    def would_lead(self, session_id: UUID, number: int) -> bool:
        """Return whether a message would begin its session in the middle, if it may lead."""
        progress = self._sessions.get(session_id)
        return number > 1 and (progress is None or not progress.following)

    def pass_overdue(self, now: float) -> list[PassedOver[T]]:
        """Stop waiting for messages that did not arrive in time."""
        overdue = [(key, it) for key, it in self._waiting.items() if it.patient_until <= now]
        return [self._pass_over(session_id, progress) for session_id, progress in overdue]

    def lead_unknown(self) -> list[PassedOver[T]]:
        """Let sessions start with the messages they have: no older message is in flight."""
        unknown = [(key, it) for key, it in self._waiting.items() if not it.following]
        return [self._pass_over(session_id, progress) for session_id, progress in unknown]

    def next_deadline(self) -> float | None:
        """Return when the patience with the next gap ends."""
        return min((it.patient_until for it in self._waiting.values()), default=None)

    def _remember(self, message_id: str, session_id: UUID, number: int) -> None:
        self._places[message_id] = session_id, number
        self._newest[session_id, number] = message_id
        self._places.move_to_end(message_id)
        if len(self._places) > self._max_ids:
            oldest, place = self._places.popitem(last=False)
            if self._newest.get(place) == oldest:
                del self._newest[place]

    def _advance(self, session_id: UUID, progress: _Progress[T]) -> Admission[T]:
        ready = tuple(progress.take_early())
        if progress.early:
            self._waiting[session_id] = progress
        else:
            self._waiting.pop(session_id, None)
        return Admission(Place.IN_ORDER if ready else Place.EARLY, ready)

    def _pass_over(self, session_id: UUID, progress: _Progress[T]) -> PassedOver[T]:
        missing = progress.pass_over()
        return PassedOver(session_id, missing, self._advance(session_id, progress).ready)

    def _progress(self, session_id: UUID) -> _Progress[T]:
        progress = self._sessions.setdefault(session_id, _Progress())
        self._sessions.move_to_end(session_id)
        if len(self._sessions) > self._max_sessions:
            self._forget_oldest()
        return progress

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._sessions))
        if oldest not in self._waiting:
            del self._sessions[oldest]
