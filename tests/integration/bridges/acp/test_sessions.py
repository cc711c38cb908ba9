"""Sessions of editors: opened, listed, loaded, copied, closed and deleted."""

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane_bridges.acp import agent, service_link
from chatlane_client import Reply, SessionApi, TranscriptApi, Turn
from chatlane_schemas import TranscriptRow
from chatlane_schemas.results import Reasoning, Role
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.transcripts import AppendedRow
from tests.integration.client.routing import working
from tests.support.bridges.plain_editor import Editors, PlainEditor, RpcError

if TYPE_CHECKING:
    from pydantic import JsonValue

pytestmark = pytest.mark.integration

ANN = Person(platform="acp", account="editor", id="ann")
CWD = "/srv/project"


async def echo(turn: Turn) -> str:
    return f"heard {turn.text}"


async def lookup(turn: Turn) -> Reply:
    call: dict[str, JsonValue] = {
        "id": "call-1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
    }
    rows = (
        TranscriptRow(
            role=Role.ASSISTANT,
            content="I look it up.",
            tool_calls=[call],
            reasoning=Reasoning(text="Oslo is meant."),
        ),
        TranscriptRow(role=Role.TOOL, content="4 °C", tool_call_id="call-1", tool_name="weather"),
        TranscriptRow(role=Role.ASSISTANT, content=f"It is 4 °C: {turn.text}"),
    )
    return Reply(parts=["I look it up.", f"It is 4 °C: {turn.text}"], transcript=rows)


def sessions_of(client: Client) -> SessionApi:
    return SessionApi(client, principal="editor", acting_for=ANN)


async def prompted(editor: PlainEditor, text: str, cwd: str = CWD) -> str:
    """Return a new session in which a prompt has its answer."""
    session = await editor.open(cwd)
    assert await editor.prompt(session, text) == {"stopReason": "end_turn"}
    return session


async def test_an_editor_learns_what_works(editors: Editors) -> None:
    async with editors.open() as editor:
        told = await editor.initialize()
        old = await editor.ask("initialize", protocolVersion=0, clientCapabilities={})
    able = told["agentCapabilities"]
    assert (told["protocolVersion"], old["protocolVersion"]) == (1, 0)
    assert able["loadSession"] is True
    assert able["promptCapabilities"] == {"image": False, "audio": False, "embeddedContext": True}
    assert able["mcpCapabilities"] == {"http": False, "sse": False}
    assert able["sessionCapabilities"].keys() == {
        "list",
        "delete",
        "additionalDirectories",
        "fork",
        "resume",
        "close",
    }


async def test_a_session_is_loaded_as_another_bridge_left_it(
    client: Client, editors: Editors
) -> None:
    async with working(client, lookup):
        async with editors.open() as editor:
            session = await prompted(editor, "weather?")
            assert editor.kinds() == [
                "available_commands_update",
                "session_info_update",
                "agent_thought_chunk",
                "agent_message_chunk",
                "tool_call",
                "tool_call_update",
                "agent_message_chunk",
            ]
            [live] = editor.of("tool_call")
        async with editors.open() as editor:
            await editor.ask("session/load", sessionId=session, cwd=CWD, mcpServers=[])
            assert editor.kinds()[:6] == [
                "user_message_chunk",
                "agent_thought_chunk",
                "agent_message_chunk",
                "tool_call",
                "tool_call_update",
                "agent_message_chunk",
            ]
            [replayed] = editor.of("tool_call")
            [result] = editor.of("tool_call_update")
            assert replayed["toolCallId"] == live["toolCallId"] == result["toolCallId"]
            assert replayed["title"] == "weather"
            assert replayed["rawInput"] == '{"city": "Oslo"}'
            assert result["content"][0]["content"]["text"] == "4 °C"
            assert editor.said("user_message_chunk") == ["weather?"]
            assert editor.said("agent_thought_chunk") == ["Oslo is meant."]
            assert editor.said() == ["I look it up.", "It is 4 °C: weather?"]
            assert (await editor.prompt(session, "and now?"))["stopReason"] == "end_turn"
            assert editor.said()[2:] == ["I look it up.", "It is 4 °C: and now?"]
            editor.updates.clear()
            await editor.ask("session/resume", sessionId=session, cwd="/srv/moved", mcpServers=[])
            await editor.prompt(session, "still there?")
            assert editor.said() == ["I look it up.", "It is 4 °C: still there?"]
    assert (await sessions_of(client).get(UUID(session))).cwd == "/srv/moved"


