"""The methods of the Web API of a Slack for tests."""

import json
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, TypeAlias

from aiohttp import web

from chatlane_devkit.platforms.slack.blocks import (
    MAX_EDITED_TEXT,
    MAX_MARKDOWN,
    MAX_SECTION,
    MAX_TEXT,
    RefusalError,
    checked_blocks,
)
from chatlane_devkit.platforms.slack.workspaces import Channel, Json, Message, Workspace, new_ts

Arguments: TypeAlias = Mapping[str, Any]
Announce: TypeAlias = Callable[[Workspace, Channel, Message], None]
OpenSocket: TypeAlias = Callable[[str], str | None]

_ENCODED: Final = ("blocks", "metadata", "chunks", "view")
_PAGE: Final = 100
_STATUSES: Final = frozenset({"active", "processing", "suspended", "closed"})


class WebApi:
    """Answers calls of apps.

    Args:
        workspaces: By the token of the bot.
        announce: Called with each message that a bot posts.
        open_socket: Returns the address of a socket for an app token; None for an unknown one.
    """

    def __init__(
        self, workspaces: Mapping[str, Workspace], announce: Announce, open_socket: OpenSocket
    ) -> None:
        self._workspaces = workspaces
        self._announce = announce
        self._open_socket = open_socket
        self._methods: dict[str, Callable[[Workspace, Arguments], Json | None]] = {
            "auth.test": self._test,
            "users.info": self._user,
            "conversations.info": self._conversation,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "chat.startStream": self._start_stream,
            "chat.appendStream": self._append_stream,
            "chat.stopStream": self._stop_stream,
            "assistant.threads.setStatus": self._set_status,
            "assistant.threads.setSuggestedPrompts": self._suggest,
            "agents.sessions.setStatus": self._set_session_status,
            "views.publish": self._publish_home,
        }

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a call."""
        method = request.match_info["method"]
        arguments = await _arguments_of(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        token = token or str(arguments.get("token", ""))
        if method == "apps.connections.open":
            url = self._open_socket(token)
            return _refused("invalid_auth") if url is None else _done({"url": url})
        workspace = self._workspaces.get(token)
        if workspace is None or workspace.revoked is not None:
            error = "invalid_auth" if workspace is None else workspace.revoked
            return _refused(error if token and error else "not_authed")
        channel = workspace.channels.get(str(arguments.get("channel", "")))
        if channel is not None:
            channel.posts += method == "chat.postMessage"
            if (seconds := channel.limited_until - monotonic()) > 0:
                return _limited(seconds)
        try:
            answer = self._methods[method](workspace, arguments) or {}
        except KeyError:
            return _refused(
                "unknown_method" if method not in self._methods else "invalid_arguments"
            )
        except RefusalError as refusal:
            return _refused(refusal.error)
        if channel is not None and method in {"chat.postMessage", "chat.startStream"}:
            if channel.lost_answers > 0:
                channel.lost_answers -= 1
                _cut(request)
            await channel.answers.wait()
        return _done(answer)

    def _test(self, workspace: Workspace, _: Arguments) -> Json:
        return {
            "team_id": workspace.team,
            "user_id": workspace.bot_user,
            "bot_id": workspace.bot_id,
            "team": f"Team {workspace.team}",
        }

    def _user(self, _: Workspace, given: Arguments) -> Json:
        user = given["user"]
        profile = {"display_name": f"Person {user}", "real_name": f"Person {user}"}
        return {"user": {"id": user, "is_bot": False, "profile": profile}}

    def _conversation(self, workspace: Workspace, given: Arguments) -> Json:
        channel = _channel(workspace, given)
        name = {} if channel.kind == "im" else {"name": f"name-of-{channel.id.lower()}"}
        return {"channel": {"id": channel.id, "is_im": channel.kind == "im", **name}}

    def _history(self, workspace: Workspace, given: Arguments) -> Json:
        channel = _channel(workspace, given)
        found = [
            message
            for message in channel.messages.values()
            if message.thread_ts in {None, message.ts}
        ]
        return _page(reversed(found), given)

    def _replies(self, workspace: Workspace, given: Arguments) -> Json:
        channel, root = _channel(workspace, given), given["ts"]
        if root not in channel.messages:
            raise RefusalError("thread_not_found")
        root = channel.messages[root].thread_ts or root
        found = [it for it in channel.messages.values() if root in {it.ts, it.thread_ts}]
        page = _page(found, given)
        # A message without replies belongs to no thread.
        has_root = bool(page["messages"]) and page["messages"][0]["ts"] == root
        if has_root and len(found) > 1:
            users = dict.fromkeys(it.user for it in found[1:])
            page["messages"][0] |= {"thread_ts": root, "reply_users": list(users)[:5]}
        return page

    def _post(self, workspace: Workspace, given: Arguments) -> Json:
        channel = _channel(workspace, given)
        text, blocks = str(given.get("text") or ""), checked_blocks(given.get("blocks") or [])
        if not text and not blocks:
            raise RefusalError("no_text")
        thread = given.get("thread_ts")
        if thread is not None and thread not in channel.messages:
            raise RefusalError("thread_not_found")
        metadata = given.get("metadata")
        message = Message(
            ts=new_ts(),
            user=workspace.bot_user,
            bot_id=workspace.bot_id,
            text=text[:MAX_TEXT],
            blocks=blocks,
            thread_ts=thread,
            metadata=metadata,
        )
        channel.messages[message.ts] = message
        channel.posted.append(None if metadata is None else metadata["event_payload"].get("key"))
        self._announce(workspace, channel, message)
        return {"channel": channel.id, "ts": message.ts, "message": message.as_json()}

    def _update(self, workspace: Workspace, given: Arguments) -> Json:
        channel = _channel(workspace, given)
        message = _own(workspace, channel, given["ts"], "cant_update_message")
        if message.is_streaming:
            raise RefusalError("streaming_state_conflict")
        if len(str(given.get("text") or "")) > MAX_EDITED_TEXT:
            raise RefusalError("msg_too_long")
        if given.get("blocks") is not None:
            message.blocks = checked_blocks(given["blocks"])
        if given.get("text") is not None:
            message.text = str(given["text"])
        if given.get("metadata") is not None:
            message.metadata = given["metadata"]
        message.edited_ts = new_ts()
        return {"channel": channel.id, "ts": message.ts, "text": message.text}

    def _delete(self, workspace: Workspace, given: Arguments) -> Json:
        channel = _channel(workspace, given)
        message = _own(workspace, channel, given["ts"], "cant_delete_message")
        del channel.messages[message.ts]
        return {"channel": channel.id, "ts": message.ts}

    def _start_stream(self, workspace: Workspace, given: Arguments) -> Json:
        channel = _channel(workspace, given)
        if not workspace.is_agent:
            raise RefusalError("missing_scope")
        if given["thread_ts"] not in channel.messages:
            raise RefusalError("thread_not_found")
        if channel.kind != "im" and not (
            given.get("recipient_team_id") and given.get("recipient_user_id")
        ):
            raise RefusalError("missing_recipient_user_id")
        message = Message(
            ts=new_ts(),
            user=workspace.bot_user,
            bot_id=workspace.bot_id,
            text=_markdown(given),
            thread_ts=given["thread_ts"],
            is_streaming=True,
        )
        channel.messages[message.ts] = message
        return {"channel": channel.id, "ts": message.ts}

    def _append_stream(self, workspace: Workspace, given: Arguments) -> Json:
        channel = _channel(workspace, given)
        message = _streaming(workspace, channel, given["ts"])
        message.text += _markdown(given)
        return {"channel": channel.id, "ts": message.ts}

    def _stop_stream(self, workspace: Workspace, given: Arguments) -> Json:
        channel = _channel(workspace, given)
        message = _streaming(workspace, channel, given["ts"])
        blocks = checked_blocks(given.get("blocks") or [])
        message.text += _markdown(given)
        if blocks:
            message.blocks = [{"type": "markdown", "text": message.text or " "}, *blocks]
        message.metadata = given.get("metadata")
        message.is_streaming = False
        channel.statuses.append((message.thread_ts, given.get("session_status", "active")))
        return {"channel": channel.id, "ts": message.ts, "message": message.as_json()}

    def _set_status(self, workspace: Workspace, given: Arguments) -> None:
        if not workspace.is_agent:
            raise RefusalError("missing_scope")
        channel = _channel(workspace, {"channel": given["channel_id"]})
        channel.statuses.append((given["thread_ts"], given["status"]))

    def _set_session_status(self, workspace: Workspace, given: Arguments) -> Json:
        if given["status"] not in _STATUSES:
            raise RefusalError("invalid_status")
        self._set_status(workspace, {"thread_ts": given.get("thread_ts"), **given})
        return {"status": given["status"]}

    def _suggest(self, workspace: Workspace, given: Arguments) -> None:
        channel = _channel(workspace, {"channel": given["channel_id"]})
        titles = ", ".join(prompt["title"] for prompt in given["prompts"])
        channel.statuses.append((given.get("thread_ts"), f"suggested {titles}"))

    def _publish_home(self, workspace: Workspace, given: Arguments) -> None:
        view = given["view"]
        sections = [(block["type"], block["text"]["type"]) for block in view["blocks"]]
        if view["type"] != "home" or set(sections) - {("section", "mrkdwn")}:
            raise RefusalError("invalid_arguments")
        texts = [block["text"]["text"] for block in view["blocks"]]
        if any(not 0 < len(text) <= MAX_SECTION for text in texts):
            raise RefusalError("invalid_arguments")
        workspace.homes[given["user_id"]] = texts


async def _arguments_of(request: web.Request) -> Arguments:
    arguments: dict[str, Any] = dict(request.query)
    if request.content_type == "application/json":
        arguments |= await request.json()
    elif request.can_read_body:
        arguments |= dict(await request.post())
    for name in _ENCODED:
        if isinstance(arguments.get(name), str):
            arguments[name] = json.loads(arguments[name])
    return arguments


def _channel(workspace: Workspace, given: Arguments) -> Channel:
    channel = workspace.channels.get(given["channel"])
    if channel is None:
        raise RefusalError("channel_not_found")
    if channel.refusal is not None:
        raise RefusalError(channel.refusal)
    return channel


def _own(workspace: Workspace, channel: Channel, ts: str, error: str) -> Message:
    message = channel.messages.get(ts)
    if message is None:
        raise RefusalError("message_not_found")
    if message.user != workspace.bot_user:
        raise RefusalError(error)
    return message


def _streaming(workspace: Workspace, channel: Channel, ts: str) -> Message:
    message = _own(workspace, channel, ts, "message_not_owned_by_app")
    if not message.is_streaming:
        raise RefusalError("message_not_in_streaming_state")
    return message


def _markdown(given: Arguments) -> str:
    text = str(given.get("markdown_text") or "")
    if len(text) > MAX_MARKDOWN:
        raise RefusalError("msg_too_long")
    return text


def _page(messages: Any, given: Arguments) -> Json:  # noqa: ANN401 - any iterable of messages
    oldest, latest = str(given.get("oldest", "0")), str(given.get("latest", "9999999999"))
    is_inclusive = str(given.get("inclusive", "0")) in {"1", "true", "True"}
    has_metadata = str(given.get("include_all_metadata", "0")) in {"1", "true", "True"}

    def is_asked_for(message: Message) -> bool:
        return oldest < message.ts < latest or (is_inclusive and message.ts in {oldest, latest})

    found = [it for it in messages if is_asked_for(it)]
    begin = int(given.get("cursor") or 0)
    end = begin + min(int(given.get("limit", _PAGE)), _PAGE)
    return {
        "messages": [it.as_json(with_metadata=has_metadata) for it in found[begin:end]],
        "has_more": end < len(found),
        "response_metadata": {"next_cursor": str(end) if end < len(found) else ""},
    }


def _done(answer: Json) -> web.Response:
    return web.json_response({"ok": True, **answer})


def _refused(error: str) -> web.Response:
    return web.json_response({"ok": False, "error": error})


def _limited(seconds: float) -> web.Response:
    headers = {"Retry-After": str(max(1, round(seconds)))}
    return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)


def _cut(request: web.Request) -> None:
    """Cut the connection: the caller does not learn that its call was done."""
    if request.transport is not None:
        request.transport.abort()
