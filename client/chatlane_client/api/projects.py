"""Client of folders: what a person sorts the own sessions into."""

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from typing_extensions import override

from chatlane_client.api.requests import Api
from chatlane_client.errors import ProjectNotFoundError, SessionNotFoundError
from chatlane_schemas import Envelope
from chatlane_schemas.session_api.projects import (
    PROJECT_COLOUR,
    Project,
    ProjectArrange,
    ProjectCreate,
    ProjectList,
    ProjectListReply,
    ProjectRemove,
    ProjectReply,
    ProjectUpdate,
)

ReplyT = TypeVar("ReplyT", bound=Envelope)


class ProjectApi(Api):
    """Lists and changes the folders of the person that it acts for.

    `SessionApi.move` puts a session into a folder, and `SessionApi.list_all` lists those in it.
    """

    async def list_all(self, *, profile: str | None = None) -> tuple[Project, ...]:
        """Return the folders in their order; the built-in one comes last, if there is a session in it.

        Args:
            profile: Only folders for this profile, and those for all; None for every folder.
        """
        request = ProjectList(**self._stamp(), profile=profile)
        return (await self._ask("project", "list", request, ProjectListReply)).projects

    async def create(
        self,
        name: str,
        *,
        colour: str = PROJECT_COLOUR,
        profile: str | None = None,
        request_id: str | None = None,
    ) -> Project:
        """Make a folder behind the others.

        Args:
            name: Its name, one line of at most 100 characters.
            colour: Its colour as `#rrggbb`.
            profile: The profile whose sessions it is for; None for all.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            ConflictingRequestError: Another folder has this name, or there are too many.
        """
        request = ProjectCreate(
            **self._stamp(request_id), name=name, colour=colour, profile=profile
        )
        return await self._ask_project("create", request)

    async def update(
        self,
        project_id: UUID,
        *,
        name: str | None = None,
        colour: str | None = None,
        request_id: str | None = None,
    ) -> Project:
        """Rename a folder, or change its colour.

        Args:
            project_id: Folder to change.
            name: The new name; None keeps it.
            colour: The new colour as `#rrggbb`; None keeps it.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            ProjectNotFoundError: The person has no such folder.
            ConflictingRequestError: Another folder has this name, or it is the built-in folder.
        """
        request = ProjectUpdate(
            **self._stamp(request_id), project_id=project_id, name=name, colour=colour
        )
        return await self._ask_project("update", request)

    async def arrange(
        self, project_ids: Iterable[UUID], *, request_id: str | None = None
    ) -> tuple[Project, ...]:
        """Put the folders into an order and return them; those that are not named come last.

        Args:
            project_ids: The folders, the first one first.
            request_id: Id of an earlier request that this one repeats.
        """
        request = ProjectArrange(**self._stamp(request_id), project_ids=tuple(project_ids))
        return (await self._ask("project", "arrange", request, ProjectListReply)).projects

    async def remove(self, project_id: UUID, *, request_id: str | None = None) -> Project:
        """Remove a folder and return it as it was; its sessions stay.

        Args:
            project_id: Folder to remove.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            ProjectNotFoundError: The person has no such folder.
            ConflictingRequestError: It is the built-in folder.
        """
        request = ProjectRemove(**self._stamp(request_id), project_id=project_id)
        return await self._ask_project("remove", request)

    async def _ask_project(self, verb: str, request: Envelope) -> Project:
        reply = await self._ask("project", verb, request, ProjectReply)
        if reply.project is None:
            raise self._incomplete("project", verb, "no folder")
        return reply.project

    @override
    async def _ask(self, noun: str, verb: str, request: Envelope, model: type[ReplyT]) -> ReplyT:
        try:
            return await super()._ask(noun, verb, request, model)
        except SessionNotFoundError as exc:
            # The code `not_found` does not say what was not found.
            raise ProjectNotFoundError(exc.subject, exc.message) from None
