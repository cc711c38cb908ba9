"""The adapter of Slack as a process, with a router, an agent and a Slack for tests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from chatlane_devkit.platforms.slack.server import (
    APP_TOKEN,
    SIGNING_SECRET,
    SlackServer,
    open_slack_server,
)
from chatlane_devkit.platforms.slack.workspaces import Channel, Workspace
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.platforms.answering import Agent, working
from tests.support.service.processes import Process, Service, open_service

ACCOUNT: Final = "app"
_ROOT: Final = Path(__file__).parents[3]
_RUN: Final = "from chatlane_adapters.commands import main; main()"
HOME: Final = "I answer **questions**.\n\nWrite /new to begin again."
_SETTINGS: Final = f"""
[platforms.slack.accounts.{ACCOUNT}]
"""
_numbers: Final = count(1)


@dataclass
class SlackApp:
    """A Slack, its app as a process, a router and an agent.

    Attributes:
        workspace: The first workspace that installed the app.
        other: The second one.
    """

    service: Service
    slack: SlackServer
    workspace: Workspace
    other: Workspace
    agent: Agent
    adapter: Process

    def new_channel(self, kind: str = "channel", workspace: Workspace | None = None) -> Channel:
        """Return a channel that nobody has written in."""
        prefix = "D" if kind == "im" else "C"
        return (workspace or self.workspace).channel(f"{prefix}{next(_numbers)}", kind)

    def mention(self, text: str) -> str:
        """Return a text that mentions the app in the first workspace."""
        return f"<@{self.workspace.bot_user}> {text}"


def adapter_process(
    name: str, service: Service, slack: SlackServer, variables: Mapping[str, str]
) -> Process:
    """Return the adapter as a process that is not started."""
    common = {
        "CHATLANE_ADAPTER_ACCOUNT": ACCOUNT,
        "CHATLANE_ADAPTER_NATS_URL": service.nats_url,
        "CHATLANE_ADAPTER_API_URL": slack.url,
        "CHATLANE_ADAPTER_BOT_TOKEN": "xoxb-T1,xoxb-T2",
        "PYTHONPATH": str(_ROOT),
    }
    arguments = ["-c", _RUN, "slack"]
    return Process(name, arguments, service.directory, **{**common, **variables})


def over_requests(slack: SlackServer) -> dict[str, str]:
    """Let Slack send requests, and return the settings of an adapter that takes them."""
    port = free_port()
    slack.deliveries.url = f"http://127.0.0.1:{port}/slack"
    return {
        "CHATLANE_ADAPTER_SIGNING_SECRET": SIGNING_SECRET,
        "CHATLANE_ADAPTER_LISTEN_PORT": str(port),
    }


def over_socket() -> dict[str, str]:
    """Return the settings of an adapter that reads a socket."""
    return {"CHATLANE_ADAPTER_APP_TOKEN": APP_TOKEN}


@asynccontextmanager
async def open_slack_app(
    directory: Path, nats_url: str, dsn: str, *, uses_socket: bool
) -> AsyncIterator[SlackApp]:
    """Run everything for the length of the block.

    Args:
        directory: For configuration and logs.
        nats_url: A server without streams.
        dsn: A migrated database.
        uses_socket: Whether events come through a socket, or as requests.
    """
    agent = Agent()
    async with (
        open_slack_server() as slack,
        open_service(directory, nats_url, dsn, more=_SETTINGS) as service,
        working(nats_url, agent),
    ):
        workspaces = slack.workspace("T1"), slack.workspace("T2", is_agent=False)
        router = service.router("router 1")
        variables = over_socket() if uses_socket else over_requests(slack)
        # With requests, files are kept; with a socket they stay on Slack.
        kept = {} if uses_socket else {"CHATLANE_ADAPTER_MEDIA_URL": str(directory / "media")}
        home = {"CHATLANE_ADAPTER_HOME": HOME}
        adapter = adapter_process("adapter", service, slack, {**variables, **kept, **home})
        app = SlackApp(service, slack, *workspaces, agent, adapter)
        await service.until_started(router)
        adapter.start()
        await adapter.until_logged("socket_opened" if uses_socket else "requests_served")
        try:
            yield app
        finally:
            await adapter.stop()
            await eventually(lambda: not adapter.is_running)
