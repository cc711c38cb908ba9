"""The endpoint for OpenAI clients with the rights that it has in production."""

from pathlib import Path
from typing import Any

import pytest

from chatlane_client import Turn, open_connection
from chatlane_servers.embedded import open_nats
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import PRINCIPAL, working
from tests.support.bridges.openai_endpoint import messages, open_endpoint
from tests.support.servers.nats_users import with_keys

pytestmark = pytest.mark.integration

USERS: dict[str, dict[str, object]] = {
    PRINCIPAL: {"role": "worker", "agent": "main"},
    "openai": {"role": "front_end", "accounts": ["openai/openai"]},
}


async def test_the_rights_of_a_front_end_suffice(tmp_path: Path, database_url: str) -> None:
    async def answer(turn: Turn) -> str:
        await turn.delta("You said ")
        return f"You said {turn.text}"

    keys, config = with_keys(tmp_path / "keys", USERS)
    async with (
        open_nats(tmp_path / "nats", extra_config=config) as server,
        real_router(tmp_path, server.url, database_url),
        open_connection(
            server.url,
            name=PRINCIPAL,
            principal=PRINCIPAL,
            nkey_seed_file=str(keys.seed_file(PRINCIPAL)),
        ) as worker,
        working(worker, answer),
        open_endpoint(server.url, "ann", nkey_seed_file=keys.seed_file("openai")) as endpoint,
        endpoint.client("ann") as client,
    ):
        sent: list[Any] = messages("hello")
        stream = await client.chat.completions.create(model="main", messages=sent, stream=True)
        said = [chunk.choices[0].delta.content async for chunk in stream]
        assert "".join(filter(None, said)) == "You said hello"
        more: list[Any] = messages("hello", "You said hello", "again")
        on = await client.chat.completions.create(model="main", messages=more)
        assert on.choices[0].message.content == "You said again"
