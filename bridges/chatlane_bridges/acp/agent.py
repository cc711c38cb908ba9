"""The agent that an editor talks to: each method of the protocol as calls of the session API."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic
from typing import Any, Final
from uuid import UUID

from acp.meta import PROTOCOL_VERSION
from acp.schema import ClientCapabilities, Implementation

from chatlane_bridges.acp import session_options, updates
from chatlane_bridges.acp.conversation import Conversation
from chatlane_bridges.acp.editor import Editor
from chatlane_bridges.acp.errors import (
    check_directories,
    failed,
    invalid,
    not_found,
    refusals,
    session_uuid,
)
from chatlane_bridges.acp.prompt_text import prompt_text
from chatlane_bridges.acp.service_link import Service, ServiceLink
from chatlane_bridges.acp.settings import ORIGIN, EditorOptions
from chatlane_bridges.acp.slash_commands import available_commands, carry_out, command_in
from chatlane_bridges.acp.turn_follower import Ended, Target, TurnFollower
from chatlane_client import ConflictingRequestError, SessionNotFoundError
from chatlane_schemas import new_envelope_id
from chatlane_schemas.events import EndReason
from chatlane_schemas.live_turns import TurnOutcome
from chatlane_schemas.session_api.sessions import SessionView

_log: Final = logging.getLogger("chatlane_bridges")

NATS_METHOD: Final = "nats"
_PAGE: Final = 50
_TITLE_CHARACTERS: Final = 60
_REMOVED_WITHIN: Final = timedelta(seconds=20)
_TRY_AGAIN: Final = timedelta(milliseconds=300)

Answer = dict[str, Any]


class EditorAgent:
    """Answers the requests of one editor, for one person."""

    def __init__(
        self, link: ServiceLink, editor: Editor, offered: EditorOptions, profile: str | None
    ) -> None:
        """Create it.

        Args:
            link: Connects to chatlane when it is needed.
            editor: The editor.
            offered: What a person may choose.
            profile: Profile of new sessions; None for the default.
        """
        self._link = link
        self._editor = editor
        self._offered = offered
        self._profile = profile
        self._open: dict[str, Conversation] = {}
        self._beside: set[asyncio.Task[None]] = set()

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: object,
    ) -> Answer:
        """Answer with the capabilities of the agent."""
        del client_info
        self._editor.learn(client_capabilities)
        return {
            "protocolVersion": min(protocol_version, PROTOCOL_VERSION),
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {
                    "list": {},
                    "delete": {},
                    "additionalDirectories": {},
                    "fork": {},
                    "resume": {},
                    "close": {},
                },
            },
            "agentInfo": {"name": "chatlane", "title": "chatlane", "version": "0.1.0"},
            "authMethods": [
                {
                    "id": NATS_METHOD,
                    "name": "NATS",
                    "description": "Connects with the settings CHATLANE_ACP_* of this program.",
                }
            ],
        }

    async def authenticate(self, method_id: str, **_: object) -> Answer:
        """Connect to NATS."""
        if method_id != NATS_METHOD:
            raise invalid("There is no such method.")
        await self._link.open()
        return {}

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[object] | None = None,
        **_: object,
    ) -> Answer:
        """Open a session."""
        check_directories(cwd, additional_directories)
        _leave_out(mcp_servers)
        service = await self._link.open()
        with refusals():
            session = await service.sessions.create(
                origin=ORIGIN,
                profile=self._profile,
                cwd=cwd,
                config=_directories(additional_directories),
            )
        conversation = self._conversation(service, str(session.id), session.id)
        self._offer_commands(conversation)
        return {"sessionId": conversation.key} | session_options.choices_of(session, self._offered)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[object] | None = None,
        additional_directories: list[str] | None = None,
        **_: object,
    ) -> Answer:
        """Show the whole conversation and go on with it."""
        return await self._continue(
            session_id, cwd, additional_directories, mcp_servers, is_replayed=True
        )

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[object] | None = None,
        **_: object,
    ) -> Answer:
        """Go on with a conversation that the editor shows already."""
        return await self._continue(
            session_id, cwd, additional_directories, mcp_servers, is_replayed=False
        )

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: object
    ) -> Answer:
        """List the sessions of editors, those with the newest message first."""
        service = await self._link.open()
        found: list[Answer] = []
        with refusals():
            while len(found) < _PAGE:
                sessions, cursor = await service.lists.page(cwd, cursor)
                found += [_listed(session) for session in sessions if _is_listed(session, cwd)]
                if cursor is None:
                    break
        return {"sessions": found} | ({"nextCursor": cursor} if cursor is not None else {})

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[object] | None = None,
        **_: object,
    ) -> Answer:
        """Open a session that begins as a copy."""
        check_directories(cwd, additional_directories)
        _leave_out(mcp_servers)
        parent = await self._conversation_of(session_id)
        with refusals(session_id):
            await parent.refresh()
            copy = await parent.service.sessions.fork(parent.tip)
            session = await _placed(parent.service, copy, cwd, additional_directories)
        conversation = self._conversation(parent.service, str(session.id), session.id)
        self._offer_commands(conversation)
        return {"sessionId": conversation.key} | session_options.choices_of(session, self._offered)

    async def close_session(self, session_id: str, **_: object) -> Answer:
        """End what runs; the session stays."""
        conversation = await self._conversation_of(session_id)
        with refusals(session_id):
            await self._end(conversation)
        return {}

    async def delete_session(self, session_id: str, **_: object) -> Answer:
        """Delete a session with its transcript."""
        conversation = await self._conversation_of(session_id)
        with refusals(session_id):
            await self._end(conversation)
            request_id, began = new_envelope_id(), monotonic()
            while True:
                try:
                    await conversation.service.sessions.remove(
                        conversation.tip, request_id=request_id
                    )
                except ConflictingRequestError:
                    # The worker of a stopped turn is about to hand it back.
                    if monotonic() - began > _REMOVED_WITHIN.total_seconds():
                        raise
                    request_id = new_envelope_id()
                    await asyncio.sleep(_TRY_AGAIN.total_seconds())
                else:
                    return {}

    async def set_session_mode(self, session_id: str, mode_id: str, **_: object) -> Answer:
        """Set the mode of a session."""
        conversation = await self._conversation_of(session_id)
        with refusals(session_id):
            session = await conversation.refresh()
            await session_options.set_mode(conversation.service, session, self._offered, mode_id)
        return {}

    async def set_config_option(
        self,
        config_id: str,
        session_id: str,
        value: str | bool,  # noqa: FBT001 - the value of a switch
        **_: object,
    ) -> Answer:
        """Set an option of a session, and return all of them."""
        conversation = await self._conversation_of(session_id)
        with refusals(session_id):
            session = await conversation.refresh()
            session = await session_options.set_option(
                conversation.service, session, self._offered, config_id, value
            )
        return {"configOptions": session_options.options_of(session, self._offered)}

    async def prompt(self, session_id: str, prompt: Sequence[object], **_: object) -> Answer:
        """Submit a message, show its turn, and return how it ended."""
        text = prompt_text(prompt)
        conversation = await self._conversation_of(session_id)
        if conversation.has_prompt:
            raise invalid("The session has a prompt that is not answered yet.")
        conversation.has_prompt, conversation.cancelled_at = True, None
        conversation.own_turn = None
        try:
            await conversation.end_background()
            with refusals(session_id):
                ended = await self._answer(conversation, text)
        finally:
            is_cancelled = conversation.cancelled_at is not None
            conversation.has_prompt = False
        return _stop_reason(ended, is_cancelled=is_cancelled)

    async def cancel(self, session_id: str, **_: object) -> None:
        """End the prompt of a session."""
        if (conversation := self._open.get(session_id)) is not None:
            with refusals(session_id):
                await conversation.cancel()

    async def close(self) -> None:
        """End everything that runs beside requests; turns go on without the editor."""
        for conversation in self._open.values():
            await conversation.end_background()
        for task in self._beside:
            task.cancel()

    async def _answer(self, conversation: Conversation, text: str) -> Ended:
        session = await conversation.refresh()
        service = conversation.service
        after_seq = await service.last_seq(session.id)
        command = command_in(text)
        turn_id: UUID | None = None
        if command is not None:
            done = await carry_out(command, conversation)
            if done.text:
                await conversation.show([updates.agent_text(done.text, new_envelope_id())])
            if done.title is not None:
                await conversation.show([_titled(done.title)])
            if done.turn_id is None:
                return Ended(outcome=TurnOutcome.OK)
            turn_id = done.turn_id
            after_seq = await service.last_seq(session.id)
        elif session.title is None and not session.message_count:
            await self._name(conversation, text)
        request_id, tip = new_envelope_id(), session.id
        while True:
            async with service.sessions.watch(tip) as arriving:
                if turn_id is not None:
                    target = Target(after_seq=after_seq, turn_id=turn_id)
                    return await TurnFollower(conversation, target).run(arriving)
                submission = await service.sessions.submit(tip, text, request_id=request_id)
                conversation.tip = submission.session.id
                if conversation.tip == tip:
                    if conversation.cancelled_at is not None:
                        # The editor cancelled before there was anything to stop.
                        await conversation.stop()
                    target = Target(after_seq=after_seq, submission=submission)
                    return await TurnFollower(conversation, target).run(arriving)
            # A compaction came in between: the same request again, and its reply is the same.
            tip, after_seq = conversation.tip, 0

    async def _continue(
        self,
        session_id: str,
        cwd: str,
        more: list[str] | None,
        mcp_servers: Sequence[object] | None,
        *,
        is_replayed: bool,
    ) -> Answer:
        check_directories(cwd, more)
        _leave_out(mcp_servers)
        service = await self._link.open()
        known = self._open.get(session_id)
        if known is not None and known.has_prompt:
            raise invalid("The session has a prompt that is not answered yet.")
        if known is not None:
            await known.end_background()
        conversation = self._conversation(service, session_id, session_uuid(session_id))
        try:
            with refusals(session_id):
                session = await conversation.refresh()
                if session.ended_at is not None or session.is_suspended:
                    session = await service.sessions.reopen(session.id)
                session = await _placed(service, session, cwd, more)
                is_busy = session.is_busy
                after_seq = await self._replay(conversation) if is_replayed else 0
                if not is_replayed:
                    after_seq = await service.last_seq(session.id)
        except Exception:
            del self._open[session_id]
            raise
        self._offer_commands(conversation)
        if is_busy:
            conversation.start(self._follow_running(conversation, after_seq))
        return session_options.choices_of(session, self._offered)

    async def _replay(self, conversation: Conversation) -> int:
        """Show the transcript, oldest first, and return the place of its newest row."""
        service = conversation.service
        pages = [
            page
            async for page in service.transcripts.pages(
                conversation.tip, page_size=500, whole_chain=True, reasoning=True
            )
        ]
        for page in reversed(pages):
            for row in page:
                whole = await service.whole(conversation.tip, row)
                await conversation.show(updates.replayed(whole))
        newest = pages[0] if pages else ()
        return max((row.seq for row in newest), default=0)

    async def _follow_running(self, conversation: Conversation, after_seq: int) -> None:
        """Show the turn that runs already when a session is opened."""
        target = Target(after_seq=after_seq)
        async with conversation.service.sessions.watch(conversation.tip) as arriving:
            await TurnFollower(conversation, target).run(arriving)

    async def _name(self, conversation: Conversation, text: str) -> None:
        """Give a new conversation a title from its first prompt; titles are unique."""
        words = " ".join(text.split())
        title = words if len(words) <= _TITLE_CHARACTERS else f"{words[:_TITLE_CHARACTERS]}…"
        try:
            session = await conversation.service.sessions.set_title(conversation.tip, title)
        except ConflictingRequestError:
            return
        if session.title:
            await conversation.show([_titled(session.title)])

    async def _end(self, conversation: Conversation) -> None:
        await conversation.end_background()
        await conversation.refresh()
        if conversation.has_prompt:
            conversation.cancelled_at = monotonic()
        await conversation.service.sessions.stop(conversation.tip)
        self._open.pop(conversation.key, None)

    def _conversation(self, service: Service, key: str, tip: UUID) -> Conversation:
        conversation = Conversation(service, self._editor, key, tip)
        self._open[key] = conversation
        return conversation

    async def _conversation_of(self, session_id: str) -> Conversation:
        """Return an open conversation; one of an earlier process of the bridge is opened again."""
        if (known := self._open.get(session_id)) is not None:
            return known
        service = await self._link.open()
        conversation = Conversation(service, self._editor, session_id, session_uuid(session_id))
        try:
            await conversation.refresh()
        except SessionNotFoundError as exc:
            raise not_found(session_id) from exc
        return self._open.setdefault(session_id, conversation)

    def _offer_commands(self, conversation: Conversation) -> None:
        # Editors drop what is about a session that they do not know yet, so it comes after the answer.
        task = asyncio.create_task(conversation.show([available_commands()]))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)


async def _placed(
    service: Service, session: SessionView, cwd: str, more: list[str] | None
) -> SessionView:
    """Return a session with the directories of the editor."""
    patch = _directories(more)
    if session.cwd == cwd and (more is None or session_options.directories_of(session) == more):
        return session
    return await service.sessions.update(session.id, cwd=cwd, config_patch=patch)


def _directories(more: list[str] | None) -> dict[str, Any] | None:
    return None if more is None else {session_options.DIRECTORIES_KEY: [*more]}


def _leave_out(mcp_servers: Sequence[object] | None) -> None:
    if mcp_servers:
        # They may hold credentials, and the agent runs on another machine.
        _log.warning("mcp_servers_left_out", extra={"count": len(mcp_servers)})


def _is_listed(session: SessionView, cwd: str | None) -> bool:
    is_continued = session.end_reason in {EndReason.COMPRESSION, EndReason.MERGED}
    if session.cwd is None or is_continued or not session.message_count:
        return False
    return cwd is None or session.cwd == cwd


def _listed(session: SessionView) -> Answer:
    listed = {
        "sessionId": str(session.id),
        "cwd": session.cwd,
        "updatedAt": session.last_activity_at.isoformat(),
    }
    if session.title:
        listed["title"] = session.title
    more = session_options.directories_of(session)
    return listed | ({"additionalDirectories": more} if more else {})


def _titled(title: str) -> Answer:
    return {"sessionUpdate": "session_info_update", "title": title}


def _stop_reason(ended: Ended, *, is_cancelled: bool) -> Answer:
    if is_cancelled or ended.outcome is TurnOutcome.CANCELLED:
        return {"stopReason": "cancelled"}
    if ended.outcome is TurnOutcome.FAILED:
        raise failed(ended.notice or "The agent failed.")
    usage = ended.usage
    read, written = usage.get("input_tokens"), usage.get("output_tokens")
    if read is None or written is None:
        return {"stopReason": "end_turn"}
    counts = {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}
    for name, theirs in (
        ("cache_read_tokens", "cachedReadTokens"),
        ("cache_write_tokens", "cachedWriteTokens"),
        ("thought_tokens", "thoughtTokens"),
    ):
        if name in usage:
            counts[theirs] = usage[name]
    return {"stopReason": "end_turn", "usage": counts}
