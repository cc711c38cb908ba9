"""Chat completions with the SDK of OpenAI: lists that continue a session, and those that do not."""

import asyncio
from typing import Any
from uuid import UUID

import openai
import pytest
from nats.aio.client import Client
from openai import AsyncOpenAI

from chatlane_client import SessionApi, TranscriptApi
from chatlane_schemas.session_api.people import Person
from tests.integration.bridges.openai.conftest import Agent
from tests.support.bridges.openai_endpoint import messages
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


async def complete(client: AsyncOpenAI, *texts: str, **more: Any) -> tuple[str, UUID]:  # noqa: ANN401 - any argument
    """Return the answer to a message list, and its session."""
    sent: list[Any] = messages(*texts)
    raw = await client.chat.completions.with_raw_response.create(
        model="main", messages=sent, **more
    )
    completion = raw.parse()
    assert completion.choices[0].finish_reason == "stop"
    return completion.choices[0].message.content or "", UUID(raw.headers["x-chatlane-session"])


async def rows(connection: Client, session: UUID, person: str = "ann") -> list[str | None]:
    acting_for = Person(platform="openai", account="openai", id=person)
    api = TranscriptApi(connection, principal="openai", acting_for=acting_for)
    return [row.content for row in await api.newest(session)]


async def test_a_conversation_that_is_sent_whole_continues_its_session(
    ann: AsyncOpenAI, agent: Agent, connection: Client, words: str
) -> None:
    first, session = await complete(ann, words)
    assert first == f"You said: {words}"
    second, same = await complete(ann, words, first, "again")
    assert (second, same) == ("You said: again", session)
    assert await rows(connection, session) == [words, first, "again", second]
    assert agent.histories["again"] == [words, first]


async def test_the_same_first_words_begin_another_session(
    ann: AsyncOpenAI, agent: Agent, words: str
) -> None:
    first, session = await complete(ann, words)
    _, other = await complete(ann, words)
    assert session != other
    assert agent.heard[words] == 2
    # Both conversations are the same so far, so either may go on.
    _, continued = await complete(ann, words, first, "on")
    assert continued in {session, other}


async def test_a_stream_has_the_text_as_it_comes(
    ann: AsyncOpenAI, agent: Agent, words: str
) -> None:
    agent.may_go.clear()
    sent: list[Any] = messages(words)
    stream = await ann.chat.completions.create(
        model="main", messages=sent, stream=True, stream_options={"include_usage": True}
    )
    said, usage, reasons = "", None, []
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            said += choice.delta.content or ""
            reasons.append(choice.finish_reason)
        if said == "You ":
            agent.may_go.set()
    assert said == f"You said: {words}"
    assert reasons[-1] == "stop"
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 3, 10)


async def test_an_edited_message_continues_in_a_copy(
    ann: AsyncOpenAI, agent: Agent, connection: Client, words: str
) -> None:
    first, session = await complete(ann, words)
    second, _ = await complete(ann, words, first, "two")
    edited, copy = await complete(ann, words, first, "other two")
    assert copy != session
    assert await rows(connection, copy) == [words, first, "other two", edited]
    assert await rows(connection, session) == [words, first, "two", second]
    assert agent.histories["other two"] == [words, first]
    # The copy goes on by its own list, the original by its list.
    assert (await complete(ann, words, first, "other two", edited, "three"))[1] == copy
    assert (await complete(ann, words, first, "two", second, "three"))[1] == session


async def test_an_answer_that_is_asked_for_again_is_given_in_a_copy(
    ann: AsyncOpenAI, agent: Agent, words: str
) -> None:
    first, session = await complete(ann, words)
    _, _ = await complete(ann, words, first, f"more {words}")
    _, copy = await complete(ann, words, first, f"more {words}")
    assert copy != session
    assert agent.heard[f"more {words}"] == 2


async def test_a_list_of_elsewhere_begins_a_session_with_it(
    ann: AsyncOpenAI, agent: Agent, connection: Client, words: str
) -> None:
    _, session = await complete(ann, words, "An answer of another model.", "and you?")
    assert agent.histories["and you?"] == [words, "An answer of another model."]
    assert await rows(connection, session) == [
        words,
        "An answer of another model.",
        "and you?",
        "You said: and you?",
    ]


async def test_a_key_neither_asks_nor_answers_twice(
    ann: AsyncOpenAI, connection: Client, words: str
) -> None:
    keyed = {"extra_headers": {"Idempotency-Key": words}}
    answers = await asyncio.gather(*(complete(ann, words, **keyed) for _ in range(3)))
    assert len(set(answers)) == 1
    assert await complete(ann, words, **keyed) == answers[0]
    first, session = answers[0]
    more = {"extra_headers": {"Idempotency-Key": f"{words} 2"}}
    second = await complete(ann, words, first, "two", **more)
    assert await complete(ann, words, first, "two", **more) == second
    assert second[1] == session
    assert await rows(connection, session) == [words, first, "two", second[0]]


