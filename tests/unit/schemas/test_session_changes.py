"""Requests that change a session."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from chatlane_schemas.session_api.session_changes import (
    SessionArchive,
    SessionTitle,
    SessionUpdate,
    SettingChange,
)
from chatlane_schemas.session_api.session_life import SessionNote, SessionOverride

STAMP: Any = {"id": "r1", "at": datetime(2026, 3, 1, tzinfo=UTC), "session_id": UUID(int=1)}


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (SessionUpdate(**STAMP), {"cwd", "model", "config", "clear"}),
        (SessionTitle(**STAMP, title=""), {"title"}),
        (SessionArchive(**STAMP), {"archived"}),
        (SessionOverride(**STAMP), {"override"}),
        (SessionNote(**STAMP, note=""), {"note"}),
    ],
)
def test_a_request_without_a_version_is_digested_as_by_older_routers(
    request_: SettingChange, fields: set[str]
) -> None:
    """A caller repeats a request until it is answered, by a router of whichever release."""
    digested = json.loads(request_.model_dump_json(exclude={"at"}))

    assert digested.keys() == {"v", "id", "session_id", "acting_for"} | fields
    with_version = request_.model_copy(update={"expected_version": "1"})
    assert "expected_version" in json.loads(with_version.model_dump_json())
