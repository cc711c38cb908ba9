"""Chains end, pages begin cleanly, and no call is shown without its result."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.sessions.transcripts import (
    MAX_HOPS,
    NO_RESULT,
    Link,
    clean_start,
    reading_order,
    repaired,
    without_open_calls,
)
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def identity(number: int) -> UUID:
    return UUID(int=number)


def row(seq: int, role: Role, text: str | None = None, *calls: str) -> TranscriptEntry:
    return TranscriptEntry(
        seq=seq,
        role=role,
        content=text,
        tool_calls=[{"id": call} for call in calls] or None,
        created_at=AT,
    )


def result(seq: int, call: str | None) -> TranscriptEntry:
    return TranscriptEntry(seq=seq, role=Role.TOOL, tool_call_id=call, created_at=AT)


def seqs(rows: Sequence[TranscriptEntry]) -> list[int]:
    return [shown.seq for shown in rows]


TWO_CALLS = [
    row(1, Role.USER, "u1"),
    row(2, Role.ASSISTANT, None, "a", "b"),
    result(3, "a"),
    result(4, "b"),
    row(5, Role.ASSISTANT, "done"),
]


def test_complete_calls_are_left_alone() -> None:
    assert repaired(TWO_CALLS) == tuple(TWO_CALLS)


def test_f03_a_call_without_result_has_a_placeholder_for_it() -> None:
    shown = repaired([*TWO_CALLS[:3], TWO_CALLS[4]])

    assert seqs(shown) == [1, 2, 2, 3, 5]
    assert shown[1] == TWO_CALLS[1]
    placeholder = shown[2]
    assert (placeholder.role, placeholder.tool_call_id) == (Role.TOOL, "b")
    assert (placeholder.content, placeholder.is_placeholder) == (NO_RESULT, True)


def test_f03_a_row_of_nothing_but_interrupted_calls_is_shown_with_what_it_called() -> None:
    shown = repaired(TWO_CALLS[:2])

    assert shown[:2] == tuple(TWO_CALLS[:2])
    assert [one.tool_call_id for one in shown[2:]] == [
        call["id"] for call in TWO_CALLS[1].tool_calls or ()
    ]


def test_a_call_without_result_is_left_out_where_there_is_no_room_for_placeholders() -> None:
    shown = without_open_calls([*TWO_CALLS[:3], TWO_CALLS[4]])

    assert seqs(shown) == [1, 2, 3, 5]
    assert shown[1].tool_calls == [{"id": "a"}]
    assert seqs(without_open_calls(TWO_CALLS[:2])) == [1]
    (spoken,) = without_open_calls([row(1, Role.ASSISTANT, "Let me look.", "a")])
    assert (spoken.content, spoken.tool_calls) == ("Let me look.", None)


def test_a_result_without_call_is_left_out() -> None:
    assert seqs(repaired([result(1, "a"), row(2, Role.USER, "u"), result(3, None)])) == [2]


def test_the_second_result_of_a_call_is_left_out() -> None:
    assert seqs(repaired([row(1, Role.ASSISTANT, None, "a"), result(2, "a"), result(3, "a")])) == [
        1,
        2,
    ]


def test_of_two_calls_with_one_id_and_one_result_the_first_stays() -> None:
    calls = row(1, Role.ASSISTANT, None, "a", "a")

    shown = without_open_calls([calls, result(2, "a")])

    assert shown[0].tool_calls == [{"id": "a"}]
    assert seqs(shown) == [1, 2]


def test_results_after_a_word_in_between_still_answer_the_call() -> None:
    rows = [row(1, Role.ASSISTANT, None, "a"), row(2, Role.USER, "wait"), result(3, "a")]

    assert seqs(repaired(rows)) == [1, 3, 2]


@pytest.mark.parametrize(
    ("call", "named", "given"),
    [
        ({"id": "fc_1", "call_id": "call_1"}, "call_1", "fc_1"),
        ({"id": "fc_1", "call_id": "call_1"}, "fc_1", "fc_1"),
        ({"call_id": "call_1"}, "call_1", "call_1"),
        ({"id": 7}, "7", "7"),
        ({"id": 0, "call_id": 12}, "12", "0"),
        ({"id": None, "call_id": "x"}, "x", "x"),
        ({"id": "", "call_id": "x"}, "x", "x"),
        ({}, None, "call-1-0"),
        ({"id": ""}, "", "call-1-0"),
        ({"id": True}, None, "call-1-0"),
        ({"id": {"a": 1}, "call_id": "x"}, "x", "x"),
        ({"id": ["a"]}, "", "call-1-0"),
        ({"id": 1.5, "call_id": ""}, None, "call-1-0"),
        ({"id": "\U0001f355", "call_id": "x"}, "\U0001f355", "\U0001f355"),
    ],
)
def test_c71_a_result_may_name_any_id_of_its_call(
    call: dict[str, Any], named: str | None, given: str
) -> None:
    calling = row(1, Role.ASSISTANT, None).model_copy(update={"tool_calls": [call]})
    shown = repaired([calling, result(2, named)])
    assert shown[0].tool_calls == [{**call, "id": given}]
    assert [one.tool_call_id for one in shown[1:]] == [given]
    assert calling.tool_calls == [call]


def test_c71_each_of_several_calls_with_two_ids_gets_its_result() -> None:
    calls = [{"id": f"fc_{number}", "call_id": f"call_{number}"} for number in range(3)]
    calling = row(1, Role.ASSISTANT, None).model_copy(update={"tool_calls": calls})
    rows = [calling, result(2, "call_2"), row(3, Role.USER, "quick!"), result(4, "fc_0")]
    shown = repaired(rows)
    assert [one.tool_call_id for one in shown] == [None, "fc_1", "fc_2", "fc_0", None]
    assert [one.is_placeholder for one in shown] == [False, True, False, False, False]
    assert seqs(without_open_calls(rows)) == [1, 2, 4, 3]


@pytest.mark.parametrize(
    ("results", "order"),
    [
        ("ab", "AaBb"),
        ("ba", "AaBb"),
        ("ab?", "AaBb?"),
        ("?a?b", "AaBb??"),
        ("aab", "AaBb"),
        ("bb?a", "AaBb?"),
    ],
)
def test_c71_calls_in_rows_of_their_own_get_their_results(results: str, order: str) -> None:
    """Results in any order, twice, and with a person's row in between."""
    rows = [row(1, Role.ASSISTANT, None, "a"), row(2, Role.ASSISTANT, None, "b")]
    for seq, name in enumerate(results, 3):
        rows.append(row(seq, Role.USER, "quick!") if name == "?" else result(seq, name))
    shown = repaired(rows)
    names = {Role.USER: "?", Role.ASSISTANT: ""}
    told = [
        one.tool_call_id or names[one.role] or str((one.tool_calls or [{}])[0]["id"]).upper()
        for one in shown
    ]
    assert "".join(told) == order
    assert not any(one.is_placeholder for one in shown)
    assert repaired(shown) == shown


