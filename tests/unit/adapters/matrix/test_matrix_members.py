"""When the members of rooms are reported, and what of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from chatlane_adapters.matrix import members as members_module
from chatlane_adapters.matrix.members import REPORTED_FOR, MemberReports
from chatlane_client.errors import (
    ConflictingRequestError,
    StaleRequestError,
    UnansweredRequestError,
    UndeliverableError,
)
from chatlane_schemas.session_api.rooms import MAX_MEMBERS
from tests.support.eventually import eventually

ROOM = "!room:example.org"
OTHER = "!other:example.org"


@dataclass
class Rooms:
    """A homeserver and a service.

    Attributes:
        members: By room; a room without an entry is one that the account has left.
        reported: What the service was told: room, members, when they were read, and the end.
        failures: Raised by the next reports.
    """

    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    direct: set[str] = field(default_factory=set)
    reported: list[tuple[str, tuple[str, ...], datetime, datetime]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    async def list_members(self, room_id: str) -> Sequence[str]:
        if room_id not in self.members:
            raise UndeliverableError("M_FORBIDDEN")
        return self.members[room_id]

    async def report(
        self, room_id: str, members: Sequence[str], read_at: datetime, until: datetime
    ) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.reported.append((room_id, tuple(members), read_at, until))

    def told(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return rooms and members of the reports, in order."""
        return [report[:2] for report in self.reported]


@asynccontextmanager
async def reporting(rooms: Rooms) -> AsyncIterator[MemberReports]:
    reports = MemberReports(rooms.list_members, rooms.report, lambda room: room in rooms.direct)
    task = asyncio.create_task(reports.run())
    try:
        yield reports
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_room_is_reported_at_the_beginning_and_after_changes() -> None:
    rooms = Rooms({ROOM: ("@ann:a", "@ben:a")})
    async with reporting(rooms) as reports:
        begun = datetime.now(UTC)
        reports.begin([ROOM])
        await eventually(lambda: rooms.told() == [(ROOM, ("@ann:a", "@ben:a"))])
        rooms.members[ROOM] = ("@ann:a",)
        reports.note(ROOM)
        await eventually(lambda: rooms.told()[1:] == [(ROOM, ("@ann:a",))])

    for _, _, read_at, until in rooms.reported:
        assert begun <= read_at
        assert until == read_at + REPORTED_FOR


async def test_changes_that_come_together_are_one_report() -> None:
    rooms = Rooms({ROOM: ("@ann:a",), OTHER: ("@ben:a",)})
    async with reporting(rooms) as reports:
        for _ in range(5):
            reports.note(ROOM)
        reports.note(OTHER)
        await eventually(lambda: len(rooms.reported) == 2)

    assert {room for room, _ in rooms.told()} == {ROOM, OTHER}


async def test_a_report_is_repeated_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "_AGAIN_SECONDS", 0.01)
    rooms = Rooms({ROOM: ("@ann:a",)})
    async with reporting(rooms) as reports:
        reports.note(ROOM)
        await eventually(lambda: len(rooms.reported) >= 3)


async def test_a_room_of_two_people_is_reported_after_a_change_only() -> None:
    rooms = Rooms({ROOM: ("@ann:a",), OTHER: ("@ben:a",)}, direct={ROOM})
    async with reporting(rooms) as reports:
        reports.begin([ROOM, OTHER])
        await eventually(lambda: rooms.told() == [(OTHER, ("@ben:a",))])
        reports.note(ROOM)
        await eventually(lambda: len(rooms.reported) == 2)


async def test_a_room_that_the_account_has_left_is_reported_without_members() -> None:
    rooms = Rooms()
    async with reporting(rooms) as reports:
        reports.note(ROOM)
        await eventually(lambda: rooms.told() == [(ROOM, ())])


async def test_a_room_with_too_many_members_is_reported_without_any() -> None:
    rooms = Rooms({ROOM: tuple(f"@{number}:a" for number in range(MAX_MEMBERS + 1))})
    async with reporting(rooms) as reports:
        reports.note(ROOM)
        await eventually(lambda: rooms.told() == [(ROOM, ())])


async def test_a_report_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "_PAUSE_SECONDS", 0.0)
    rooms = Rooms({ROOM: ("@ann:a",)})
    rooms.failures.append(UnansweredRequestError("subject", reached_nobody=True))
    async with reporting(rooms) as reports:
        reports.note(ROOM)
        await eventually(lambda: rooms.told() == [(ROOM, ("@ann:a",))])


async def test_a_newer_report_of_another_process_stays() -> None:
    rooms = Rooms({ROOM: ("@ann:a",), OTHER: ("@ben:a",)})
    rooms.failures.append(StaleRequestError("subject", "a newer report of the room is kept"))
    async with reporting(rooms) as reports:
        reports.note(ROOM)
        await eventually(lambda: not rooms.failures)
        reports.note(OTHER)
        await eventually(lambda: rooms.told() == [(OTHER, ("@ben:a",))])


async def test_an_account_that_shows_no_rooms_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members_module, "_UNWANTED_SECONDS", 0.0)
    rooms = Rooms({ROOM: ("@ann:a",)})
    rooms.failures.append(ConflictingRequestError("subject", "rooms are not shown"))
    async with reporting(rooms) as reports:
        reports.note(ROOM)
        await eventually(lambda: rooms.told() == [(ROOM, ("@ann:a",))])
