"""Settings of both directions, and the file with the agents that are offered."""

import tomllib
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Self

from nats.aio.client import Client
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.nats_settings import NatsSettings
from chatlane_client import open_connection
from chatlane_schemas.fields import Name, PlatformName

ORIGIN: Final = "synadia"
"""Origin of the sessions behind offered agents."""
EACH_SESSION: Final = "{session}"
"""Place of the id of a session of chatlane in the name of a session of an agent."""

AgentType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,64}$")]
Token = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,64}$")]
SessionPattern = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_{}-]{1,64}$")]


class SynadiaSettings(NatsSettings):
    """Settings of one process, from variables `CHATLANE_SYNADIA_*`."""

    model_config = SettingsConfigDict(env_prefix="CHATLANE_SYNADIA_")

    principal: Annotated[Name, Field(description="User of NATS.")] = ORIGIN
    agents_nats_url: Annotated[
        str | None,
        Field(description="Addresses of the NATS with the agents, if it is another one."),
    ] = None
    agents_credentials_file: Annotated[
        Path | None, Field(description="A `.creds` file for the NATS with the agents.")
    ] = None
    agents_nkey_seed_file: Annotated[
        Path | None, Field(description="File with the seed of an nkey for it.")
    ] = None

    def agents_connection(self, name: str) -> AbstractAsyncContextManager[Client]:
        """Return a connection to the NATS with the agents; it needs the inbox `_INBOX.agents`."""
        credentials, seed = self.agents_credentials_file, self.agents_nkey_seed_file
        return open_connection(
            (self.agents_nats_url or self.nats_url).split(","),
            name=name,
            credentials_file=None if credentials is None else str(credentials),
            nkey_seed_file=None if seed is None else str(seed),
            tls_ca_file=None if self.tls_ca_file is None else str(self.tls_ca_file),
        )


class WorkerSettings(SynadiaSettings):
    """Settings of a worker that lets an agent on NATS answer.

    An agent remembers what it was prompted, so each conversation needs a session of the agent for
    itself. `session` has the place of its id, or the agent forgets everything, or the worker answers
    one conversation only.
    """

    agent: Annotated[Name, Field(description="Agent of chatlane that the worker serves.")]
    host: Annotated[AgentType, Field(description="Type of the agent on NATS, such as `cc`.")]
    owner: Annotated[Token, Field(description="Its owner.")]
    session: Annotated[
        SessionPattern,
        Field(description="Its session; `{session}` stands for the id of the conversation."),
    ] = EACH_SESSION
    session_key: Annotated[
        str | None, Field(description="Key of the only conversation that it answers.")
    ] = None
    forgets: Annotated[
        bool, Field(description="The agent remembers nothing: each prompt has the history.")
    ] = False
    slots: Annotated[int, Field(ge=1, le=1000, description="Turns at the same time.")] = 4
    quiet_for: Annotated[
        timedelta, Field(description="An agent that says nothing for so long has failed.")
    ] = timedelta(seconds=90)
    answer_within: Annotated[
        timedelta, Field(description="How long a person may take to answer a question.")
    ] = timedelta(hours=1)
    sign_prompts: Annotated[
        bool, Field(description="Sign prompts with the key of the NATS with the agents.")
    ] = False

    @model_validator(mode="after")
    def _keeps_conversations_apart(self) -> Self:
        chosen = (EACH_SESSION in self.session, self.forgets, self.session_key is not None)
        if sum(chosen) != 1:
            raise ValueError(
                "choose one: a session with {session}, session_key, or forgets; words of one "
                "conversation would reach another"
            )
        return self


class DeclaredAgent(BaseModel):
    """An agent as callers find it: one conversation for each of its people."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    profile: Name = "default"
    """Profile of the sessions; the service knows its agent."""
    person: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """Person for whom every caller speaks; without it, each key that signs a prompt is a person."""
    description: Annotated[str, StringConstraints(max_length=1024)] = ""


class Declarations(BaseModel):
    """The file: agents by the names of their sessions."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    agents: Annotated[dict[Token, DeclaredAgent], Field(min_length=1)]


class OfferSettings(SynadiaSettings):
    """Settings of a process that offers agents of chatlane."""

    file: Annotated[Path, Field(description="TOML file with the agents.")] = Path("synadia.toml")
    host: Annotated[AgentType, Field(description="Type of the agents.")] = "chatlane"
    owner: Annotated[Token, Field(description="Their owner.")] = "chatlane"
    platform: Annotated[
        PlatformName, Field(description="Platform on which the people have their ids.")
    ] = ORIGIN
    account: Annotated[
        Name | None, Field(description="Account that they talk to; else the principal.")
    ] = None
    prompts: Annotated[int, Field(ge=2, le=1000, description="Prompts at once for an agent.")] = 64
    media_url: Annotated[
        str | None, Field(description="The store for files of prompts, as adapters have it.")
    ] = None
    media_public_url: Annotated[
        str | None, Field(description="Address under which workers reach a local directory.")
    ] = None
    media_listen_host: Annotated[
        str, Field(description="Address that serves a local directory.")
    ] = "127.0.0.1"
    media_listen_port: Annotated[int, Field(ge=0, le=65535, description="Its port.")] = 0


def read_declarations(path: Path) -> Declarations:
    """Return the agents of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no TOML, or has values that are not allowed.
    """
    return Declarations.model_validate(tomllib.loads(path.read_text("utf-8")))
