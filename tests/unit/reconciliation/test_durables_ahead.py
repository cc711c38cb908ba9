"""When a durable passes over what its stream holds; the answers are those of nats-server 2.15.1."""

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from chatlane.domain.catalog import Agent
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane_schemas.topology.streams import StreamName, declared_durables

if TYPE_CHECKING:
    from nats.aio.client import Client

DURABLES = declared_durables([Agent("main")], [("telegram", "bot")], slots=1)
[DURABLE] = [durable for durable in DURABLES if durable.stream is StreamName.OUTBOUND]
NOW = "2026-03-12T12:00:00Z"


@dataclass
class Answer:
    data: bytes


@dataclass
class Server:
    """Answers as a server with one durable."""

    pending: int
    delivered: int
    last: int
    is_connected: bool = True

    async def request(self, subject: str, _body: bytes, **_options: Any) -> Answer:  # noqa: ANN401
        if "CONSUMER.INFO" in subject:
            return Answer(
                json.dumps(
                    {"num_pending": self.pending, "delivered": {"stream_seq": self.delivered}}
                ).encode()
            )
        state = {"first_seq": 1, "last_seq": self.last, "last_ts": NOW}
        return Answer(json.dumps({"config": {}, "created": NOW, "state": state}).encode())


@pytest.mark.parametrize(
    ("pending", "delivered", "last", "expected"),
    [
        pytest.param(0, 58, 0, False, id="nothing was stored since"),
        pytest.param(58, 58, 24, True, id="the stream is not as long as before"),
        pytest.param(11, 24, 24, True, id="later messages were delivered"),
        pytest.param(3, 21, 24, False, id="readers are behind"),
        pytest.param(0, 24, 24, False, id="all is read"),
    ],
)
def test_a_durable_past_the_end_of_its_stream_is_ahead(
    pending: int, delivered: int, last: int, *, expected: bool
) -> None:
    server = cast("Client", Server(pending, delivered, last))
    assert asyncio.run(StreamContents(server).is_ahead(DURABLE)) == expected
