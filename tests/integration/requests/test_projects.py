"""Folders: a person makes them and puts own sessions into them; nobody else sees or changes them."""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.api.projects import ProjectQueries
from chatlane.observability.metrics import Metrics
from chatlane.requests.change_service import ChangeService
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import decode
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.projects import (
    MAX_PROJECTS,
    Project,
    ProjectListReply,
    ProjectReply,
)
from chatlane_schemas.session_api.session_marks import SCHEDULED_PROJECT
from chatlane_schemas.session_api.sessions import ApiErrorCode, ApiReply, SessionReply, SessionView
from tests.integration.requests.test_session_changes import ANN, BEN
from tests.support.worlds.kernel import DAY, SLOTS, Kernel, event

pytestmark = pytest.mark.integration

ANN_ID = {"platform": "telegram", "account": "bot", "id": "701"}
BEN_ID = {"platform": "telegram", "account": "bot", "id": "702"}


class Folders:
    """Asks on behalf of a person, as a front end does."""

    def __init__(self, kernel: Kernel, person: dict[str, Any] | None = None) -> None:
        service = ChangeService(kernel.store, kernel.writer, kernel.catalog, SLOTS)
        handler = RequestHandler(Metrics())
        self._handlers = handler.changes(service.change) | handler.reads(
            ProjectQueries(kernel.store).table()
        )
        self._person = ANN_ID if person is None else person
        self._reads = SessionReads(kernel.store)

    async def ask(self, method: str, **fields: Any) -> bytes:  # noqa: ANN401 - any field of a request
        body = {"v": 1, "id": uuid4().hex, "at": DAY.isoformat(), "acting_for": self._person}
        request = json.dumps(body | fields, default=str).encode()
        return await self._handlers[method](ApiRequest("web", request))

    async def changed(self, verb: str, **fields: Any) -> Project:  # noqa: ANN401 - any field of a request
        reply = decode(ProjectReply, await self.ask(f"project.{verb}", **fields))
        assert reply.project is not None, reply.error
        return reply.project

    async def listed(self, verb: str = "list", **fields: Any) -> list[Project]:  # noqa: ANN401 - any field of a request
        reply = decode(ProjectListReply, await self.ask(f"project.{verb}", **fields))
        assert reply.error is None
        return list(reply.projects)

    async def moved(self, session: UUID, folder: UUID | None) -> SessionView:
        reply = await self.ask("session.move", session_id=session, project_id=folder)
        moved = decode(SessionReply, reply)
        assert moved.session is not None, moved.error
        return moved.session

    async def refused(self, method: str, **fields: Any) -> ApiErrorCode:  # noqa: ANN401 - any field of a request
        error = decode(ApiReply, await self.ask(method, **fields)).error
        assert error is not None
        return error.code

    async def folder_of(self, session: UUID) -> UUID | None:
        found = await self._reads.find(session, Person(**self._person))
        assert found is not None
        return found.project_id


@pytest.fixture
def ann(kernel: Kernel) -> Folders:
    return Folders(kernel)


@pytest.fixture
def ben(kernel: Kernel) -> Folders:
    return Folders(kernel, BEN_ID)


async def test_r8_1_a_folder_has_a_name_a_colour_a_profile_and_a_place(ann: Folders) -> None:
    garden = await ann.changed("create", name="Gar\u202eden", colour="#22c55e", profile="main")
    roof = await ann.changed("create", name="Roof")
    notes = await ann.changed("create", name="Notes", profile="notes")
    assert (garden.name, garden.colour, garden.profile) == ("Garden", "#22c55e", "main")
    assert (roof.colour, roof.profile) == ("#6366f1", None)
    assert await ann.listed() == [garden, roof, notes]
    assert await ann.listed(profile="main") == [garden, roof]

    assert await ann.listed("arrange", project_ids=[roof.id, uuid4()]) == [roof, garden, notes]
    renamed = await ann.changed("update", project_id=garden.id, name="Plants", colour="#000000")
    assert renamed == garden.model_copy(update={"name": "Plants", "colour": "#000000"})
    assert await ann.listed() == [roof, renamed, notes]


async def test_r8_8_a_name_is_unique_for_a_person_and_profile(ann: Folders, ben: Folders) -> None:
    roof = await ann.changed("create", name="Roof")
    garden = await ann.changed("create", name="Garden")
    for alike in ("Roof", "roof", "R\u03bfof"):
        assert await ann.refused("project.create", name=alike) is ApiErrorCode.CONFLICT
        again = {"project_id": garden.id, "name": alike}
        assert await ann.refused("project.update", **again) is ApiErrorCode.CONFLICT
    await ann.changed("update", project_id=roof.id, name="ROOF")
    await ann.changed("create", name="Roof", profile="notes")
    await ben.changed("create", name="Roof")


