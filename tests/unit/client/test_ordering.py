"""The order of outbound messages, as pure decisions."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from chatlane_client.delivery.delivery_order import DeliveryNumbers, Place, SessionOrder

SESSION = uuid4()


class Reader:
    """Feeds numbers of one session and notes what may go."""

    def __init__(self, max_sessions: int = 100, max_ids: int = 1000) -> None:
        self.order: SessionOrder[int] = SessionOrder(max_sessions, max_ids)
        self.given: list[int] = []

    def admit(
        self,
        number: int,
        *,
        until: float = 5.0,
        may_lead: bool = True,
        session: UUID = SESSION,
        message_id: str | None = None,
        item: int | None = None,
    ) -> Place:
        place, ready = self.order.admit(
            session,
            number,
            message_id or f"{session} {number}",
            number if item is None else item,
            patient_until=until,
            may_lead=may_lead,
        )
        self.given += ready
        return place

    def wait(self, now: float) -> list[range]:
        passed = self.order.pass_overdue(now)
        self.given += [number for gap in passed for number in gap.ready]
        return [gap.missing for gap in passed]


def test_numbers_in_order_go_at_once() -> None:
    reader = Reader()
    assert [reader.admit(number) for number in (1, 2, 3)] == [Place.IN_ORDER] * 3
    assert reader.given == [1, 2, 3]


def test_a_repeat_is_told_from_a_gap() -> None:
    reader = Reader()
    reader.admit(1)
    assert reader.admit(1) is Place.REPEAT
    assert reader.admit(3) is Place.EARLY
    assert reader.admit(3) is Place.REPEAT
    assert reader.admit(2) is Place.IN_ORDER
    assert reader.given == [1, 2, 3]


def test_a_gap_is_passed_when_its_time_is_over() -> None:
    reader = Reader()
    reader.admit(1)
    reader.admit(4, until=5.0)
    assert reader.wait(4.9) == []
    assert reader.wait(5.0) == [range(2, 4)]
    assert reader.given == [1, 4]


def test_each_gap_has_a_patience_of_its_own() -> None:
    reader = Reader()
    reader.admit(1)
    reader.admit(3, until=5.0)
    reader.admit(5, until=9.0)
    assert reader.order.next_deadline() == 5.0
    assert reader.wait(6.0) == [range(2, 3)]
    assert reader.given == [1, 3]
    assert reader.order.next_deadline() == 9.0
    assert reader.wait(9.0) == [range(4, 5)]
    assert reader.order.next_deadline() is None


def test_what_was_passed_over_still_goes_once() -> None:
    reader = Reader()
    reader.admit(1)
    reader.admit(4)
    reader.wait(5.0)
    assert reader.admit(3) is Place.LATE
    assert reader.admit(3) is Place.REPEAT
    assert reader.given == [1, 4, 3]


def test_what_is_older_than_the_first_goes_once() -> None:
    reader = Reader()
    reader.admit(7)
    assert reader.admit(5) is Place.LATE
    assert reader.admit(5) is Place.REPEAT
    assert reader.admit(8) is Place.IN_ORDER
    assert reader.given == [7, 5, 8]


def test_a_session_does_not_begin_while_older_ones_may_come() -> None:
    reader = Reader()
    assert reader.admit(7, may_lead=False) is Place.EARLY
    assert reader.admit(5, may_lead=True) is Place.IN_ORDER
    assert reader.admit(6, may_lead=True) is Place.IN_ORDER
    assert reader.given == [5, 6, 7]


def test_the_very_first_number_begins_its_session_at_any_time() -> None:
    reader = Reader()
    assert reader.admit(1, may_lead=False) is Place.IN_ORDER


def test_only_what_begins_a_session_in_the_middle_leads_on_trust() -> None:
    reader = Reader()
    assert reader.order.would_lead(SESSION, 2)
    assert not reader.order.would_lead(SESSION, 1)
    assert reader.order.would_lead(SESSION, 2), "asking changes nothing"
    reader.admit(3, may_lead=False)
    assert reader.order.would_lead(SESSION, 2), "it has not begun yet"
    reader.admit(1)
    assert not reader.order.would_lead(SESSION, 9)
    assert reader.order.would_lead(uuid4(), 9)


def test_deliveries_that_went_elsewhere_show_in_the_numbers() -> None:
    numbers = DeliveryNumbers()
    assert [numbers.count(number) for number in (7, 8, 11, 12, 14)] == [0, 0, 2, 0, 1]
    assert numbers.missed == 3
    numbers.restart(20)
    assert numbers.missed == 0
    assert [numbers.count(number) for number in (21, 23)] == [0, 1]
    assert numbers.missed == 1


def test_numbers_that_begin_lower_miss_nothing() -> None:
    """As with a durable that was made again, or what was on its way when its state was read."""
    numbers = DeliveryNumbers()
    numbers.restart(50)
    assert [numbers.count(number) for number in (49, 50, 51, 1, 2)] == [0] * 5
    assert numbers.missed == 0
    assert numbers.count(4) == 1


@given(st.lists(st.booleans(), max_size=40))
def test_every_delivery_is_counted_here_or_as_missed(is_ours: list[bool]) -> None:
    numbers = DeliveryNumbers()
    numbers.restart(0)
    ours = [number for number, is_one in enumerate(is_ours, 1) if is_one]
    for number in ours:
        numbers.count(number)
    assert numbers.missed == max(ours, default=0) - len(ours)


def test_sessions_begin_when_nothing_older_is_expected_any_more() -> None:
    reader = Reader()
    reader.admit(8, may_lead=False)
    reader.admit(7, may_lead=False)
    [gap] = reader.order.lead_unknown()
    assert (gap.missing, gap.ready) == (range(7, 7), (7, 8))
    assert reader.order.lead_unknown() == []


def test_sessions_do_not_wait_for_each_other() -> None:
    reader = Reader()
    other = uuid4()
    reader.admit(1)
    reader.admit(3)
    reader.admit(1, session=other)
    assert reader.admit(2, session=other) is Place.IN_ORDER


def test_the_session_used_longest_ago_is_forgotten() -> None:
    reader = Reader(max_sessions=2, max_ids=1)
    first, second, third = uuid4(), uuid4(), uuid4()
    for session in (first, second, first, third):
        reader.admit(1, session=session)
    assert reader.admit(1, session=first) is Place.REPEAT
    assert reader.admit(1, session=second) is Place.IN_ORDER


def test_a_number_that_was_used_for_another_message_is_delivered() -> None:
    reader = Reader()
    for number in (1, 2, 3):
        reader.admit(number)
    assert reader.admit(2, message_id="other", item=20) is Place.REUSED
    assert reader.admit(2, message_id="other", item=20) is Place.REPEAT
    assert reader.admit(2) is Place.REPEAT, "the first one to have it comes again"
    assert reader.admit(3, message_id="another", item=30) is Place.REUSED
    assert reader.admit(4) is Place.IN_ORDER
    assert reader.given == [1, 2, 3, 20, 30, 4]


def test_a_number_that_is_kept_back_may_be_reused_as_well() -> None:
    reader = Reader()
    reader.admit(1)
    assert reader.admit(3) is Place.EARLY
    assert reader.admit(3, message_id="other", item=30) is Place.REUSED
    assert reader.admit(2) is Place.IN_ORDER
    assert reader.given == [1, 30, 2, 3]


def test_a_message_that_comes_under_another_number_is_a_repeat_and_leaves_no_gap() -> None:
    reader = Reader()
    reader.admit(1)
    reader.admit(2, message_id="two")
    assert reader.admit(3, message_id="two") is Place.REPEAT
    assert reader.admit(4) is Place.IN_ORDER
    # Also where the messages before it are still to come.
    assert reader.admit(6, message_id="two") is Place.REPEAT
    assert reader.admit(7) is Place.EARLY
    assert reader.admit(5) is Place.IN_ORDER
    assert reader.given == [1, 2, 4, 5, 7]
    assert reader.order.next_deadline() is None


def test_a_repeat_may_be_what_others_wait_for() -> None:
    reader = Reader()
    reader.admit(1, message_id="one")
    reader.admit(3)
    assert reader.admit(2, message_id="one") is Place.REPEAT
    assert reader.given == [1, 3]


def test_a_number_whose_id_is_forgotten_is_taken_for_a_repeat() -> None:
    reader = Reader(max_ids=2)
    for number in (1, 2, 3):
        reader.admit(number)
    assert reader.admit(1, message_id="other") is Place.REPEAT
    assert reader.admit(3, message_id="other", item=30) is Place.REUSED


@given(st.integers(1, 12), st.integers(0, 11), st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_database_that_went_back_loses_and_repeats_nothing(
    said: int, kept: int, is_again: list[bool]
) -> None:
    """Some of what was said is said again under other numbers, mixed with what is new."""
    reader = Reader()
    for number in range(1, said + 1):
        reader.admit(number, message_id=f"old {number}", item=number)
    again = [number for number in range(kept + 1, said + 1) if is_again[number - 1]]
    messages = [f"old {number}" for number in reversed(again)] + ["new 1", "new 2", "new 3"]
    for place, message_id in enumerate(messages, min(kept, said) + 1):
        reader.admit(place, message_id=message_id, item=100 + int(message_id.split()[1]))
    assert sorted(reader.given) == [*range(1, said + 1), 101, 102, 103]
    assert reader.given[said:] == [101, 102, 103]


@given(st.permutations(range(1, 9)), st.lists(st.integers(1, 8), max_size=8))
def test_every_arrival_order_comes_out_sorted(arrivals: Sequence[int], repeats: list[int]) -> None:
    """With 1 known to be the first, whatever order and repeats come."""
    reader = Reader()
    for number in [*arrivals, *repeats]:
        reader.admit(number, may_lead=False)
    assert reader.given == list(range(1, 9))


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=40))
def test_nothing_is_given_twice_and_nothing_is_lost(steps: list[tuple[int, bool]]) -> None:
    reader = Reader()
    for now, (number, passes_time) in enumerate(steps):
        reader.admit(number, until=now + 3, may_lead=passes_time)
        if passes_time:
            reader.wait(now)
    while reader.wait(10**6):
        pass
    assert sorted(reader.given) == sorted({number for number, _ in steps})
