"""The command `chatlane a2a`."""

from typing import TYPE_CHECKING

from chatlane_bridges.http.commands import Bridge, http_command

if TYPE_CHECKING:
    from chatlane_bridges.a2a.settings import A2aSettings
    from chatlane_bridges.http.declared_agents import AgentDeclarations


def _load() -> "Bridge[A2aSettings, AgentDeclarations]":
    from chatlane_bridges.a2a.application import create_app
    from chatlane_bridges.a2a.settings import A2aSettings
    from chatlane_bridges.http.declared_agents import AgentDeclarations

    return Bridge(A2aSettings, AgentDeclarations, create_app, "a2a: {}/agents")


app = http_command(
    "a2a",
    "Serve other agents that speak the A2A protocol.",
    content="agents and keys",
    port=8093,
    load=_load,
)
