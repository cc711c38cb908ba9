"""How many calls a chat may have in a minute."""

import pytest

from chatlane_client import RateBudget
from chatlane_client.delivery import rate_budget


def of_groups(chat: str) -> int | None:
    return 2 if chat.startswith("-") else None


def test_a_group_has_so_many_calls_in_a_minute_and_a_person_any() -> None:
    budget = RateBudget(in_minute=of_groups)
    assert [budget.try_take("-1") for _ in range(2)] == [0, 0]
    assert 59 < budget.try_take("-1") <= 60
    assert budget.try_take("-2") == 0
    assert [budget.try_take("1") for _ in range(5)] == [0] * 5


def test_what_waits_is_counted_where_it_will_be_sent() -> None:
    budget = RateBudget(per_chat_per_second=1, in_minute=of_groups)
    assert budget.try_take("-1") == 0
    assert 0.9 < budget.busy_for("-1") <= 1


def test_chats_whose_minute_is_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(rate_budget, "monotonic", lambda: now)
    budget = RateBudget(in_minute=lambda _: 1)
    for number in range(30_000):
        now += 0.005
        assert budget.try_take(str(number)) == 0
    assert len(budget._minutes) <= 2 * 12_000
    assert budget.busy_for("29999") > 0
