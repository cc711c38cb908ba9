"""Rows of sessions are mapped by position, so the columns must be the fields in their order."""

from dataclasses import fields
from uuid import UUID

from chatlane.domain.states import Session
from chatlane.store.conversations.sessions import SESSION_COLUMNS

# How a session differs from its row; no columns.
CHANGES = ["is_new", "has_new_flags", "has_new_key"]


def test_the_columns_of_a_session_are_its_fields_in_order() -> None:
    assert [field.name for field in fields(Session)] == [*SESSION_COLUMNS, *CHANGES]


def test_a_session_from_the_database_has_no_changes() -> None:
    values = [UUID(int=1), *([None] * (len(SESSION_COLUMNS) - 1))]
    session = Session(*values)  # type: ignore[arg-type] # any values
    assert not any(getattr(session, name) for name in CHANGES)
