"""Store what Slack sends, before Slack gets its confirmation."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, Literal, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from pydantic import ValidationError

from chatlane_adapters.slack.decode import Decoded, Decoder
from chatlane_adapters.slack.settings import SlackSettings
from chatlane_adapters.slack.text import Json
from chatlane_adapters.slack.workspace import Place, Workspace
from chatlane_client import (
    AdapterClient,
    OversizedMessageError,
    RefusedPublishError,
)
from chatlane_schemas import InboundEvent, Kind

_log: Final = logging.getLogger(__name__)

PayloadKind: TypeAlias = Literal["events_api", "slash_commands", "interactive"]
_ENDS: Final = frozenset({"app_uninstalled", "tokens_revoked"})
_SPOKEN: Final = frozenset({Kind.MESSAGE, Kind.EDIT, Kind.DELETE})


class UnknownWorkspaceError(Exception):
    """No token of the settings is of the workspace, or Slack refuses its token now."""


class Patience(NamedTuple):
    """How long an event may take until it is stored.

    Attributes:
        give_up_after: For the publish; None for no limit.
        waits_for_room: Whether to wait while the log is full.
    """

    give_up_after: timedelta | None
    waits_for_room: bool


class Intake:
    """Decodes payloads and publishes their events, those of one channel in the order they came.

    Args:
        adapter: Publishes.
        find_workspace: Returns the workspace of a team, once its token works.
        settings: Which messages are for the bot.
        patience: How long an event may take.
    """

    def __init__(
        self,
        adapter: AdapterClient,
        find_workspace: Callable[[str], Workspace | None],
        settings: SlackSettings,
        patience: Patience,
    ) -> None:
        self._adapter = adapter
        self._find_workspace = find_workspace
        self._settings = settings
        self._patience = patience
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, kind: PayloadKind, payload: Json) -> None:
        """Store what a payload says. Slack may get its confirmation afterwards.

        Raises:
            RetryLaterError: The log is full.
            TransientError: It is not certain that the event is stored.
            UnknownWorkspaceError: The workspace is not served now.
            UndeclaredAccountError: chatlane.toml does not declare the account.
        """
        team = _team_of(payload)
        workspace = self._find_workspace(team)
        if workspace is None:
            raise UnknownWorkspaceError(team)
        try:
            decoded = self._decoded(workspace, kind, payload)
        except (AttributeError, KeyError, TypeError, ValidationError, ValueError) as error:
            # It would not be understood the next time either.
            extra = {"kind": kind, "error": type(error).__name__}
            _log.error("payload_not_understood", extra=extra)
            return
        for found in decoded:
            channel = found.event.chat.id if found.event.chat is not None else None
            lane = self._lanes.setdefault(f"{team}/{channel}", asyncio.Lock())
            async with lane:
                await self._publish(workspace, found)
        if kind == "events_api" and payload["event"].get("tab") == "home":
            await self._show_home(workspace, str(payload["event"]["user"]))

    def _decoded(self, workspace: Workspace, kind: PayloadKind, payload: Json) -> list[Decoded]:
        decoder = Decoder(self._adapter.event, workspace.bot)
        match kind:
            case "slash_commands":
                is_message = payload["command"] in self._settings.ask_commands
                return [decoder.command(payload, is_message=is_message)]
            case "interactive":
                return decoder.presses(payload)
            case "events_api":
                event = payload["event"]
                if event["type"] in _ENDS:
                    _log.error("account_ended", extra={"reason": event["type"]})
                found = decoder.event(event)
                return [] if found is None else [found]

    async def _publish(self, workspace: Workspace, decoded: Decoded) -> None:
        event = await self._completed(workspace, decoded)
        if event is None:
            return
        if (opened := await self._opened_thread(workspace, event)) is not None:
            await self._store(opened)
        await self._store(event)
        if event.thread_id is not None and event.chat is not None and not event.observed:
            workspace.lookups.note(event.chat.id or "", None, event.thread_id)
        if event.kind is Kind.SERVICE and self._settings.suggested_prompts:
            await self._suggest(workspace, event)

    async def _store(self, event: InboundEvent) -> None:
        give_up_after, waits_for_room = self._patience
        try:
            await self._adapter.publish(
                event, give_up_after=give_up_after, waits_for_room=waits_for_room
            )
        except (OversizedMessageError, RefusedPublishError) as error:
            extra = {"kind": event.kind, "error": type(error).__name__}
            _log.error("event_refused", extra=extra)

    async def _opened_thread(
        self, workspace: Workspace, event: InboundEvent
    ) -> InboundEvent | None:
        """Return the event that lets a thread continue the conversation of its first message.

        Without effect if the thread has a conversation, or if its first message is in none. Only the
        first message that this process sees of a thread needs it.
        """
        thread, channel = event.thread_id, event.chat.id if event.chat is not None else None
        is_reply = event.kind is Kind.MESSAGE and thread != event.message_id
        if not is_reply or event.observed or thread is None or channel is None:
            return None
        if event.message_id is None or workspace.lookups.knows(channel, thread):
            return None
        return self._adapter.event(
            kind=Kind.SERVICE,
            scope=event.scope,
            chat=event.chat,
            sender=event.sender,
            thread_id=thread,
            reply_to=await workspace.lookups.asked_in(channel, thread),
            event_id=f"thread-{thread}",
        )

    async def _suggest(self, workspace: Workspace, event: InboundEvent) -> None:
        if event.chat is not None and event.thread_id is not None and event.service is None:
            place = Place(event.chat.id or "", event.thread_id, None)
            try:
                await workspace.suggest(place, self._settings.suggested_prompts)
            except Exception as error:  # noqa: BLE001 - an offer must not hold up an event
                _log.warning("prompts_not_shown", extra={"error": type(error).__name__})

    async def _show_home(self, workspace: Workspace, person: str) -> None:
        if self._settings.home:
            try:
                await workspace.show_home(person, self._settings.home)
            except Exception as error:  # noqa: BLE001 - a page must not hold up an event
                _log.warning("home_not_shown", extra={"error": type(error).__name__})

    async def _completed(self, workspace: Workspace, decoded: Decoded) -> InboundEvent | None:
        """Return an event with what Slack does not tell with it; None if it is not for the bot."""
        event = decoded.event
        channel = event.chat.id if event.chat is not None else None
        if channel is None:
            return event
        changes: dict[str, object] = {}
        if not await self._is_addressed(workspace, channel, decoded):
            if not self._settings.observes:
                return None
            if event.kind is Kind.MESSAGE:
                changes["observed"] = True
        if decoded.lacks_thread and event.message_id is not None:
            changes["thread_id"] = await workspace.lookups.thread_of(channel, event.message_id)
        if event.kind is Kind.MESSAGE:
            changes |= await self._names(workspace, channel, event)
        return event.model_copy(update=changes)

    async def _is_addressed(self, workspace: Workspace, channel: str, decoded: Decoded) -> bool:
        if decoded.is_addressed:
            return True
        event = decoded.event
        if event.kind not in _SPOKEN or self._settings.answers != "threads":
            return False
        is_reply = event.thread_id is not None and event.thread_id != event.message_id
        return is_reply and await workspace.lookups.takes_part(channel, event.thread_id or "")

    async def _names(
        self, workspace: Workspace, channel: str, event: InboundEvent
    ) -> dict[str, object]:
        sender, chat = event.sender, event.chat
        names: dict[str, object] = {}
        if sender is not None and sender.id and sender.name is None and not sender.is_bot:
            name = await workspace.lookups.person(sender.id)
            names["sender"] = sender.model_copy(update={"name": name})
        if chat is not None and chat.kind != "dm":
            name = await workspace.lookups.channel(channel)
            names["chat"] = chat.model_copy(update={"name": name})
        return names


def _team_of(payload: Mapping[str, object]) -> str:
    """Return the workspace whose installation of the app a payload is for."""
    authorizations = payload.get("authorizations")
    if isinstance(authorizations, list) and authorizations:
        return str(authorizations[0].get("team_id"))
    team = payload.get("team")
    if isinstance(team, dict):
        return str(team.get("id"))
    return str(payload.get("team_id"))


def interactive_payload(form: Mapping[str, str]) -> Json:
    """Return the payload of a request about a pressed button."""
    payload: Json = json.loads(form["payload"])
    return payload
