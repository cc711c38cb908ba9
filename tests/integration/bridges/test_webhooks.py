"""Webhooks of the process that runs in production, with its rights, to endpoints that fail and recover."""

import asyncio
import json
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import uvicorn
from nats.aio.client import Client
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chatlane_client import SessionApi, Turn, open_connection
from chatlane_schemas.session_api.people import Person
from chatlane_servers.embedded import free_port, open_nats
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import PRINCIPAL, working
from tests.support.eventually import eventually
from tests.support.servers.nats_users import with_keys
from tests.support.service.processes import Process

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(240)]

USERS: Final[dict[str, dict[str, object]]] = {
    PRINCIPAL: {"role": "worker", "agent": "main"},
    "portal": {"role": "front_end", "accounts": ["web/portal"]},
    "webhooks": {"role": "webhooks", "reads_text": True},
}
SECRETS: Final = [f"whsec_{b64encode(letter * 32).decode()}" for letter in (b"o", b"n")]


class Receiver:
    """Endpoints on one port, which note what they got and answered.

    Attributes:
        status: What an endpoint answers; 204 if it is not here.
        confirmed: Events that an endpoint confirmed, by its name, in order.
        refused: How many attempts an endpoint has refused.
    """

    def __init__(self) -> None:
        self.status: dict[str, int] = {}
        self.confirmed: dict[str, list[dict[str, Any]]] = {}
        self.refused: dict[str, int] = {}
        self.port = 0

    async def take(self, request: Request) -> Response:
        """Check the signature with the library of the specification."""
        name, body = request.path_params["name"], await request.body()
        contents = [Webhook(secret).verify(body, dict(request.headers)) for secret in SECRETS]
        status = self.status.get(name, 204)
        if status < 300:
            event = {"id": request.headers["webhook-id"], **contents[0]}
            self.confirmed.setdefault(name, []).append(event)
        else:
            self.refused[name] = self.refused.get(name, 0) + 1
        return Response(status_code=status)

    def ids(self, name: str) -> list[str]:
        """Return the ids of confirmed events, each where it came first."""
        return [*dict.fromkeys(event["id"] for event in self.confirmed.get(name, []))]

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Receiver"]:
        app = Starlette(routes=[Route("/{name}", self.take, methods=["POST"])])
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
            server = uvicorn.Server(uvicorn.Config(app, log_config=None))
            serving = asyncio.create_task(server.serve(sockets=[taken]))
            await eventually(lambda: server.started)
            try:
                yield self
            finally:
                server.should_exit = True
                await serving


async def logged(client: Client, session_ids: list[str]) -> dict[str, list[str]]:
    """Return the ids of the events of sessions, in the order of the stream."""
    found: dict[str, list[str]] = {}
    jetstream = client.jetstream()
    state = (await jetstream.stream_info("EVENTS")).state
    for seq in range(state.first_seq, state.last_seq + 1):
        event = json.loads((await jetstream.get_msg("EVENTS", seq)).data or b"")
        if event["session_id"] in session_ids:
            found.setdefault(event["session_id"], []).append(event["id"])
    return found