async def test_a_key_of_other_words_is_refused(ann: AsyncOpenAI, agent: Agent, words: str) -> None:
    keyed = {"extra_headers": {"Idempotency-Key": words}}
    await complete(ann, words, **keyed)
    with pytest.raises(openai.BadRequestError) as refused:
        await complete(ann, f"other {words}", **keyed)
    assert refused.value.code == "conflict"
    assert agent.heard[f"other {words}"] == 0


async def test_the_same_list_joins_its_running_turn(
    ann: AsyncOpenAI, agent: Agent, words: str
) -> None:
    first, session = await complete(ann, words)
    agent.may_go.clear()
    running = asyncio.create_task(complete(ann, words, first, f"wait {words}"))
    await eventually(lambda: agent.heard[f"wait {words}"])
    sent: list[Any] = messages(words, first, f"wait {words}")
    # The response begins when the request has found its turn.
    joined = await ann.chat.completions.create(model="main", messages=sent, stream=True)
    agent.may_go.set()
    said = [chunk.choices[0].delta.content async for chunk in joined]
    assert "".join(filter(None, said)) == f"You said: wait {words}"
    assert await running == (f"You said: wait {words}", session)
    assert agent.heard[f"wait {words}"] == 1


async def test_a_repeated_request_of_the_sdk_gets_the_first_answer(
    ann: AsyncOpenAI, agent: Agent, words: str
) -> None:
    repeated = {"extra_headers": {"x-stainless-retry-count": "1"}}
    first = await complete(ann, words)
    assert await complete(ann, words, **repeated) == first
    second = await complete(ann, words, first[0], f"two {words}")
    assert await complete(ann, words, first[0], f"two {words}", **repeated) == second
    assert agent.heard[words] == agent.heard[f"two {words}"] == 1


async def test_a_named_conversation_takes_new_words_only(
    ann: AsyncOpenAI, connection: Client, words: str
) -> None:
    named = {"extra_headers": {"X-Chatlane-Conversation": words}}
    _, session = await complete(ann, "one", **named)
    assert (await complete(ann, "two", **named))[1] == session
    assert (await complete(ann, "three", metadata={"conversation": words}))[1] == session
    assert (await rows(connection, session))[::2] == ["one", "two", "three"]


async def test_an_ended_conversation_is_opened_again(
    ann: AsyncOpenAI, connection: Client, words: str
) -> None:
    first, session = await complete(ann, words)
    person = Person(platform="openai", account="openai", id="ann")
    await SessionApi(connection, principal="openai", acting_for=person).end(session)
    assert (await complete(ann, words, first, "still there?"))[1] == session


async def test_a_question_is_answered_by_the_next_message(ann: AsyncOpenAI, words: str) -> None:
    asked, session = await complete(ann, f"ask {words}")
    assert asked == "Which city?\n\n1. Oslo\n2. Bergen"
    chosen = await complete(ann, f"ask {words}", asked, "Oslo")
    assert chosen == ("You chose Oslo.", session)
    on = await complete(ann, f"ask {words}", asked, "Oslo", chosen[0], "thanks")
    assert on == ("You said: thanks", session)


async def test_a_turn_without_a_reply_has_an_empty_answer(ann: AsyncOpenAI, words: str) -> None:
    assert (await complete(ann, f"silence {words}"))[0] == ""


async def test_people_do_not_reach_each_other(
    ann: AsyncOpenAI, ben: AsyncOpenAI, connection: Client, words: str
) -> None:
    named = {"extra_headers": {"X-Chatlane-Conversation": words, "Idempotency-Key": words}}
    first, session = await complete(ann, words, **named)
    _, other = await complete(ben, words, **named)
    assert other != session
    _, of_ben = await complete(ben, words, first, "go on")
    assert of_ben != session
    assert await rows(connection, session) == [words, first]


async def test_a_client_that_goes_away_leaves_the_turn_running(
    ann: AsyncOpenAI, agent: Agent, words: str
) -> None:
    agent.may_go.clear()
    sent: list[Any] = messages(words)
    stream = await ann.chat.completions.create(model="main", messages=sent, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    agent.may_go.set()
    # The client has the beginning only, and so does its list.
    answer, session = await complete(ann, words, "You ", "and?")
    assert answer == "You said: and?"
    assert str(session) == stream.response.headers["x-chatlane-session"]
    assert agent.histories["and?"] == [words, f"You said: {words}"]