def test_c71_an_id_that_is_used_again_means_the_latest_call() -> None:
    rows = [row(1, Role.ASSISTANT, None, "a"), row(2, Role.USER, "again")]
    rows += [row(3, Role.ASSISTANT, None, "a"), result(4, "a"), result(5, "b")]
    shown = repaired(rows)
    assert seqs(shown) == [1, 1, 2, 3, 4]
    assert [one.is_placeholder for one in shown] == [False, True, False, False, False]


def test_c71_a_result_before_its_call_is_left_out() -> None:
    rows = [result(1, "a"), row(2, Role.ASSISTANT, None, "a"), row(3, Role.USER, "so?")]
    assert [(one.seq, one.is_placeholder) for one in repaired(rows)] == [
        (2, False),
        (2, True),
        (3, False),
    ]


def test_c71_a_page_does_not_begin_between_calls_with_common_results() -> None:
    together = [row(1, Role.ASSISTANT, None, "a"), row(2, Role.ASSISTANT, None, "b")]
    together += [result(3, "a"), result(4, "b"), row(5, Role.USER, "u")]
    assert [clean_start(together[begin:]) for begin in range(5)] == [0, 3, 2, 1, 0]


def test_a_page_does_not_begin_between_call_and_result() -> None:
    assert clean_start(TWO_CALLS) == 0
    assert clean_start(TWO_CALLS[2:]) == 2
    assert clean_start(TWO_CALLS[3:]) == 1
    assert clean_start([result(3, "a"), row(4, Role.USER, "wait"), result(5, "b")]) == 3
    assert clean_start([]) == 0


