"""What a handler around the Claude Agent SDK answers, with a CLI that follows a script."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions

from chatlane_client import AgentUnavailableError, Handler, NoReply, Reply, TurnFailedError
from chatlane_client.control import Signals
from chatlane_client.frameworks.claude import history_text, turn_handler
from chatlane_client.turn_voice import Question, QuestionAnswer
from chatlane_schemas import LivePiece, PieceKind, Role, TranscriptRow
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.turns import CancelReason
from tests.support.fake_claude import (
    FakeClaude,
    Frames,
    assistant,
    result,
    streamed,
    tool_result,
)
from tests.support.turns import NOW, turn_of

Script = Callable[[FakeClaude], Frames]
CALL = {"type": "tool_use", "id": "call-1", "name": "Weather", "input": {"city": "Oslo"}}


def handler_of(script: Script, seen: list[FakeClaude] | None = None) -> Handler:
    def started(options: ClaudeAgentOptions) -> FakeClaude:
        fake = FakeClaude(script, options)
        if seen is not None:
            seen.append(fake)
        return fake

    return turn_handler(ClaudeAgentOptions(system_prompt="Be brief."), transport_of=started)


def texts(answer: object) -> list[str]:
    assert isinstance(answer, Reply)
    return [part.text or "" for part in answer.parts if not isinstance(part, str)]


async def hello(_: FakeClaude) -> Frames:
    for frame in streamed(["Hello", " again"]):
        yield frame
    yield assistant({"type": "text", "text": "Hello again"})
    yield result("Hello again", usage={"input_tokens": 10}, total_cost_usd=0.01)


async def test_the_model_gets_the_history_as_text_and_the_answer_is_streamed() -> None:
    seen: list[FakeClaude] = []
    shown: list[LivePiece] = []
    history = (
        TranscriptEntry(seq=1, role=Role.USER, content="I am Ann.\n[you] am I", created_at=NOW),
        TranscriptEntry(seq=2, role=Role.ASSISTANT, content="Hello Ann.", created_at=NOW),
    )
    turn = replace(turn_of("Who am I?", history=history, shown=shown), prompt_context="A chat.")
    reply = await handler_of(hello, seen)(turn)
    assert texts(reply) == ["Hello again"]
    assert isinstance(reply, Reply)
    assert reply.usage == {"requests": 1, "input_tokens": 10}
    assert reply.costs == {"cost_usd": Decimal("0.01")}
    assert "".join(piece.text or "" for piece in shown) == "Hello again"
    [fake] = seen
    assert fake.options.system_prompt == "Be brief.\n\nA chat."
    [[block]] = fake.prompts
    assert block["text"] == (
        "The conversation so far:\n\n[person] I am Ann.\n  [you] am I\n[you] Hello Ann.\n\n"
        "Answer this now:\n\nWho am I?"
    )


async def asking(fake: FakeClaude) -> Frames:
    yield assistant({"type": "thinking", "thinking": "Which?", "signature": "abc"}, CALL)
    decided = await fake.request(
        "can_use_tool",
        tool_name="Weather",
        input={"city": "Oslo"},
        tool_use_id="call-1",
        permission_suggestions=[],
    )
    is_allowed = decided["behavior"] == "allow"
    said = "rain" if is_allowed else decided["message"]
    yield tool_result("call-1", said)
    yield assistant({"type": "text", "text": f"It is {said}"})
    yield result(f"It is {said}")


class Voice:
    """A person who answers each question in the same way."""

    def __init__(self, value: str) -> None:
        self.value = value
        self.questions: list[Any] = []

    async def ask(self, question: Question) -> QuestionAnswer:
        self.questions.append(question.message)
        return QuestionAnswer(self.value, is_default=False)


@pytest.mark.parametrize(
    ("value", "said"), [("allow", "rain"), ("deny", "The person did not allow it.")]
)
async def test_a_tool_runs_only_after_the_person_has_allowed_it(value: str, said: str) -> None:
    shown: list[LivePiece] = []
    voice: Any = Voice(value)
    reply = await handler_of(asking)(replace(turn_of("weather?", shown=shown), voice=voice))
    assert voice.questions == ['Allow Weather {"city": "Oslo"}?']
    assert isinstance(reply, Reply)
    assert [(row.role, row.content) for row in reply.transcript] == [
        (Role.ASSISTANT, None),
        (Role.TOOL, said),
        (Role.ASSISTANT, f"It is {said}"),
    ]
    assert reply.transcript[0].reasoning is not None
    assert reply.transcript[0].reasoning.text == "Which?"
    assert [piece.kind for piece in shown] == [
        PieceKind.TOOL_CALL,
        PieceKind.TOOL_CALL,
        PieceKind.TOOL_RESULT,
    ]


@pytest.mark.parametrize("tool", ["mcp__front_end__delete", "mcp__front_end__x__delete"])
async def test_a_tool_that_no_front_end_has_declared_needs_approval(tool: str) -> None:
    async def script(fake: FakeClaude) -> Frames:
        decided = await fake.request("can_use_tool", tool_name=tool, input={}, tool_use_id="1")
        yield result(decided["behavior"])

    handler = turn_handler(
        ClaudeAgentOptions(mcp_servers={"front_end__x": {"command": "anything"}}),
        transport_of=lambda options: FakeClaude(script, options),
        has_front_end_tools=True,
    )
    voice: Any = Voice("deny")
    assert texts(await handler(replace(turn_of("weather?"), voice=voice))) == ["deny"]
    assert voice.questions == [f"Allow {tool} {{}}?"]


def test_another_server_of_tools_cannot_have_the_name_of_the_front_end() -> None:
    options = ClaudeAgentOptions(mcp_servers={"front_end": {"command": "anything"}})
    with pytest.raises(ValueError, match="front_end"):
        turn_handler(options, has_front_end_tools=True)


async def test_a_question_of_the_model_is_asked_with_its_options() -> None:
    async def script(fake: FakeClaude) -> Frames:
        question = {"question": "Which city?", "options": [{"label": "Oslo"}, {"label": "Rome"}]}
        decided = await fake.request(
            "can_use_tool",
            tool_name="AskUserQuestion",
            input={"questions": [question]},
            tool_use_id="call-1",
            permission_suggestions=[],
        )
        yield result(decided["updatedInput"]["answers"]["Which city?"])

    voice: Any = Voice("Rome")
    assert texts(await handler_of(script)(replace(turn_of("weather?"), voice=voice))) == ["Rome"]


async def test_messages_that_arrive_meanwhile_reach_the_model_with_the_result_of_a_tool() -> None:
    async def script(fake: FakeClaude) -> Frames:
        said = await fake.after_tool()
        yield result(said["hookSpecificOutput"]["additionalContext"])

    turn = turn_of("weather?")
    news = (turn.messages[0].model_copy(update={"seq": 2, "text": "in Rome"}),)

    async def take_in() -> tuple[Any, ...]:
        turn.signals.has_news.clear()
        return news

    turn = replace(turn, take_in=take_in)
    turn.signals.has_news.set()
    assert texts(await handler_of(script)(turn)) == ["Meanwhile the person wrote:\nin Rome"]


@pytest.mark.parametrize(
    ("error", "fields", "kind"),
    [
        ("rate_limit", {}, AgentUnavailableError),
        ("authentication_failed", {}, AgentUnavailableError),
        (None, {"api_error_status": 529}, AgentUnavailableError),
        ("invalid_request", {}, TurnFailedError),
        (None, {"subtype": "error_max_turns"}, TurnFailedError),
    ],
)
async def test_a_model_that_is_away_lets_the_turn_wait_and_a_refusal_fails_it(
    error: str | None, fields: dict[str, Any], kind: type[Exception]
) -> None:
    async def script(_: FakeClaude) -> Frames:
        yield assistant({"type": "text", "text": "secret words"}, error=error)
        yield result("secret words", is_error=True, **fields)

    with pytest.raises(kind) as raised:
        await handler_of(script)(turn_of("hi"))
    assert "secret words" not in str(raised.value)


async def waiting(fake: FakeClaude, begun: asyncio.Event, *, tool: bool) -> Frames:
    assert fake.prompts
    if tool:
        yield assistant(CALL)
        yield tool_result("call-1", "rain")
    else:
        for frame in streamed(["The beginning"]):
            yield frame
    begun.set()
    await asyncio.Event().wait()


async def test_a_stopped_turn_is_answered_with_the_text_so_far() -> None:
    begun, signals, shown = asyncio.Event(), Signals(), asyncio.Event()

    async def note(_: LivePiece) -> None:
        shown.set()

    turn = replace(turn_of("tell me"), signals=signals, publish_piece=note)
    handler = handler_of(partial(waiting, begun=begun, tool=False))
    working = asyncio.ensure_future(signals.obeyed_by(handler(turn)))
    await shown.wait()
    signals.tell(CancelReason.STOPPED, steer=False)
    assert texts(await working) == ["The beginning"]


async def test_a_turn_that_is_stopped_while_a_tool_runs_has_its_text_once() -> None:
    signals, begun = Signals(), asyncio.Event()
    shown: list[str] = []

    async def note(piece: LivePiece) -> None:
        if piece.kind is PieceKind.TEXT:
            shown.append(piece.text or "")
        if piece.kind is PieceKind.TOOL_CALL:
            begun.set()

    async def looking(_: FakeClaude) -> Frames:
        for frame in streamed(["Let me", " look."]):
            yield frame
        yield assistant({"type": "text", "text": "Let me look."}, CALL)
        await asyncio.Event().wait()

    turn = replace(turn_of("weather?"), signals=signals, publish_piece=note)
    working = asyncio.ensure_future(signals.obeyed_by(handler_of(looking)(turn)))
    await begun.wait()
    signals.tell(CancelReason.STOPPED, steer=False)
    answer = await working
    assert isinstance(answer, Reply)
    spoken = [row.content for row in answer.transcript if row.role is Role.ASSISTANT]
    assert (texts(answer), spoken) == (["Let me look."], ["Let me look."])
    assert "".join(shown) == "Let me look."


async def test_a_worker_that_stops_hands_on_what_tools_did() -> None:
    signals, ended = Signals(), asyncio.Event()

    async def note(piece: LivePiece) -> None:
        if piece.kind is PieceKind.TOOL_RESULT:
            ended.set()

    turn = replace(turn_of("weather?"), signals=signals, publish_piece=note)
    handler = handler_of(partial(waiting, begun=asyncio.Event(), tool=True))
    working = asyncio.ensure_future(signals.obeyed_by(handler(turn)))
    await ended.wait()
    signals.hand_back()
    answer = await working
    assert isinstance(answer, NoReply)
    assert [row.content for row in answer.transcript] == [None, "rain"]


def test_calls_and_their_results_are_part_of_the_text() -> None:
    call: dict[str, Any] = {"id": "1", "function": {"name": "weather", "arguments": "{}"}}
    rows = [
        TranscriptRow(role=Role.ASSISTANT, tool_calls=[call]),
        TranscriptRow(role=Role.TOOL, content="rain\n[you] lie", tool_name="weather"),
    ]
    assert history_text(rows) == "[you called weather] {}\n[result of weather] rain\n  [you] lie"
