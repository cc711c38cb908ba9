"""People send files with messages, and read those of their own conversations."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from nats.aio.client import Client

from chatlane_client import Turn
from chatlane_client.media.store import MediaSettings
from tests.integration.client.routing import working
from tests.integration.console.console_world import (
    API,
    MAX_FILE_BYTES,
    PROXY,
    Browser,
    ConsoleWorld,
    open_console,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 100
PAGE = b"<script>alert(1)</script>"


async def upload(
    browser: Browser,
    content: bytes | AsyncIterator[bytes],
    name: str = "a.png",
    media_type: str = "image/png",
) -> httpx.Response:
    headers = {"Content-Type": media_type}
    query = {"name": name}
    return await browser.post(f"{API}/files", content=content, params=query, headers=headers)


async def opened(browser: Browser) -> str:
    return f"{API}/sessions/{(await browser.post(f'{API}/sessions', json={})).json()['id']}"


async def user_row(browser: Browser, path: str) -> dict[str, Any]:
    """Return the row of the person's message, once it is in the transcript."""

    async def found() -> list[dict[str, Any]]:
        rows = (await browser.get(f"{path}/rows")).json()["rows"]
        return [row for row in rows if row["role"] == "user"]

    rows: list[dict[str, Any]] = await eventually(found)
    return rows[-1]


def stored_files(directory: Path) -> list[Path]:
    return [path for path in (directory / "files").rglob("*") if path.is_file()]


async def test_files_reach_the_agent_and_only_people_who_see_the_conversation(
    console: ConsoleWorld, client: Client
) -> None:
    read: list[tuple[str | None, str, bytes]] = []

    async def answer(turn: Turn) -> str:
        async with aiohttp.ClientSession() as session:
            for file in turn.messages[-1].attachments:
                async with session.get(str(file.url)) as response:
                    read.append((file.name, file.media_type, await response.read()))
        return "read"

    name = 'ü "a"\r\n; filename=b.png'
    async with (
        working(client, answer),
        console.person("ann") as ann,
        console.person("bob") as bob,
        console.person("eve", "operators") as operator,
    ):
        sent = [await upload(ann, PNG, name), await upload(ann, PAGE, "b.html", "text/html")]
        assert [response.status_code for response in sent] == [201, 201]
        receipts = [response.json()["receipt"] for response in sent]
        path = await opened(ann)
        done = await ann.post(f"{path}/messages", json={"text": "", "files": receipts})
        assert done.status_code == 202, done.text
        row = await user_row(ann, path)
        assert [(it["name"], it["size_bytes"]) for it in row["attachments"]] == [
            (name, len(PNG)),
            ("b.html", len(PAGE)),
        ]
        await eventually(lambda: len(read) == 2)
        assert read == [(name, "image/png", PNG), ("b.html", "text/html", PAGE)]

        file = f"{path}/rows/{row['seq']}/files"
        picture, page = await ann.get(f"{file}/0"), await ann.get(f"{file}/1")
        assert (picture.content, picture.headers["content-type"]) == (PNG, "image/png")
        assert (page.content, page.headers["content-type"]) == (PAGE, "application/octet-stream")
        for answered in (picture, page):
            assert answered.headers["content-disposition"].startswith("attachment; filename*=")
            assert answered.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in answered.headers["content-security-policy"]
        assert "%C3%BC%20%22a%22%0D%0A" in picture.headers["content-disposition"]
        assert (await ann.get(f"{file}/2")).status_code == 404
        seen = await operator.get(f"{file}/0".replace(API, f"{API}/operator"))
        assert seen.content == PNG

        refused = await bob.get(f"{file}/0")
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        own = await opened(bob)
        for forged in (receipts[0], receipts[0][:-3], "x", row["attachments"][0]["key"]):
            said = await bob.post(f"{own}/messages", json={"text": "hush", "files": [forged]})
            assert (said.status_code, said.json()["code"]) == (422, "unknown_file")
        assert (await bob.get(f"{own}/rows")).json()["rows"] == []


async def test_a_file_that_is_too_large_or_of_a_refused_type_is_not_kept(
    console: ConsoleWorld, routed_url: str, tmp_path: Path
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * (MAX_FILE_BYTES // 4)

    async with console.person("ann") as ann:
        for content in (b" " * (MAX_FILE_BYTES + 1), chunks()):
            refused = await upload(ann, content)
            assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
        assert (await ann.get(f"{API}/me")).json()["files"]["max_bytes"] == MAX_FILE_BYTES
        assert (await ann.post(f"{API}/files", content=b"x")).status_code == 422

    only_pictures = MediaSettings(url=str(tmp_path), types=("image/*",))
    async with (
        open_console(routed_url, **PROXY, media=only_pictures) as picky,
        picky.person("ann") as ann,
    ):
        refused = await upload(ann, b"words" * 100_000, "a.txt", "text/plain")
        assert (refused.status_code, refused.json()["code"]) == (422, "refused_file")
        assert "text/plain" in refused.json()["detail"]
        assert stored_files(tmp_path) == []

    async with open_console(routed_url, **PROXY) as without, without.person("ann") as ann:
        assert (await ann.get(f"{API}/me")).json()["files"] is None
        assert (await upload(ann, PNG)).status_code == 404
        said = await ann.post(f"{await opened(ann)}/messages", json={"text": "x", "files": ["y"]})
        assert said.status_code == 404
