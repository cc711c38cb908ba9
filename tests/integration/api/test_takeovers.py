"""A person of the team talks to a chat in place of its agent, and hands it back."""

import json
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from tests.integration.api.test_dead_letters import ask
from tests.integration.api.test_every_request import CHANNELS, Api
from tests.support.worlds.kernel import Fields, Kernel, event, texts

pytestmark = pytest.mark.integration

ANN: Final[Fields] = {"chat": "42", "user": "42"}


@pytest.fixture
async def api(kernel: Kernel) -> Api:
    return Api(kernel)


async def begun(kernel: Kernel) -> UUID:
    """Return a session with a message and its answer."""
    session = (await kernel.say(event(**ANN, mid="1", text="hello"))).session
    await kernel.answer(await kernel.claim_live(session), "hi")
    return session


async def waits(kernel: Kernel) -> bool:
    """Return whether the live turn is not due for minutes."""
    due: bool = await kernel.value(
        "SELECT due_at > clock_timestamp() + interval '5 minutes' FROM turns WHERE state = 'ready'"
    )
    return due


async def take_over(api: Api, session: UUID, **fields: Any) -> None:  # noqa: ANN401 - fields of the request
    assert "error" not in await ask(api, "sessionTakeover", session_id=session, **fields)


async def test_the_agent_waits_and_goes_on_after_the_hand_back(api: Api) -> None:
    kernel = api.kernel
    session = await begun(kernel)
    await take_over(api, session)
    await kernel.say(event(**ANN, mid="2", text="anybody?"))

    assert await waits(kernel)
    turn = await kernel.live_turn(session)
    assert turn is not None
    # A notification that is on its way already does not begin the turn.
    assert (await kernel.claim(turn)).status == "taken"
    assert await kernel.said(session) == ["hello", "hi"]

    for _ in range(2):
        assert "error" not in await ask(api, "sessionHandback", session_id=session)
        assert not await waits(kernel)
    claimed = await kernel.claim(turn)
    assert texts(claimed) == ["anybody?"]


async def test_a_turn_that_was_notified_before_waits_too(api: Api) -> None:
    kernel = api.kernel
    session = await begun(kernel)
    await kernel.say(event(**ANN, mid="2", text="anybody?"))
    turn = await kernel.live_turn(session)
    assert turn is not None
    await take_over(api, session)
    assert (await kernel.claim(turn)).status == "taken"
    assert await waits(kernel)


async def test_a_forgotten_takeover_ends(api: Api) -> None:
    kernel = api.kernel
    session = await begun(kernel)
    await take_over(api, session)
    await kernel.say(event(**ANN, mid="2", text="anybody?"))
    turn = await kernel.live_turn(session)
    assert turn is not None
    await kernel.fetch("UPDATE sessions SET staff_until = now() - interval '1 second'")
    assert texts(await kernel.claim(turn)) == ["anybody?"]


async def test_what_the_team_says_is_sent_once_and_seen_by_the_agent(api: Api) -> None:
    kernel = api.kernel
    session = await begun(kernel)
    refused = await ask(
        api, "sessionSpeak", session_id=session, author="Eve", message={"text": "I am Eve"}
    )
    assert refused["error"]["code"] == "conflict"
    await take_over(api, session)
    await kernel.say(event(**ANN, mid="2", text="anybody?"))
    request = {
        "id": uuid4().hex,
        "session_id": session,
        "author": "Eve",
        "message": {"text": "I am Eve"},
    }
    first = await ask(api, "sessionSpeak", **request)
    assert "error" not in first
    assert await ask(api, "sessionSpeak", **request) == first
    blank = await ask(api, "sessionSpeak", session_id=session, author="Eve", message={"text": " "})
    assert blank["error"]["code"] == "invalid"

    assert await kernel.transcript(session) == [
        (1, "user", "hello"),
        (2, "assistant", "hi"),
        (3, "user", "anybody?"),
        (4, "assistant", "I am Eve"),
    ]
    assert await kernel.value("SELECT author FROM messages WHERE seq = 4") == "Eve"
    sent = [message["text"] for message in await kernel.published("OUTBOUND")]
    assert sent == ["hi", "I am Eve"]
    assert await kernel.live_turn(session) is None

    await ask(api, "sessionHandback", session_id=session)
    await kernel.say(event(**ANN, mid="3", text="thanks"))
    claimed = await kernel.claim_live(session)
    # What was said meanwhile is history, and only the new message is to be answered.
    assert texts(claimed) == ["thanks"]


async def test_a_running_turn_goes_on_and_its_answer_comes(api: Api) -> None:
    kernel = api.kernel
    session = await begun(kernel)
    await kernel.say(event(**ANN, mid="2", text="anybody?"))
    claimed = await kernel.claim_live(session)
    await take_over(api, session)
    await kernel.say(event(**ANN, mid="3", text="hello?"))
    spoken = await ask(
        api, "sessionSpeak", session_id=session, author="Eve", message={"text": "I am Eve"}
    )
    assert "error" not in spoken
    await kernel.answer(claimed, "the answer")
    assert await kernel.said(session) == ["hello", "hi", "anybody?", "I am Eve", "the answer"]
    assert await waits(kernel)


async def test_no_rule_ends_a_session_that_was_taken_over(api: Api) -> None:
    session = await begun(api.kernel)
    await take_over(api, session, lasts_s=600)
    held = "SELECT held_until = staff_until FROM sessions"
    assert await api.kernel.value(held) is True
    await ask(api, "sessionHandback", session_id=session)
    assert await api.kernel.value("SELECT held_until IS NULL FROM sessions") is True
    await ask(api, "sessionEnd", session_id=session)
    refused = await ask(api, "sessionTakeover", session_id=session)
    assert refused["error"]["code"] == "conflict"


@pytest.mark.parametrize("subject", [{"agent": "main"}, {"account": ("telegram", "bot")}])
async def test_only_operators_take_over(api: Api, subject: dict[str, Any]) -> None:
    session = await begun(api.kernel)
    before = await api.everything()
    for name in ("sessionTakeover", "sessionSpeak", "sessionHandback"):
        body = {"v": 1, "id": uuid4().hex, "at": "2026-03-01T12:00:00Z"}
        body |= {"session_id": str(session), "author": "Eve", "message": {"text": "hello"}}
        reply = json.loads(await api.ask(CHANNELS[name], json.dumps(body).encode(), **subject))
        assert reply["error"]["code"] == "forbidden"
    assert await api.everything() == before
