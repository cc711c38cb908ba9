"""Bridges with the rights that they have in production, and without any."""

from pathlib import Path
from typing import Any

import pytest

from chatlane_bridges.acp.settings import EditorSettings
from chatlane_client import Turn, open_connection
from chatlane_servers.embedded import open_nats
from tests.integration.bridges.acp.test_dialogs import LONG
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import PRINCIPAL, working
from tests.support.bridges.plain_editor import Editors, RpcError
from tests.support.servers.nats_users import with_keys

pytestmark = pytest.mark.integration

USERS: dict[str, dict[str, object]] = {
    PRINCIPAL: {"role": "worker", "agent": "main"},
    "ann-editor": {"role": "front_end", "accounts": ["acp/ann-editor"]},
    "ben-editor": {"role": "front_end", "accounts": ["acp/ben-editor"]},
}


async def answer(turn: Turn) -> str:
    await turn.delta("You said ")
    chosen = await turn.ask("Which city?", ["Oslo", "Bergen"], within=LONG)
    return f"You said {turn.text} {chosen.value}"


async def test_the_rights_of_a_front_end_suffice_and_reach_no_one_else(
    tmp_path: Path, database_url: str
) -> None:
    keys, config = with_keys(tmp_path / "keys", USERS)
    async with (
        open_nats(tmp_path / "nats", extra_config=config) as server,
        real_router(tmp_path, server.url, database_url),
        open_connection(
            server.url,
            name=PRINCIPAL,
            principal=PRINCIPAL,
            nkey_seed_file=str(keys.seed_file(PRINCIPAL)),
        ) as worker,
        working(worker, answer),
    ):
        editors = Editors(server.url, tmp_path / "bridge.log")

        def settings(user: str, key: str) -> EditorSettings:
            seed = keys.seed_file(key)
            return EditorSettings(
                nats_url=server.url, principal=user, nkey_seed_file=seed, person="ann"
            )

        async with editors.open(settings("ann-editor", "ann-editor")) as editor:
            editor.answer = lambda _: {"outcome": {"outcome": "selected", "optionId": "Oslo"}}
            session = await editor.open()
            assert (await editor.prompt(session, "hello"))["stopReason"] == "end_turn"
            assert editor.said() == ["You said hello Oslo"]
            assert len((await editor.ask("session/list"))["sessions"]) == 1
        # The same name of a person at another account is another person.
        async with editors.open(settings("ben-editor", "ben-editor")) as editor:
            assert (await editor.ask("session/list"))["sessions"] == []
            with pytest.raises(RpcError) as refused:
                await editor.ask("session/load", sessionId=session, cwd="/srv", mcpServers=[])
            assert refused.value.code == -32002


async def test_a_refused_key_asks_for_authentication(tmp_path: Path) -> None:
    _, config = with_keys(tmp_path / "keys", USERS)
    strangers, _ = with_keys(tmp_path / "others", {"ann-editor": USERS["ann-editor"]})
    async with open_nats(tmp_path / "nats", extra_config=config) as server:
        settings = EditorSettings(
            nats_url=server.url,
            principal="ann-editor",
            nkey_seed_file=strangers.seed_file("ann-editor"),
        )
        async with Editors(server.url, tmp_path / "bridge.log").open(settings) as editor:
            requests: list[tuple[str, dict[str, Any]]] = [
                ("authenticate", {"methodId": "nats"}),
                ("session/new", {"cwd": "/srv", "mcpServers": []}),
            ]
            for method, params in requests:
                with pytest.raises(RpcError) as refused:
                    await editor.ask(method, **params)
                assert refused.value.code == -32000
