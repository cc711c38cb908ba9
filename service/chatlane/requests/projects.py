"""Decide requests that change the folders of a person, or put a session into a folder."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.ids import derived_id
from chatlane.domain.sessions.refusals import conflict, invalid, not_found
from chatlane.domain.sessions.titles import are_alike
from chatlane.store.addressing import identities
from chatlane.store.catalogue import projects
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.projects import (
    MAX_PROJECTS,
    Project,
    ProjectListReply,
    ProjectReply,
)
from chatlane_schemas.session_api.session_marks import SCHEDULED_PROJECT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.postgres.pool import Connection
    from chatlane.requests.context import Call, Case, Outcome
    from chatlane.store.catalogue.projects import StoredProject
    from chatlane_schemas.session_api.people import Person
    from chatlane_schemas.session_api.projects import (
        ProjectArrange,
        ProjectCreate,
        ProjectRemove,
        ProjectUpdate,
        SessionMove,
    )
    from chatlane_schemas.session_api.sessions import ApiError


async def create(request: ProjectCreate, call: Call) -> ProjectReply:
    """Make a folder."""
    connection = call.connection
    person = await find_person(connection, request.acting_for)
    if person is None:
        return _reply(error=no_person())
    known = await projects.find_all(connection, person.owners)
    if len(known) >= MAX_PROJECTS:
        return _reply(error=conflict(f"a person has at most {MAX_PROJECTS} folders"))
    made = Project(
        id=derived_id(call.at, call.trigger, "project"),
        name=request.name,
        colour=request.colour,
        profile=request.profile,
    )
    if _has_alike(known, made):
        return _reply(error=_is_taken())
    return _reply(await projects.insert(connection, person.owner, person.owners, made))


async def update(request: ProjectUpdate, call: Call) -> ProjectReply:
    """Rename a folder, or change its colour."""
    connection = call.connection
    if request.name is None and request.colour is None:
        return _reply(error=invalid("name, colour: one of both has to be given"))
    if request.project_id == SCHEDULED_PROJECT:
        return _reply(error=_is_built_in())
    person = await find_person(connection, request.acting_for)
    if person is None:
        return _reply(error=no_person())
    known = await projects.find_all(connection, person.owners)
    current = _own(known, request)
    if current is None:
        return _reply(error=_no_project())
    if request.name is not None and _has_alike(
        known, current.model_copy(update={"name": request.name})
    ):
        return _reply(error=_is_taken())
    changed = await projects.update(connection, current.id, request.name, request.colour)
    return _reply(error=_no_project()) if changed is None else _reply(changed)


async def arrange(request: ProjectArrange, call: Call) -> ProjectListReply:
    """Put the folders of a person into an order."""
    connection = call.connection
    now = datetime.now(UTC)
    person = await find_person(connection, request.acting_for)
    if person is None:
        return ProjectListReply(id=new_envelope_id(), at=now, error=no_person())
    known = {
        stored.project.id: stored.project
        for stored in await projects.find_all(connection, person.owners)
    }
    first = [project_id for project_id in request.project_ids if project_id in known]
    ordered = [*first, *(project_id for project_id in known if project_id not in first)]
    await projects.arrange(connection, ordered)
    shown = await projects.with_counts(
        connection, person.owners, [known[project_id] for project_id in ordered]
    )
    return ProjectListReply(id=new_envelope_id(), at=now, projects=shown)


async def remove(request: ProjectRemove, call: Call) -> ProjectReply:
    """Remove a folder; its sessions stay."""
    connection = call.connection
    if request.project_id == SCHEDULED_PROJECT:
        return _reply(error=_is_built_in())
    person = await find_person(connection, request.acting_for)
    if person is None:
        return _reply(error=no_person())
    current = _own(await projects.find_all(connection, person.owners), request)
    if current is None or not await projects.remove(connection, current.id):
        return _reply(error=_no_project())
    return _reply(current)


async def move(request: SessionMove, case: Case) -> Outcome:
    """Put a session into a folder of its person, or take it out."""
    connection, session = case.connection, case.session
    wanted = request.project_id
    if wanted == SCHEDULED_PROJECT:
        if not await projects.is_scheduled(connection, session.id):
            return conflict("only sessions of scheduled jobs are in the built-in folder")
        wanted = None
    if wanted is not None:
        if session.owner is None:
            return conflict("several people share the session, so it is in no folder")
        owner = await projects.find_owner(connection, wanted)
        is_theirs = owner is not None and owner in (case.owners or ())
        if owner is None or not (
            is_theirs or await identities.are_one_person(connection, session.owner, owner)
        ):
            return invalid("project_id: the person of the session has no folder with this id")
    await projects.move(connection, session.id, wanted)
    return session.id


class FolderOwner(NamedTuple):
    """The person of a request for folders.

    Attributes:
        owner: The owner of new folders.
        owners: Those of the folders and sessions that the person has.
    """

    owner: str
    owners: frozenset[str]


async def find_person(connection: Connection, person: Person | None) -> FolderOwner | None:
    """Return the person that a request names; None if it names no person."""
    identity = None if person is None else await identities.find(connection, person)
    if identity is None:
        return None
    owners = await identities.find_owners(connection, person)
    return FolderOwner(identity.owner, frozenset(owners or ()))


def no_person() -> ApiError:
    """Return the error of a request that has to name a person and does not."""
    return invalid("acting_for: must name the person")


def _own(known: Sequence[StoredProject], request: ProjectUpdate | ProjectRemove) -> Project | None:
    return next(
        (stored.project for stored in known if stored.project.id == request.project_id), None
    )


def _has_alike(known: Sequence[StoredProject], project: Project) -> bool:
    """Return whether another folder for the same profile has a name that looks like this one."""
    return any(
        stored.project.id != project.id
        and stored.project.profile == project.profile
        and are_alike(stored.project.name, project.name)
        for stored in known
    )


def _is_taken() -> ApiError:
    return conflict("another folder of the person has this name, or one that looks like it")


def _is_built_in() -> ApiError:
    return conflict("the folder of scheduled jobs cannot be changed")


def _no_project() -> ApiError:
    return not_found("there is no folder with this id")


def _reply(project: Project | None = None, error: ApiError | None = None) -> ProjectReply:
    return ProjectReply(id=new_envelope_id(), at=datetime.now(UTC), project=project, error=error)
