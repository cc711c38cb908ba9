"""The model worker of the examples on a running service: tools, images, and models that are away."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from chatlane_client import SessionApi, Submission, TranscriptApi, open_connection
from chatlane_devkit.model_endpoint import ModelEndpoint, open_model_endpoint
from chatlane_schemas import Attachment, Role
from chatlane_schemas.session_api.people import Person
from tests.support.eventually import eventually
from tests.support.service.processes import TURN_AGENT, Process, open_service

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(240)]

PATIENCE: Final = timedelta(seconds=120)
WORKER: Final = Path(__file__).parents[3] / "examples" / "llm_worker.py"
ANN: Final = Person(platform="portal", account="tests", id="ann")
PIXEL: Final = b"\x89PNG\r\n\x1a\n"
SIDES: Final = 1_000_000_000


@dataclass
class Stage:
    """The worker, its model, and a session."""

    worker: Process
    model: ModelEndpoint
    sessions: SessionApi
    transcripts: TranscriptApi

    async def ask(self, text: str, *files: Attachment) -> Submission:
        """Say something in a new session and return the answer."""
        session = await self.sessions.create(origin="portal")
        return await self.sessions.submit(session.id, text, attachments=files, wait=True)

    def told(self) -> list[dict[str, Any]]:
        """Return the messages of the newest request to the model."""
        messages: list[dict[str, Any]] = self.model.requests[-1]["messages"]
        return messages


@pytest.fixture
async def stage(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    lease = timedelta(seconds=8)
    async with (
        open_model_endpoint() as model,
        open_service(tmp_path, nats_url, database_url, turn_lease=lease) as service,
        open_connection(nats_url, name="test") as client,
    ):
        await service.until_started(service.router("router 1"))
        worker = Process(
            "worker",
            [str(WORKER)],
            tmp_path,
            NATS_URL=nats_url,
            AGENT=TURN_AGENT,
            LLM_BASE_URL=model.url,
            LLM_MODEL="large, small",
            LLM_LOCAL_FILES="yes",
        )
        worker.start()
        long = PATIENCE
        try:
            yield Stage(
                worker,
                model,
                SessionApi(client, principal="tests", acting_for=ANN, patience=long),
                TranscriptApi(client, principal="tests", patience=long),
            )
        finally:
            await worker.kill()


@asynccontextmanager
async def served_file(content: bytes) -> AsyncIterator[str]:
    """Serve a file on loopback and return its address."""

    async def get(_: web.Request) -> web.Response:
        return web.Response(body=content)

    application = web.Application()
    application.add_routes([web.get("/file", get)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/file"
    finally:
        await runner.cleanup()


@pytest.mark.slow
async def test_a_tool_is_not_called_again_after_its_worker_was_killed(stage: Stage) -> None:
    session = await stage.sessions.create(origin="portal")
    stage.model.tool_pause = 3600

    def results() -> list[str]:
        asked = (request["messages"][-1] for request in stage.model.requests)
        return [message["content"] for message in asked if message["role"] == "tool"]

    asked = await stage.sessions.submit(session.id, f'call roll_dice {{"sides": {SIDES}}}')
    await eventually(results, PATIENCE)
    stage.model.tool_pause = 0
    await stage.worker.kill()
    stage.worker.start()

    async def stored() -> list[tuple[Role, str | None]]:
        rows = await stage.transcripts.newest(session.id, limit=20)
        found = [(row.role, row.content) for row in rows if row.message_id != asked.message_id]
        return found if found and found[-1][1] else []

    # Both attempts told the model the same number, which no second throw would have had.
    (number,) = {*results()}
    rows = await eventually(stored, PATIENCE)
    assert (number,) == (*{*results()},)
    assert rows == [
        (Role.ASSISTANT, None),
        (Role.TOOL, number),
        (Role.ASSISTANT, f"The tool says: {number}"),
    ]


async def test_images_are_seen_and_another_model_answers(stage: Stage) -> None:
    stage.model.refusals.append((503, {}))
    async with served_file(PIXEL) as url:
        image = Attachment(url=url, media_type="image/png", name="pixel.png")
        asked = await stage.ask("what is this?", image)
    assert (asked.outcome, [it["model"] for it in stage.model.requests]) == (
        "ok",
        ["large", "small"],
    )
    shown = stage.told()[-1]["content"][-1]["image_url"]["url"]
    assert shown.startswith("data:image/png;base64,iVBORw0K")


async def test_a_turn_waits_while_all_models_are_away_and_fails_if_they_refuse(
    stage: Stage,
) -> None:
    stage.model.refusals += [(503, {}), (429, {"Retry-After": "1"}), (400, {})]
    refused = await stage.ask("hello")
    assert (refused.outcome, len(stage.model.requests)) == ("failed", 3)
    assert (await stage.ask("hello")).answer == "You said: hello (after 0 messages)"
