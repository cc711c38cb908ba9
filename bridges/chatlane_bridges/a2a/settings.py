"""Settings of the A2A server."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.http.settings import HttpSettings
from chatlane_schemas.fields import Name, PlatformName

ORIGIN: Final = "a2a"
"""Origin of the sessions that the server opens."""


class A2aSettings(HttpSettings):
    """Settings of one process, from variables `CHATLANE_A2A_*`."""

    model_config = SettingsConfigDict(env_prefix="CHATLANE_A2A_")

    port: Annotated[
        int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    ] = 8093
    file: Annotated[Path, Field(description="TOML file with agents and keys.")] = Path("a2a.toml")
    principal: Annotated[
        Name, Field(description="User of NATS with the role `front_end`, who acts for people.")
    ] = ORIGIN
    platform: Annotated[
        PlatformName, Field(description="Platform on which the people of the keys have their ids.")
    ] = ORIGIN
    public_url: Annotated[
        str | None, Field(description="Address of the server as agent cards show it.")
    ] = None
