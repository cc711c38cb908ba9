"""An adapter keeps how far it has read its platform; the next process goes on there."""

from datetime import timedelta

import pytest
from nats.aio.client import Client
from pydantic import ValidationError

from chatlane_client import AdapterClient, open_connection
from chatlane_client.errors import UnansweredRequestError, UnconfirmedPublishError
from chatlane_schemas.topology.streams import MAX_CURSOR_BYTES, StreamName
from chatlane_schemas.topology.subjects import SubjectError
from tests.integration.client.routing import ACCOUNT, PLATFORM
from tests.support.servers.backends import RunningServer

pytestmark = pytest.mark.integration

SHORTLY = timedelta(seconds=2)


@pytest.fixture
def adapter(client: Client) -> AdapterClient:
    return AdapterClient(client, platform=PLATFORM, account=ACCOUNT)


async def test_the_newest_value_of_each_name_is_kept(
    adapter: AdapterClient, client: Client
) -> None:
    assert await adapter.load_cursor("offset") is None
    for value in ("1", "2", "3"):
        await adapter.save_cursor("offset", value)
    await adapter.save_cursor("since", "s7_ü")
    later = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    assert (await later.load_cursor("offset"), await later.load_cursor("since")) == ("3", "s7_ü")
    other = AdapterClient(client, platform=PLATFORM, account="other")
    assert await other.load_cursor("offset") is None


async def test_a_cursor_survives_a_killed_server(mortal_bus: RunningServer) -> None:
    async with open_connection(mortal_bus.url, name="test") as client:
        adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
        await adapter.save_cursor("offset", "17")
        await mortal_bus.kill()
        await mortal_bus.start()
        assert await adapter.load_cursor("offset") == "17"


async def test_names_and_sizes_are_limited(adapter: AdapterClient) -> None:
    with pytest.raises(SubjectError):
        await adapter.save_cursor("a.b", "1")
    with pytest.raises(ValidationError):
        await adapter.save_cursor("offset", "x" * 30_001)
    longest = "\U0001f600" * 30_000
    assert len(longest.encode()) < MAX_CURSOR_BYTES
    await adapter.save_cursor("offset", longest)
    assert longest == await adapter.load_cursor("offset")


async def test_a_cursor_that_cannot_be_read_is_an_error(
    adapter: AdapterClient, client: Client
) -> None:
    await client.jetstream().delete_stream(StreamName.CURSORS)
    with pytest.raises(UnansweredRequestError):
        await adapter.load_cursor("offset", give_up_after=SHORTLY)
    with pytest.raises(UnconfirmedPublishError):
        await adapter.save_cursor("offset", "1", give_up_after=SHORTLY)
