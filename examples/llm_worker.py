"""A turn worker that asks a language model, over any endpoint that speaks `/chat/completions`.

What was said before comes from the session API, so nothing is kept here; the answer is streamed
to whoever watches while it is written, and sent to the chat when it is complete.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from os import environ
from typing import Any

import httpx

from chatlane_client import (
    AgentUnavailableError,
    Turn,
    TurnFailedError,
    TurnWorker,
    open_connection,
    prompt_of,
)
from chatlane_schemas import Role

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
SLOTS = int(environ.get("SLOTS", "8"))
BASE_URL = environ.get("LLM_BASE_URL", "http://127.0.0.1:11434/v1")
API_KEY = environ.get("LLM_API_KEY", "")
MODEL = environ.get("LLM_MODEL", "llama3.2")
INSTRUCTIONS = environ.get("LLM_INSTRUCTIONS", "You are a helpful assistant. Answer briefly.")
HISTORY_ROWS = int(environ.get("LLM_HISTORY_ROWS", "40"))


class Model:
    """A language model behind an HTTP endpoint."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def answer(self, turn: Turn) -> str:
        """Answer a turn; a stopped turn is answered with the text so far.

        A refusal of the model fails the turn. While the model is away, the turn waits.
        """
        text = ""
        try:
            async for piece in self._stream(await conversation(turn)):
                text += piece
                await turn.delta(piece)
        except asyncio.CancelledError:
            if turn.cancel_reason is None or not text:
                raise
        except httpx.TransportError as exc:
            raise AgentUnavailableError(f"the model is away: {type(exc).__name__}") from exc
        if not text:
            raise TurnFailedError("the model said nothing", retry=True)
        return text

    async def _stream(self, messages: list[dict[str, str]]) -> AsyncIterator[str]:
        """Yield the answer piece by piece, from server-sent events."""
        body = {"model": MODEL, "messages": messages, "stream": True}
        async with self._http.stream("POST", "/chat/completions", json=body) as response:
            if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
                raise AgentUnavailableError(
                    f"the model answered with status {response.status_code}",
                    again_in=pause_of(response),
                )
            if response.is_error:
                raise TurnFailedError(f"the model refused with status {response.status_code}")
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:") or data == "[DONE]":
                    continue
                if piece := piece_of(json.loads(data)):
                    yield piece


def pause_of(response: httpx.Response) -> timedelta | None:
    """Return the pause that the endpoint asks for in seconds, if it does."""
    seconds = response.headers.get("retry-after", "")
    return timedelta(seconds=min(int(seconds[:9]), 3600)) if seconds.isdecimal() else None


async def conversation(turn: Turn) -> list[dict[str, str]]:
    """Return what the model is told: the instructions, what was said before, and the turn."""
    history = [row for row in await turn.history(limit=HISTORY_ROWS) if row.role is not Role.TOOL]
    said = [(row.role.value, prompt_of([row])) for row in history]
    said.append((Role.USER.value, turn.prompt))
    # The context stays the same from turn to turn, so a model's cache of the prompt stays good.
    instructions = "\n\n".join(filter(None, (INSTRUCTIONS, turn.prompt_context)))
    system = {"role": Role.SYSTEM.value, "content": instructions}
    return [system, *({"role": role, "content": text} for role, text in said if text)]


def piece_of(event: dict[str, Any]) -> str:
    """Return what one event of the stream adds to the answer."""
    choices = event.get("choices") or [{}]
    return choices[0].get("delta", {}).get("content") or ""


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, and finish what is begun."""
    headers = {"Authorization": f"Bearer {API_KEY}"} if API_KEY else {}
    async with (
        httpx.AsyncClient(base_url=BASE_URL, headers=headers, timeout=120) as http,
        open_connection(NATS_URL, name="model worker") as client,
    ):
        worker = TurnWorker(client, AGENT, Model(http).answer, slots=SLOTS, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
