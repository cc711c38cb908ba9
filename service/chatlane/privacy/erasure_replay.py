"""Find people of the erasure list in restored data, by the digests of all ids in it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic_core import from_json

from chatlane.domain.addressing.keys import MalformedKeyError, parse_session_key
from chatlane.domain.addressing.owners import parse_owner_text
from chatlane.domain.addressing.people import person_form
from chatlane.privacy import erasure_list_sql, person_rows_sql
from chatlane.privacy.erasure import NotErasedError
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.postgres.pool import Store
    from chatlane.privacy.erasure_list_sql import ListLine
    from chatlane.privacy.stream_erasure import StreamErasure

_FAR: Final = datetime(9999, 1, 1, tzinfo=UTC)
_AT_ONCE: Final = 1000
# Platform, account, scope and id.
Name = tuple[str, str, str | None, str]


class Forgotten(NamedTuple):
    """A listed person: the holder of an id in a time span that includes its end."""

    person: Person
    since: datetime | None
    until: datetime
    is_past: bool


class Replay:
    """Finds the people of the erasure list whose data a database or the log holds again.

    Args:
        key: The key of the list.
    """

    def __init__(self, store: Store, streams: StreamErasure, key: ErasureKey) -> None:
        self._transaction = store.transaction
        self._streams = streams
        self._key = key
        self._listed: dict[bytes, list[ListLine]] = {}
        self._known: set[Name] = set()
        self._found: dict[Name, list[ListLine]] = {}

    async def find(self) -> list[Forgotten]:
        """Return the listed people that were found, with the time spans of their erasures.

        Raises:
            NotErasedError: The list was written under another key.
        """
        await self._read_list()
        async for spoken in person_rows_sql.walk_senders(self._transaction, _FAR):
            self._look_at(spoken.who)
        async for session in person_rows_sql.walk_sessions(self._transaction, "%"):
            self._look_at_session(session.session_key, session.owner)
        async for lane in person_rows_sql.walk_lanes(self._transaction, "%"):
            self._look_at_session(lane.session_key, None)
        async with self._transaction() as connection:
            for platform, account, alias in await person_rows_sql.known_people(connection):
                self._look_at_name((platform, account, None, alias))
        await self._look_at_letters()
        async for messages in self._streams.read(StreamName.INBOUND):
            for message in messages:
                self._look_at_body(message.body)
        return [
            Forgotten(
                Person(platform=name[0], account=name[1], scope=name[2], id=name[3]),
                line.since,
                line.until,
                line.is_past,
            )
            for name, list_lines in self._found.items()
            for line in list_lines
        ]

    async def _read_list(self) -> None:
        read = partial(erasure_list_sql.read_list, limit=_AT_ONCE)
        async for listed in person_rows_sql.walk_pages(self._transaction, read):
            for line in listed:
                if line.key_id != self._key.id:
                    raise NotErasedError(
                        "the erasure list was written under another erasure.key: set it to the "
                        "secret that was in use then"
                    )
                self._listed.setdefault(line.digest, []).append(line)

    def _look_at(self, source: Mapping[str, Any]) -> None:
        platform, account = source.get("platform"), source.get("account")
        sender = source.get("sender")
        if not (isinstance(platform, str) and isinstance(account, str)):
            return
        if isinstance(sender, dict):
            raw = (sender.get("alt_id"), sender.get("id"), *(sender.get("aliases") or ()))
            self._look_at_ids(platform, account, source.get("scope") or None, raw)

    def _look_at_ids(
        self, platform: str, account: str, scope: str | None, raw: Iterable[object]
    ) -> None:
        for raw_id in raw:
            if isinstance(raw_id, str) and raw_id:
                form = person_form(platform, raw_id) or raw_id
                self._look_at_name((platform, account, scope, form))

    def _look_at_name(self, name: Name) -> None:
        if name in self._known:
            return
        self._known.add(name)
        if (list_lines := self._listed.get(self._key.digest(*name))) is not None:
            self._found[name] = list_lines

    def _look_at_session(self, session_key: str, owner: str | None) -> None:
        if owner is not None:
            platform, account, scope, name = parse_owner_text(owner)
            self._look_at_ids(platform, account, scope, [name])
        try:
            key = parse_session_key(session_key)
        except MalformedKeyError:
            return
        self._look_at_ids(key.platform, key.account, key.scope, [key.user, key.chat])

    async def _look_at_letters(self) -> None:
        async for letters in person_rows_sql.walk_pages(
            self._transaction, person_rows_sql.next_letters
        ):
            for letter in letters:
                self._look_at_body(letter.body or b"")

    def _look_at_body(self, body: bytes) -> None:
        try:
            decoded = from_json(body)
        except ValueError:
            return
        if isinstance(decoded, dict):
            for part in (decoded, decoded.get("source"), decoded.get("target")):
                if isinstance(part, dict):
                    self._look_at(part)
