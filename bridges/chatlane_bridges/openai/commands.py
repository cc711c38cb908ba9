"""The command `chatlane openai`."""

from typing import TYPE_CHECKING

from chatlane_bridges.http.commands import Bridge, http_command

if TYPE_CHECKING:
    from chatlane_bridges.openai.settings import Declarations, OpenAiSettings


def _load() -> "Bridge[OpenAiSettings, Declarations]":
    from chatlane_bridges.openai.application import create_app
    from chatlane_bridges.openai.settings import Declarations, OpenAiSettings

    return Bridge(OpenAiSettings, Declarations, create_app, "openai: {}/v1")


app = http_command(
    "openai",
    "Serve front ends and programs that speak the API of OpenAI.",
    content="models and keys",
    port=8091,
    load=_load,
)
