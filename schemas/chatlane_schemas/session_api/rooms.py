"""The request with which an adapter reports who is in a room."""

from typing import Annotated, Final

from pydantic import Field

from chatlane_schemas.envelope import Envelope
from chatlane_schemas.fields import Instant, Name, PlatformId, PlatformName

MAX_MEMBERS: Final = 5_000


class RoomMembers(Envelope):
    """Reports all members of a room, in place of those that were reported before.

    The members may read the shared conversations of the room until the report ends, if the settings
    of the account say `rooms = "members"`. A report that was made before the newest one changes
    nothing.
    """

    platform: PlatformName = Field(description="Platform of the adapter.")
    account: Name = Field(description="Account of the adapter.")
    scope: PlatformId | None = Field(
        default=None, description="Workspace of the room, as in its events."
    )
    chat_id: Annotated[PlatformId, Field(min_length=1)] = Field(description="The room.")
    members: Annotated[
        tuple[Annotated[PlatformId, Field(min_length=1)], ...],
        Field(max_length=MAX_MEMBERS, fail_fast=True),
    ] = Field(
        description="Ids of all members, as senders of events have them. A room with more members is "
        "reported without any."
    )
    until: Instant = Field(
        description="When the report ends, if no other replaces it; at most two hours after it is stored."
    )
