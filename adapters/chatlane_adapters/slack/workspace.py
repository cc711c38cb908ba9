"""The app in one workspace: sends, edits and finds its messages there."""

import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from slack_sdk.web.async_client import AsyncWebClient

from chatlane_adapters.slack.calls import RefusedCallError, done
from chatlane_adapters.slack.decode import Bot
from chatlane_adapters.slack.lookups import Lookups, Recent
from chatlane_adapters.slack.render import (
    button_blocks,
    content_of,
    draft_metadata,
    metadata_of,
    notification,
    payload_of,
    section_blocks,
    text_blocks,
)
from chatlane_adapters.slack.text import Json, without_broadcasts
from chatlane_client import Piece
from chatlane_schemas import Source, TextFormat

_log: Final = logging.getLogger(__name__)

# The clock of the service may be ahead of that of Slack.
_EARLIER: Final = timedelta(minutes=5)
_PAGE: Final = 100
# Refusals of an app that is not declared as an agent, and of a workspace without agents.
_NO_AGENT: Final = frozenset(
    {
        "access_denied",
        "channel_type_not_supported",
        "feature_not_enabled",
        "method_not_supported_for_channel_type",
        "missing_scope",
        "no_permission",
        "not_allowed_token_type",
        "team_not_found",
        "unknown_method",
    }
)


class Place(NamedTuple):
    """The channel, the thread and the person of a message."""

    channel: str
    thread_ts: str | None
    user: str | None

    @classmethod
    def of(cls, target: Source) -> "Place":
        """Return the place that a target names."""
        channel = target.chat.id if target.chat is not None else None
        user = target.sender.id if target.sender is not None else None
        return cls(channel or user or "", target.thread_id, user)


