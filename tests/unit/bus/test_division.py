"""A log of several servers counts as divided anew only once they have come to rest."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chatlane.bus import division
from chatlane.bus.division import until_settled
from chatlane.bus.jetstream import StreamState
from chatlane.errors import BusUnavailableError

NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)
BRIEFLY = timedelta(milliseconds=1)
CALM = {"leader": "a", "replicas": [{"name": "b", "current": True}, {"name": "c", "current": True}]}
LAGGING = {"leader": "a", "replicas": [{"name": "b", "current": True}, {"name": "c"}]}
AWAY = {"leader": "a", "replicas": [{"name": "b", "current": True, "offline": True}]}


class Servers:
    """Says of a cluster what it is told to, the last thing again and again."""

    def __init__(self, *clusters: dict[str, Any], replicas: int = 3) -> None:
        self.asked = 0
        self._clusters = clusters
        self._replicas = replicas

    async def request(self, verb: str, _body: object = None) -> dict[str, Any]:
        assert verb == "STREAM.INFO.INBOUND"
        cluster = self._clusters[min(self.asked, len(self._clusters) - 1)]
        self.asked += 1
        return {"config": {"num_replicas": self._replicas}, "cluster": cluster}

    async def get_stream(self, _stream: str) -> StreamState:
        return StreamState({}, "", 1, 100 + self.asked, NOON)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "_PAUSE", BRIEFLY)


async def test_a_single_server_needs_no_rest() -> None:
    servers = Servers({}, replicas=1)
    assert (await until_settled(servers, "inbound")).last_sequence == 101


@pytest.mark.parametrize(
    "restless",
    [[LAGGING], [AWAY], [{**CALM, "leader": "b"}], [{**CALM, "leader": ""}, CALM, LAGGING]],
    ids=["lagging", "away", "other leader", "no leader"],
)
async def test_whatever_moves_begins_the_rest_anew(restless: list[dict[str, Any]]) -> None:
    servers = Servers(*restless, CALM)
    found = await until_settled(servers, "inbound", BRIEFLY)
    # At least once to see that it is calm, and once more that it has stayed so.
    assert servers.asked >= len(restless) + 2
    assert found.last_sequence == 100 + servers.asked


async def test_servers_that_never_rest_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "_PATIENCE", 5 * BRIEFLY)
    with pytest.raises(BusUnavailableError, match="replicas of INBOUND are not in step"):
        await until_settled(Servers(LAGGING), "inbound", BRIEFLY)
