"""SIGKILL in the middle of turns between a caller and an agent of the Synadia Agent Protocol.

A caller prompts an offered agent of chatlane, whose turns an agent on NATS answers: both directions in
one way. Caller and agent are those of the SDK.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import nats
import pytest
from synadia_ai.agents import (
    Agent,
    Agents,
    Attachment,
    DiscoverFilter,
    PromptExtras,
    PromptInterceptorContext,
    ProtocolError,
    Query,
    ResponseChunk,
)

from chatlane_client import SessionApi, TranscriptApi, open_connection
from chatlane_schemas import Attachment as StoredFile
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from tests.support.bridges import synadia_host
from tests.support.eventually import eventually
from tests.support.service.processes import TURN_AGENT, Process, open_service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.timeout(400),
]

PATIENCE: Final = timedelta(seconds=120)
# Longer than a router is away.
LEASE: Final = timedelta(seconds=15)
PNG: Final = b"\x89PNG\r\n\x1a\n red"


@dataclass
class Answered:
    """An answer that comes over a stream."""

    text: str = ""
    error: str = ""
    reply: str = ""
    queries: list[Query] = field(default_factory=list)


class MessageId:
    """Gives a prompt the message id in its context."""

    async def before_prompt(self, ctx: PromptInterceptorContext) -> PromptExtras | None:
        """Return the header."""
        key = ctx.context.get("key")
        return PromptExtras(headers={"Nats-Msg-Id": str(key)}) if key else None


@dataclass
class Stage:
    """Router, both bridges and the agent, each a process, and a caller."""

    router: Process
    host: Process
    worker: Process
    offer: Process
    go: Path
    prompts: Path
    agents: Agents

    async def agent(self) -> Agent:
        """Return the offered agent once it is found."""

        async def found() -> list[Agent]:
            return await self.agents.discover(filter=DiscoverFilter(session_name="desk"))

        return (await eventually(found, PATIENCE))[0]

    async def ask(
        self,
        answered: Answered,
        text: str,
        context: Mapping[str, str],
        attachments: list[Attachment] | None = None,
    ) -> None:
        """Prompt the offered agent and note its answer as it comes."""
        agent = await self.agent()
        try:
            async for chunk in agent.prompt(
                text, timeout=90, context=context, attachments=attachments
            ):
                match chunk:
                    case ResponseChunk():
                        answered.text += chunk.text
                    case Query():
                        answered.queries.append(chunk)
                        if answered.reply:
                            await chunk.reply(answered.reply)
                    case _:
                        pass
        except ProtocolError as exc:
            answered.error = str(exc)

    async def begin(self, text: str, **context: str) -> tuple[asyncio.Task[None], Answered]:
        """Prompt, and wait until the agent shows how it begins."""
        answered = Answered()
        asking = asyncio.create_task(self.ask(answered, text, context))
        await eventually(lambda: answered.text == f"I begin {text}, ", PATIENCE)
        return asking, answered

    async def finish(self, asking: asyncio.Task[None], answered: Answered, text: str) -> None:
        """Let the agent answer, and check what the caller got."""
        self.go.touch()
        await asking
        self.go.unlink()
        assert (answered.text, answered.error) == (f"I begin {text}, and I am done.", "")

    def prompted(self) -> list[dict[str, Any]]:
        """Return what the agent was prompted."""
        return [json.loads(line) for line in self.prompts.read_text("utf-8").splitlines()]


@pytest.fixture
async def stage(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    go, prompts, file = tmp_path / "go", tmp_path / "prompts.jsonl", tmp_path / "synadia.toml"
    file.write_text("[agents.desk]\nperson = 'ann'\n", "utf-8")
    program = Path(synadia_host.__file__)
    bridge = ["-m", "chatlane", "synadia"]
    variables = {"CHATLANE_SYNADIA_NATS_URL": nats_url}
    worker = [*bridge, "worker", "--agent", TURN_AGENT, "--host", "test", "--owner", "ann"]
    processes = (
        Process(
            "host",
            [str(program), nats_url, str(go), str(prompts)],
            tmp_path,
            PYTHONPATH=str(program.parents[3]),
        ),
        Process("worker", [*worker, "--session", "default", "--forgets"], tmp_path, **variables),
        Process(
            "offer",
            [*bridge, "offer", "--file", str(file)],
            tmp_path,
            CHATLANE_SYNADIA_MEDIA_URL=str(tmp_path / "files"),
            **variables,
        ),
    )
    async with open_service(tmp_path, nats_url, database_url, turn_lease=LEASE) as service:
        router = service.router("router 1")
        await service.until_started(router)
        client = await nats.connect(nats_url)
        agents = Agents(nc=client, interceptors=[MessageId()])
        try:
            for process in processes:
                process.start()
            yield Stage(router, *processes, go, prompts, agents)
        finally:
            await agents.close()
            await client.close()
            for process in processes:
                await process.kill()


async def test_nothing_is_lost_or_answered_twice(stage: Stage, nats_url: str) -> None:
    await kill_the_worker_and_the_agent(stage)
    await kill_the_router_while_a_query_is_open(stage)
    await kill_the_offer(stage)
    refused = Answered()
    await stage.ask(refused, "refuse me", {})
    assert refused.error.startswith("service error 500")
    photo = Attachment.from_bytes("red.png", PNG)
    file = await prompt_with_a_file(stage, nats_url, photo)
    assert (file.name, file.media_type, file.size_bytes) == ("red.png", "image/png", len(PNG))
    async with httpx.AsyncClient() as http:
        assert (await http.get(file.url or "")).content == PNG
    rows = await stored_rows(nats_url)
    said = ["one", "ask two", "three", "refuse me", "look"]
    answers = [
        "I begin one, and I am done.",
        "I begin ask two, you said yes.",
        "I begin three, and I am done.",
        "I begin [photo] look, and I am done.",
    ]
    assert [row.content for row in rows if row.role is Role.USER and row.content != "yes"] == said
    own = [row.content for row in rows if row.role is Role.ASSISTANT and row.content != "May I?"]
    assert own == answers
    # The prompt of a later turn has what was said before.
    assert answers[0] in stage.prompted()[-1]["prompt"]


async def prompt_with_a_file(stage: Stage, nats_url: str, file: Attachment) -> StoredFile:
    """Prompt with a file twice; the transcript has it once, and the agent learns of it."""
    context, answered, repeated = {"key": "file"}, Answered(), Answered()
    asking = asyncio.create_task(stage.ask(answered, "look", context, [file]))
    # The agent cannot reach the file, which is on a private address.
    await eventually(lambda: answered.text == "I begin [photo] look, ", PATIENCE)
    # Its link is another one, so it is not the same message, and the key is taken.
    await stage.ask(repeated, "look", context, [file])
    assert repeated.error.startswith("service error 400")
    await stage.finish(asking, answered, "[photo] look")
    [kept] = [kept for row in await stored_rows(nats_url) for kept in row.attachments]
    return kept


async def kill_the_worker_and_the_agent(stage: Stage) -> None:
    asking, answered = await stage.begin("one")
    await stage.worker.kill()
    await stage.host.kill()
    stage.host.start()
    stage.worker.start()
    await eventually(lambda: len(stage.prompted()) > 1, PATIENCE)
    first, second = stage.prompted()
    # The agent can tell that it is the same turn.
    assert (first["turn"], second["attempt"]) == (second["turn"], 2)
    await stage.finish(asking, answered, "one")


async def kill_the_router_while_a_query_is_open(stage: Stage) -> None:
    answered = Answered()
    asking = asyncio.create_task(stage.ask(answered, "ask two", {}))
    await eventually(lambda: answered.queries, PATIENCE)
    await stage.router.kill()
    stage.router.start()
    # A slow machine may lose the turn meanwhile: its next attempt asks again.
    answered.reply = "yes"
    for query in [*answered.queries]:
        await query.reply("yes")
    await asking
    assert {query.prompt for query in answered.queries} == {"May I?"}
    assert answered.text.endswith("you said yes.")


async def kill_the_offer(stage: Stage) -> None:
    asking, _ = await stage.begin("three", key="three")
    await stage.offer.kill()
    asking.cancel()
    stage.offer.start()
    # The caller repeats its prompt and gets the answer of the turn that runs.
    again, answered = await stage.begin("three", key="three")
    await stage.finish(again, answered, "three")


async def stored_rows(nats_url: str) -> list[TranscriptEntry]:
    """Return the transcript of the only session."""
    async with open_connection(nats_url, name="test") as client:
        page = await SessionApi(client, principal="tests").list_page()
        (session,) = page.sessions
        assert session.origin == "synadia"
        transcripts = TranscriptApi(client, principal="tests")
        return [*await transcripts.newest(session.id, limit=50)]
