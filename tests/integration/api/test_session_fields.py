"""What a line of a list says of its session, against a real Postgres."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.integration.api.test_session_lists import ANN, AT, Lists, session_id
from tests.integration.api.test_session_lists import lists as lists  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.integration

FOLDER = UUID(int=77)


async def lines(lists: Lists) -> dict[UUID, dict[str, Any]]:
    """Return the lines of a list as they are sent."""
    reply = json.loads(await lists.encoded_page(acting_for=ANN))
    return {UUID(line["id"]): line for line in reply["sessions"]}


async def test_f1_to_f27_a_line_has_the_fields_of_a_session(lists: Lists) -> None:
    """F1 to F5, F9 to F16, F21, F23 to F27, R4.1, R4.3, R4.5, R4.7, R14.4."""
    await lists.connection.execute(
        "INSERT INTO projects (id, owner, name, colour, place)"
        " VALUES ($1, 'telegram:bot:701', 'Garden', '#6366f1', 1)",
        FOLDER,
    )
    await lists.add(1)
    await lists.add(
        2,
        session_key="agent:notes:telegram:bot:dm:701",
        title="Roof",
        title_by_model=True,
        cwd="/srv/notes",
        model="small",
        model_override=json.dumps({"model": "large", "provider": "openai"}),
        config=json.dumps({"personality": "dry", "enabled_toolsets": []}),
        usage=json.dumps({"input_tokens": 7, "output_tokens": 0}),
        costs=json.dumps({"cost_usd": "0.01"}),
        gauges=json.dumps({"context_tokens": 7, "context_limit": 10, "threshold_tokens": 9}),
        next_seq=8,
        seq_gaps=1,
        user_messages=3,
        last_activity_at=AT + timedelta(hours=1),
        last_message_at=AT + timedelta(hours=2),
        pinned_at=AT,
        archived_at=AT,
        project_id=FOLDER,
        parent_id=session_id(1),
        link_kind="branch",
        worktree=json.dumps({"path": "/srv/trees/roof", "branch": "roof"}),
        ended_at=AT + timedelta(hours=3),
        end_reason="imported",
        read_only=True,
        origin="claude_code",
        platform="claude_code",
    )
    await lists.connection.execute(
        "INSERT INTO waiting (session_id, arrival, session_key, message_id, size_bytes, content,"
        " details, source, stored_at) VALUES ($1, 1, '', $1, 1, 'hi', '{}', '{}', $2)",
        session_id(2),
        AT,
    )

    line = (await lines(lists))[session_id(2)]

    assert line.pop("version")
    assert line == {
        "id": str(session_id(2)),
        "session_key": "agent:notes:telegram:bot:dm:701",
        "profile": "notes",
        "agent": "main",
        "platform": "claude_code",
        "title": "Roof",
        "shown_title": "Roof",
        "title_source": "model",
        "cwd": "/srv/notes",
        "model": "small",
        "model_override": {"model": "large", "provider": "openai"},
        "config": {"personality": "dry", "enabled_toolsets": []},
        "usage": {"input_tokens": 7, "output_tokens": 0},
        "costs": {"cost_usd": "0.01"},
        "gauges": {"context_tokens": 7, "context_limit": 10, "threshold_tokens": 9},
        "message_count": 6,
        "user_message_count": 3,
        "answer_count": 0,
        "waiting": {"count": 1, "oldest_at": "2026-03-01T12:00:00Z"},
        "started_at": "2026-03-01T12:02:00Z",
        "last_activity_at": "2026-03-01T13:00:00Z",
        "last_message_at": "2026-03-01T14:00:00Z",
        "ended_at": "2026-03-01T15:00:00Z",
        "end_reason": "imported",
        "pinned": True,
        "archived_at": "2026-03-01T12:00:00Z",
        "project_id": str(FOLDER),
        "labels": [],
        "parent_id": str(session_id(1)),
        "link_kind": "branch",
        "segments": 1,
        "worktree": {"path": "/srv/trees/roof", "branch": "roof"},
        "read_only": True,
        "origin": "claude_code",
        "source": "claude_code",
        "source_label": "Claude Code",
        "is_busy": False,
        "is_suspended": False,
    }


async def test_r4_2_a_line_leaves_out_what_a_session_does_not_have(lists: Lists) -> None:
    """R4.2, R14.4: nothing is null, and an unknown cost is not zero."""
    await lists.add(1)

    line = (await lines(lists))[session_id(1)]

    assert None not in line.values()
    assert not {"title", "worktree", "parent_id", "waiting", "turn", "tip_id"} & set(line)
    assert (line["costs"], line["usage"]) == ({}, {})
