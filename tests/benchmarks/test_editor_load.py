"""How long an editor waits until it shows a conversation of 5,000 rows."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final
from uuid import UUID

import psutil
import pytest

from chatlane_client import TranscriptApi, open_connection
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import AppendedRow
from tests.support.bridges.plain_editor import Editors
from tests.support.service.processes import open_service

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

ROWS: Final = 5000
AT_ONCE: Final = 200
LOADS: Final = 5
CWD: Final = "/srv/project"


def rows_of(call: int) -> list[AppendedRow]:
    """Return a round of a conversation: a message, a tool call with its result, an answer."""
    function = {"name": "read", "arguments": '{"path": "/srv/project/main.py"}'}
    return [
        AppendedRow(role=Role.USER, content=f"message {call} " + "word " * 20),
        AppendedRow(
            role=Role.ASSISTANT,
            tool_calls=[{"id": f"call-{call}", "type": "function", "function": {**function}}],
        ),
        AppendedRow(role=Role.TOOL, content="line\n" * 100, tool_call_id=f"call-{call}"),
        AppendedRow(role=Role.ASSISTANT, content="word " * 200),
    ]


def processor_seconds(pids: Sequence[int]) -> list[float]:
    """Return the processor time of the bridge and of the router so far."""
    return [sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids]


async def test_load(tmp_path: Path, nats_url: str, database_url: str) -> None:
    editors = Editors(nats_url, tmp_path / "bridge.log")
    async with open_service(tmp_path, nats_url, database_url) as service:
        router = service.router("router 1")
        await service.until_started(router)
        bridge = await editors.start()
        try:
            editor = bridge.editor
            await editor.initialize()
            session = await editor.open(CWD)
            rows = [row for call in range(ROWS // 4) for row in rows_of(call)]
            async with open_connection(nats_url, name="test") as client:
                transcripts = TranscriptApi(client, principal="tests")
                for start in range(0, ROWS, AT_ONCE):
                    await transcripts.append(UUID(session), rows[start : start + AT_ONCE])
            assert router.pid is not None
            pids = (bridge.process.pid, router.pid)
            for _ in range(LOADS):
                editor.updates.clear()
                used, began = processor_seconds(pids), monotonic()
                await editor.ask("session/load", sessionId=session, cwd=CWD, mcpServers=[])
                took = monotonic() - began
                spent = [
                    f"{now - before:.2f}"
                    for now, before in zip(processor_seconds(pids), used, strict=True)
                ]
                print(
                    f"\n{len(editor.updates)} updates in {took:.2f} s, {spent} s of processor time"
                )
                assert len(editor.updates) >= ROWS
        finally:
            await bridge.kill()
