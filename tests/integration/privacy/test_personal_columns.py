"""Erasure and export do with every personal column what its classification says.

Each column gets a word of its own in the rows of one person: in a session of hers alone and in one
that she shares. Then the export must have it or not, and the database must have lost it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from pydantic_core import from_json, to_json

from chatlane.privacy import erasure as routing_erasing
from tests.integration.privacy.test_people import Service
from tests.support.data_classification import TABLES, Erasure, Personal, Subject, Table
from tests.support.worlds.kernel import Fields, Kernel

pytestmark = pytest.mark.integration

ANN: Final = "5a1e0b9c-5717-4562-b3fc-2c963f66afa6"
NUMBER: Final = "+155507"
FORMER_NUMBER: Final = "+155508"
BEN: Final = "9d444840-9dc0-11d1-b245-5ffdce74fad2"
DIRECT: Final[Fields] = {"chat": NUMBER, "user": NUMBER, "alt_user": ANN}
ROOM: Final[Fields] = {"kind_of_chat": "group", "chat": "room", "thr": "7"}
OF_ANN: Final = rf"(ofann|{ANN}|\{NUMBER}|\{FORMER_NUMBER})"
OF_ANN_IN_HEX: Final = f"({b'ofann'.hex()}|{ANN.encode().hex()}|{NUMBER.encode().hex()})"

COLUMNS_SQL: Final = """
SELECT attname, format_type(atttypid, NULL) AS type,
       EXISTS (SELECT FROM pg_index WHERE indrelid = attrelid AND indisprimary
               AND attnum = ANY(indkey)) AS is_key
FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0
"""
# How a value of a type gets a word more.
PLANTED: Final = {
    "text": "$1::text",
    "text[]": "coalesce({column}, '{{}}') || $1::text",
    "bytea": "convert_to($1::text, 'UTF8')",
    "tsvector": "coalesce({column}, '') || to_tsvector('simple', $1::text)",
    "jsonb": """CASE jsonb_typeof({column})
        WHEN 'object' THEN {column} || jsonb_build_object('planted', $1::text)
        WHEN 'array' THEN {column} || jsonb_build_array(jsonb_build_object('planted', $1::text))
        ELSE {empty} END""",
}
# Columns whose values are lists of objects.
LISTS: Final = {"attachments"}


@pytest.fixture(autouse=True)
def without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here tells anything from memory after a transaction."""
    monkeypatch.setattr(routing_erasing, "_TOLD_WITHIN", timedelta())


@dataclass(frozen=True)
class World:
    """Rows of Ann in every table that an erasure empties of her.

    Attributes:
        own: Her session that nobody shares.
        shared: The session that Ben is in, too.
    """

    service: Service
    own: UUID
    shared: UUID

    async def plant(self, tables: Mapping[str, Table]) -> dict[tuple[str, str], str]:
        """Put a word into each personal column of Ann's rows; returns the words.

        Values that name her already, and parts of keys, stay as they are.
        """
        words: dict[tuple[str, str], str] = {}
        for name, table in tables.items():
            known = await self.service.kernel.fetch(COLUMNS_SQL, name)
            columns = {row["attname"]: row for row in known}
            for column in erased_columns(table):
                word = f"planted{name.replace('_', '')}x{column.replace('_', '')}"
                is_key = columns[column]["is_key"]
                if not is_key and await self._plant(
                    name, columns, column, table.personal[column], word
                ):
                    words[name, column] = word
        return words

    async def _plant(
        self,
        table: str,
        columns: Mapping[str, Any],
        column: str,
        personal: Personal,
        word: str,
    ) -> list[Any]:
        empty = "jsonb_build_object('planted', $1::text)"
        if column in LISTS:
            empty = f"jsonb_build_array({empty})"
        value = PLANTED[columns[column]["type"]].format(column=column, empty=empty)
        session = {"sessions": "id"}.get(table, "session_id")
        theirs = f"its::text ~* '{OF_ANN}|{OF_ANN_IN_HEX}'"
        is_own = f"{session} = $2" if session in columns else "$2::uuid IS NULL"
        if session in columns and personal.subject is Subject.OWNER:
            theirs = "false" if personal.erasure is Erasure.DELETED else theirs
        return await self.service.kernel.fetch(
            f"UPDATE {table} AS its SET {column} = {value}"  # noqa: S608 - names of the schema
            f" WHERE ({theirs} OR {is_own})"
            f" AND coalesce({column}::text, '') !~* '{OF_ANN}|{OF_ANN_IN_HEX}' RETURNING 1",
            word,
            self.own,
        )

    async def found(self, tables: Mapping[str, Table]) -> set[tuple[str, str]]:
        """Return the columns, of those that an erasure takes care of, that name or quote Ann."""
        found = set()
        for name, table in tables.items():
            kept = {its for its in table.personal if its not in erased_columns(table)}
            for row in await self.service.kernel.fetch(f"SELECT * FROM {name}"):  # noqa: S608
                for column, value in row.items():
                    is_bytes = isinstance(value, bytes)
                    text = value.decode(errors="replace") if is_bytes else str(value)
                    if column not in kept and re.search(f"{OF_ANN}|planted", text, re.IGNORECASE):
                        found.add((name, column))
        return found


