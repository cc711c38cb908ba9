"""The endpoint on a running service, and clients of the SDK with a key each."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from typing import Any

from openai import AsyncOpenAI

from chatlane_bridges.http.server import listening, server_of
from chatlane_bridges.openai.application import create_app
from chatlane_bridges.openai.settings import Declarations, OpenAiSettings
from tests.support.eventually import eventually


def token(name: str) -> str:
    """Return the token of a key."""
    return f"sk-test-{name}-0123456789"


def declared(*names: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - more of the file
    """Return the content of a file with the model `main`, and a key for each person."""
    keys = {
        name: {"sha256": sha256(token(name).encode()).hexdigest(), "person": name} for name in names
    }
    return {"models": {"main": {}}, "keys": keys, **more}


class Endpoint:
    """A running endpoint."""

    def __init__(self, url: str) -> None:
        self.url = url

    @asynccontextmanager
    async def client(self, name: str, *, retries: int = 0) -> AsyncIterator[AsyncOpenAI]:
        """Open a client of the SDK with the key of a person."""
        async with AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key=token(name), max_retries=retries, timeout=120
        ) as client:
            yield client


@asynccontextmanager
async def open_endpoint(
    nats_url: str,
    *names: str,
    content: dict[str, Any] | None = None,
    **settings: Any,  # noqa: ANN401 - settings of the endpoint
) -> AsyncIterator[Endpoint]:
    """Serve the endpoint with a key for each person, on a free port."""
    chosen = OpenAiSettings(port=0, nats_url=nats_url, **settings)
    app = create_app(chosen, Declarations.model_validate(content or declared(*names)))
    with listening(chosen) as taken:
        server = server_of(app)
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        try:
            await eventually(lambda: server.started)
            yield Endpoint(f"http://127.0.0.1:{taken.getsockname()[1]}")
        finally:
            server.should_exit = True
            async with asyncio.timeout(timedelta(seconds=60).total_seconds()):
                await serving


def messages(*texts: str) -> list[dict[str, str]]:
    """Return a message list in which a person and the agent talk in turn."""
    return list(_messages(texts))


def _messages(texts: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for place, text in enumerate(texts):
        yield {"role": "assistant" if place % 2 else "user", "content": text}
