"""Imports of other programs' conversations, and what they leave in the database."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from chatlane.importer.exports.adoption import Destination, ExportAdoption
from chatlane.importer.exports.conversation import Conversation
from chatlane.importer.records import Omissions, Report
from chatlane.postgres.pool import Store
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.session_api.sessions import SessionView

TO_NOBODY = Destination("main", "main")
TO_ANN = Destination("main", "main", owner="ann's identity")

Read = Callable[[Omissions], Iterable[Conversation]]


async def adopt(store: Store, read: Read, to: Destination = TO_NOBODY) -> Report:
    report = Report()
    await ExportAdoption(store, report, to).run(read(report.omitted), lambda _done: None)
    return report


async def rows(store: Store, query: str, *values: object) -> list[tuple[Any, ...]]:
    async with store.transaction() as connection:
        return [tuple(row.values()) for row in await connection.fetch(query, *values)]


async def views(store: Store) -> list[SessionView]:
    """Return all sessions, oldest first."""
    ids = await rows(store, "SELECT id FROM sessions ORDER BY started_at, id")
    found = [await SessionReads(store).find(id_) for (id_,) in ids]
    return [view for view in found if view is not None]


async def said(store: Store, session_id: UUID) -> list[tuple[str, str | None]]:
    query = "SELECT role, content FROM messages WHERE session_id = $1 ORDER BY seq"
    return [(role, content) for role, content in await rows(store, query, session_id)]


async def details(store: Store, session_id: UUID) -> list[dict[str, Any]]:
    query = "SELECT details FROM messages WHERE session_id = $1 ORDER BY seq"
    return [json.loads(found or "{}") for (found,) in await rows(store, query, session_id)]


async def everything(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table: sorted(await rows(store, f"TABLE {table}"), key=str)
        for table in ("sessions", "messages")
    }


def reasons(report: Report) -> dict[tuple[str, str], int]:
    return {(omission.what, omission.reason): n for omission, n in report.omitted.counts.items()}


def write_lines(path: Path, *lines: object) -> None:
    """Write one JSON object a line; text and bytes stay as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(_line(line) for line in lines))


def _line(line: object) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode() + b"\n"