async def test_sessions_are_listed_by_directory_and_page(
    client: Client, editors: Editors, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(client, echo), editors.open() as editor:
        await editor.open(CWD)
        first = await prompted(editor, "one")
        second = await prompted(editor, "two", "/srv/other")
        third = await prompted(editor, "three")
        listed = (await editor.ask("session/list"))["sessions"]
        assert [it["sessionId"] for it in listed] == [third, second, first]
        assert [(it["title"], it["cwd"]) for it in listed] == [
            ("three", CWD),
            ("two", "/srv/other"),
            ("one", CWD),
        ]
        assert all(it["updatedAt"] for it in listed)
        of_one = (await editor.ask("session/list", cwd=CWD))["sessions"]
        assert [it["sessionId"] for it in of_one] == [third, first]
        monkeypatch.setattr(agent, "_PAGE", 1)
        monkeypatch.setattr(service_link, "_LISTED_AT_ONCE", 1)
        page = await editor.ask("session/list", cwd=CWD)
        assert [it["sessionId"] for it in page["sessions"]] == [third]
        page = await editor.ask("session/list", cwd=CWD, cursor=page["nextCursor"])
        assert [it["sessionId"] for it in page["sessions"]] == [first]
        while "nextCursor" in page:
            page = await editor.ask("session/list", cwd=CWD, cursor=page["nextCursor"])
            assert page["sessions"] == []
        with pytest.raises(RpcError) as refused:
            await editor.ask("session/list", cursor="not a cursor")
        assert refused.value.code == -32602
    async with editors.open(person="ben") as stranger:
        assert (await stranger.ask("session/list"))["sessions"] == []
        for method in ("load", "resume", "fork"):
            with pytest.raises(RpcError) as refused:
                await stranger.ask(f"session/{method}", sessionId=first, cwd=CWD, mcpServers=[])
            assert refused.value.code == -32002
        for method in ("close", "delete"):
            with pytest.raises(RpcError) as refused:
                await stranger.ask(f"session/{method}", sessionId=first)
            assert refused.value.code == -32002
        with pytest.raises(RpcError) as refused:
            await stranger.prompt(first, "hello")
        assert refused.value.code == -32002


async def test_a_copy_goes_on_by_itself(client: Client, editors: Editors) -> None:
    async with working(client, echo), editors.open() as editor:
        session = await prompted(editor, "one")
        forked = await editor.ask("session/fork", sessionId=session, cwd="/srv/copy", mcpServers=[])
        copy = forked["sessionId"]
        assert copy != session
        assert (await editor.prompt(copy, "two"))["stopReason"] == "end_turn"
        assert (await editor.prompt(session, "three"))["stopReason"] == "end_turn"
        editor.updates.clear()
        await editor.ask("session/load", sessionId=copy, cwd="/srv/copy", mcpServers=[])
        assert editor.said("user_message_chunk") == ["one", "two"]
        assert editor.said() == ["heard one", "heard two"]
    assert (await sessions_of(client).get(UUID(copy))).cwd == "/srv/copy"


async def test_a_compacted_conversation_keeps_its_id(client: Client, editors: Editors) -> None:
    transcripts = TranscriptApi(client, principal="editor", acting_for=ANN)
    async with working(client, echo), editors.open() as editor:
        session = await prompted(editor, "one")
        await editor.prompt(session, "two")
        rows = await transcripts.newest(UUID(session))
        changed = await transcripts.compact(
            UUID(session),
            [AppendedRow(role=Role.SYSTEM, content="They said one and two.")],
            through_seq=rows[-1].seq,
            expected_version=await transcripts.version(UUID(session)),
            in_child=True,
        )
        assert changed.session_id != UUID(session)
        assert (await editor.prompt(session, "three"))["stopReason"] == "end_turn"
        assert editor.said() == ["heard one", "heard two", "heard three"]
        [listed] = (await editor.ask("session/list"))["sessions"]
        assert listed["sessionId"] == str(changed.session_id)
        for known in (session, listed["sessionId"]):
            editor.updates.clear()
            await editor.ask("session/load", sessionId=known, cwd=CWD, mcpServers=[])
            assert editor.said() == ["heard one", "heard two", "heard three"]


async def test_a_closed_session_stays_and_a_deleted_one_is_gone(
    client: Client, editors: Editors
) -> None:
    async with working(client, echo), editors.open() as editor:
        session = await prompted(editor, "one")
        assert await editor.ask("session/close", sessionId=session) == {}
        editor.updates.clear()
        await editor.ask("session/load", sessionId=session, cwd=CWD, mcpServers=[])
        assert editor.said() == ["heard one"]
        assert await editor.ask("session/delete", sessionId=session) == {}
        assert (await editor.ask("session/list"))["sessions"] == []
        with pytest.raises(RpcError) as refused:
            await editor.ask("session/load", sessionId=session, cwd=CWD, mcpServers=[])
    assert refused.value.code == -32002


async def test_an_ended_session_is_opened_again(client: Client, editors: Editors) -> None:
    async with working(client, echo), editors.open() as editor:
        session = await prompted(editor, "one")
        await sessions_of(client).end(UUID(session))
        await editor.ask("session/resume", sessionId=session, cwd=CWD, mcpServers=[])
        assert (await editor.prompt(session, "two"))["stopReason"] == "end_turn"
    assert editor.said() == ["heard one", "heard two"]


async def test_servers_of_an_editor_are_never_stored(
    client: Client, editors: Editors, caplog: pytest.LogCaptureFixture
) -> None:
    server = {
        "name": "files",
        "command": "/bin/files",
        "args": [],
        "env": [{"name": "TOKEN", "value": "hunter2"}],
    }
    async with editors.open() as editor:
        opened = await editor.ask(
            "session/new",
            cwd=CWD,
            mcpServers=[server],
            additionalDirectories=["/srv/library"],
        )
    session = await sessions_of(client).get(UUID(opened["sessionId"]))
    assert session.config == {"additional_directories": ["/srv/library"]}
    assert "hunter2" not in session.model_dump_json() + caplog.text


REFUSED: Final[list[tuple[str, dict[str, Any]]]] = [
    ("session/new", {"cwd": "relative", "mcpServers": []}),
    ("session/new", {"cwd": CWD, "additionalDirectories": ["."], "mcpServers": []}),
    ("session/new", {"cwd": f"/{'a' * 5000}", "mcpServers": []}),
    ("session/new", {}),
    ("session/set_mode", {"modeId": "unknown"}),
    ("session/set_config_option", {"configId": "a", "value": "b"}),
    ("session/prompt", {"prompt": []}),
    ("session/prompt", {"prompt": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}),
    ("authenticate", {"methodId": "unknown"}),
]


async def test_what_cannot_be_done_is_refused(client: Client, editors: Editors) -> None:
    del client
    async with editors.open() as editor:
        session = await editor.open()
        for method, params in REFUSED:
            with pytest.raises(RpcError) as refused:
                await editor.ask(method, **{"sessionId": session, **params})
            assert refused.value.code == -32602, method
        with pytest.raises(RpcError) as refused:
            await editor.ask("providers/list")
        assert refused.value.code == -32601
        assert await editor.ask("authenticate", methodId="nats") == {}
