"""How far a log may be purged."""

from hypothesis import given
from hypothesis import strategies as st

from chatlane.ingest.log_purge import purge_sequence
from chatlane.store.logs.log_marks import PurgeBounds

sequences = st.none() | st.integers(0, 1000)


def test_everything_old_that_every_cursor_has_passed_goes() -> None:
    assert purge_sequence(1, PurgeBounds(least_cursor=500, marked_sequence=300)) == 300


def test_a_partition_that_is_behind_keeps_its_messages() -> None:
    assert purge_sequence(1, PurgeBounds(least_cursor=200, marked_sequence=300)) == 200


def test_without_a_mark_or_a_cursor_everything_stays() -> None:
    assert purge_sequence(1, PurgeBounds(least_cursor=500, marked_sequence=None)) is None
    assert purge_sequence(1, PurgeBounds(least_cursor=None, marked_sequence=300)) is None


def test_what_is_gone_already_is_not_purged_again() -> None:
    assert purge_sequence(300, PurgeBounds(least_cursor=500, marked_sequence=300)) is None


@given(st.integers(1, 1000), sequences, sequences)
def test_nothing_young_or_unread_is_ever_purged(
    first: int, least_cursor: int | None, marked: int | None
) -> None:
    below = purge_sequence(first, PurgeBounds(least_cursor, marked))
    if below is not None:
        assert least_cursor is not None
        assert marked is not None
        newest_purged = below - 1
        assert newest_purged < least_cursor, "the message at the cursor stays"
        assert newest_purged <= marked
        assert below > first
