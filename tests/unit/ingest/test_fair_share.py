"""Shares are whole, equal but for one, and the same whoever computes them."""

from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from chatlane.ingest.ownership import fair_share

ROUTERS = st.lists(st.uuids(), min_size=1, max_size=40, unique=True).map(sorted)


@given(partitions=st.integers(1, 256), routers=ROUTERS)
def test_all_shares_together_are_all_partitions(partitions: int, routers: list[UUID]) -> None:
    shares = [fair_share(partitions, routers, one) for one in routers]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def test_the_first_in_id_order_take_what_does_not_divide() -> None:
    routers = sorted(uuid4() for _ in range(3))
    assert [fair_share(32, routers, one) for one in routers] == [11, 11, 10]


def test_who_is_not_alive_gets_nothing() -> None:
    assert fair_share(32, [uuid4()], uuid4()) == 0


def test_more_routers_than_partitions_leave_some_without() -> None:
    routers = sorted(uuid4() for _ in range(6))
    assert [fair_share(4, routers, one) for one in routers] == [1, 1, 1, 1, 0, 0]
