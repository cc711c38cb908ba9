"""Whoever asks a router is told which account was held to its share, and that the service is well."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

import pytest

from chatlane.domain.limits.shares import SharedStream
from chatlane.ingest.share_notices import ShareNotices
from chatlane.nats.connection import Bus, BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.nats.topology import apply
from chatlane.postgres.pool import Store, open_store
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.store import dead_letter_shares
from chatlane.store.dead_letter_shares import ShareRow
from chatlane.store.logs import log_trims
from chatlane.store.logs.log_trims import Trim
from tests.support.servers.log_streams import log_specs
from tests.support.worlds.kernel import at

pytestmark = pytest.mark.integration

OWNERS: Final[dict[SharedStream, frozenset[str]]] = {
    "inbound": frozenset({"telegram/main"}),
    "results": frozenset({"desk"}),
}


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        yield opened


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    async with open_bus(BusOptions(url=nats_url)) as opened:
        await apply(JetStream(opened.client), log_specs(), [])
        yield opened


def notices_of(store: Store, bus: Bus, found: dict[str, int] | None = None) -> ShareNotices:
    return ShareNotices(store.transaction, StreamContents(bus.client), lambda: found or {}, OWNERS)


async def test_nothing_is_said_while_all_keep_to_their_share(store: Store, bus: Bus) -> None:
    its = notices_of(store, bus)
    await its.look()
    assert not its.notices


async def test_who_was_trimmed_is_named_for_an_hour(store: Store, bus: Bus) -> None:
    async with store.transaction() as connection:
        for owner in ("telegram/main", "telegram/gone"):
            await log_trims.note(connection, Trim("inbound", "g", owner, 1, 9))
        await log_trims.note(connection, Trim("results", "g", "desk", 1, 9))
    its = notices_of(store, bus)
    await its.look()
    assert list(its.notices) == [
        "log_trimmed inbound telegram/main",
        "log_trimmed inbound undeclared",
        "log_trimmed results desk",
    ]
    async with store.transaction() as connection:
        await connection.execute(
            "UPDATE log_trims SET trimmed_at = trimmed_at - $1::interval", timedelta(hours=2)
        )
    await its.look()
    assert not its.notices


async def test_whose_dead_letters_were_not_kept_is_named(store: Store, bus: Bus) -> None:
    kept = ShareRow("inbound", "telegram/main", at("09:00"), "not_json", 5, 50, 0, 0, None, None)
    async with store.transaction() as connection:
        now = await connection.fetchval("SELECT date_trunc('hour', clock_timestamp())")
        await dead_letter_shares.add(connection, [kept._replace(hour=now)])
    its = notices_of(store, bus)
    await its.look()
    assert not its.notices, "all were kept"
    async with store.transaction() as connection:
        await dead_letter_shares.add(
            connection, [kept._replace(hour=now, dropped=1, first_dropped=7, last_dropped=7)]
        )
    await its.look()
    assert list(its.notices) == ["dead_letters_dropped inbound telegram/main"]


async def test_the_account_of_messages_in_no_partition_is_named(store: Store, bus: Bus) -> None:
    for account in ("main", "made-up"):
        await bus.client.jetstream().publish(f"chat.v1.inbound.telegram.{account}.*", b"{}")
    its = notices_of(store, bus, {"unpartitioned": 2})
    await its.look()
    assert its.notices == (
        "unpartitioned inbound telegram/main",
        "unpartitioned inbound undeclared",
    )
