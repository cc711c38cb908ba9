"""Answer requests for the folders of a person."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.requests.projects import find_person, no_person
from chatlane.store.catalogue import projects
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.projects import ProjectList, ProjectListReply

if TYPE_CHECKING:
    from chatlane.api.endpoint import Reads
    from chatlane.postgres.pool import Store


class ProjectQueries:
    """Answers `project.list`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def table(self) -> Reads:
        """Return model and function of each request, by method."""
        return {"project.list": (ProjectList, self._list)}

    async def _list(self, request: ProjectList) -> ProjectListReply:
        now = datetime.now(UTC)
        async with self._store.transaction() as connection:
            person = await find_person(connection, request.acting_for)
            if person is None:
                return ProjectListReply(id=new_envelope_id(), at=now, error=no_person())
            known = await projects.find_all(connection, person.owners, request.profile)
            shown = await projects.with_counts(
                connection, person.owners, [stored.project for stored in known]
            )
        return ProjectListReply(id=new_envelope_id(), at=now, projects=shown)
