"""Save the place in the events, so that the next process goes on there."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Final, Protocol

from chatlane_adapters.discord.gateway import Place
from chatlane_client import TransientError

_log: Final = logging.getLogger(__name__)

_SAVE_EVERY: Final = 1.0
# A cursor has at most 30,000 characters, and an id about 20.
_MOST_IDS: Final = 1_200
_PLACE, _ROLES, _DMS = "gateway", "roles", "dms"


class Cursors(Protocol):
    """Keeps small texts by name."""

    async def load_cursor(self, name: str) -> str | None:
        """Return a text; None if there is none."""

    async def save_cursor(self, name: str, value: str) -> None:
        """Keep a text."""


class Cursor:
    """The place in the events, and what a session does not say again.

    Attributes:
        place: Up to which all events are stored.
        newest: Id of the newest message that is stored; 0 before the first session.
        roles: Roles that stand for the bot.
        dms: Direct chats, the most recently met last.
    """

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self.place: Place | None = None
        self.newest = 0
        self.roles: dict[str, None] = {}
        self.dms: dict[str, None] = {}
        self._changed: set[str] = set()
        self._saved_session: str | None = None

    async def load(self) -> None:
        """Take over what an earlier process has saved."""
        if (text := await self._cursors.load_cursor(_PLACE)) is not None:
            saved = json.loads(text)
            self.place = Place(*saved["place"])
            self._saved_session = self.place.session
            self.newest = saved["newest"]
        for name, ids in ((_ROLES, self.roles), (_DMS, self.dms)):
            text = await self._cursors.load_cursor(name)
            ids.update(dict.fromkeys((text or "").split()))

    def move(self, place: Place) -> None:
        """Note that all events up to a place are stored."""
        self.place = place
        self._changed.add(_PLACE)

    @property
    def has_news(self) -> bool:
        """Return whether the next process would miss more than the last second of a session."""
        is_new_session = self.place is not None and self.place.session != self._saved_session
        return is_new_session or bool(self._changed - {_PLACE})

    def note_message(self, message_id: int) -> None:
        """Note that a message is stored."""
        self.newest = max(self.newest, message_id)

    def note_dm(self, channel_id: str) -> None:
        """Keep a direct chat, of which no session tells."""
        self._keep(_DMS, self.dms, channel_id)

    def note_role(self, role_id: str) -> None:
        """Keep a role that stands for the bot."""
        self._keep(_ROLES, self.roles, role_id)

    def _keep(self, name: str, ids: dict[str, None], new: str) -> None:
        if new not in ids:
            ids[new] = None
            while len(ids) > _MOST_IDS:
                del ids[next(iter(ids))]
            self._changed.add(name)

    async def keep_saving(self, saved: Callable[[Place], None]) -> None:
        """Save what has changed, at most once a second, until cancelled.

        Args:
            saved: Called with each place that is saved.
        """
        while True:
            await asyncio.sleep(_SAVE_EVERY)
            place = self.place
            if await self.save() and place is not None:
                saved(place)

    async def save(self) -> bool:
        """Save what has changed, and return whether that succeeded."""
        place = self.place
        # Chats before the place: a chat of a place that is saved must not be missing.
        for name in (_ROLES, _DMS, _PLACE):
            if name not in self._changed:
                continue
            self._changed.discard(name)
            try:
                await self._cursors.save_cursor(name, self._text(name))
            except TransientError as exc:
                # The events are stored; the next process would only get some of them again.
                _log.warning("cursor_not_saved", extra={"error": type(exc).__name__})
                self._changed.add(name)
                return False
        self._saved_session = None if place is None else place.session
        return True

    def _text(self, name: str) -> str:
        if name == _PLACE:
            return json.dumps({"place": self.place, "newest": self.newest})
        return " ".join(self.roles if name == _ROLES else self.dms)
