"""Keys, errors in the form of OpenAI, and the rights that the endpoint has in production."""

from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from chatlane_bridges.openai.settings import Declarations
from tests.support.bridges.openai_endpoint import (
    Endpoint,
    declared,
    messages,
    open_endpoint,
    token,
)

pytestmark = pytest.mark.integration


async def say(client: AsyncOpenAI, words: str, **more: Any) -> str:  # noqa: ANN401 - any argument
    sent: dict[str, Any] = {"model": "main", "messages": messages(words), **more}
    completion = await client.chat.completions.create(**sent)
    return completion.choices[0].message.content or ""


async def test_models_are_those_of_the_key(ann: AsyncOpenAI) -> None:
    assert [model.id async for model in await ann.models.list()] == ["main"]
    assert (await ann.models.retrieve("main")).id == "main"
    with pytest.raises(openai.NotFoundError) as refused:
        await say(ann, "hello", model="gpt-4o")
    assert refused.value.code == "model_not_found"


async def test_an_unknown_key_is_refused(endpoint: Endpoint) -> None:
    async with endpoint.client("nobody") as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.models.list()
    assert refused.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": messages("one", "1")}, "messages"),
        ({"messages": []}, "messages"),
    ],
)
async def test_what_agents_do_not_do_is_refused(
    ann: AsyncOpenAI, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await say(ann, "hello", **more)
    assert refused.value.param == param


async def test_a_failed_turn_is_an_error_that_is_not_asked_again(
    endpoint: Endpoint, words: str
) -> None:
    async with endpoint.client("ann", retries=2) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            await say(client, f"fail {words}")
        assert failed.value.code == "turn_failed"
        sent: list[Any] = messages(f"fail {words}")
        stream = await client.chat.completions.create(model="main", messages=sent, stream=True)
        with pytest.raises(openai.APIError):
            _ = [chunk async for chunk in stream]


async def test_a_large_body_is_refused(routed_url: str) -> None:
    async with (
        open_endpoint(routed_url, "ann", max_body_bytes=1024) as small,
        small.client("ann") as client,
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            await say(client, "x" * 2000)
    assert refused.value.status_code == 413


async def test_a_front_end_of_several_people_names_them(routed_url: str, words: str) -> None:
    content = declared("ann")
    del content["keys"]["ann"]["person"]
    content["keys"]["ann"]["person_header"] = "X-User"
    async with (
        open_endpoint(routed_url, content=content) as shared,
        shared.client("ann") as client,
    ):
        conversation = await client.conversations.create(extra_headers={"X-User": "eve"})
        with pytest.raises(openai.NotFoundError):
            await client.conversations.retrieve(conversation.id, extra_headers={"X-User": "mia"})
        with pytest.raises(openai.BadRequestError) as refused:
            await say(client, words)
        assert refused.value.code == "missing_person"


async def test_without_nats_requests_are_to_be_repeated() -> None:
    async with (
        open_endpoint("nats://127.0.0.1:1", "ann") as endpoint,
        httpx.AsyncClient() as client,
    ):
        headers = {"Authorization": f"Bearer {token('ann')}"}
        assert (await client.get(f"{endpoint.url}/livez")).status_code == 200
        assert (await client.get(f"{endpoint.url}/readyz")).status_code == 503
        asked = {"model": "main", "messages": messages("hello")}
        answer = await client.post(
            f"{endpoint.url}/v1/chat/completions", json=asked, headers=headers
        )
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["error"]["code"] == "unavailable"


@pytest.mark.parametrize(
    "wrong",
    [
        {"person": "ann"},
        {"person": "ann", "sha256": "0" * 64, "token_file": "x"},
        {"sha256": "0" * 64},
        {"sha256": "0" * 64, "person": "ann", "person_header": "x"},
        {"sha256": "0" * 64, "person": "ann", "models": ["other"]},
    ],
)
def test_a_key_that_is_not_whole_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="key"):
        Declarations.model_validate({"models": {"main": {}}, "keys": {"ann": wrong}})