IDS = st.sampled_from(["a", "b", "c", None])
ANY_ROWS = st.lists(
    st.one_of(
        st.tuples(st.just(Role.USER), st.just([])),
        st.tuples(st.just(Role.ASSISTANT), st.lists(IDS, max_size=3)),
        st.tuples(st.just(Role.TOOL), st.lists(IDS, min_size=1, max_size=1)),
    ),
    max_size=12,
).map(
    lambda kinds: [
        result(seq, ids[0])
        if role is Role.TOOL
        else TranscriptEntry(
            seq=seq,
            role=role,
            content="word" if seq % 2 else None,
            tool_calls=[{} if one is None else {"id": one} for one in ids] or None,
            created_at=AT,
        )
        for seq, (role, ids) in enumerate(kinds, 1)
    ]
)


@given(ANY_ROWS)
def test_whatever_is_stored_every_call_shown_has_its_result(
    rows: list[TranscriptEntry],
) -> None:
    shown = repaired(rows)

    open_calls: Counter[object] = Counter()
    for one in shown:
        if one.tool_calls:
            assert open_calls.total() == 0
            open_calls = Counter(call.get("id") for call in one.tool_calls)
        elif one.role is Role.TOOL:
            assert open_calls[one.tool_call_id] > 0
            open_calls[one.tool_call_id] -= 1
    assert open_calls.total() == 0
    assert repaired(shown) == shown
    # What people wrote is never left out.
    said = [one for one in rows if one.role is Role.USER]
    assert [one for one in shown if one.role is Role.USER] == said


@given(ANY_ROWS, st.integers(0, 12))
def test_pages_cut_cleanly_show_what_the_whole_shows(rows: list[TranscriptEntry], cut: int) -> None:
    start = min(cut, len(rows))
    start += clean_start(rows[start:])

    assert repaired(rows[:start]) + repaired(rows[start:]) == repaired(rows)


def chain(*links: tuple[int, int | None, str | None]) -> list[Link]:
    return [
        Link(identity(one), None if parent is None else identity(parent), kind)
        for one, parent, kind in links
    ]


def test_a_conversation_goes_on_before_its_compression() -> None:
    links = chain((3, 2, "compression"), (2, 1, "compression"), (1, None, None))

    assert reading_order(links, identity(3)) == tuple(map(identity, (3, 2, 1)))
    assert reading_order(links, identity(1)) == (identity(1),)


def test_a_branch_has_copies_of_its_parent_and_goes_on_with_what_that_continues() -> None:
    links = chain((3, 2, "branch"), (2, 1, "compression"), (1, None, None))

    assert reading_order(links, identity(3)) == tuple(map(identity, (3, 1)))


def test_other_links_lead_to_other_conversations() -> None:
    assert reading_order(chain((2, 1, "merged"), (1, None, None)), identity(2)) == (identity(2),)


def test_an_unknown_session_or_parent_ends_the_chain() -> None:
    assert reading_order([], identity(1)) == ()
    assert reading_order(chain((2, 1, "compression")), identity(2)) == (identity(2),)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.none() | st.integers(0, 5),
            st.sampled_from(["compression", "branch", "merged", None]),
        ),
        max_size=8,
    )
)
def test_no_chain_is_walked_twice(links: list[tuple[int, int | None, str | None]]) -> None:
    order = reading_order(chain(*links), identity(0))

    assert len(set(order)) == len(order) <= len(links)


def test_a_walk_has_an_end() -> None:
    links = chain(*((n, n + 1, "compression") for n in range(3 * MAX_HOPS)))

    assert len(reading_order(links, identity(0))) == MAX_HOPS + 1