async def test_two_windows_that_make_the_same_folder_at_once_get_one(
    ann: Folders, kernel: Kernel
) -> None:
    replies = await asyncio.gather(*(ann.ask("project.create", name="Roof") for _ in range(4)))
    made = [reply for reply in replies if decode(ApiReply, reply).error is None]
    assert len(made) == 1
    assert await kernel.value("SELECT count(*) FROM projects") == 1


async def test_folders_of_a_person_are_bounded(ann: Folders, kernel: Kernel) -> None:
    await kernel.fetch(
        "INSERT INTO projects (id, owner, name, colour, place)"
        " SELECT gen_random_uuid(), 'telegram:bot:701', 'folder ' || n, '#6366f1', n"
        " FROM generate_series(1, $1::int) AS n",
        MAX_PROJECTS,
    )
    assert await ann.refused("project.create", name="Roof") is ApiErrorCode.CONFLICT


async def test_a_session_is_in_one_folder_or_none(ann: Folders, kernel: Kernel) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    other = (await kernel.say(event(**ANN | {"thr": "7"}, mid="2", text="b"))).session
    before = await kernel.value("SELECT last_activity_at FROM sessions WHERE id = $1", session)
    roof = await ann.changed("create", name="Roof")
    garden = await ann.changed("create", name="Garden")

    assert (await ann.moved(session, roof.id)).project_id == roof.id
    await ann.moved(other, roof.id)
    assert [folder.sessions for folder in await ann.listed()] == [2, 0]
    assert (await ann.moved(session, garden.id)).project_id == garden.id
    assert [folder.sessions for folder in await ann.listed()] == [1, 1]
    await kernel.fetch("UPDATE sessions SET archived_at = now() WHERE id = $1", session)
    assert [folder.sessions for folder in await ann.listed()] == [1, 0]
    assert (await ann.moved(session, None)).project_id is None
    assert before == await kernel.value(
        "SELECT last_activity_at FROM sessions WHERE id = $1", session
    )


