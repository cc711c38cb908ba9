"""A failing publish is one line with subject and error, until a publish succeeds."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from chatlane_client.transport.retry import Backoff
from chatlane_client.transport.wire import publish_stored
from chatlane_schemas import Chat, InboundEvent
from chatlane_schemas.topology.subjects import inbound_for

AT = datetime(2026, 5, 11, 9, tzinfo=UTC)
EVENT = InboundEvent(
    id="e1", at=AT, platform="telegram", account="bot", chat=Chat(id="7", kind="dm"), text="secret"
)


class Connection:
    """A connection whose stream does not answer some requests."""

    is_connected = True
    max_payload = 1 << 20
    servers = ("nats://a",)

    def __init__(self, *outcomes: str) -> None:
        self._outcomes = list(outcomes)

    async def request(self, *_: object, **__: object) -> SimpleNamespace:
        if self._outcomes.pop(0) == "fail":
            raise TimeoutError
        return SimpleNamespace(data=json.dumps({"seq": 1}).encode())


async def publish(client: Any) -> None:  # noqa: ANN401 - stands in for a Client
    await publish_stored(client, inbound_for(EVENT), EVENT, backoff=Backoff(AT - AT, AT - AT))


async def test_a_failure_is_one_line_until_a_publish_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = Connection("fail", "fail", "fail", "ok", "fail", "ok")
    await publish(connection)
    (line,) = caplog.messages
    assert line.startswith("publish_unconfirmed: chat.v1.inbound.telegram.bot.")
    assert line.endswith("TimeoutError; trying again")
    assert "secret" not in line
    await publish(connection)
    assert len(caplog.messages) == 2
