"""Reply subjects of deliveries are read exactly, in both forms."""

from datetime import UTC, datetime, timedelta

import pytest

from chatlane.nats.jetstream import Delivery, nanoseconds, parse_delivery
from chatlane.nats.topology import find_partition_count

STORED_AT = datetime(2026, 11, 27, 23, 27, 1, 123456, tzinfo=UTC)
# A double of these nanoseconds is off by 100 ns, which is enough to change the microsecond.
NANOSECONDS = (STORED_AT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    "reply",
    [
        f"$JS.ACK.INBOUND.inbound-1-2-3.1.42.7.{NANOSECONDS + 999}.0",
        f"$JS.ACK.hub.accounthash.INBOUND.inbound-1-2-3.1.42.7.{NANOSECONDS + 1}.0",
        f"$JS.ACK._.accounthash.INBOUND.inbound-1-2-3.1.42.7.{NANOSECONDS}.0.random",
    ],
)
def test_both_forms_are_read_to_the_microsecond(reply: str) -> None:
    assert parse_delivery(reply) == Delivery(42, 7, STORED_AT)


@pytest.mark.parametrize(
    "reply", ["", "_INBOX.abc.1", "$JS.FC.INBOUND.x.1.2.3.4.5", "a.b.c.d.e.f.g.h.i.j"]
)
def test_other_replies_are_no_deliveries(reply: str) -> None:
    assert parse_delivery(reply) is None


def test_a_span_is_exact_in_nanoseconds() -> None:
    assert nanoseconds(timedelta(days=7, microseconds=1)) == 604_800_000_001_000


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"subject_transform": {"src": "a.*", "dest": "b.{{partition(32,1)}}.{{wildcard(1)}}"}},
            32,
        ),
        ({"subject_transform": {"src": "a.*", "dest": "b.{{wildcard(1)}}"}}, None),
        ({}, None),
    ],
)
def test_the_number_of_partitions_is_in_the_transform(
    config: dict[str, object], expected: int | None
) -> None:
    assert find_partition_count(config) == expected
