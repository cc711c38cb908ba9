"""Requests about folders: a person puts own sessions into them.

A folder is a project in the names of fields and subjects. Each request has to name a person, also if
an operator makes it.
"""

from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import BigNumber, Flag, Instant, Name, Text
from chatlane_schemas.session_api.people import PersonRequest
from chatlane_schemas.session_api.session_changes import SettingChange
from chatlane_schemas.session_api.sessions import ApiReply

MAX_PROJECTS: Final = 200
"""Most folders of a person."""
MAX_PROJECT_NAME: Final = 100
PROJECT_COLOUR: Final = "#6366f1"
"""Colour of a folder without another one, and of the built-in folder."""


def _project_name(value: str) -> str:
    shown = shown_title(value)
    if not shown:
        raise PydanticCustomError("project_name", "name has no visible character")
    return shown


def _each_once(ids: tuple[UUID, ...]) -> tuple[UUID, ...]:
    return tuple(dict.fromkeys(ids))


ProjectName = Annotated[
    Text, Field(min_length=1, max_length=MAX_PROJECT_NAME), AfterValidator(_project_name)
]
"""One line of at most 100 characters."""

Colour = Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]
"""A colour as `#rrggbb`."""


class SessionMove(SettingChange):
    """Puts a session into a folder of its person, or takes it out; nothing else changes.

    Refused as `invalid` for a folder that the person of the session does not have, and as `conflict`
    for a session that several people share.
    """

    project_id: UUID | None = Field(
        default=None,
        description="The folder; none takes the session out. A session of a scheduled job is then in "
        "the built-in folder.",
    )


class Project(Record):
    """A folder of sessions."""

    id: UUID = Field(description="Id of the folder.")
    name: Text = Field(description="Its name, unique among the folders of a person and profile.")
    colour: Colour = Field(description="Its colour as `#rrggbb`.")
    profile: Name | None = Field(
        default=None, description="The profile whose sessions it is for; none for all."
    )
    created_at: Instant | None = Field(
        default=None, description="When it was made; none for the built-in folder."
    )
    sessions: BigNumber = Field(
        default=0,
        description="Sessions in it that are not archived, each conversation once; counted up to 10,000.",
    )
    is_built_in: Flag = Field(
        default=False,
        description="Whether it is the folder of scheduled jobs, which cannot be changed.",
    )


class ProjectList(PersonRequest):
    """Lists the folders of a person in the order that the person gave them.

    The built-in folder comes last, if there is a session in it. Listing makes no folder.
    """

    profile: Name | None = Field(
        default=None, description="Only folders for this profile, and those for all."
    )


class ProjectCreate(PersonRequest):
    """Makes a folder behind the others.

    Refused as `conflict` if a folder of the person and profile has a name that looks like this one,
    and if the person has 200 folders.
    """

    name: ProjectName = Field(description="Name of the folder.")
    colour: Colour = Field(default=PROJECT_COLOUR, description="Its colour as `#rrggbb`.")
    profile: Name | None = Field(
        default=None, description="The profile whose sessions it is for; none for all."
    )


class ProjectUpdate(PersonRequest):
    """Renames a folder, or changes its colour; one of both has to be given."""

    project_id: UUID = Field(description="Folder to change.")
    name: ProjectName | None = Field(default=None, description="The new name.")
    colour: Colour | None = Field(default=None, description="The new colour as `#rrggbb`.")


class ProjectArrange(PersonRequest):
    """Puts the folders of a person into an order.

    Folders that are not named come behind them, in their order. Ids of other folders have no effect.
    """

    project_ids: Annotated[
        tuple[UUID, ...],
        Field(min_length=1, max_length=MAX_PROJECTS),
        AfterValidator(_each_once),
    ] = Field(description="The folders, the first one first.")


class ProjectRemove(PersonRequest):
    """Removes a folder; its sessions stay, and are in no folder."""

    project_id: UUID = Field(description="Folder to remove.")


class ProjectReply(ApiReply):
    """Reply to a request that changes one folder."""

    project: Project | None = Field(
        default=None, description="The folder; the removed one after `ProjectRemove`."
    )


class ProjectListReply(ApiReply):
    """Reply to `ProjectList` and `ProjectArrange`."""

    projects: tuple[Project, ...] = Field(default=(), description="The folders, in order.")