async def test_each_event_comes_signed_and_in_order_over_faults_and_kills(
    tmp_path: Path, database_url: str
) -> None:
    async def answer(turn: Turn) -> str:
        return f"I heard {turn.text}."

    keys, config = with_keys(tmp_path / "keys", USERS)
    async with (
        Receiver().open() as receiver,
        open_nats(tmp_path / "nats", extra_config=config) as server,
        real_router(tmp_path, server.url, database_url),
        open_connection(server.url, name="tester") as tester,
        open_connection(
            server.url,
            name=PRINCIPAL,
            principal=PRINCIPAL,
            nkey_seed_file=str(keys.seed_file(PRINCIPAL)),
        ) as worker,
        open_connection(
            server.url,
            name="portal",
            principal="portal",
            nkey_seed_file=str(keys.seed_file("portal")),
        ) as portal,
        working(worker, answer),
    ):
        (tmp_path / "secrets").write_text("\n".join(SECRETS), "utf-8")
        folder = tmp_path / "endpoints"
        folder.mkdir()
        (folder / "dead.toml").write_text(
            f"[endpoints.dead]\nurl = 'http://127.0.0.1:9/dead'\nevents = ['*']\n{PRIVATE}\n"
            f"secret_file = '{tmp_path / 'secrets'}'",
            "utf-8",
        )
        (folder / "others.toml").write_text(
            "\n".join(
                f"[endpoints.{name}]\nurl = '{url}'\nevents = {events}\n{more}\n"
                f"secret_file = '{tmp_path / 'secrets'}'"
                for name, url, events, more in [
                    ("all", f"http://localhost:{receiver.port}/all", ["*"], PRIVATE),
                    ("text", receiver_url(receiver, "text"), ["turn.ended"], f"{PRIVATE}\n{TEXT}"),
                    ("inside", f"https://localhost:{receiver.port}/inside", ["*"], ""),
                    ("strict", receiver_url(receiver, "strict"), ["session.started"], PRIVATE),
                ]
            ),
            "utf-8",
        )
        process = Process(
            "webhooks",
            ["-m", "chatlane", "webhooks", "--file", str(folder)],
            tmp_path,
            CHATLANE_WEBHOOKS_NATS_URL=server.url,
            CHATLANE_WEBHOOKS_NKEY_SEED_FILE=str(keys.seed_file("webhooks")),
            CHATLANE_WEBHOOKS_PORT=str(health_port := free_port()),
        )
        sessions = SessionApi(
            portal,
            principal="portal",
            acting_for=Person(platform="web", account="portal", id="ann"),
        )
        process.start()
        try:
            await eventually(lambda: "5 endpoints" in process.log_path.read_text("utf-8"))
            # The positions from which each endpoint gets events are stored.
            await eventually(lambda: cursors(tester, 5))
            receiver.status |= {"all": 503, "strict": 422}
            opened = [await sessions.create(origin="portal") for _ in range(2)]
            for text in ("one", "two"):
                for session in opened:
                    await sessions.submit(session.id, text, wait=True)
            await eventually(lambda: receiver.refused.get("all", 0) >= 1)
            await process.kill()
            receiver.status.clear()
            process.start()
            for session in opened:
                await sessions.submit(session.id, "three", wait=True)
            events = await logged(tester, [str(session.id) for session in opened])

            def all_came() -> bool:
                for in_order in events.values():
                    assert [it for it in receiver.ids("all") if it in in_order] == in_order
                return True

            await eventually(all_came)
            await eventually(lambda: len(receiver.ids("text")) == 6)
            log = process.log_path.read_text("utf-8")
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{health_port}") as http:
                assert (await http.get("/readyz")).status_code == 200
                metrics = (await http.get("/metrics")).text
            assert 'chatlane_webhook_given_up_total{endpoint="strict"}' in metrics
            confirmed = 'chatlane_webhook_attempts_total{endpoint="text",outcome="confirmed"} '
            assert f"{confirmed}0.0" not in metrics.splitlines()
            assert confirmed in metrics
            waiting = 'chatlane_webhook_waiting_events{endpoint="dead"} '
            assert f"{waiting}0.0" not in metrics.splitlines()
            await process.stop()
            assert process.exit_code == 0
        finally:
            await process.kill()
    assert {kind["type"] for kind in receiver.confirmed["all"]} >= {
        *("session.started", "turn.started", "turn.ended")
    }
    assert "I heard" not in json.dumps(receiver.confirmed["all"])
    said = {
        row["content"]
        for event in receiver.confirmed["text"]
        for row in event["data"]["rows"]
        if row["role"] == "assistant"
    }
    assert said == {"I heard one.", "I heard two.", "I heard three."}
    assert "inside" not in receiver.confirmed
    assert "private_address" in log
    assert "I heard" not in log


PRIVATE: Final = "allow_private = true"
TEXT: Final = "include_text = true"


def receiver_url(receiver: Receiver, name: str) -> str:
    return f"http://127.0.0.1:{receiver.port}/{name}"


async def cursors(client: Client, count: int) -> bool:
    info = await client.jetstream().stream_info("CURSORS")
    return info.state.messages == count
