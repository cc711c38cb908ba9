"""A Slack for tests: what people do in its workspaces, and the server that its app talks to."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

import aiohttp
from aiohttp import web

from chatlane_devkit.platforms.slack.deliveries import Deliveries
from chatlane_devkit.platforms.slack.web_api import WebApi
from chatlane_devkit.platforms.slack.workspaces import Channel, Json, Message, Workspace, new_ts

SIGNING_SECRET: Final = "5169c6d2e3a14fb0"  # noqa: S105 - of this server
APP_TOKEN: Final = "xapp-1-A1"  # noqa: S105 - of this server
_APP: Final = "A0APP"
_TYPES: Final = {"im": "im", "mpim": "mpim", "group": "group", "channel": "channel"}


class SlackServer:
    """A Slack with one app, which any number of workspaces may install.

    Attributes:
        url: Where the Web API is, such as `http://127.0.0.1:4000/api/`.
        deliveries: How its events reach the app.
        replies: What the app posted to response addresses.
    """

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self.url = ""
        self.replies: list[Json] = []
        self.files: dict[str, bytes] = {}
        self.deliveries = Deliveries(SIGNING_SECRET, client)
        self._workspaces: dict[str, Workspace] = {}
        self._numbers = itertools.count(1)
        self._api = WebApi(self._workspaces, self._announce, self._open_socket)

    @property
    def _root(self) -> str:
        return self.url.removesuffix("/api/")

    def workspace(self, team: str, *, is_agent: bool = True) -> Workspace:
        """Return a workspace that installed the app."""
        token = f"xoxb-{team}"
        if token not in self._workspaces:
            bot = f"UBOT{team}"
            self._workspaces[token] = Workspace(team, token, bot, f"BBOT{team}", is_agent)
        return self._workspaces[token]

    def write(
        self,
        workspace: Workspace,
        channel: Channel,
        text: str,
        *,
        user: str = "U1",
        thread_ts: str | None = None,
        files: list[Json] | None = None,
    ) -> Message:
        """Let a person write a message; in a channel, one that mentions the app arrives twice."""
        message = Message(ts=new_ts(), user=user, text=text, thread_ts=thread_ts, files=files or [])
        channel.messages[message.ts] = message
        self._tell(workspace, channel, self._as_event(channel, message))
        if f"<@{workspace.bot_user}>" in text and channel.kind != "im":
            mention = {**self._as_event(channel, message), "type": "app_mention"}
            del mention["channel_type"]
            self._tell(workspace, channel, mention)
        return message

    def rewrite(self, workspace: Workspace, channel: Channel, message: Message, text: str) -> None:
        """Let a person edit a message."""
        before = message.as_json()
        message.text, message.edited_ts = text, new_ts()
        self._tell_change(workspace, channel, message, before)

    def unfurl(self, workspace: Workspace, channel: Channel, message: Message) -> None:
        """Send a change that no person made: Slack added the preview of a link."""
        self._tell_change(workspace, channel, message, message.as_json())

    def remove(self, workspace: Workspace, channel: Channel, message: Message) -> None:
        """Let a person delete a message."""
        del channel.messages[message.ts]
        deleted = {
            "subtype": "message_deleted",
            "deleted_ts": message.ts,
            "previous_message": message.as_json(),
        }
        self._tell(workspace, channel, self._event(channel, **deleted))

    def react(
        self, workspace: Workspace, channel: Channel, message: Message, name: str, *, removed: bool
    ) -> None:
        """Let a person add a reaction, or take it back."""
        event = {
            "type": "reaction_removed" if removed else "reaction_added",
            "user": "U1",
            "reaction": name,
            "item_user": message.user,
            "item": {"type": "message", "channel": channel.id, "ts": message.ts},
            "event_ts": new_ts(),
        }
        self._tell(workspace, channel, event)

    def press(self, workspace: Workspace, channel: Channel, message: Message, label: str) -> None:
        """Let a person press a button."""
        [button] = [it for it in message.buttons if it["text"]["text"] == label]
        action = {**button, "action_ts": new_ts(), "block_id": "b1"}
        self.deliveries.add(
            channel.id,
            "interactive",
            {
                "type": "block_actions",
                "user": {"id": "U1", "username": "person", "team_id": workspace.team},
                "team": {"id": workspace.team},
                "channel": {"id": channel.id},
                "container": {"type": "message", "message_ts": message.ts},
                "message": message.as_json(),
                "actions": [action],
                "response_url": f"{self._root}/replies/{next(self._numbers)}",
            },
        )

    def command(self, workspace: Workspace, channel: Channel, command: str, text: str) -> None:
        """Let a person type a slash command."""
        self.deliveries.add(
            channel.id,
            "slash_commands",
            {
                "command": command,
                "text": text,
                "user_id": "U1",
                "user_name": "person",
                "channel_id": channel.id,
                "channel_name": "directmessage" if channel.kind == "im" else channel.id.lower(),
                "team_id": workspace.team,
                "trigger_id": f"{next(self._numbers)}.{uuid4().hex}",
                "response_url": f"{self._root}/replies/{next(self._numbers)}",
            },
        )

    def stop(self, workspace: Workspace, channel: Channel, thread_ts: str) -> None:
        """Let a person press the stop button of a thread."""
        streams = [
            message
            for message in channel.messages.values()
            if message.is_streaming and message.thread_ts == thread_ts
        ]
        for message in streams:
            message.is_streaming = False
        event = {
            "type": "agent_session_stopped",
            "channel": channel.id,
            "thread_ts": thread_ts,
            "user": "U1",
            "streaming_message_ts": [message.ts for message in streams],
            "event_ts": new_ts(),
        }
        self._tell(workspace, channel, event)

    def start_thread(self, workspace: Workspace, channel: Channel) -> str:
        """Let a person open a thread with the agent, and return its timestamp."""
        root = Message(ts=new_ts(), user=workspace.bot_user, text="New chat", bot_id="B0")
        channel.messages[root.ts] = root
        thread = {"user_id": "U1", "channel_id": channel.id, "thread_ts": root.ts, "context": {}}
        event = {"type": "assistant_thread_started", "assistant_thread": thread}
        self._tell(workspace, channel, {**event, "event_ts": new_ts()})
        return root.ts

    def tell(self, workspace: Workspace, channel: Channel, /, **event: object) -> None:
        """Tell the app of any other event."""
        self._tell(workspace, channel, {"event_ts": new_ts(), **event})

    def upload(self, name: str, media_type: str, content: bytes) -> Json:
        """Return a file that a message can have."""
        file_id = f"F{next(self._numbers)}"
        self.files[file_id] = content
        address = f"{self._root}/files/{file_id}"
        return {
            "id": file_id,
            "name": name,
            "mimetype": media_type,
            "size": len(content),
            "mode": "hosted",
            "url_private": address,
            "url_private_download": f"{address}/download",
        }

    def _as_event(self, channel: Channel, message: Message) -> Json:
        event = self._event(channel, **message.as_json())
        if message.files:
            event["subtype"] = "file_share"
        if message.thread_ts is not None and message.thread_ts in channel.messages:
            event["parent_user_id"] = channel.messages[message.thread_ts].user
        return {**event, "event_ts": message.ts}

    def _event(self, channel: Channel, **fields: object) -> Json:
        return {
            "type": "message",
            "channel": channel.id,
            "channel_type": _TYPES[channel.kind],
            "event_ts": new_ts(),
            **fields,
        }

    def _tell_change(
        self, workspace: Workspace, channel: Channel, message: Message, before: Json
    ) -> None:
        changed = {
            "subtype": "message_changed",
            "message": message.as_json(),
            "previous_message": before,
        }
        self._tell(workspace, channel, self._event(channel, **changed))

    def _announce(self, workspace: Workspace, channel: Channel, message: Message) -> None:
        """Send the app its own message."""
        self._tell(workspace, channel, self._as_event(channel, message))

    def _tell(self, workspace: Workspace, channel: Channel, event: Json) -> None:
        payload = {
            "token": "deprecated",
            "team_id": workspace.team,
            "api_app_id": _APP,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{next(self._numbers)}",
            "event_time": round(float(event["event_ts"])),
            "authorizations": [{"team_id": workspace.team, "user_id": workspace.bot_user}],
        }
        self.deliveries.add(channel.id, "events_api", payload)

    def _open_socket(self, token: str) -> str | None:
        if token != APP_TOKEN:
            return None
        return f"{self._root.replace('http', 'ws', 1)}/socket?ticket={uuid4()}"

    async def _take_reply(self, request: web.Request) -> web.Response:
        self.replies.append(await request.json())
        return web.Response(text="ok")

    async def _serve_file(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self._workspaces:
            raise web.HTTPFound("/signin")
        return web.Response(body=self.files[request.match_info["file"]])

    def application(self) -> web.Application:
        """Return the server."""
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/api/{method}", self._api.serve)
        application.router.add_get("/socket", self.deliveries.serve_socket)
        application.router.add_post("/replies/{number}", self._take_reply)
        application.router.add_get("/files/{file}/download", self._serve_file)
        return application


@asynccontextmanager
async def open_slack_server() -> AsyncIterator[SlackServer]:
    """Run a Slack for the length of the block."""
    async with aiohttp.ClientSession() as client:
        server = SlackServer(client)
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
        try:
            yield server
        finally:
            await server.deliveries.close()
            await runner.cleanup()
