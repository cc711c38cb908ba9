"""SIGKILL of the router, the worker and the bridge in the middle of an editor's turn."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from chatlane_client import TranscriptApi, open_connection
from chatlane_schemas.results import Role
from tests.support.bridges import waiting_worker
from tests.support.bridges.editor_machine import ABLE, EditorMachine
from tests.support.bridges.plain_editor import BridgeProcess, Editors, PlainEditor
from tests.support.eventually import eventually
from tests.support.service.processes import TURN_AGENT, Process, open_service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.timeout(400),
]

PATIENCE: Final = timedelta(seconds=120)
ALLOW: Final[dict[str, Any]] = {"outcome": {"outcome": "selected", "optionId": "allow"}}
CWD: Final = "/srv/project"
# Longer than a router is away.
LEASE: Final = timedelta(seconds=15)
ANSWERS: Final = [
    "I begin ask one, you chose allow.",
    "I begin two, and I am done.",
    "I begin three, and I am done.",
]


@dataclass
class Stage:
    """A router, a worker and a bridge, each a process."""

    router: Process
    worker: Process
    editors: Editors
    bridge: BridgeProcess
    session: str
    go: Path

    @property
    def editor(self) -> PlainEditor:
        """Return the editor of the present bridge."""
        return self.bridge.editor

    async def begin(self, text: str) -> asyncio.Future[dict[str, Any]]:
        """Send a prompt and wait until the worker shows how it begins."""
        self.editor.updates.clear()
        prompt = self.editor.prompt(self.session, text)
        await eventually(lambda: self.editor.said() == [f"I begin {text}, "], PATIENCE)
        return prompt


@pytest.fixture
async def stage(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    go = tmp_path / "go"
    editors = Editors(nats_url, tmp_path / "bridge.log")
    async with open_service(tmp_path, nats_url, database_url, turn_lease=LEASE) as service:
        router = service.router("router 1")
        program = Path(waiting_worker.__file__)
        root = {"PYTHONPATH": str(program.parents[3])}
        arguments = [str(program), nats_url, TURN_AGENT, str(go)]
        worker = Process("worker", arguments, tmp_path, **root)
        await service.until_started(router)
        worker.start()
        bridge = await editors.start()
        await bridge.editor.initialize(**ABLE)
        its = Stage(router, worker, editors, bridge, await bridge.editor.open(CWD), go)
        try:
            yield its
        finally:
            await its.bridge.kill()
            await worker.kill()


async def test_nothing_is_lost_or_answered_twice(
    stage: Stage, nats_url: str, tmp_path: Path
) -> None:
    await answer_a_permission_without_a_router(stage)
    path = tmp_path / "new"
    await call_the_editor_without_a_router(stage, path)
    await kill_the_worker(stage)
    await kill_the_bridge(stage)
    async with open_connection(nats_url, name="test") as client:
        transcripts = TranscriptApi(client, principal="tests")
        rows = await transcripts.newest(UUID(stage.session), limit=50)
    said = [(row.role, row.content) for row in rows]
    prompts = [text for role, text in said if role is Role.USER and text != "Allow"]
    assert prompts == ["ask one", f"write {path}", "two", "three"]
    answers = [text for role, text in said if role is Role.ASSISTANT and text != "May I?"]
    written = f"I begin write {path}, written\nwritten\n"
    assert answers == [ANSWERS[0], written, *ANSWERS[1:]]


async def answer_a_permission_without_a_router(stage: Stage) -> None:
    editor = stage.editor
    prompt = await stage.begin("ask one")
    request = await editor.until_asked("session/request_permission")
    await stage.router.kill()
    editor.reply(request, ALLOW)
    editor.answer = lambda _: ALLOW
    stage.router.start()
    assert (await prompt)["stopReason"] == "end_turn"
    assert editor.said() == ANSWERS[:1]


async def call_the_editor_without_a_router(stage: Stage, path: Path) -> None:
    editor = stage.editor
    editor.answer = machine = EditorMachine(editor)
    prompt = await stage.begin(f"write {path}")
    request = await editor.until_asked("session/request_permission", 2)
    await stage.router.kill()
    machine.permission = ALLOW
    editor.reply(request, ALLOW)
    await eventually(path.exists, PATIENCE)
    stage.router.start()
    assert (await prompt)["stopReason"] == "end_turn"
    assert editor.said() == [f"I begin write {path}, written\nwritten\n"]
    assert [it["method"] for it in editor.requests].count("fs/write_text_file") == 1


async def kill_the_worker(stage: Stage) -> None:
    prompt = await stage.begin("two")
    await stage.worker.kill()
    stage.go.touch()
    stage.worker.start()
    assert (await prompt)["stopReason"] == "end_turn"
    # The second attempt said the same, so nothing is shown twice.
    assert stage.editor.said() == ANSWERS[1:2]
    stage.go.unlink()


async def kill_the_bridge(stage: Stage) -> None:
    prompt = await stage.begin("three")
    await stage.bridge.kill()
    assert prompt.cancelled()
    stage.bridge = await stage.editors.start()
    editor = stage.editor
    await editor.initialize(**ABLE)
    await editor.ask("session/load", sessionId=stage.session, cwd=CWD, mcpServers=[])
    assert editor.said("user_message_chunk")[-1] == "three"
    await eventually(lambda: "I begin three, " in editor.said(), PATIENCE)
    stage.go.touch()

    def is_complete() -> bool:
        said = [text for text in editor.said() if text != "May I?"]
        return [text for text in said if "write" not in text] == ANSWERS

    await eventually(is_complete, PATIENCE)
