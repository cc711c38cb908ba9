"""Explanations over the API: where an event would go, and what a session waits for."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane_schemas.codec import encode
from tests.integration.api.test_dead_letters import ask, failed_turn
from tests.integration.api.test_every_request import CHANNELS, Api
from tests.support.worlds.kernel import Kernel, event

pytestmark = pytest.mark.integration


@pytest.fixture
async def api(kernel: Kernel) -> Api:
    return Api(kernel)


def facts_of(reply: dict[str, Any]) -> dict[str, list[str]]:
    return {fact["name"]: fact.get("values", []) for fact in reply["facts"]}


async def test_an_event_is_explained_and_nothing_is_stored(api: Api) -> None:
    session = await api.opened()
    key = await api.kernel.value("SELECT session_key FROM sessions")
    chat = key.rpartition(":")[2]
    before = await api.everything()
    again = event(chat=chat, user=chat, mid="9", text="what Ann wrote")

    reply = await ask(api, "explainEvent", event=encode(again).decode())

    assert reply["session_id"] == str(session)
    assert facts_of(reply)["outcome"] == ["routed"]
    assert facts_of(reply)["session_key"] == [key]
    assert "refusal" not in reply
    assert "Ann" not in json.dumps(reply)
    unknown = json.loads(encode(again)) | {"colour": "red"}
    assert (await ask(api, "explainEvent", event=json.dumps(unknown)))["unknown_fields"] == [
        "colour"
    ]
    refused = await ask(api, "explainEvent", event="not json")
    assert "it is not JSON" in refused["refusal"]
    stranger = json.loads(encode(again)) | {"account": "unheard"}
    assert "not declared" in (await ask(api, "explainEvent", event=json.dumps(stranger)))["refusal"]
    assert await api.everything() == before


async def test_a_session_says_what_it_waits_for(api: Api) -> None:
    kernel = api.kernel
    session, _ = await failed_turn(kernel)

    async def state() -> str:
        reply = await ask(api, "explainSession", session_id=session)
        assert reply["why"]
        return str(reply["state"])

    assert await state() == "failed"
    await kernel.say(event(chat="42", user="42", mid="2", text="hello?"))
    waiting = await ask(api, "explainSession", session_id=session)
    assert waiting["state"] == "unclaimed"
    assert waiting["next_at"]
    assert facts_of(waiting)["waiting_messages"] == ["1"]
    claimed = await kernel.claim_live(session)
    assert await state() == "running"
    await kernel.answer(claimed, parts=[], outcome="failed", retry=True, error="busy")
    assert await state() == "retrying"
    await kernel.fetch("UPDATE sessions SET staff_until = now() + interval '1 hour'")
    assert await state() == "staff"
    missing = await ask(api, "explainSession", session_id=uuid4())
    assert missing["error"]["code"] == "not_found"


@pytest.mark.parametrize("subject", [{"agent": "main"}, {"account": ("telegram", "bot")}])
async def test_only_operators_get_explanations(api: Api, subject: dict[str, Any]) -> None:
    session: UUID = await api.opened()
    for name in ("explainEvent", "explainSession"):
        body = {"v": 1, "id": uuid4().hex, "at": "2026-03-01T12:00:00Z"}
        body |= {"event": "{}", "session_id": str(session)}
        reply = json.loads(await api.ask(CHANNELS[name], json.dumps(body).encode(), **subject))
        assert reply["error"]["code"] == "forbidden"