def erased_columns(table: Table) -> list[str]:
    """Return the columns that an erasure deletes or clears."""
    return [
        name
        for name, column in table.personal.items()
        if column.erasure is not Erasure.KEPT and column.subject is not Subject.OPERATOR
    ]


@pytest.fixture
async def world(own_kernel: Kernel) -> World:
    """Let Ann write alone and beside Ben, edit, undo, wait and fail."""
    service, kernel = Service(own_kernel), own_kernel
    in_room: Fields = ROOM | {"user": NUMBER, "alt_user": ANN}
    beside: Fields = ROOM | {"user": BEN}
    placed = []
    for fields in (DIRECT, in_room):
        place = await service.say("word1ofann", **fields)
        assert place.session is not None
        await kernel.run_turn(place.session, "word2ofann", service.now)
        mid = f"edited {fields['chat']}"
        await service.say("word3ofann", **fields | {"mid": mid})
        await kernel.run_turn(place.session, "word4ofann", service.now)
        edit: Fields = {"kind": "edit", "mid": mid, "event_id": "7"}
        await service.say("word5ofann", **fields | edit)
        await service.say("word6ofann", **fields)
        await kernel.run_turn(place.session, "word7ofann", service.now)
        await service.tell("/undo", **fields)
        await service.tell("/title word8ofann", **fields)
        await service.say("word9ofben", **beside)
        await kernel.run_all(service.now)
        await service.searched(ANN, "word1ofann")
        await service.say("word10ofann", **fields)
        placed.append(place.session)
    await service.say("word11ofann", profile="unknown", **DIRECT)
    await service.say("word12ofann", **DIRECT | {"kind": "edit", "mid": "never", "event_id": "8"})
    own, shared = placed
    await kernel.fetch(
        "INSERT INTO late_results (id, at, session_id, turn_id, attempt, body)"
        " SELECT DISTINCT ON (session_id) turn_id::text, $1::timestamptz, session_id, turn_id, 1,"
        " convert_to('word13ofann', 'UTF8') FROM messages"
        " WHERE content = 'word2ofann' AND turn_id IS NOT NULL",
        service.now,
    )
    await kernel.fetch(
        "INSERT INTO api_requests (principal, id, at, digest, reply)"
        " VALUES ('web', 'r1', $1, '\\x00', convert_to($2, 'UTF8'))",
        service.now,
        to_json({"session_id": str(own), "title": "word14ofann"}).decode(),
    )
    await kernel.fetch(
        "INSERT INTO audit (at, action, session_id, detail) VALUES ($1, 'looked', $2, $3)",
        service.now,
        own,
        to_json({"person": ANN}).decode(),
    )
    await kernel.fetch(
        "INSERT INTO lane_aliases (alias, session_key)"
        " SELECT 'lane ofann', session_key FROM lanes WHERE session_id = $1",
        own,
    )
    await kernel.fetch(
        "INSERT INTO former_ids (platform, account, form, identity, since, until)"
        " SELECT DISTINCT platform, account, $1, canonical, $2::timestamptz - interval '9 days',"
        " $2::timestamptz - interval '8 days' FROM aliases WHERE alias = $3 AND kind = 'person'",
        FORMER_NUMBER,
        service.now,
        ANN,
    )
    await kernel.fetch(
        "INSERT INTO projects (id, owner, name, colour, place, created_at)"
        " SELECT id, owner, 'word16ofann', '#6366f1', 1, started_at FROM sessions WHERE id = $1",
        own,
    )
    await kernel.fetch(
        "INSERT INTO drafts (session_id, owner, text, changed_at)"
        " SELECT id, owner, 'word17ofann', started_at FROM sessions WHERE id = $1",
        own,
    )
    # Of a session that has become one of several people.
    await kernel.fetch(
        "INSERT INTO drafts (session_id, owner, text, changed_at)"
        " SELECT $2, owner, 'word18ofann', started_at FROM sessions WHERE id = $1",
        own,
        shared,
    )
    await kernel.fetch(
        "INSERT INTO read_marks (session_id, owner, through_seq, read_at)"
        " SELECT id, owner, 1, started_at FROM sessions WHERE id = $1",
        own,
    )
    await kernel.fetch(
        "INSERT INTO room_members (room, form, owner)"
        " SELECT 'telegram:bot:r', $2, owner FROM sessions WHERE id = $1",
        own,
        ANN,
    )
    await kernel.fetch(
        "INSERT INTO room_reports (room, chat, reported_at, until)"
        " SELECT 'telegram:bot:r', 'r', started_at, started_at FROM sessions WHERE id = $1",
        own,
    )
    await kernel.fetch(
        "UPDATE sessions SET resume_marked_at = $1, resume_reason = 'word15ofann' WHERE id = $2",
        service.now,
        own,
    )
    await kernel.fetch(
        "INSERT INTO turn_steps (turn_id, session_id, attempt, name, result)"
        " SELECT DISTINCT turn_id, session_id, 1, 'word16ofann', '\"word17ofann\"' FROM messages"
        " WHERE content = 'word2ofann' AND turn_id IS NOT NULL",
    )
    return World(service, own, shared)


