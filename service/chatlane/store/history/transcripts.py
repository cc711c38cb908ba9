"""Read transcripts: rows of one session at a time, and the sessions it continues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString, Protocol

from pydantic_core import from_json

from chatlane.domain.addressing.keys import is_shared, parse_session_key
from chatlane.domain.ids import row_id_of
from chatlane.domain.sessions.transcripts import CONTINUES, MAX_HOPS, Link, Version
from chatlane.postgres.stored_values import known_value, read_record, read_source
from chatlane.store.addressing import identities
from chatlane.store.addressing.rooms import RoomReads
from chatlane.store.history import replies
from chatlane_schemas.content.elements import STORED_FIELDS, StoredContent
from chatlane_schemas.inbound import Kind
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import (
    RemovedEntry,
    Revision,
    RowReasoning,
    RowState,
    TranscriptEntry,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    import asyncpg

    from chatlane.domain.catalog import Catalog
    from chatlane.postgres.pool import Connection, Store
    from chatlane_schemas.content.replied import RepliedMessage
    from chatlane_schemas.inbound import Sender
    from chatlane_schemas.session_api.people import Person


# Larger than the largest message of the contract: only rows of imports are larger.
MAX_ROW_BYTES: Final = 256 * 1024


class Prefix(Protocol):
    """Gives the sender prefix of a row, or of another sender in the place of the row."""

    def __call__(self, row: asyncpg.Record, sender: Sender | None = None, /) -> str | None:
        """Return the prefix; None if the row is not of a person."""


_SHOWN: Final = {"kind", "attachments", "tool_calls", "tool_call_id", "tool_name"}
# Fields of a row that members of a room see: neither ids of people nor the work of tools.
_SEEN_BY_MEMBERS: Final = frozenset(
    (
        *("row_id", "seq", "role", "content", "content_bytes", "content_next", "author_name"),
        *("kind", "created_at", "state", "unanswered", "location", "poll", "sticker", "service"),
        "observed",
    )
)
# Characters of an archived row that are shown; in JSON one takes at most six bytes.
_REMOVED_CHARACTERS: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class RowsBefore:
    """Rows just below a place, newest first, and whether there are more below them."""

    rows: tuple[TranscriptEntry, ...]
    has_more: bool


class TranscriptReads:
    """Reads transcripts for API requests; locks nothing."""

    def __init__(
        self, store: Store, catalog: Catalog | None = None, rooms: RoomReads | None = None
    ) -> None:
        """Create a reader.

        Args:
            store: Opens the transactions.
            catalog: Defines how sender names are shown to agents; None omits sender prefixes.
            rooms: Finds what people may read as members of rooms; None for nothing.
        """
        self._store = store
        self._rooms = rooms or RoomReads()
        self._catalog = catalog

    _VERSION: Final[LiteralString] = """
        -- transcripts.version: the version of a transcript
        SELECT revision, next_seq FROM sessions
        WHERE id = $1 AND ($2::text[] IS NULL OR owner = ANY($2))
    """

    async def version(self, session_id: UUID, person: Person | None = None) -> Version | None:
        """Return the version of a transcript; None if it is unknown, or not the person's if one is named.

        Rows that are read afterwards may be newer.
        """
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, person)
            row = await connection.fetchrow(self._VERSION, session_id, owners)
        return None if row is None else Version(*row.values())

    async def version_for_member(self, session_id: UUID, person: Person | None) -> Version | None:
        """Return the version of a transcript that a member of its room may read; None otherwise."""
        async with self._store.transaction() as connection:
            if session_id not in await self._rooms.find(connection, person):
                return None
            row = await connection.fetchrow(self._VERSION, session_id, None)
        return None if row is None else Version(*row.values())

    _LINKS: Final[LiteralString] = """
        -- transcripts.links: a session and the sessions it continues, up to a number of hops
        WITH RECURSIVE chain (id, parent_id, link_kind, owner, hops) AS (
            SELECT id, parent_id, link_kind, owner, 0 FROM sessions WHERE id = $1
            UNION ALL
            SELECT parent.id, parent.parent_id, parent.link_kind, parent.owner, chain.hops + 1
            FROM chain JOIN sessions AS parent ON parent.id = chain.parent_id
            WHERE chain.link_kind = ANY($2::text[]) AND chain.hops < $3
              AND ($4::text[] IS NULL OR parent.owner = ANY($4))
              -- A link to another person's session is damaged, and not followed.
              AND (parent.owner IS NULL OR parent.owner = chain.owner)
        )
        SELECT DISTINCT id, parent_id, link_kind FROM chain
    """

    async def version_and_links(
        self, session_id: UUID, person: Person | None = None
    ) -> tuple[Version, tuple[Link, ...]] | None:
        """Return the version of a transcript, and its session with the ancestors in any order.

        If a person is named, the walk ends at a session that the person does not own.
        """
        async with self._store.transaction() as connection:
            owners = await identities.find_owners(connection, person)
            row = await connection.fetchrow(self._VERSION, session_id, owners)
            if row is None:
                return None
            rows = await connection.fetch(
                self._LINKS, session_id, list(CONTINUES), MAX_HOPS, owners
            )
        return Version(*row.values()), tuple(Link(*row.values()) for row in rows)

    _ROWS: Final[LiteralString] = """
        -- transcripts.rows: the newest rows below a place, as many as fit a budget
        SELECT seq, role,
               CASE WHEN bytes > $5 OR $6::bigint IS NOT NULL
                    THEN substr(content, least(coalesce($6::bigint, 0), 2147483646)::int + 1, $5::int / 4)
                    ELSE content END AS content,
               -- The calls of a row that is too large keep what a result refers to.
               CASE WHEN bytes <= $5 OR coalesce(length(details::text), 0) <= $5 / 2 THEN details
                    WHEN jsonb_typeof(details -> 'tool_calls') = 'array' THEN jsonb_build_object(
                        'tool_calls', (
                            SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                                'id', call -> 'id', 'call_id', call -> 'call_id',
                                'type', call -> 'type', 'name', call -> 'name',
                                'function', CASE WHEN call ? 'function' THEN jsonb_build_object(
                                    'name', call #> '{function,name}', 'arguments', '{}') END)))
                            FROM jsonb_array_elements(details -> 'tool_calls') AS call))
                    ELSE jsonb_strip_nulls(jsonb_build_object(
                        'tool_call_id', details -> 'tool_call_id',
                        'tool_name', details -> 'tool_name',
                        'kind', details -> 'kind')) END AS details,
               CASE WHEN bytes > $5 OR $6::bigint IS NOT NULL
                    THEN coalesce(octet_length(content), 0) END AS content_bytes,
               CASE WHEN (bytes > $5 OR $6::bigint IS NOT NULL)
                     AND coalesce($6::bigint, 0) + $5 / 4 < length(content)
                    THEN coalesce($6::bigint, 0) + $5 / 4 END AS content_next,
               author, platform_message_id, id, turn_id, created_at,
               state, unanswered, source, row_id, found,
               CASE WHEN unanswered IS DISTINCT FROM 'failed' THEN NULL
                    -- A message of a stream agent has no turn.
                    WHEN turn_id IS NULL THEN 'no worker answered it'
                    ELSE (SELECT error FROM turns
                          WHERE turns.id = measured.turn_id AND turns.state = 'failed')
               END AS error,
               (SELECT session_key FROM sessions WHERE id = $1) AS session_key,
               (SELECT agent FROM sessions WHERE id = $1) AS agent
        FROM (
            SELECT *,
                   sum(least(bytes, $5)) OVER (ORDER BY seq DESC) AS bytes_so_far,
                   row_number() OVER (ORDER BY seq DESC) AS place,
                   count(*) OVER () AS found
            FROM (
                SELECT seq, role, content, details, author, platform_message_id, id, turn_id,
                       created_at, state, unanswered, source, row_id,
                       coalesce(octet_length(content), 0) + coalesce(length(details::text), 0)
                           AS bytes
                FROM (
                    SELECT seq, role, content, author, platform_message_id, id, turn_id,
                           created_at, state, unanswered, source, row_id,
                           -- Only the turn of a message needs what its front end gave.
                           CASE WHEN details ?| ARRAY['reasoning', 'front_end']
                                THEN details - CASE WHEN $7 THEN ARRAY['front_end']
                                                    ELSE ARRAY['reasoning', 'front_end'] END
                                ELSE details END AS details
                    FROM messages
                    WHERE session_id = $1 AND seq < $2
                      -- Members of a room read what was said in it: messages that came from its
                      -- platform, and what the agent answered.
                      AND (NOT $8 OR (role = 'user' AND source IS NOT NULL)
                           OR (role = 'assistant' AND content <> ''))
                    ORDER BY seq DESC
                    LIMIT $3::bigint + 1
                ) AS shown
            ) AS newest
        ) AS measured
        WHERE (bytes_so_far <= $4 AND place <= $3) OR place = 1
        ORDER BY seq DESC
    """

    async def rows(
        self,
        session_id: UUID,
        *,
        below_seq: int,
        limit: int,
        max_bytes: int,
        row_bytes: int = MAX_ROW_BYTES,
        content_from: int | None = None,
        with_reasoning: bool = False,
        with_session_id: bool = False,
        for_member: bool = False,
    ) -> RowsBefore:
        """Return the rows just below a place.

        Returns at most `limit` rows whose texts take at most `max_bytes`, and always at least one
        if there is one. The rest is left to the next page. A row of more than `row_bytes` is
        shortened. If `content_from` is given, each content is that range of it. Each row names its
        session if `with_session_id` is set. A member of a room gets what was said in the room, without
        ids of people.
        """
        shown_id = session_id if with_session_id else None
        while True:
            async with self._store.transaction() as connection:
                rows = await connection.fetch(
                    self._ROWS,
                    session_id,
                    below_seq,
                    limit,
                    max_bytes,
                    row_bytes,
                    content_from,
                    with_reasoning,
                    for_member,
                )
                entries = await self._entries(connection, session_id, rows, content_from)
            if for_member:
                entries = [
                    {name: value for name, value in entry.items() if name in _SEEN_BY_MEMBERS}
                    for entry in entries
                ]
            shown = tuple(
                entry
                for fields in entries
                if (
                    entry := read_record(
                        TranscriptEntry, {**fields, "session_id": shown_id}, "messages"
                    )
                )
                is not None
            )
            has_more = bool(rows) and rows[0]["found"] > len(rows)
            if shown or not has_more:
                return RowsBefore(shown, has_more)
            below_seq = rows[-1]["seq"]

    async def _entries(
        self,
        connection: Connection,
        session_id: UUID,
        rows: Sequence[asyncpg.Record],
        content_from: int | None = None,
    ) -> list[dict[str, object]]:
        """Return the fields of `TranscriptEntry` of each row."""
        details = [from_json(row["details"] or "{}") for row in rows]
        replied = await replies.load(connection, details)
        prefix = self._prefixes(rows)
        return [
            {
                **_entry(row, fields, prefix, other, content_from),
                "row_id": row["row_id"] or row_id_of(session_id, row["seq"]),
            }
            for row, fields, other in zip(rows, details, replied, strict=True)
        ]

    _REMOVED: Final[LiteralString] = """
        -- transcripts.removed: archived rows of a session below a place, the last first
        SELECT removal, reason, removed_at, seq, role, left(content, $6) AS content,
               CASE WHEN length(details::text) <= $6 THEN details - ARRAY['reasoning', 'front_end']
                    ELSE jsonb_strip_nulls(jsonb_build_object(
                        'tool_call_id', details -> 'tool_call_id',
                        'tool_name', details -> 'tool_name',
                        'kind', details -> 'kind')) END AS details,
               CASE WHEN length(content) > $6 THEN octet_length(content) END AS content_bytes,
               CASE WHEN length(content) > $6 THEN $6 END AS content_next,
               author, platform_message_id, id, turn_id, created_at, state, unanswered, source,
               row_id, NULL AS error,
               (SELECT session_key FROM sessions WHERE id = $1) AS session_key,
               (SELECT agent FROM sessions WHERE id = $1) AS agent
        FROM removed_messages
        WHERE session_id = $1 AND ($2::bigint IS NULL OR removal = $2)
          AND (removal, seq) < ($3::bigint, $4::bigint)
        ORDER BY removal DESC, seq DESC
        LIMIT $5
    """

    async def removed(
        self, session_id: UUID, removal: int | None, *, below: tuple[int, int], limit: int
    ) -> tuple[RemovedEntry, ...]:
        """Return archived rows of a session, the last change and its last row first.

        Args:
            session_id: Session whose transcript the rows were in.
            removal: The change that took the rows out; None for all changes.
            below: Only rows before this change and place.
            limit: Maximum number of rows.
        """
        async with self._store.transaction() as connection:
            rows = await connection.fetch(
                self._REMOVED, session_id, removal, *below, limit, _REMOVED_CHARACTERS
            )
            entries = await self._entries(connection, session_id, rows)
        found = (
            {
                **entry,
                "content_next": None,
                "removal": row["removal"],
                "reason": row["reason"],
                "removed_at": row["removed_at"],
            }
            for row, entry in zip(rows, entries, strict=True)
        )
        shown = (read_record(RemovedEntry, fields, "removed_messages") for fields in found)
        return tuple(entry for entry in shown if entry is not None)

    def _prefixes(self, rows: Sequence[asyncpg.Record]) -> Prefix:
        """Return a function that gives sender prefixes; always None in unshared sessions.

        The function takes a row, and another sender in its place.
        """
        agent = self._catalog.agents.get(rows[0]["agent"]) if self._catalog and rows else None
        prompts = agent.prompts if agent else None
        if prompts is None or not is_shared(parse_session_key(rows[0]["session_key"])):
            return lambda _row, _sender=None: None

        def prefix(row: asyncpg.Record, sender: Sender | None = None) -> str | None:
            if row["source"] is None or row["role"] != Role.USER:
                return None
            source = read_source(row["source"], "messages")
            if sender is not None:
                source = source.model_copy(update={"sender": sender})
            stored = from_json(row["details"] or "{}").get("kind", Kind.MESSAGE)
            kind = known_value(Kind, stored, "messages.details") or Kind.MESSAGE
            return prompts.sender_prefix(source, row["session_key"], kind)

        return prefix

    _REVISIONS: Final[LiteralString] = """
        -- transcripts.revisions: the earlier texts of a row, newest first
        SELECT old.* FROM messages AS row CROSS JOIN LATERAL (
            SELECT id, content, attachments, reason, at FROM message_revisions
            WHERE message_id = row.id AND id < $3
            UNION ALL
            SELECT id, content, attachments, reason, at FROM message_revisions
            WHERE row.id IS NULL AND message_id IS NULL AND session_id = row.session_id
              AND platform_message_id = row.platform_message_id AND id < $3
        ) AS old
        WHERE row.session_id = $1 AND row.seq = $2
        ORDER BY old.id DESC
        LIMIT $4
    """

    async def revisions(
        self, session_id: UUID, seq: int, *, before: int, limit: int
    ) -> tuple[Revision, ...]:
        """Return the previous texts of a row that was edited or deleted, newest first."""
        async with self._store.transaction() as connection:
            rows = await connection.fetch(self._REVISIONS, session_id, seq, before, limit)
        return tuple(map(_revision, rows))


def _revision(row: asyncpg.Record) -> Revision:
    reason = known_value(RowState, row["reason"], "message_revisions.reason")
    return Revision.model_validate(
        {
            "number": row["id"],
            "content": row["content"],
            "attachments": from_json(row["attachments"] or "[]"),
            # The text has changed, even if the reason is unknown.
            "reason": reason or RowState.EDITED,
            "at": row["at"],
        }
    )


def _text(row: asyncpg.Record, content_from: int | None) -> str | None:
    """Return the content of a row; a shortened one ends with a remark that a model can read."""
    content: str | None = row["content"]
    if content_from is None and row["content_next"] is not None:
        return f"{content}\n[Shortened: the whole text has {row['content_bytes']} bytes.]"
    return content


def _author_name(row: asyncpg.Record) -> str | None:
    """Return the name of the person who wrote a row, as the platform showed it."""
    if row["source"] is None or row["role"] != Role.USER:
        return None
    sender = read_source(row["source"], "messages").sender
    return None if sender is None else sender.name


def _id_text(value: object) -> object:
    """Return the id of a call as text: imported rows may have numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _content(details: Mapping[str, object]) -> dict[str, object]:
    """Return the content of a row besides text and files."""
    stored = {name: value for name, value in details.items() if name in STORED_FIELDS}
    content = read_record(StoredContent, stored, "messages", is_json=True) if stored else None
    return {} if content is None else {name: getattr(content, name) for name in stored}


def _reasoning(details: Mapping[str, object]) -> RowReasoning | None:
    stored = details.get("reasoning")
    if not isinstance(stored, dict):
        return None
    return read_record(RowReasoning, stored, "messages", is_json=True)


def _entry(
    row: asyncpg.Record,
    details: Mapping[str, object],
    prefix: Prefix,
    replied: RepliedMessage | None,
    content_from: int | None,
) -> dict[str, object]:
    """Return the fields of the API view of a row, but for its id."""
    if replied is not None and replied.sender is not None:
        replied = replied.model_copy(update={"sender_prefix": prefix(row, replied.sender)})
    return {
        **{name: value for name, value in details.items() if name in _SHOWN},
        **_content(details),
        "replied": replied,
        "seq": row["seq"],
        "role": row["role"],
        "content": _text(row, content_from),
        "content_bytes": row["content_bytes"],
        "content_next": row["content_next"],
        "author": row["author"],
        "author_name": _author_name(row),
        "error": row["error"],
        "sender_prefix": prefix(row),
        "platform_message_id": row["platform_message_id"],
        "message_id": row["id"],
        "turn_id": row["turn_id"],
        "tool_call_id": _id_text(details.get("tool_call_id")),
        "reasoning": _reasoning(details),
        "buttons": details.get("buttons"),
        "edits": details.get("edits"),
        "created_at": row["created_at"],
        "state": row["state"],
        "unanswered": row["unanswered"],
    }
