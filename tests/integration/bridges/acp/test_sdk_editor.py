"""The client of the SDK against a bridge that runs as editors start it."""

from pathlib import Path
from typing import Any, cast

import acp
import pytest
from acp import schema
from nats.aio.client import Client

from chatlane_client import Turn
from chatlane_schemas import Button, QuestionKind
from tests.integration.bridges.acp.test_dialogs import LONG
from tests.integration.client.routing import working
from tests.support.bridges.plain_editor import Editors

pytestmark = pytest.mark.integration

OPTIONS = """
[[models]]
id = "small-1"

[[modes]]
id = "ask"

[[modes]]
id = "code"
"""


class SdkEditor:
    """Allows everything, and remembers what it is shown."""

    def __init__(self) -> None:
        self.updates: list[Any] = []

    async def session_update(self, session_id: str, update: Any, **_: object) -> None:  # noqa: ANN401 - any update
        del session_id
        self.updates.append(update)

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: object,
    ) -> schema.RequestPermissionResponse:
        del session_id, tool_call
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    def said(self, kind: type[Any]) -> str:
        return "".join(it.content.text for it in self.updates if isinstance(it, kind))


async def answer(turn: Turn) -> str:
    await turn.delta("You said ")
    options = (Button(label="Allow", value="a"), Button(label="Deny", value="d"))
    allowed = await turn.ask("May I?", options, within=LONG, kind=QuestionKind.PERMISSION)
    return f"You said {turn.text} {allowed.value}"


async def test_the_client_of_the_sdk_uses_every_method(
    client: Client, editors: Editors, tmp_path: Path
) -> None:
    options_file = tmp_path / "options.toml"
    options_file.write_text(OPTIONS, "utf-8")
    editor = SdkEditor()
    bridge = await editors.start("--options", str(options_file))
    process = bridge.process
    bridge.editor.stop_reading()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with working(client, answer):
            # It needs no more than the methods that the bridge calls.
            agent = acp.connect_to_agent(
                cast("acp.Client", editor),
                process.stdin,
                process.stdout,
                use_unstable_protocol=True,
            )
            await agent.initialize(acp.PROTOCOL_VERSION)
            await agent.authenticate("nats")
            opened = await agent.new_session("/srv", mcp_servers=[])
            session = opened.session_id
            await agent.set_session_mode(session_id=session, mode_id="code")
            changed = await agent.set_config_option(
                session_id=session, config_id="model", value="small-1"
            )
            assert changed is not None
            assert changed.config_options[0].current_value == "small-1"
            ended = await agent.prompt(session, [acp.text_block("hello")])
            assert ended.stop_reason == "end_turn"
            assert editor.said(schema.AgentMessageChunk) == "You said hello a"
            editor.updates.clear()
            loaded = await agent.load_session(cwd="/srv", session_id=session, mcp_servers=[])
            assert loaded.modes is not None
            assert loaded.modes.current_mode_id == "code"
            assert editor.said(schema.UserMessageChunk).startswith("hello")
            listed = await agent.list_sessions(cwd="/srv")
            assert [it.session_id for it in listed.sessions] == [session]
            copy = await agent.fork_session(session_id=session, cwd="/srv", mcp_servers=[])
            assert copy.session_id != session
            await agent.resume_session(session_id=copy.session_id, cwd="/srv", mcp_servers=[])
            await agent.cancel(session_id=session)
            await agent.close_session(session_id=copy.session_id)
            await agent.close()
    finally:
        await bridge.kill()
