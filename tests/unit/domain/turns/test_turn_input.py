"""What a running turn may take in of what waits behind it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.turns.claims import SteeringHead, steerable
from chatlane_schemas.source import Source


def source(**fields: Any) -> Source:  # noqa: ANN401 - any field of a source
    told = {"platform": "telegram", "account": "bot", "chat": {"id": "701"}, "message_id": "9"}
    return Source.model_validate(told | fields)


PLACE = source()
HEADS = st.lists(
    st.builds(
        SteeringHead,
        arrival=st.integers(1, 100),
        size_bytes=st.integers(1, 400),
        source=st.sampled_from([PLACE, PLACE, PLACE, source(chat={"id": "702"})]),
        has_files=st.sampled_from([False, False, False, True]),
    ),
    max_size=60,
)


@given(heads=HEADS, room=st.integers(-1, 50))
def test_a_turn_takes_in_the_longest_start_of_the_line_it_may(
    heads: list[SteeringHead], room: int
) -> None:
    taken = steerable(heads, PLACE, max_messages=room, max_bytes=1000)
    assert list(taken) == heads[: len(taken)]
    assert len(taken) <= max(0, room)
    size = sum(head.size_bytes for head in taken)
    assert size <= 1000
    assert not any(head.has_files or head.source != PLACE for head in taken)
    rest = heads[len(taken) :]
    if rest and len(taken) < room:
        first = rest[0]
        assert first.has_files or first.source != PLACE or size + first.size_bytes > 1000


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ({"message_id": "10", "sender": {"id": "8"}}, True),
        ({"thread_id": "5"}, False),
        ({"chat": {"id": "702"}}, False),
        ({"account": "other"}, False),
        ({"scope": "T1"}, False),
    ],
)
def test_only_what_comes_from_where_the_answer_goes(
    fields: dict[str, Any], *, is_taken: bool
) -> None:
    """Another place would never hear of the answer."""
    head = SteeringHead(1, 10, source(**fields), has_files=False)
    assert bool(steerable([head], PLACE, max_messages=9, max_bytes=100)) is is_taken