class Workspace:
    """Speaks as the bot in one workspace.

    Args:
        web: A client with the token of the bot.
        bot: The bot.
        is_agent: Whether to stream answers and to show a status, as far as the workspace allows it.
    """

    def __init__(self, web: AsyncWebClient, bot: Bot, *, is_agent: bool) -> None:
        self.bot = bot
        self.token = web.token or ""
        self.lookups = Lookups(web, bot)
        self._web = web
        self._is_agent = is_agent
        # Texts of the streams that this process has begun and not ended, by channel and message.
        self._streams: Recent[str | None] = Recent()
        self._statuses: Recent[str] = Recent()
        # When drafts were begun whose outcome may be unknown.
        self._begun: Recent[datetime] = Recent()

    async def post(self, place: Place, piece: Piece) -> str:
        """Send a piece as a message, unless an earlier attempt did, and return its timestamp."""
        if piece.may_be_sent:
            found = await self._find(place, piece.key, piece.message.at)
            if found is not None:
                return found
        try:
            return await self._post(place, piece, content_of(piece))
        except RefusedCallError as refusal:
            # Slack could not fetch an image.
            if refusal.error != "invalid_blocks" or not piece.attachments:
                raise
            return await self._post(place, piece, content_of(piece, shows_images=False))

    async def _post(self, place: Place, piece: Piece, content: Json) -> str:
        answer = await done(
            self._web.chat_postMessage(
                channel=place.channel,
                thread_ts=place.thread_ts,
                metadata=metadata_of(piece),
                unfurl_links=False,
                unfurl_media=False,
                **content,
            )
        )
        ts: str = answer["ts"]
        self.lookups.note(place.channel, ts, place.thread_ts)
        return ts

    async def _find(
        self, place: Place, key: str, at: datetime, *, is_draft: bool = False
    ) -> str | None:
        """Return the timestamp of the message that an attempt to send has left.

        Args:
            place: Where it was sent to.
            key: Its key, in the metadata of the message.
            at: The time before which it was not sent.
            is_draft: Whether it may be a stream, which has no metadata before its end.
        """
        oldest = f"{(at - _EARLIER).timestamp():.6f}"
        parameters: Json = {"oldest": oldest, "limit": _PAGE, "include_all_metadata": True}
        cursor: str | None = None
        while True:
            if place.thread_ts is None:
                call = self._web.conversations_history(
                    channel=place.channel, cursor=cursor, **parameters
                )
            else:
                call = self._web.conversations_replies(
                    channel=place.channel, ts=place.thread_ts, cursor=cursor, **parameters
                )
            try:
                page = await done(call)
            except RefusedCallError as refusal:
                # Without the right to read, a message may be sent twice; it is not lost.
                _log.warning("history_refused", extra={"error": refusal.error})
                return None
            for message in page["messages"]:
                ts: str = message["ts"]
                its_key = payload_of(message).get("key")
                is_stream = is_draft and its_key is None and self._stream(place, ts) is None
                if (its_key == key or is_stream) and message.get("user") == self.bot.user:
                    return ts
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return None

    async def begin_draft(self, place: Place, text: str, *, key: str, may_be_sent: bool) -> str:
        """Show the begin of an answer, and return the timestamp of its message.

        Raises:
            Undeliverable: An earlier attempt may have left a message that is not found.
        """
        shown = without_broadcasts(text)
        begun = self._begun.get(key)
        if may_be_sent and begun is not None:
            found = await self._find(place, key, begun[0], is_draft=True)
            if found is not None:
                return found
        elif begun is None:
            self._begun.set(datetime.now(UTC), key)
        if self._is_agent and place.thread_ts is not None:
            try:
                answer = await done(
                    self._web.chat_startStream(
                        channel=place.channel,
                        thread_ts=place.thread_ts,
                        markdown_text=shown,
                        recipient_team_id=self.bot.team,
                        recipient_user_id=place.user,
                    )
                )
            except RefusedCallError as refusal:
                self._note_refusal(refusal)
            else:
                ts: str = answer["ts"]
                self._streams.set(shown, place.channel, ts)
                self.lookups.note(place.channel, ts, place.thread_ts)
                return ts
        answer = await done(
            self._web.chat_postMessage(
                channel=place.channel,
                thread_ts=place.thread_ts,
                blocks=text_blocks(text),
                text=notification(text),
                metadata=draft_metadata(key),
                unfurl_links=False,
                unfurl_media=False,
            )
        )
        posted: str = answer["ts"]
        self.lookups.note(place.channel, posted, place.thread_ts)
        return posted

    async def change(self, place: Place, ts: str, text: str) -> None:
        """Replace the text of a message, and take its buttons away."""
        shown = without_broadcasts(text)
        streamed = self._stream(place, ts)
        if streamed is not None and shown.startswith(streamed):
            more = shown.removeprefix(streamed)
            try:
                if more:
                    call = self._web.chat_appendStream(
                        channel=place.channel, ts=ts, markdown_text=more
                    )
                    await done(call)
            except RefusedCallError:
                # The person has stopped it.
                self._streams.set(None, place.channel, ts)
            else:
                self._streams.set(shown, place.channel, ts)
                return
        elif streamed is not None:
            await self._stop_stream(place, ts)
        await self._update(place, ts, {"blocks": text_blocks(text), "text": notification(text)})

    async def replace(self, place: Place, piece: Piece) -> None:
        """Let a piece take the place of the message that it edits, such as its draft."""
        ts, shown = piece.edits or "", without_broadcasts(piece.text or "")
        streamed = self._stream(place, ts)
        is_markdown = piece.message.format is TextFormat.MARKDOWN
        if streamed is not None and is_markdown and shown.startswith(streamed):
            try:
                await done(
                    self._web.chat_stopStream(
                        channel=place.channel,
                        ts=ts,
                        markdown_text=shown.removeprefix(streamed) or None,
                        blocks=button_blocks(piece.buttons) or None,
                        metadata=metadata_of(piece),
                    )
                )
            except RefusedCallError:
                pass
            else:
                self._streams.set(None, place.channel, ts)
                self._statuses.set("active", place.channel, place.thread_ts or "")
                return
        elif streamed is not None or self._may_stream(place, piece):
            await self._stop_stream(place, ts)
        self._streams.set(None, place.channel, ts)
        await self._update(place, ts, content_of(piece))

    def _may_stream(self, place: Place, piece: Piece) -> bool:
        """Return whether an earlier process may have left the draft as a stream."""
        is_draft = piece.edits == piece.message.draft
        return self._is_agent and place.thread_ts is not None and is_draft

    def _stream(self, place: Place, ts: str) -> str | None:
        known = self._streams.get(place.channel, ts)
        return None if known is None else known[0]

    async def _stop_stream(self, place: Place, ts: str) -> None:
        # Else it has ended, or is no stream.
        with suppress(RefusedCallError):
            await done(self._web.chat_stopStream(channel=place.channel, ts=ts))
        self._streams.set(None, place.channel, ts)

    async def _update(self, place: Place, ts: str, content: Json) -> None:
        await done(self._web.chat_update(channel=place.channel, ts=ts, **content))

    async def delete(self, place: Place, ts: str) -> None:
        """Delete a message; one that is gone already stays so."""
        if self._stream(place, ts) is not None:
            await self._stop_stream(place, ts)
        try:
            await done(self._web.chat_delete(channel=place.channel, ts=ts))
        except RefusedCallError as refusal:
            if refusal.error != "message_not_found":
                raise

    async def show_status(self, place: Place, status: str) -> None:
        """Show what the agent does: `processing` with a stop button, or `active`."""
        if not self._is_agent or place.thread_ts is None:
            return
        if self._statuses.get(place.channel, place.thread_ts) == (status,):
            return
        try:
            await done(
                self._web.agents_sessions_setStatus(
                    channel_id=place.channel, thread_ts=place.thread_ts, status=status
                )
            )
        except RefusedCallError as refusal:
            self._note_refusal(refusal)
        self._statuses.set(status, place.channel, place.thread_ts)

    async def suggest(self, place: Place, prompts: tuple[str, ...]) -> None:
        """Offer prompts in a new thread with the agent."""
        if not self._is_agent or place.thread_ts is None:
            return
        shown = [{"title": prompt, "message": prompt} for prompt in prompts]
        call = self._web.assistant_threads_setSuggestedPrompts(
            channel_id=place.channel, thread_ts=place.thread_ts, prompts=shown
        )
        try:
            await done(call)
        except RefusedCallError as refusal:
            self._note_refusal(refusal)

    async def show_home(self, person: str, text: str) -> None:
        """Show a text in Markdown on the Home tab of a person."""
        view = {"type": "home", "blocks": section_blocks(text)}
        await done(self._web.views_publish(user_id=person, view=view))

    def _note_refusal(self, refusal: RefusedCallError) -> None:
        """Go on without streams and status in a workspace that has none."""
        if refusal.error in _NO_AGENT:
            self._is_agent = False
            _log.warning("agent_refused", extra={"error": refusal.error, "scope": self.bot.team})