async def test_r8_4_the_sessions_of_a_removed_folder_stay_and_are_in_none(
    ann: Folders, kernel: Kernel
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    roof = await ann.changed("create", name="Roof")
    await ann.moved(session, roof.id)
    await ann.changed("remove", project_id=roof.id)
    assert await ann.folder_of(session) is None
    assert await ann.listed() == []
    assert await ann.refused("project.remove", project_id=roof.id) is ApiErrorCode.NOT_FOUND
    invalid = await ann.refused("session.move", session_id=session, project_id=roof.id)
    assert invalid is ApiErrorCode.INVALID


async def test_nobody_sees_changes_or_fills_a_folder_of_another_person(
    ann: Folders, ben: Folders, kernel: Kernel
) -> None:
    hers = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    his = (await kernel.say(event(**BEN, mid="2", text="b"))).session
    roof = await ann.changed("create", name="Roof")
    assert await ben.listed() == []
    assert await ben.listed("arrange", project_ids=[roof.id]) == []
    for verb in ("update", "remove"):
        asked = {"project_id": roof.id} | ({"name": "Mine"} if verb == "update" else {})
        assert await ben.refused(f"project.{verb}", **asked) is ApiErrorCode.NOT_FOUND
    into = {"project_id": roof.id}
    assert await ben.refused("session.move", session_id=his, **into) is ApiErrorCode.INVALID
    assert await ben.refused("session.move", session_id=hers, **into) is ApiErrorCode.NOT_FOUND
    # An operator, who acts for nobody, puts a session into no folder of another person either.
    operator = {"acting_for": None}
    assert (
        await ann.refused("session.move", session_id=his, **into, **operator)
        is ApiErrorCode.INVALID
    )
    assert [folder.name for folder in await ann.listed()] == ["Roof"]
    moved = decode(SessionReply, await ann.ask("session.move", session_id=hers, **into, **operator))
    assert moved.session is not None
    assert moved.session.project_id == roof.id


async def test_who_asks_for_folders_has_to_name_a_person(ann: Folders) -> None:
    nobody: dict[str, Any] = {"acting_for": None}
    folder = {"project_id": uuid4()}
    assert await ann.refused("project.list", **nobody) is ApiErrorCode.INVALID
    assert await ann.refused("project.create", name="Roof", **nobody) is ApiErrorCode.INVALID
    assert await ann.refused("project.update", name="a", **folder, **nobody) is ApiErrorCode.INVALID
    assert await ann.refused("project.remove", **folder, **nobody) is ApiErrorCode.INVALID
    arranged = {"project_ids": [uuid4()]}
    assert await ann.refused("project.arrange", **arranged, **nobody) is ApiErrorCode.INVALID


async def test_r8_5_r8_6_the_folder_of_scheduled_jobs_is_built_in(
    ann: Folders, kernel: Kernel
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    assert await ann.listed() == []
    conflict = await ann.refused("session.move", session_id=session, project_id=SCHEDULED_PROJECT)
    assert conflict is ApiErrorCode.CONFLICT

    await kernel.fetch("UPDATE sessions SET origin = 'cron'")
    [built_in] = await ann.listed()
    assert (built_in.id, built_in.is_built_in, built_in.sessions) == (SCHEDULED_PROJECT, True, 1)
    assert built_in.colour == "#6366f1"
    assert await kernel.value("SELECT count(*) FROM projects") == 0
    for verb in ("update", "remove"):
        asked = {"project_id": SCHEDULED_PROJECT} | ({"name": "a"} if verb == "update" else {})
        assert await ann.refused(f"project.{verb}", **asked) is ApiErrorCode.CONFLICT

    roof = await ann.changed("create", name="Roof")
    await ann.moved(session, roof.id)
    assert await ann.listed() == [roof.model_copy(update={"sessions": 1})]
    assert (await ann.moved(session, SCHEDULED_PROJECT)).project_id == SCHEDULED_PROJECT
    await ann.moved(session, roof.id)
    await ann.changed("remove", project_id=roof.id)
    assert await ann.folder_of(session) == SCHEDULED_PROJECT


async def test_a_session_that_people_share_is_in_no_folder(ann: Folders, kernel: Kernel) -> None:
    room = {"kind_of_chat": "group", "chat": "room", "thr": "7", "user": "701"}
    session = (await kernel.say(event(**room, mid="1", text="a"))).session
    roof = await ann.changed("create", name="Roof")
    await kernel.fetch("UPDATE sessions SET owner = NULL")
    asked = {"session_id": session, "project_id": roof.id, "acting_for": None}
    assert await ann.refused("session.move", **asked) is ApiErrorCode.CONFLICT


async def test_a_person_with_several_ids_has_one_set_of_folders(
    ann: Folders, ben: Folders, kernel: Kernel
) -> None:
    here = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    there = (await kernel.say(event(**BEN, mid="1", text="b"))).session
    both = Folders(kernel, {**ANN_ID, "also": [BEN_ID]})
    garden = await ben.changed("create", name="Garden")
    roof = await both.changed("create", name="Roof")

    assert (await both.moved(there, roof.id)).project_id == roof.id
    assert (await both.moved(here, garden.id)).project_id == garden.id
    assert [(one.name, one.sessions) for one in await both.listed()] == [("Garden", 1), ("Roof", 1)]
    # Each id alone has what is its own.
    assert [(one.name, one.sessions) for one in await ann.listed()] == [("Roof", 0)]
    invalid = {"session_id": there, "project_id": roof.id}
    assert await ben.refused("session.move", **invalid) is ApiErrorCode.INVALID


async def test_a_branch_stays_in_the_folder(ann: Folders, kernel: Kernel) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(session)
    roof = await ann.changed("create", name="Roof")
    await ann.moved(session, roof.id)
    copy = decode(SessionReply, await ann.ask("session.fork", session_id=session)).session
    assert copy is not None
    assert copy.project_id == roof.id


async def test_a_repeated_request_makes_one_folder(ann: Folders) -> None:
    name = {"name": "Roof", "id": uuid4().hex}
    assert await ann.changed("create", **name) == await ann.changed("create", **name)
    assert len(await ann.listed()) == 1


async def test_of_two_moves_made_from_one_version_the_later_one_is_refused(
    kernel: Kernel, ann: Folders
) -> None:
    garden, roof = [await ann.changed("create", name=name) for name in ("Garden", "Roof")]
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session

    async def moved(folder: UUID, version: str | None) -> SessionReply:
        fields = {"session_id": session, "project_id": folder, "expected_version": version}
        return decode(SessionReply, await ann.ask("session.move", **fields))

    first = await moved(garden.id, None)
    assert first.session is not None
    second = await moved(roof.id, first.session.version)
    assert second.session is not None
    late = await moved(garden.id, first.session.version)
    assert late.error is not None
    assert late.error.code is ApiErrorCode.STALE
    assert late.session == second.session
    assert second.session.project_id == roof.id
