"""Encrypted rooms: read and written by the device of the account, also after a kill."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from aiohttp import ClientSession

from tests.support.eventually import eventually
from tests.support.platforms.encrypted_person import open_encrypted_person

if TYPE_CHECKING:
    from tests.integration.adapters.matrix.conftest import World

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

_PIXEL: Final = bytes.fromhex("89504e470d0a1a0a")


async def test_an_encrypted_conversation_survives_a_kill_of_the_adapter(
    world: "World", tmp_path: Path
) -> None:
    bot = world.bot.user_id
    async with open_encrypted_person(world.homeserver, "carol", tmp_path) as carol:
        room = await carol.open_room(bot)
        await eventually(lambda: carol.knows(room, bot))
        await carol.say(room, "a secret")
        await eventually(lambda: carol.texts(bot) == ["heard a secret"])
        await world.stage.adapter.kill()
        await carol.say(room, "another secret")
        await carol.send_file(room, _PIXEL, "cat.png")
        world.stage.adapter.start()
        await eventually(lambda: "cat.png" in " ".join(carol.texts(bot)))
        words = " ".join(carol.texts(bot)).replace("heard ", "")
        assert words == "a secret another secret cat.png"
        [file] = [it for turn in world.agent.turns[-2:] for it in turn.messages[-1].attachments]
        async with ClientSession() as http, http.get(file.url or "") as kept:
            assert await kept.read() == _PIXEL, "the agent reads it decrypted"
        async with world.serving_file(_PIXEL):
            await carol.say(room, "show")
            await eventually(lambda: carol.texts(bot)[-1:] == ["red.png"])
        assert carol.unreadable == []
        assert "file" in carol.read[-1][1], "the file is encrypted, too"
        kinds = {event["type"] for event in await world.account.events(room)}
        assert "m.room.encrypted" in kinds
        assert "m.room.message" not in kinds, "the homeserver has no text"
