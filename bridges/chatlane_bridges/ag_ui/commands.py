"""The command `chatlane ag-ui`."""

from typing import TYPE_CHECKING

from chatlane_bridges.http.commands import Bridge, http_command

if TYPE_CHECKING:
    from chatlane_bridges.ag_ui.settings import AgUiSettings
    from chatlane_bridges.http.declared_agents import AgentDeclarations


def _load() -> "Bridge[AgUiSettings, AgentDeclarations]":
    from chatlane_bridges.ag_ui.application import create_app
    from chatlane_bridges.ag_ui.settings import AgUiSettings
    from chatlane_bridges.http.declared_agents import AgentDeclarations

    return Bridge(AgUiSettings, AgentDeclarations, create_app, "ag-ui: {}/agents")


app = http_command(
    "ag-ui",
    "Serve front ends that speak AG-UI.",
    content="agents and keys",
    port=8094,
    load=_load,
)
