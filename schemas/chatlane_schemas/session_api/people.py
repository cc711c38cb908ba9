"""The person on whose behalf a caller makes a request."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from chatlane_schemas.envelope import Envelope, Record
from chatlane_schemas.fields import Name, PlatformId, PlatformName

MAX_OTHER_IDS: Final = 8


def _not_empty(value: str) -> str:
    """Reject `""`: it means "no id", so it would match every person without an id."""
    if not value:
        raise PydanticCustomError("no_person", "id names no person")
    return value


class PersonId(Record):
    """An id of a person on an account of a platform."""

    platform: PlatformName = Field(description="Declared name of the platform.")
    account: Name = Field(description="Declared account that the person talks to.")
    scope: PlatformId | None = Field(
        default=None,
        description="Workspace or guild, if the platform has them.",
    )
    id: Annotated[PlatformId, AfterValidator(_not_empty)] = Field(
        description="An id of the person, as in events: `alt_id` if there is one.",
    )


class Person(PersonId):
    """A person on a platform; a request that names one sees only the sessions of that person."""

    also: Annotated[tuple[PersonId, ...], Field(max_length=MAX_OTHER_IDS)] | None = Field(
        default=None,
        description="Ids of the same person on other accounts, whose sessions the person has as well. A "
        "front end may name those of accounts that the settings of its account allow in `people_of`.",
    )

    @property
    def ids(self) -> tuple[PersonId, ...]:
        """Return all ids of the person that the request names, the one of its account first."""
        return (self, *(self.also or ()))


class PersonRequest(Envelope):
    """A request that may name the person on whose behalf the caller reads."""

    acting_for: Person | None = Field(
        default=None,
        description="Person who makes the request; only sessions of this person are visible.",
    )


class OperatorRequest(Envelope):
    """A request that only operators can make: it is about the whole service."""
