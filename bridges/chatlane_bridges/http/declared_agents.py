"""The file of a bridge that offers agents: agents, and the keys that may use them."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from chatlane_bridges.http.bearer_keys import BearerKeys
from chatlane_bridges.http.problems import ApiProblem
from chatlane_bridges.http.settings import DeclaredKey, HttpSettings
from chatlane_schemas.fields import Name
from chatlane_schemas.session_api.people import Person


class DeclaredAgent(BaseModel):
    """An agent as clients see it."""

    model_config = ConfigDict(extra="forbid")

    profile: Name = "default"
    """Profile of the sessions; the service knows its agent."""
    model: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """Model that is to answer, for agents that offer several."""
    title: str | None = None
    """Name for people."""
    description: str = "Answers in a conversation."
    """What it does, for people and for other agents."""


class AgentKey(DeclaredKey):
    """A key, and the agents that it may use."""

    agents: tuple[Name, ...] | None = None
    """Agents that the key may use; all if missing."""


class AgentDeclarations(BaseModel):
    """The file: agents by the names in their addresses, and keys by names for people."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    agents: Annotated[dict[Name, DeclaredAgent], Field(min_length=1)]
    keys: Annotated[dict[Name, AgentKey], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_known_agents(self) -> Self:
        for name, key in self.keys.items():
            if not set(key.agents or ()) <= self.agents.keys():
                raise ValueError(f"key {name}: an agent is not declared")
        return self


class AgentCaller(NamedTuple):
    """The person for whom a request is made, and the agent that is asked."""

    person: Person
    name: str
    agent: DeclaredAgent


class AgentCallers:
    """Finds the caller of a request to an agent."""

    def __init__(self, declared: AgentDeclarations, settings: HttpSettings) -> None:
        """Read the tokens that are in files.

        Raises:
            OSError: A file cannot be read.
            ValueError: A token cannot be used.
        """
        self._agents = declared.agents
        self._keys: BearerKeys[AgentKey] = BearerKeys(declared.keys, settings)

    def find(self, headers: Mapping[str, str], name: str) -> AgentCaller:
        """Return the caller of a request.

        Raises:
            ApiProblem: The token is not known, no person is named, or the key may not use the agent.
        """
        key, person = self._keys.find(headers)
        agent = self._agents.get(name)
        if agent is None or (key.agents is not None and name not in key.agents):
            raise no_agent()
        return AgentCaller(person, name, agent)


def no_agent() -> ApiProblem:
    """Return the error of a request to an agent that is not there."""
    return ApiProblem(HTTPStatus.NOT_FOUND, "not_found", "There is no such agent.")
