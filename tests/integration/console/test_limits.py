"""Bodies, hosts and headers that no page of the console sends, and what its answers say."""

import json
import logging
from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client

from chatlane_client import Turn
from chatlane_client.transport.json_logs import JsonFormatter
from tests.integration.client.routing import working
from tests.integration.console.console_world import API, ConsoleWorld
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

MAX_BYTES = 256 * 1024


async def test_a_body_that_is_too_large_is_refused_before_a_route_sees_it(
    console: ConsoleWorld,
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * (MAX_BYTES // 4)

    async with console.person("ann") as ann:
        for content in (b" " * (MAX_BYTES + 1), chunks()):
            refused = await ann.post(f"{API}/sessions", content=content)
            assert (refused.status_code, refused.json()["code"]) == (413, "too_large")


async def test_a_name_of_another_site_that_leads_here_is_refused(console: ConsoleWorld) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "[", ""):
        async with console.person("ann") as ann:
            refused = await ann.get(f"{API}/sessions", headers={"Host": host})
            assert refused.status_code in {400, 421}, host


async def test_an_invalid_request_is_a_problem_that_does_not_repeat_it(
    console: ConsoleWorld,
) -> None:
    async with console.person("ann") as ann:
        path = f"{API}/sessions/{(await ann.post(f'{API}/sessions', json={})).json()['id']}"
        for method, url, body in (
            ("POST", f"{path}/messages", {"text": ""}),
            ("POST", f"{path}/messages", {"text": "hush", "unknown": "hush"}),
            ("POST", f"{path}/messages", ["hush"]),
            ("PATCH", path, {"title": "hush" * 100}),
            ("PATCH", path, {}),
            ("PATCH", path, {"config": {"api_key": "hush-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"}}),
            ("POST", f"{path}/rewind", {"turns": 0}),
        ):
            refused = await ann.request(method, url, json=body)
            assert refused.status_code == 422, (url, body, refused.text)
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.json()["code"] == "invalid"
            assert "hush" not in refused.text


async def test_every_answer_says_that_no_script_of_others_runs_and_nobody_keeps_it(
    console: ConsoleWorld,
) -> None:
    async with console.person("ann") as ann:
        for path in (f"{API}/sessions", f"{API}/sessions/none", "/nothing", "/livez", "/readyz"):
            response = await ann.get(path, headers={"Origin": "https://evil.example"})
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in response.headers
            if path.startswith(API):
                assert response.headers["cache-control"] == "no-store"
        preflight = await ann.request(
            "OPTIONS",
            f"{API}/sessions",
            headers={
                "Origin": "https://evil.example",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "x-chatlane-request",
            },
        )
        assert preflight.status_code == 405
        assert "access-control-allow-origin" not in preflight.headers


async def test_nothing_that_people_write_is_logged(
    console: ConsoleWorld, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(turn: Turn) -> str:
        return f"murmur to {turn.text}"

    with caplog.at_level(logging.DEBUG):
        async with working(client, answer), console.person("eve", "operators") as eve:
            path = f"{API}/operator/sessions"
            session_id = (await eve.post(path, json={})).json()["id"]
            await eve.post(f"{path}/{session_id}/messages", json={"text": "murmur words"})
            await eve.patch(f"{path}/{session_id}", json={"title": "murmur title"})
            await eve.get(f"{API}/operator/search", params={"q": "murmur"})
            await eve.post(f"{path}/{session_id}/messages", content=b'{"text": "murmur')

            async def is_answered() -> bool:
                rows = (await eve.get(f"{path}/{session_id}/rows")).json()["rows"]
                return [row["role"] for row in rows] == ["user", "assistant"]

            await eventually(is_answered)
    written = [
        JsonFormatter().format(record)
        for record in caplog.records
        if record.name.partition(".")[0] in {"chatlane_console", "chatlane_client", "uvicorn"}
    ]
    assert not [line for line in written if "murmur" in line]
    operators = [json.loads(line) for line in written if "operator_request" in line]
    assert {line["operator"] for line in operators} == {f"eve{console.suffix}"}
    assert len(operators) > 5


async def test_pages_are_sent_compressed_and_answers_of_the_api_are_not(
    console: ConsoleWorld,
) -> None:
    async with console.person("ann") as ann:
        headers = {"Accept-Encoding": "gzip"}
        script = await ann.get("/app.js", headers=headers)
        assert script.headers["content-encoding"] == "gzip"
        assert int(script.headers["content-length"]) < len(script.content)
        answer = await ann.get(f"{API}/sessions", headers=headers)
        assert "content-encoding" not in answer.headers
