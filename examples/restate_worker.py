"""A turn worker whose turns are handlers of Restate: each step runs once, whatever is killed.

The id of the turn is the idempotency key, so another attempt at the turn gets the result of the
same invocation. Make the handler known to Restate once, while this program runs:

    curl localhost:9070/deployments --json '{"uri": "http://localhost:9080"}'
"""

import asyncio
import signal
from contextlib import suppress
from os import environ

import httpx
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from chatlane_client import (
    AgentUnavailableError,
    Turn,
    TurnFailedError,
    TurnWorker,
    open_connection,
)

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
INGRESS_URL = environ.get("RESTATE_INGRESS_URL", "http://127.0.0.1:8080")
ADMIN_URL = environ.get("RESTATE_ADMIN_URL", "http://127.0.0.1:9070")
# Where Restate calls the handlers.
BIND = environ.get("RESTATE_HANDLERS", "127.0.0.1:9080")
BASE_URL = environ.get("LLM_BASE_URL", "http://127.0.0.1:11434/v1")
MODEL = environ.get("LLM_MODEL", "llama3.2")

assistant = restate.Service("assistant")


async def ask_model(instructions: str, text: str) -> str:
    """Return what the model answers."""
    said = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=120) as http:
        body = {"model": MODEL, "messages": said}
        response = await http.post("/chat/completions", json=body)
        return str(response.raise_for_status().json()["choices"][0]["message"]["content"])


@assistant.handler()
async def answer(ctx: restate.Context, prompt: str) -> str:
    """Answer in two steps; Restate keeps the result of each."""
    plan = await ctx.run_typed("plan", ask_model, instructions="Plan the answer.", text=prompt)
    text = f"{prompt}\n\nPlan: {plan}"
    return await ctx.run_typed("write", ask_model, instructions="Write the answer.", text=text)


class Engine:
    """Restate, as the worker calls it."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def answer(self, turn: Turn) -> str:
        """Start the invocation of a turn, or find it, and return its result."""
        try:
            key = {"idempotency-key": str(turn.id)}
            url = "/assistant/answer/send"
            sent = await self._http.post(url, json=turn.prompt, headers=key)
            if sent.is_error:
                raise AgentUnavailableError(f"Restate answered with status {sent.status_code}")
            invocation = sent.json()["invocationId"]
            return await self._result(turn, invocation)
        except httpx.TransportError as exc:
            raise AgentUnavailableError("Restate is away") from exc

    async def _result(self, turn: Turn, invocation: str) -> str:
        try:
            ended = await self._http.get(f"/restate/invocation/{invocation}/attach")
        except asyncio.CancelledError:
            # If the lease was lost, another attempt waits for the invocation.
            if turn.cancel_reason is not None:
                await self._http.patch(f"{ADMIN_URL}/invocations/{invocation}/cancel")
            raise
        if ended.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise AgentUnavailableError("Restate is starting")
        if ended.is_error:
            raise TurnFailedError(f"the invocation ended with status {ended.status_code}")
        return str(ended.json())


async def main() -> None:
    """Serve turns and handlers until SIGTERM or Ctrl-C."""
    settings = Config.from_mapping(bind=[BIND], loglevel="WARNING")
    is_over = asyncio.Event()
    async with (
        httpx.AsyncClient(base_url=INGRESS_URL, timeout=httpx.Timeout(5, read=None)) as http,
        open_connection(NATS_URL, name="restate worker") as client,
        asyncio.TaskGroup() as tasks,
    ):
        app = restate.app([assistant])
        tasks.create_task(serve(app, settings, shutdown_trigger=is_over.wait))
        worker = TurnWorker(client, AGENT, Engine(http).answer, slots=8, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()
        # Turns that end need their handlers.
        is_over.set()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
