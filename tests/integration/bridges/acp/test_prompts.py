"""Prompts of editors: what is shown while a turn runs, and how it ends."""

import asyncio
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane_bridges.acp.settings import Choice, EditorOptions, Option
from chatlane_client import NoReply, Reply, SessionApi, Turn, TurnFailedError
from chatlane_schemas.live_turns import LivePiece, PieceKind, PlanEntry, StepState
from chatlane_schemas.session_api.people import Person
from tests.integration.client.routing import working
from tests.support.bridges.plain_editor import Editors, PlainEditor, RpcError
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

ANN = Person(platform="acp", account="editor", id="ann")
OFFERED = EditorOptions(
    models=(Choice(id="small-1", name="Small"), Choice(id="large-1")),
    modes=(Choice(id="ask", name="Ask"), Choice(id="code", name="Code")),
    options=(
        Option(
            id="effort",
            category="thought_level",
            values=(Choice(id="low"), Choice(id="high")),
            default="low",
        ),
        Option(id="careful", default=False),
    ),
)


async def working_editor(turn: Turn) -> Reply:
    """Show one piece of each kind, and answer."""
    await turn.show(LivePiece(kind=PieceKind.THOUGHT, text="Oslo "))
    await turn.show(LivePiece(kind=PieceKind.THOUGHT, text="is meant."))
    entries = (
        PlanEntry(text="look it up", state=StepState.DONE),
        PlanEntry(text="say it", state=StepState.RUNNING),
    )
    await turn.show(LivePiece(kind=PieceKind.PLAN, plan=entries))
    await turn.delta("I look ")
    await turn.delta("it up.")
    call: dict[str, Any] = {"tool_id": "call-1", "tool_name": "weather"}
    running = LivePiece(kind=PieceKind.TOOL_CALL, title="Weather", state=StepState.RUNNING, **call)
    await turn.show(running)
    await turn.show(LivePiece(kind=PieceKind.TOOL_RESULT, text="4 °C", **call))
    usage = {"context_tokens": 10, "context_limit": 100}
    await turn.show(LivePiece(kind=PieceKind.USAGE, usage=usage))
    await turn.show(LivePiece(kind=PieceKind.PROGRESS, text="almost there"))
    await turn.delta("It is 4 °C.")
    return Reply(
        parts=["I look it up.", "It is 4 °C."],
        usage={"input_tokens": 7, "output_tokens": 3, "cache_read_tokens": 2},
        gauges={"context_tokens": 12, "context_limit": 100},
        costs={"cost_usd": Decimal("0.25")},
    )


async def test_everything_that_a_turn_shows_is_shown_once(client: Client, editors: Editors) -> None:
    async with working(client, working_editor), editors.open() as editor:
        session = await editor.open()
        answer = await editor.prompt(session, "weather?")
    assert answer == {
        "stopReason": "end_turn",
        "usage": {
            "inputTokens": 7,
            "outputTokens": 3,
            "totalTokens": 10,
            "cachedReadTokens": 2,
        },
    }
    assert editor.said("agent_thought_chunk") == ["Oslo is meant."]
    assert editor.said() == ["I look it up.", "It is 4 °C."]
    [plan] = editor.of("plan")
    assert [(it["content"], it["status"]) for it in plan["entries"]] == [
        ("look it up", "completed"),
        ("say it", "in_progress"),
    ]
    [call] = editor.of("tool_call")
    assert (call["title"], call["status"]) == ("Weather", "in_progress")
    [result] = editor.of("tool_call_update")
    assert (result["toolCallId"], result["status"]) == (call["toolCallId"], "completed")
    assert [(it["used"], it["size"], it.get("cost")) for it in editor.of("usage_update")] == [
        (10, 100, None),
        (12, 100, {"amount": 0.25, "currency": "USD"}),
    ]


async def test_text_comes_while_the_turn_runs(client: Client, editors: Editors) -> None:
    may_end = asyncio.Event()

    async def answer(turn: Turn) -> str:
        await turn.delta("It is ")
        await may_end.wait()
        return "It is 4 °C."

    async with working(client, answer), editors.open() as editor:
        session = await editor.open()
        prompt = editor.prompt(session, "weather?")
        await eventually(lambda: editor.said() == ["It is "])
        assert not prompt.done()
        with pytest.raises(RpcError) as refused:
            await editor.prompt(session, "and?")
        assert refused.value.code == -32602
        may_end.set()
        assert (await prompt)["stopReason"] == "end_turn"
    assert editor.said() == ["It is 4 °C."]


async def test_a_lost_attempt_says_nothing_twice(client: Client, editors: Editors) -> None:
    async def lost(turn: Turn) -> str:
        call = LivePiece(kind=PieceKind.TOOL_CALL, tool_id="a", tool_name="search")
        await turn.show(call)
        await turn.delta("It is 4")
        raise AssertionError("the worker is gone")

    async def answer(turn: Turn) -> str:
        if turn.attempt == 1:
            return await lost(turn)
        for part in ("It ", "is 4", " °C", "."):
            await turn.delta(part)
        return "It is 4 °C."

    async with working(client, answer), editors.open() as editor:
        session = await editor.open()
        assert (await editor.prompt(session, "weather?"))["stopReason"] == "end_turn"
    assert editor.said() == ["It is 4 °C."]
    [change] = editor.of("tool_call_update")
    assert change["status"] == "failed"


