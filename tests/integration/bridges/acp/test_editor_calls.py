"""Turns that use the files and the terminal of the editor."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane_client import (
    ConflictingRequestError,
    EditorCallError,
    EditorTools,
    SessionApi,
    TranscriptApi,
    Turn,
)
from chatlane_schemas import EditorError
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.people import Person
from tests.integration.client.routing import working
from tests.support.bridges.editor_machine import ABLE, EditorMachine, chosen
from tests.support.bridges.plain_editor import Editors
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

ANN = Person(platform="acp", account="editor", id="ann")


def with_tools(work: Callable[[EditorTools], Awaitable[str]]) -> Callable[[Turn], Awaitable[str]]:
    """Return a handler that answers with what it does in the editor, or with the error."""

    async def answer(turn: Turn) -> str:
        try:
            return await work(EditorTools(turn, within=timedelta(seconds=60)))
        except EditorCallError as exc:
            return f"{exc.reason}: {exc}"

    return answer


async def test_a_turn_reads_writes_and_runs_a_command_with_permission(
    client: Client, editors: Editors, tmp_path: Path
) -> None:
    main = tmp_path / "main.py"
    main.write_text("print('one')\nprint('two')\n", "utf-8")

    async def work(tools: EditorTools) -> str:
        second = await tools.read_text_file(str(main), line=2, limit=1)
        await tools.write_text_file(str(main), f"print('zero')\n{second}")
        command = await tools.run_command("python3", [str(main)], cwd=str(tmp_path))
        return f"{command.output.split()} {command.exit_code}"

    async with working(client, with_tools(work)), editors.open(**ABLE) as editor:
        editor.answer = machine = EditorMachine(editor, chosen("allow"))
        session = await editor.open(str(tmp_path))
        assert (await editor.prompt(session, "change it"))["stopReason"] == "end_turn"
        assert editor.said() == ["['zero', 'two'] 0"]
        assert main.read_text("utf-8") == "print('zero')\nprint('two')\n"
        assert machine.running == {}
        # Reading below the directory of the session needs no permission.
        write, run = (
            request["params"]["toolCall"]
            for request in editor.requests
            if request["method"] == "session/request_permission"
        )
        assert (write["title"], write["kind"]) == (f"Write {main}", "edit")
        [diff] = write["content"]
        assert (diff["oldText"], diff["newText"]) == (
            "print('one')\nprint('two')\n",
            "print('zero')\nprint('two')\n",
        )
        assert (run["title"], run["kind"]) == (f"Run python3 {main} in {tmp_path}", "execute")
        assert [call["status"] for call in editor.of("tool_call")] == ["pending"] * 3
        shown = [change.get("content") for change in editor.of("tool_call_update")]
        assert [{"type", "terminalId"}] == [{*content[0]} for content in shown if content]
    rows = await TranscriptApi(client, principal="tests").newest(UUID(session), limit=10)
    assert [row.role for row in rows] == [Role.USER, Role.ASSISTANT]


async def test_a_call_needs_the_capability_and_outside_the_directory_a_permission(
    client: Client, editors: Editors, tmp_path: Path
) -> None:
    secret, project = tmp_path / "secret", tmp_path / "project"
    secret.write_text("s3cret", "utf-8")
    project.mkdir()
    (project / "link").symlink_to(secret)

    async def work(tools: EditorTools) -> str:
        texts = [await tools.read_text_file(str(project / name)) for name in ("link", "../secret")]
        return " ".join(texts)

    async with working(client, with_tools(work)), editors.open(**ABLE) as editor:
        async with editors.open(terminal=True) as unable:
            await unable.prompt(await unable.open(str(project)), "read it")
        assert unable.said() == [
            f"{EditorError.UNSUPPORTED}: the editor has not announced fs.readTextFile"
        ]
        assert unable.requests == []
        editor.answer = machine = EditorMachine(editor, chosen("reject"))
        session = await editor.open(str(project))
        await editor.prompt(session, "read it")
        machine.permission = chosen("always")
        await editor.prompt(session, "read it then")
        methods = [request["method"] for request in editor.requests]
    assert editor.said() == [
        f"{EditorError.REFUSED}: the person did not allow it",
        "s3cret s3cret",
    ]
    assert methods == [
        "session/request_permission",
        "session/request_permission",
        "fs/read_text_file",
        "fs/read_text_file",
    ]


async def test_failures_slow_commands_and_cancellation(
    client: Client, editors: Editors, tmp_path: Path
) -> None:
    async def work(tools: EditorTools) -> str:
        with pytest.raises(EditorCallError, match="FileNotFoundError"):
            await tools.read_text_file(str(tmp_path / "missing"))
        large = tmp_path / "large"
        large.write_text("x\n" * 100_000, "utf-8")
        with pytest.raises(EditorCallError, match="read it in parts"):
            await tools.read_text_file(str(large))
        slow = await tools.run_command("sleep", ["600"], kill_after=timedelta(milliseconds=300))
        assert slow.is_timed_out
        return (await tools.run_command("sleep", ["600"])).output

    async with working(client, with_tools(work)), editors.open(**ABLE) as editor:
        editor.answer = machine = EditorMachine(editor, chosen("allow"))
        session = await editor.open(str(tmp_path))
        prompt = editor.prompt(session, "try it")
        await editor.until_asked("terminal/kill")
        await editor.until_asked("terminal/wait_for_exit", 2)
        editor.tell("session/cancel", sessionId=session)
        assert await prompt == {"stopReason": "cancelled"}
        await eventually(lambda: not machine.running)
        assert editor.said() == []


async def test_no_other_front_end_sees_or_answers_a_call(
    client: Client, editors: Editors, tmp_path: Path
) -> None:
    phone = SessionApi(client, principal="editor", acting_for=ANN)

    async def work(tools: EditorTools) -> str:
        await tools.write_text_file(str(tmp_path / "new"), "text")
        return "written"

    async with working(client, with_tools(work)), editors.open(**ABLE) as editor:
        editor.answer = EditorMachine(editor)
        session = await editor.open("/")
        prompt = editor.prompt(session, "write it")
        request = await editor.until_asked("session/request_permission")
        assert await phone.question(UUID(session)) is None
        # Words are no result: they wait for the end of the turn.
        await phone.submit(UUID(session), "yes")
        editor.reply(request, chosen("allow"))
        assert (await prompt)["stopReason"] == "end_turn"
        await eventually((tmp_path / "new").exists)
        with pytest.raises(ConflictingRequestError):
            await phone.reply(UUID(session), UUID(int=1), "{}")
    assert "written" in editor.said()