def columns_of(tables: Mapping[str, Table]) -> set[tuple[str, str]]:
    """Return the columns that are to hold something of Ann."""
    # What is in the outbox, the test itself publishes before it erases.
    return {
        (name, column)
        for name, table in tables.items()
        if name != "outbox"
        for column in erased_columns(table)
    }


async def unerased(world: World, tables: Mapping[str, Table]) -> set[tuple[str, str]]:
    """Erase Ann; return the columns that still name or quote her."""
    await world.service.erase(ANN)
    return await world.found(tables)


async def wrongly_exported(
    world: World, tables: Mapping[str, Table], words: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], str]:
    """Return the columns whose words are missing in the export, or are not to be in it.

    Of a column without a word of its own, any value that names or quotes Ann counts.
    """
    export = await world.service.exported(ANN)
    records = [from_json(line) for line in export.splitlines()]
    wrong = {}
    for name, column in columns_of(tables) - words.keys():
        wanted = tables[name].personal[column].exported
        kind, _, field = wanted.partition(".")
        values = [record[field] for record in records if record["record"] == kind]
        if wanted and not any(re.search(OF_ANN, str(value)) for value in values):
            wrong[name, column] = f"{wanted}, but nowhere"
    for (name, column), word in words.items():
        wanted = tables[name].personal[column].exported
        found = {
            f"{record['record']}.{field}"
            for record in records
            for field, value in record.items()
            if word in to_json(value).decode()
        }
        if found != ({wanted} if wanted else set()):
            wrong[name, column] = f"{wanted or 'nowhere'}, but {sorted(found) or 'nowhere'}"
    return wrong


async def test_what_ann_wrote_and_planted_words_are_in_every_personal_column(world: World) -> None:
    """Without this, the tests below would find nothing where they look for nothing."""
    tables = {name: table for name, table in TABLES.items() if name != "outbox"}
    words = await world.plant(tables)
    found = await world.found(tables)
    # These are parts of keys, and digests.
    assert columns_of(tables) - found - words.keys() == {("early_edits", "digest")}


async def test_an_erasure_clears_or_deletes_every_personal_column(world: World) -> None:
    tables = {name: table for name, table in TABLES.items() if name != "outbox"}
    await world.plant(tables)
    assert await unerased(world, TABLES) == set()
    assert "word9ofben" in await world.service.stored()


async def test_an_export_has_the_columns_that_it_says_and_no_others(world: World) -> None:
    tables = {name: table for name, table in TABLES.items() if name != "outbox"}
    words = await world.plant(tables)
    assert await wrongly_exported(world, TABLES, words) == {}


@pytest.mark.parametrize("table", ["messages", "turns"])
async def test_a_personal_column_that_erasure_and_export_miss_is_found(
    world: World, table: str
) -> None:
    await world.service.kernel.fetch(f"ALTER TABLE {table} ADD COLUMN mood text")
    mood = Personal(Subject.WRITER, Erasure.CLEARED, "row.mood")
    classified = TABLES[table]
    tables = {table: replace(classified, personal={**classified.personal, "mood": mood})}
    words = await world.plant(tables)
    assert (table, "mood") in await wrongly_exported(world, tables, words)
    assert await unerased(world, tables) == {(table, "mood")}
