"""Routes of the folders of the person who has signed in."""

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from chatlane_console.conversations import Conversations
from chatlane_console.routes.bodies import (
    FolderOrder,
    FolderPatch,
    Folders,
    NewFolder,
)
from chatlane_console.routes.callers import RequestId, own_conversations
from chatlane_schemas.fields import Name
from chatlane_schemas.session_api.projects import Project

router = APIRouter()

Own = Annotated[Conversations, Depends(own_conversations)]


@router.get("/projects", summary="List folders")
async def list_projects(
    conversations: Own,
    profile: Annotated[Name | None, Query(description="Only for this profile.")] = None,
) -> Folders:
    """Return the folders in their order; the one of scheduled jobs is the last."""
    return Folders(projects=await conversations.projects.list_all(profile=profile))


@router.post("/projects", status_code=HTTPStatus.CREATED, summary="Make a folder")
async def create_project(conversations: Own, body: NewFolder, request_id: RequestId) -> Project:
    """Make a folder behind the others."""
    return await conversations.projects.create(
        body.name, colour=body.colour, profile=body.profile, request_id=request_id
    )


@router.put("/projects", summary="Put folders into an order")
async def arrange_projects(conversations: Own, body: FolderOrder, request_id: RequestId) -> Folders:
    """Put folders into an order; those that are not named come last."""
    arranged = await conversations.projects.arrange(body.project_ids, request_id=request_id)
    return Folders(projects=arranged)


@router.patch("/projects/{project_id}", summary="Change a folder")
async def change_project(
    conversations: Own, project_id: UUID, body: FolderPatch, request_id: RequestId
) -> Project:
    """Rename a folder, or change its colour."""
    return await conversations.projects.update(
        project_id, name=body.name, colour=body.colour, request_id=request_id
    )


@router.delete(
    "/projects/{project_id}", status_code=HTTPStatus.NO_CONTENT, summary="Remove a folder"
)
async def remove_project(conversations: Own, project_id: UUID, request_id: RequestId) -> None:
    """Remove a folder; its sessions stay, and are in no folder."""
    await conversations.projects.remove(project_id, request_id=request_id)
