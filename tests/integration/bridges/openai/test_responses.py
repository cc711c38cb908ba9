"""Responses and conversations with the SDK of OpenAI."""

import openai
import pytest
from openai import AsyncOpenAI

from tests.integration.bridges.openai.conftest import Agent
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


async def test_a_response_follows_another(ann: AsyncOpenAI, agent: Agent, words: str) -> None:
    first = await ann.responses.create(model="main", input=words)
    assert (first.output_text, first.status) == (f"You said: {words}", "completed")
    assert first.usage is not None
    assert first.usage.total_tokens == 10
    second = await ann.responses.create(model="main", input="two", previous_response_id=first.id)
    assert second.conversation == first.conversation
    assert agent.histories["two"] == [words, first.output_text]
    # Another response to the first one cannot be in the same session.
    other = await ann.responses.create(
        model="main", input="other two", previous_response_id=first.id
    )
    assert other.conversation != first.conversation
    assert agent.histories["other two"] == [words, first.output_text]


async def test_a_conversation_takes_what_is_said(
    ann: AsyncOpenAI, agent: Agent, words: str
) -> None:
    conversation = await ann.conversations.create()
    for text in (words, f"{words} 2"):
        response = await ann.responses.create(
            model="main", input=[{"role": "user", "content": text}], conversation=conversation.id
        )
        assert response.conversation is not None
        assert response.conversation.id == conversation.id
    assert agent.histories[f"{words} 2"] == [words, f"You said: {words}"]
    assert (await ann.conversations.retrieve(conversation.id)).id == conversation.id
    assert (await ann.conversations.delete(conversation.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await ann.responses.create(model="main", input="on", conversation=conversation.id)


async def test_a_streamed_response_has_all_events(ann: AsyncOpenAI, words: str) -> None:
    async with ann.responses.stream(model="main", input=words) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == f"You said: {words}"
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    found = await ann.responses.retrieve(final.id)
    assert (found.output_text, found.status) == (final.output_text, "completed")


async def test_a_response_in_the_background_is_read_later(
    ann: AsyncOpenAI, ben: AsyncOpenAI, agent: Agent, words: str
) -> None:
    agent.may_go.clear()
    response = await ann.responses.create(model="main", input=words, background=True)
    assert response.status == "in_progress"
    await eventually(lambda: agent.heard[words])
    assert (await ann.responses.retrieve(response.id)).status == "in_progress"
    with pytest.raises(openai.NotFoundError):
        await ben.responses.retrieve(response.id)
    agent.may_go.set()

    async def is_there() -> bool:
        found = await ann.responses.retrieve(response.id)
        return found.output_text == f"You said: {words}" and found.status == "completed"

    await eventually(is_there)


async def test_a_cancelled_response_ends(ann: AsyncOpenAI, agent: Agent, words: str) -> None:
    agent.may_go.clear()
    response = await ann.responses.create(model="main", input=words, background=True)
    await eventually(lambda: agent.heard[words])
    await ann.responses.cancel(response.id)

    async def is_cancelled() -> bool:
        return (await ann.responses.retrieve(response.id)).status == "cancelled"

    await eventually(is_cancelled)
    assert agent.heard[words] == 1


async def test_a_key_asks_once(ann: AsyncOpenAI, agent: Agent, words: str) -> None:
    keyed = {"Idempotency-Key": words}
    first = await ann.responses.create(model="main", input=words, extra_headers=keyed)
    again = await ann.responses.create(model="main", input=words, extra_headers=keyed)
    assert first.id == again.id
    follow = {"Idempotency-Key": f"{words} 2"}
    second, repeated = [
        await ann.responses.create(
            model="main",
            input=f"{words} 2",
            previous_response_id=first.id,
            extra_headers=follow,
        )
        for _ in range(2)
    ]
    assert second.id == repeated.id
    assert agent.heard[words] == agent.heard[f"{words} 2"] == 1


@pytest.mark.parametrize("found", ["conv_1", "conv_" + "0" * 32])
async def test_an_unknown_conversation_is_refused(ann: AsyncOpenAI, found: str) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        await ann.responses.create(model="main", input="hello", conversation=found)
    assert refused.value.code == "not_found"
