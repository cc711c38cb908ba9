"""Read the directory of the old gateway without changing or locking any of its files.

SQLite locks a database while it reads, and creates files next to a database in WAL mode.
Therefore the importer copies the database and its WAL file, and reads the copy. Transcripts and
the index are plain files.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chatlane.errors import PermanentError
from chatlane.importer.file_values import (
    USED_COLUMNS,
    UnreadableError,
    entry_of,
    instant_of,
    message_of,
    object_of,
    origin_of,
    text_of,
    use_of,
    wall_time_of,
)
from chatlane.importer.records import OldEntry, OldMessage, OldSession, OldUse, Omissions, Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime, tzinfo

_DATABASE: Final = "state.db"
_INDEX: Final = "sessions.json"
_LOG_SUFFIXES: Final = ("", "-wal")
_COPY_TRIES: Final = 20
_COPY_PAUSE_SECONDS: Final = 0.25
_META_ROLE: Final = "session_meta"

_SESSION_COLUMNS: Final = (
    "id",
    "source",
    "session_key",
    "origin_json",
    "chat_id",
    "chat_type",
    "thread_id",
    "user_id",
    "profile_name",
    "started_at",
    "parent_session_id",
    "ended_at",
    "end_reason",
    "title",
    "model_config",
    "cwd",
    "model",
    "estimated_cost_usd",
    "actual_cost_usd",
    "archived",
    *USED_COLUMNS,
)
_MESSAGE_COLUMNS: Final = (
    "id",
    "role",
    "content",
    "timestamp",
    "tool_calls",
    "tool_call_id",
    "tool_name",
    "platform_message_id",
    "observed",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "active",
    "compacted",
)


class UnreadableHomeError(PermanentError):
    """Raised if the directory holds nothing to import, or its database never stops changing."""


class Home:
    """The files of one gateway, read once.

    Args:
        directory: The home directory of the old gateway.
        database: A copy of its database, or None if there is none that can be opened.
        zone: Time zone of the times in its index, which have no offset; None is the system's.
    """

    def __init__(
        self,
        directory: Path,
        database: sqlite3.Connection | None,
        zone: tzinfo | None,
        omissions: Omissions,
    ) -> None:
        self._directory = directory
        self._database = database
        self._zone = zone
        self._omissions = omissions
        self._files = _transcript_files(directory)

    def entries(self) -> dict[str, OldEntry]:
        """Return the routing index by key; an entry of the database wins over one of the file."""
        entries: dict[str, OldEntry] = {}
        for key, value in (*self._routing_rows(), *self._index_file()):
            if key in entries:
                continue
            try:
                entries[key] = entry_of(key, value, self._zone)
            except UnreadableError as error:
                self._omissions.add("routing entry", str(error), key)
        return entries

    def _routing_rows(self) -> Iterator[tuple[str, object]]:
        # Several session directories may share one database; entries of this directory come first.
        own = str((self._directory / "sessions").resolve())
        query = (
            "SELECT session_key, entry_json FROM gateway_routing "
            "ORDER BY scope <> ?, updated_at DESC"
        )
        for row in self._rows("gateway_routing", query, own):
            yield str(row[0]), row[1]

    def _index_file(self) -> Iterator[tuple[str, object]]:
        for path in (self._directory / "sessions" / _INDEX, self._directory / _INDEX):
            if not path.is_file():
                continue
            try:
                index = json.loads(path.read_bytes())
            except (ValueError, OSError, RecursionError):
                self._omissions.add_damaged("file", "not JSON", path.name)
                continue
            if not isinstance(index, dict):
                self._omissions.add_damaged("file", "not a JSON object", path.name)
                continue
            yield from ((key, value) for key, value in index.items() if not key.startswith("_"))

    def sessions(self, entries: Iterable[OldEntry]) -> Iterator[OldSession]:
        """Yield every session of the database, then the sessions that only the index names."""
        known: set[str] = set()
        for session in self._session_rows():
            known.add(session.id)
            yield session
        for entry in entries:
            if entry.session_id in known:
                continue
            known.add(entry.session_id)
            source = entry.origin.platform if entry.origin else _platform_in(entry.key)
            yield OldSession(
                id=entry.session_id,
                source=source,
                key=entry.key,
                origin=entry.origin,
                started_at=entry.created_at,
            )
        for name in sorted(self._files.keys() - known):
            reason = "belongs to no session that the index or the database names"
            self._omissions.add("transcript file", reason, f"{name}.jsonl")

    def _session_rows(self) -> Iterator[OldSession]:
        columns = self._columns("sessions", _SESSION_COLUMNS)
        counted = "(SELECT count(*) FROM messages WHERE session_id = sessions.id)"
        query = f"SELECT {columns}, {counted} FROM sessions ORDER BY started_at, id"  # noqa: S608 - constants
        for row in self._rows("sessions", query):
            fields = dict(zip((*_SESSION_COLUMNS, "row_count"), row, strict=True))
            started_at = instant_of(fields["started_at"])
            session_id, source = text_of(fields["id"]), text_of(fields["source"])
            if session_id is None or source is None or started_at is None:
                reason = "its id, platform or start cannot be read"
                self._omissions.add("session", reason, str(fields["id"]))
                continue
            yield OldSession(
                id=session_id,
                source=source,
                key=text_of(fields["session_key"]),
                origin=_origin_of_row(source, fields),
                started_at=started_at,
                parent_id=text_of(fields["parent_session_id"]),
                ended_at=instant_of(fields["ended_at"]),
                end_reason=text_of(fields["end_reason"]),
                title=text_of(fields["title"]),
                model_config=text_of(fields["model_config"]),
                row_count=int(str(fields["row_count"])),
                use=self._use(session_id, fields),
                is_archived=bool(fields["archived"]),
            )

    def _use(self, session_id: str, fields: Mapping[str, object]) -> OldUse:
        try:
            return use_of(fields)
        except UnreadableError as error:
            self._omissions.add("config of a session", str(error), session_id)
            return use_of({**fields, "model_config": None})

    def messages(self, session: OldSession) -> list[OldMessage]:
        """Return the transcript, oldest first, without rows that were undone or compacted.

        The transcript file is used if it has more messages than the database: a transcript that
        is older than the database may be longer in its file.
        """
        path = self._files.get(session.id)
        if path is None:
            return list(self._message_rows(session))
        unread = Omissions()
        in_file = list(_message_lines(path, session.started_at, self._zone, unread))
        if len(in_file) <= session.row_count:
            return list(self._message_rows(session))
        self._omissions.update(unread)
        return in_file

    def _message_rows(self, session: OldSession) -> Iterator[OldMessage]:
        columns = self._columns("messages", _MESSAGE_COLUMNS)
        query = f"SELECT {columns} FROM messages WHERE session_id = ? ORDER BY id"  # noqa: S608 - constants
        before = session.started_at
        for row in self._rows("messages", query, session.id):
            fields = dict(zip(_MESSAGE_COLUMNS, row, strict=True))
            name = f"{session.id} row {fields['id']}"
            if fields["active"] == 0:
                reason = "replaced by a summary" if fields["compacted"] else "undone"
                self._omissions.add("message", reason, name)
                continue
            try:
                message = message_of(
                    int(str(fields["id"])), fields, instant_of(fields["timestamp"]), before
                )
            except UnreadableError as error:
                self._omissions.add("message", str(error), name)
                continue
            before = message.created_at
            if message.left_out is not None:
                self._omissions.add("reasoning of a message", message.left_out, name)
            yield message

    def _columns(self, table: str, wanted: Iterable[str]) -> str:
        """Return the columns of a SELECT; a column that an older release lacks is NULL."""
        there = {row[1] for row in self._rows(None, f"PRAGMA table_info({table})")}
        return ", ".join(name if name in there else f"NULL AS {name}" for name in wanted)

    def _rows(self, table: str | None, query: str, *values: object) -> Iterator[tuple[object, ...]]:
        """Yield rows up to the first unreadable one, and report the rest of the table as damaged."""
        if self._database is None or (table is not None and not self._has(table)):
            return
        try:
            yield from self._database.execute(query, values)
        except sqlite3.Error as error:
            self._omissions.add_damaged(
                "part of a table", f"damaged ({type(error).__name__})", table or query
            )

    def _has(self, table: str) -> bool:
        find = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
        return any(row[0] for row in self._rows(None, find, table))


def _origin_of_row(source: str, fields: Mapping[str, object]) -> Origin | None:
    """Return the address of a session row: the stored one, or one built from its columns."""
    whole = origin_of(fields["origin_json"])
    if whole is not None:
        return whole
    columns = {name: fields[name] for name in ("chat_id", "chat_type", "thread_id", "user_id")}
    if not any(columns.values()):
        return None
    return origin_of({"platform": source, "profile": fields["profile_name"], **columns})


def _platform_in(key: str) -> str:
    parts = key.split(":")
    return parts[2] if len(parts) > 2 else ""  # noqa: PLR2004 - agent:<profile>:<platform>


def _transcript_files(directory: Path) -> dict[str, Path]:
    places = (directory, directory / "sessions")
    return {path.stem: path for place in places for path in sorted(place.glob("*.jsonl"))}


def _message_lines(
    path: Path, started_at: datetime, zone: tzinfo | None, omissions: Omissions
) -> Iterator[OldMessage]:
    """Yield the messages of a transcript file, which has one JSON object per line."""
    before = started_at
    with path.open("rb") as file:
        for place, line in enumerate(file, start=1):
            if not line.strip():
                continue
            name = f"{path.name} line {place}"
            fields = object_of(line.decode(errors="replace"))
            if fields is None:
                torn = not line.endswith(b"\n")
                reason = "torn last line" if torn else "not a JSON object"
                omissions.add("message", reason, name)
                continue
            if fields.get("role") == _META_ROLE:
                continue
            try:
                written_at = wall_time_of(fields.get("timestamp"), zone)
                message = message_of(place, fields, written_at, before)
            except UnreadableError as error:
                omissions.add("message", str(error), name)
                continue
            before = message.created_at
            if message.left_out is not None:
                omissions.add("reasoning of a message", message.left_out, name)
            yield message


@contextmanager
def open_home(directory: Path, zone: tzinfo | None, omissions: Omissions) -> Iterator[Home]:
    """Open the files of an old gateway, which may be running.

    Raises:
        UnreadableHomeError: The directory holds nothing to import, or its database changed
            during every attempt to copy it.
    """
    if not any(
        (directory / name).exists() for name in (_DATABASE, _INDEX, f"sessions/{_INDEX}")
    ) and not _transcript_files(directory):
        raise UnreadableHomeError(
            f"there is neither {_DATABASE} nor {_INDEX} nor a transcript in {directory}"
        )
    with tempfile.TemporaryDirectory(prefix="chatlane-import-") as scratch:
        copied = _copy_database(directory, Path(scratch))
        if copied is None:
            yield Home(directory, None, zone, omissions)
            return
        with closing(sqlite3.connect(copied)) as database:
            database.text_factory = lambda text: text.decode(errors="replace")
            try:
                database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.Error as error:
                omissions.add_damaged("file", f"damaged ({type(error).__name__})", _DATABASE)
                yield Home(directory, None, zone, omissions)
            else:
                yield Home(directory, database, zone, omissions)


def _copy_database(directory: Path, scratch: Path) -> Path | None:
    """Copy the database and its WAL file as of one moment."""
    source = directory / _DATABASE
    if not source.is_file():
        return None
    for _ in range(_COPY_TRIES):
        before = _state(source)
        for suffix in _LOG_SUFFIXES:
            target = scratch / f"{_DATABASE}{suffix}"
            target.unlink(missing_ok=True)
            if (path := Path(f"{source}{suffix}")).is_file():
                shutil.copyfile(path, target)
        if _state(source) == before:
            return scratch / _DATABASE
        time.sleep(_COPY_PAUSE_SECONDS)
    raise UnreadableHomeError(
        f"{source} changed while it was copied, {_COPY_TRIES} times in a row: stop the gateway "
        "that writes to it, or import a backup"
    )


def _state(source: Path) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for suffix in _LOG_SUFFIXES:
        try:
            status = os.stat(f"{source}{suffix}")  # noqa: PTH116 - a name, not yet a path
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_size, status.st_mtime_ns))
    return found
