"""Settings of the server for agents of operators."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.nats_settings import NatsSettings
from chatlane_schemas.fields import Name


class McpSettings(NatsSettings):
    """Settings of one process, from variables `CHATLANE_MCP_*`; options of the command override them."""

    model_config = SettingsConfigDict(env_prefix="CHATLANE_MCP_")

    principal: Annotated[
        Name, Field(description="User of NATS with the role `operator`, whom the audit names.")
    ] = "mcp"
    allow_changes: Annotated[
        bool, Field(description="Whether there are tools that change sessions.")
    ] = False
    host: Annotated[str, Field(description="Address to listen on, over HTTP.")] = "127.0.0.1"
    port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="Port for HTTP; 0 takes a free one. Else stdin, stdout."),
    ] = None
    token_file: Annotated[
        Path | None, Field(description="File with the bearer token of clients over HTTP.")
    ] = None
