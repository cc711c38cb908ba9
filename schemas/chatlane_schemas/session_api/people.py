"""The person on whose behalf a caller makes a request."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import Name, PlatformId, PlatformName


def _not_empty(value: str) -> str:
    """Reject `""`: it means "no id", so it would match every person without an id."""
    if not value:
        raise PydanticCustomError("no_person", "id names nobody")
    return value


class Person(Record):
    """A person on a platform; a request that names one sees only the sessions of that person."""

    platform: PlatformName = Field(description="Declared name of the platform.")
    account: Name = Field(description="Declared name of our identity that they talk to.")
    scope: PlatformId | None = Field(
        default=None,
        description="Workspace or guild, where the platform has them.",
    )
    id: Annotated[PlatformId, AfterValidator(_not_empty)] = Field(
        description="An id of theirs, as events have it: `alt_id` where there is one.",
    )
