"""Changes of sessions are told in the second after them, once for each."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from chatlane.domain.states import Session
from chatlane.turns.session_updates import MOST_AT_ONCE, Updates
from chatlane_schemas.codec import decode
from chatlane_schemas.events import SessionUpdated

NOW = datetime(2026, 5, 11, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def session(number: int) -> Session:
    return Session(UUID(int=number), f"key:{number}", "main", "telegram", NOW)


class Told:
    """What was told, as the stream keeps it: each message id once."""

    def __init__(self) -> None:
        self.kept: dict[str, SessionUpdated] = {}

    async def __call__(self, subject: str, payload: bytes, message_id: str | None = None) -> None:
        assert subject == "chat.v1.event.session.updated"
        told = decode(SessionUpdated, payload)
        assert told.id == message_id
        self.kept.setdefault(told.id, told)

    @property
    def numbers(self) -> list[int]:
        return [told.session_id.int for told in self.kept.values()]


def by_id(*sessions: Session) -> dict[UUID, Session]:
    return {one.id: one for one in sessions}


async def test_a_session_that_changes_often_is_told_once_in_a_second() -> None:
    told = Told()
    updates = Updates(told)
    for number in (1, 2, 1, 1):
        updates.note(by_id(session(number)))
    assert await updates.flush(NOW) == 2
    assert await updates.flush(NOW + SECOND) == 0
    updates.note(by_id(session(1)))
    await updates.flush(NOW + 2 * SECOND)

    assert told.numbers == [1, 2, 1]


async def test_routers_that_change_it_in_one_second_tell_it_once() -> None:
    told = Told()
    routers = Updates(told), Updates(told)
    for router in routers:
        router.note(by_id(session(1)))
    for number, router in enumerate(routers):
        await router.flush(NOW + number * timedelta(milliseconds=300))

    assert told.numbers == [1]


async def test_many_at_once_are_told_over_several_seconds_in_their_order() -> None:
    told = Told()
    updates = Updates(told)
    updates.note(by_id(*map(session, range(MOST_AT_ONCE + 10))))
    assert await updates.flush(NOW) == MOST_AT_ONCE
    assert await updates.flush(NOW + SECOND) == 10

    assert told.numbers == list(range(MOST_AT_ONCE + 10))
