"""A person imports conversations of other programs over HTTP, and owns what comes of them."""

import base64
import gzip
import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

from chatlane_console.routes.imports import MAX_IMPORT_BODY_BYTES
from chatlane_schemas.session_api.session_openings import MAX_IMPORT_BYTES
from tests.integration.console.console_world import API, Browser, ConsoleWorld

pytestmark = pytest.mark.integration

MOST_MESSAGES = 5
MOST_BYTES = 2000


@pytest.fixture(scope="module")
def router_config() -> str:
    return f"[imports]\nmost_messages = {MOST_MESSAGES}\nmost_bytes = {MOST_BYTES}\n"


def packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content)).decode()


def trip(*texts: str) -> dict[str, Any]:
    """Return a conversation of ChatGPT with a line of messages."""
    mapping: dict[str, Any] = {}
    for place, text in enumerate(texts):
        author = {"role": "assistant" if place % 2 else "user"}
        content = {"content_type": "text", "parts": [text]}
        mapping[str(place)] = {
            "parent": str(place - 1) if place else None,
            "message": {"author": author, "create_time": 1760000000 + place, "content": content},
        }
    tip = str(len(texts) - 1)
    return {
        "id": "c-1",
        "title": "Trip",
        "create_time": 1760000000,
        "mapping": mapping,
        "current_node": tip,
    }


async def sent(browser: Browser, source: str, content: bytes, **more: object) -> httpx.Response:
    body = {"source": source, "name": "file.json", "content": packed(content), **more}
    return await browser.post(f"{API}/imports", json=body)


async def test_imports_belong_to_the_person_and_a_repeat_adds_only_new_messages(
    console: ConsoleWorld,
) -> None:
    async with console.person("ann") as ann, console.person("bob") as bob:
        short = json.dumps(trip("Where to?", "Rome")).encode()
        key = {"Idempotency-Key": uuid4().hex}
        body = {"source": "chatgpt", "name": "a", "content": packed(short)}
        first = await ann.post(f"{API}/imports", json=body, headers=key)
        assert first.json() == (await ann.post(f"{API}/imports", json=body, headers=key)).json()
        session_id = first.json()["session_id"]
        assert first.json() == {
            "session_id": session_id,
            "outcome": "new",
            "rows": 2,
            "left_out": [],
        }
        assert (await sent(ann, "chatgpt", short)).json()["outcome"] == "unchanged"
        grown = json.dumps(trip("Where to?", "Rome", "When?")).encode()
        assert (await sent(ann, "chatgpt", grown)).json()["outcome"] == "continued"

        view = (await ann.get(f"{API}/sessions/{session_id}")).json()
        assert (view["title"], view["origin"], view["read_only"]) == ("Trip", "chatgpt", True)
        rows = (await ann.get(f"{API}/sessions/{session_id}/rows")).json()["rows"]
        assert [row["content"] for row in rows] == ["Where to?", "Rome", "When?"]

        assert (await bob.get(f"{API}/sessions/{session_id}")).status_code == 404
        theirs = (await sent(bob, "chatgpt", short, is_continued=True)).json()
        assert theirs["outcome"] == "new"
        assert theirs["session_id"] != session_id
        path = f"{API}/sessions/{theirs['session_id']}/messages"
        assert (await bob.post(path, json={"text": "And then?"})).status_code == 202


async def test_a_person_imports_no_more_than_the_limits(console: ConsoleWorld) -> None:
    async with console.person("ann") as ann, console.person("bob") as bob:
        small = json.dumps(trip(*["x"] * (MOST_MESSAGES - 1))).encode()
        assert (await sent(ann, "chatgpt", small)).status_code == 200
        other = trip("And", "then", "more") | {"id": "c-2"}
        refused = await sent(ann, "chatgpt", json.dumps(other).encode())
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "at most 5 messages" in refused.json()["detail"]
        wide = trip("ü" * MOST_BYTES) | {"id": "c-3"}
        refused = await sent(ann, "chatgpt", json.dumps(wide).encode())
        assert "at most 2,000 bytes of text" in refused.json()["detail"]

        # What is there already counts as no import, and other people have limits of their own.
        assert (await sent(ann, "chatgpt", small)).json()["outcome"] == "unchanged"
        assert (await sent(bob, "chatgpt", json.dumps(other).encode())).json()["rows"] == 3
        [view] = (await ann.get(f"{API}/sessions")).json()["sessions"]
        path, key = f"{API}/sessions/{view['id']}", {"Idempotency-Key": "delete-it"}
        receipt = (await ann.delete(path, headers=key)).json()
        assert receipt["session_id"] == view["id"]
        assert receipt["deleted"]["messages"] == view["message_count"]
        # A repeated request gets the same receipt.
        assert (await ann.delete(path, headers=key)).json() == receipt
        assert (await sent(ann, "chatgpt", json.dumps(other).encode())).json()["rows"] == 3


async def test_content_that_is_no_conversation_is_refused_and_leaves_nothing(
    console: ConsoleWorld,
) -> None:
    async with console.person("ann") as ann:
        endless = gzip.compress(b"x" * 100)[:-9]
        refused = {
            "is no gzip in base64": "!" * 8,
            "has no end": base64.b64encode(endless).decode(),
            # A small file that would take all memory.
            "is larger than 16 MiB": packed(b" " * (MAX_IMPORT_BYTES + 1)),
            "is no JSON": packed(b"{" * 100_000),
            "is no JSON object": packed(b"[]"),
            "no conversation of ChatGPT": packed(b"{}"),
        }
        for reason, content in refused.items():
            body = {"source": "chatgpt", "name": "a", "content": content}
            answer = await ann.post(f"{API}/imports", json=body)
            assert (answer.status_code, answer.json()["detail"]) == (422, f"content: {reason}")
        large = await ann.post(f"{API}/imports", content=b" " * (MAX_IMPORT_BODY_BYTES + 1))
        assert large.status_code == 413
        assert (await ann.get(f"{API}/sessions")).json()["sessions"] == []
