"""The emulated Slack as a scene."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import ClassVar
from uuid import uuid4

from typing_extensions import override

from chatlane_devkit.conform.scenes.scene import Ability, Scene
from chatlane_devkit.platforms.slack.server import APP_TOKEN, SlackServer, open_slack_server
from chatlane_devkit.platforms.slack.workspaces import Channel, Message, new_ts


class SlackScene(Scene):
    """An app of Slack over a socket: direct messages, and threads of a channel."""

    platform: ClassVar[str] = "slack"
    lacks: ClassVar[Mapping[Ability, str]] = {
        Ability.ALBUMS: "a message of Slack has all its files; there are no albums",
    }

    def __init__(self, server: SlackServer) -> None:
        self._server = server
        # A router that judged before has the messages of that run.
        self._workspace = server.workspace(f"T{uuid4().hex[:8].upper()}", is_agent=False)
        self._numbers = count(1)

    @override
    def variables(self, nats_url: str, account: str) -> dict[str, str]:
        return {
            "CHATLANE_ADAPTER_NATS_URL": nats_url,
            "CHATLANE_ADAPTER_ACCOUNT": account,
            "CHATLANE_ADAPTER_API_URL": self._server.url,
            "CHATLANE_ADAPTER_APP_TOKEN": APP_TOKEN,
            "CHATLANE_ADAPTER_BOT_TOKEN": self._workspace.token,
            "CHATLANE_ADAPTER_IS_AGENT": "false",
        }

    @override
    async def new_chat(self) -> Channel:
        return self._workspace.channel(f"D{next(self._numbers)}", "im")

    @override
    async def new_threads(self) -> tuple[Channel, str, str]:
        channel = self._workspace.channel(f"C{next(self._numbers)}")
        roots = [Message(ts=new_ts(), user="U1", text="a topic") for _ in range(2)]
        channel.messages |= {root.ts: root for root in roots}
        return channel, roots[0].ts, roots[1].ts

    @override
    async def write(self, chat: Channel, text: str, thread: str | None = None) -> Message:
        text = text if chat.kind == "im" else f"<@{self._workspace.bot_user}> {text}"
        return self._server.write(self._workspace, chat, text, thread_ts=thread)

    @override
    def shown(self, chat: Channel, thread: str | None = None) -> list[str]:
        return chat.answers_shown(thread)

    @override
    def calls(self, chat: Channel) -> int:
        return chat.posts

    @override
    def limit(self, chat: Channel, seconds: float) -> None:
        chat.limit(seconds)

    @override
    def block(self, chat: Channel, *, is_blocked: bool) -> None:
        chat.refusal = "is_archived" if is_blocked else None

    @override
    async def rewrite(self, chat: Channel, message: Message, text: str) -> None:
        self._server.rewrite(self._workspace, chat, message, text)

    @override
    async def remove(self, chat: Channel, message: Message) -> None:
        self._server.remove(self._workspace, chat, message)

    @override
    async def react(self, chat: Channel, message: Message) -> None:
        self._server.react(self._workspace, chat, message, "tada", removed=False)

    @override
    async def write_twice(self, chat: Channel, text: str) -> None:
        self._server.deliveries.duplicates += 1
        await self.write(chat, text)

    @override
    def lose_answers(self, chat: Channel) -> None:
        chat.answers.clear()

    @override
    def restore_answers(self, chat: Channel) -> None:
        chat.answers.set()


@asynccontextmanager
async def open_slack_scene() -> AsyncIterator[SlackScene]:
    """Run a Slack for the length of the block."""
    async with open_slack_server() as server:
        yield SlackScene(server)