async def test_an_editor_cancels(client: Client, editors: Editors) -> None:
    async def answer(turn: Turn) -> str:
        if turn.text != "go on":
            await turn.delta("I begin")
            await asyncio.Event().wait()
        return "done"

    async with working(client, answer), editors.open() as editor:
        session = await editor.open()
        prompt = editor.prompt(session, "work")
        await eventually(lambda: editor.said() == ["I begin"])
        editor.tell("session/cancel", sessionId=session)
        assert await prompt == {"stopReason": "cancelled"}
        assert (await editor.prompt(session, "go on"))["stopReason"] == "end_turn"
    assert editor.said() == ["I begin", "done"]


async def test_a_prompt_without_a_worker_is_cancelled(client: Client, editors: Editors) -> None:
    async with editors.open() as editor:
        session = await editor.open()
        prompt = editor.prompt(session, "work")
        editor.tell("session/cancel", sessionId=session)
        assert await prompt == {"stopReason": "cancelled"}
        stopped = await SessionApi(client, principal="editor", acting_for=ANN).stop(UUID(session))
    assert stopped.turn_id is None


async def test_how_a_turn_ends(client: Client, editors: Editors) -> None:
    async def answer(turn: Turn) -> NoReply:
        if turn.text == "fail":
            raise TurnFailedError("The model is broken.", retry=False)
        return NoReply()

    async with working(client, answer), editors.open() as editor:
        session = await editor.open()
        assert (await editor.prompt(session, "nothing"))["stopReason"] == "end_turn"
        with pytest.raises(RpcError) as failed:
            await editor.prompt(session, "fail")
    assert failed.value.code == -32603
    assert editor.said() == []


async def test_a_prompt_has_links_and_embedded_text(client: Client, editors: Editors) -> None:
    async def answer(turn: Turn) -> str:
        return turn.text

    blocks = [
        {"type": "text", "text": "Compare "},
        {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"},
        {"type": "text", "text": " with"},
        {"type": "resource", "resource": {"uri": "file:///b.py", "text": "print('```')"}},
    ]
    async with working(client, answer), editors.open() as editor:
        session = await editor.open()
        await editor.ask("session/prompt", sessionId=session, prompt=blocks)
    assert "".join(editor.said()) == (
        "Compare [a.py](file:///a.py) with\n"
        "[file:///b.py](file:///b.py)\n````\nprint('```')\n````\n"
    )


async def test_models_modes_and_options_reach_the_worker(client: Client, editors: Editors) -> None:
    turns: list[Turn] = []

    async def answer(turn: Turn) -> str:
        turns.append(turn)
        return "ok"

    async with working(client, answer), editors.open(offered=OFFERED) as editor:
        opened = await editor.ask("session/new", cwd="/srv", mcpServers=[])
        session = opened["sessionId"]
        assert opened["modes"]["currentModeId"] == "ask"
        assert values(opened) == {"model": "default", "effort": "low", "careful": False}
        await editor.ask("session/set_mode", sessionId=session, modeId="code")
        for name, value in {"model": "large-1", "effort": "high"}.items():
            set_now = await editor.ask(
                "session/set_config_option", sessionId=session, configId=name, value=value
            )
            assert values(set_now)[name] == value
        set_now = await editor.ask(
            "session/set_config_option",
            sessionId=session,
            configId="careful",
            type="boolean",
            value=True,
        )
        assert values(set_now) == {"model": "large-1", "effort": "high", "careful": True}
        await editor.prompt(session, "hello")
        resumed = await editor.ask("session/resume", sessionId=session, cwd="/srv", mcpServers=[])
        assert values(resumed) == values(set_now)
        assert resumed["modes"]["currentModeId"] == "code"
    [turn] = turns
    assert turn.model_override is not None
    assert turn.model_override.model == "large-1"
    stored = await SessionApi(client, principal="tests").get(turn.session_id)
    assert stored.config == {"mode": "code", "options": {"effort": "high", "careful": True}}


def values(answer: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    return {option["id"]: option["currentValue"] for option in answer["configOptions"]}


async def test_slash_commands_are_carried_out(client: Client, editors: Editors) -> None:
    texts: list[str] = []

    async def answer(turn: Turn) -> str:
        texts.append(turn.text)
        return f"answer {len(texts)}"

    async def command(editor: PlainEditor, text: str) -> str:
        editor.updates.clear()
        assert (await editor.prompt(session, text))["stopReason"] == "end_turn"
        return "".join(editor.said())

    async with working(client, answer), editors.open(offered=OFFERED) as editor:
        session = await editor.open()
        await editor.prompt(session, "first")
        [offer] = editor.of("available_commands_update")
        names = [it["name"] for it in offer["availableCommands"]]
        assert names == ["title", "stop", "undo", "retry", "branch", "model"]
        assert await command(editor, "/title") == "Title: first"
        assert await command(editor, "/title The weather") == "Title: The weather"
        assert [it["title"] for it in editor.of("session_info_update")] == ["The weather"]
        assert await command(editor, "/model small-1") == "The model small-1 answers."
        assert await command(editor, "/model default") == "The default model of the agent answers."
        assert await command(editor, "/retry") == "answer 2"
        assert await command(editor, "/undo") == "Taken back: first"
        assert await command(editor, "/undo") == "There is nothing to take back."
        assert await command(editor, "/retry") != ""
        assert await command(editor, "/stop") == "Nothing was running."
        assert await command(editor, "/branch Another") == "The copy is the conversation Another."
        assert await command(editor, "/unknown word") == "answer 3"
    assert texts == ["first", "first", "/unknown word"]
