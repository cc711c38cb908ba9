"""The adapters of the platforms with the rights of a secured installation, and nothing refused."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from chatlane_client import Answer, Turn
from chatlane_devkit.conform.command_run import SCENES
from chatlane_devkit.conform.scenes.scene import Ability, Scene
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import open_nats
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import ACCOUNT, open_adapter_stage
from tests.support.servers.nats_users import with_keys

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

PATIENCE: Final = timedelta(seconds=90)
PREFIX: Final = "CHATLANE_ADAPTER_"


async def answer(turn: Turn) -> Answer:
    await turn.delta("heard ")
    return f"heard {turn.text}"


def is_answered(scene: Scene, chat: Any, text: str) -> bool:  # noqa: ANN401 - of a scene
    return f"heard {text}" in "\n".join(scene.shown(chat))


@pytest.mark.parametrize("platform", sorted(SCENES.keys() - {"scripted"}))
async def test_an_adapter_does_all_with_the_rights_of_its_account(
    platform: str, database_url: str, tmp_path: Path
) -> None:
    users: dict[str, dict[str, object]] = {
        "router": {"role": "router"},
        "main-worker": {"role": "worker", "agent": "main"},
        "adapter": {"role": "adapter", "account": f"{platform}/{ACCOUNT}"},
    }
    keys, config = with_keys(tmp_path / "keys", users)
    with server_directory() as directory:
        async with (
            SCENES[platform]() as scene,
            open_nats(directory / "nats", extra_config=config) as nats,
        ):
            its = scene.variables(nats.url, ACCOUNT).items()
            async with open_adapter_stage(
                tmp_path,
                nats.url,
                database_url,
                platform=platform,
                variables={name.removeprefix(PREFIX).lower(): value for name, value in its},
                answer=answer,
                settings=scene.settings,
                keys=keys,
            ) as stage:
                await eventually(lambda: scene.has_adapter, PATIENCE)
                chat = await scene.new_chat()
                message = await scene.write(chat, "hello")
                await eventually(partial(is_answered, scene, chat, "hello"), PATIENCE)
                if Ability.REACTIONS not in scene.lacks:
                    await scene.react(chat, message)
                # Another process of the account takes over with what the first one has stored.
                second = stage.another_adapter("second-adapter", **scene.variables_of_second())
                second.start()
                try:
                    await second.until_logged("adapter_started")
                    await stage.adapter.kill()
                    await scene.write(chat, "again")
                    await eventually(partial(is_answered, scene, chat, "again"), PATIENCE)
                finally:
                    await second.stop()
            log = nats.log_path.read_text("utf-8")
            assert [line for line in log.splitlines() if "iolation" in line] == []
