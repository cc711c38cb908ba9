"""Titles are compared by the database as they are outside it."""

from pathlib import Path

import pytest

import chatlane.store
from chatlane.postgres.pool import Store
from chatlane.store.conversations.sessions import TITLE_KEY
from chatlane_schemas.content.visible_text import title_key

pytestmark = pytest.mark.integration

_CHUNK = 4096


async def test_f09_both_have_the_same_keys(store: Store) -> None:
    signs = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    texts = [
        "a\u0301".join(signs[place : place + _CHUNK]) for place in range(0, len(signs), _CHUNK)
    ]
    query = (
        f"SELECT {TITLE_KEY} FROM unnest($1::text[]) WITH ORDINALITY AS one (title, n) ORDER BY n"  # noqa: S608 - a constant
    )
    async with store.transaction() as connection:
        rows = await connection.fetch(query, texts)
    assert [row[0] for row in rows] == [title_key(text) for text in texts]


def test_f09_the_index_has_the_key_word_for_word() -> None:
    [migration] = (Path(chatlane.store.__file__).parent / "migrations").glob("0132_*.sql")
    assert TITLE_KEY in migration.read_text()
