"""A client whose server stores nothing any more goes to another one, and only then."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from chatlane_client.transport import connection

if TYPE_CHECKING:
    from nats.aio.client import Client


@dataclass(eq=False)
class Connected:
    """What is asked of a client here."""

    servers: list[str] = field(default_factory=lambda: ["one", "two"])
    moves: int = 0

    async def force_reconnect(self) -> None:
        self.moves += 1


async def noted(its: Connected, *what: str) -> int:
    client = cast("Client", its)
    for one in what:
        if one == "answer":
            connection.note_answer(client)
        else:
            await connection.note_silence(client)
    return its.moves


async def test_silence_for_long_enough_moves_a_client_once(monkeypatch: pytest.MonkeyPatch) -> None:
    its = Connected()
    assert await noted(its, "silence") == 0
    monkeypatch.setattr(connection, "_MOVES_AFTER", timedelta(0))
    assert await noted(its, "silence") == 1


async def test_a_short_silence_is_an_election() -> None:
    assert await noted(Connected(), "silence", "silence", "silence") == 0


async def test_an_answer_ends_the_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    its = Connected()
    await noted(its, "silence", "answer")
    assert cast("Client", its) not in connection._silent_since
    monkeypatch.setattr(connection, "_MOVES_AFTER", timedelta(0))
    assert await noted(its, "silence") == 1


async def test_the_only_server_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_MOVES_AFTER", timedelta(0))
    assert await noted(Connected(["one"]), "silence", "silence") == 0
