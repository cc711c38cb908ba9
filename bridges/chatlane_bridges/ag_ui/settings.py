"""Settings of the AG-UI endpoint."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from chatlane_bridges.http.settings import HttpSettings
from chatlane_schemas.fields import Name, PlatformName

ORIGIN: Final = "ag-ui"
"""Origin of the sessions that the endpoint opens."""


class AgUiSettings(HttpSettings):
    """Settings of one process, from variables `CHATLANE_AG_UI_*`."""

    model_config = SettingsConfigDict(env_prefix="CHATLANE_AG_UI_")

    port: Annotated[
        int, Field(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    ] = 8094
    file: Annotated[Path, Field(description="TOML file with agents and keys.")] = Path("ag-ui.toml")
    allowed_origins: Annotated[
        str, Field(description="Origins whose pages may send requests, separated by commas.")
    ] = ""
    principal: Annotated[
        Name, Field(description="User of NATS with the role `front_end`, who acts for people.")
    ] = ORIGIN
    platform: Annotated[
        PlatformName, Field(description="Platform on which the people of the keys have their ids.")
    ] = ORIGIN
