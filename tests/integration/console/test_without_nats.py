"""A console that starts while NATS is away: it says so, and it can be stopped."""

import secrets
import signal
from http import HTTPStatus
from pathlib import Path

import httpx

from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.service.processes import Process


async def test_a_console_without_nats_answers_and_ends(tmp_path: Path) -> None:
    port, token = free_port(), secrets.token_urlsafe()
    environment = {
        "CHATLANE_CONSOLE_PORT": str(port),
        "CHATLANE_CONSOLE_NATS_URL": f"nats://127.0.0.1:{free_port()}",
        "CHATLANE_CONSOLE_PLATFORM": "console",
        "CHATLANE_CONSOLE_ACCOUNT": "web",
        "CHATLANE_CONSOLE_LINK_PERSON": "ann",
        "CHATLANE_CONSOLE_LINK_TOKEN": token,
    }
    program = Process("console", ["-m", "chatlane", "console"], tmp_path, **environment)
    program.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as browser:

            async def is_alive() -> bool:
                program.require_running()
                try:
                    return (await browser.get("/livez")).is_success
                except httpx.TransportError:
                    return False

            await eventually(is_alive)
            assert (await browser.get("/readyz")).status_code == HTTPStatus.SERVICE_UNAVAILABLE
            await browser.get("/sign-in/link", params={"token": token})
            answer = await browser.get("/api/v1/sessions")
        assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        assert answer.json()["code"] == "unavailable"
    finally:
        await program.stop()
    # The server ends itself by the signal once it has closed everything.
    assert program.exit_code == -signal.SIGTERM
