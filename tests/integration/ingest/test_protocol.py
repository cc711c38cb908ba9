"""The rules of tests/unit/ingest/test_protocol.py on a real NATS and a real Postgres."""

import os
from typing import Final

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.servers.backends import RunningPostgres, RunningServer
from tests.support.worlds.protocol_machine import ProtocolMachine, RealWorld

pytestmark = pytest.mark.integration

# The same ones every time, and not shrunk: each example costs seconds. Who asks for more gets
# others, and longer ones.
_MORE: Final = os.environ.get("CHATLANE_TEST_EXAMPLES")
EXAMPLES: Final = settings(
    max_examples=int(_MORE or 8),
    stateful_step_count=30 if _MORE else 20,
    deadline=None,
    derandomize=_MORE is None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


@pytest.mark.slow
@pytest.mark.timeout(0 if _MORE else 300)
def test_nothing_is_lost_doubled_or_out_of_order(
    shared_nats: RunningServer, postgres_server: RunningPostgres, template_database: str
) -> None:
    def world() -> RealWorld:
        url, dsn = postgres_server.url, postgres_server.dsn
        return RealWorld(shared_nats.url, url, dsn, template_database)

    class OnServers(ProtocolMachine):
        def __init__(self) -> None:
            super().__init__(world)

    run_state_machine_as_test(OnServers, settings=EXAMPLES)
