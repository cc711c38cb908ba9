"""An agent of the Synadia Agent Protocol, made with its SDK.

Usage: `python synadia_host.py NATS_URL GO_FILE PROMPTS_FILE`. It answers `ask ...` after a query,
refuses `refuse ...`, and answers everything else when the file is there. Each prompt that it gets is
a line of the last file.
"""

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path

import nats
from synadia_ai.agent_service import AgentService, PromptStream, RequestRejectedError
from synadia_ai.agents import Envelope

from tests.support.eventually import eventually


async def main(nats_url: str, go: Path, prompts: Path) -> None:
    """Answer prompts until it is killed."""

    async def answer(envelope: Envelope, stream: PromptStream) -> None:
        with prompts.open("a", encoding="utf-8") as file:
            file.write(json.dumps(envelope.model_dump()) + "\n")
        text = envelope.prompt.rpartition("\n")[2]
        if text.startswith("refuse"):
            raise RequestRejectedError(422, "not such a thing")
        await stream.send(f"I begin {text}, ")
        if text.startswith("ask"):
            reply = await stream.ask("May I?", timeout=300)
            await stream.send(f"you said {reply.prompt}.")
            return
        await eventually(go.exists, timedelta(minutes=5))
        await stream.send("and I am done.")

    client = await nats.connect(nats_url)
    service = AgentService(
        agent="test",
        owner="ann",
        session_name="default",
        nc=client,
        keepalive_interval_s=0.5,
        max_concurrent_prompts=8,
    )
    service.on_prompt(answer)
    await service.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
