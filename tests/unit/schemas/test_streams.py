"""Streams and durables as declared."""

import itertools
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane_schemas import Stage
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import (
    Delivery,
    DurableSpec,
    StreamName,
    StreamSpec,
    declared_durables,
    declared_streams,
    outbound_durable,
    routed_durable,
)

SESSION = UUID("4fd807c3-e125-413c-9a24-e76abb5b893d")
NAMES = st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True)


@dataclass(frozen=True)
class Agent:
    name: str
    delivery: Delivery = "turns"
    ack_wait: timedelta = timedelta(minutes=2)


def streams() -> dict[StreamName, StreamSpec]:
    return {spec.name: spec for spec in declared_streams()}


def matches(pattern: str, subject: str) -> bool:
    pairs = itertools.zip_longest(pattern.split("."), subject.split("."))
    return all(wanted in ("*", token) for wanted, token in pairs)


def test_every_stream_is_declared_once() -> None:
    assert [spec.name for spec in declared_streams()] == list(StreamName)


def test_streams_listen_on_exact_numbers_of_tokens() -> None:
    for spec in declared_streams():
        assert not any(subject.endswith(">") for subject in spec.subjects)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (StreamName.INBOUND, None),
        (StreamName.RESULTS, None),
        (StreamName.ROUTED, timedelta(days=7)),
        (StreamName.TURNS, timedelta(hours=24)),
        (StreamName.OUTBOUND, timedelta(hours=72)),
        (StreamName.EVENTS, timedelta(hours=72)),
        (StreamName.DEAD, timedelta(days=30)),
    ],
)
def test_streams_keep_messages_as_long_as_designed(name: StreamName, kept: timedelta) -> None:
    assert streams()[name].max_age == kept


def test_only_events_may_be_dropped_when_full() -> None:
    assert [spec.name for spec in declared_streams() if spec.discard == "old"] == ["EVENTS"]
    for spec in declared_streams():
        assert (spec.retention, spec.storage) == ("limits", "file")
        assert spec.max_bytes > 0
        longest = timedelta(minutes=10)
        assert spec.duplicate_window == min(longest, spec.max_age or longest)


def test_the_logs_are_divided_by_the_server() -> None:
    inbound, results = (
        spec.subject_transform for spec in declared_streams(partitions=7) if spec.subject_transform
    )
    assert inbound.source == "chat.v1.inbound.*.*.*"
    assert inbound.destination == (
        "chat.v1.log.{{partition(7,1,2,3)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}"
    )
    assert results.source == "chat.v1.result.*.*"
    assert results.destination == (
        "chat.v1.rlog.{{partition(7,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"
    )


def test_sizes_and_replicas_can_be_set() -> None:
    declared = declared_streams(replicas=3, max_bytes={StreamName.TURNS: 5})
    sizes = {spec.name: spec.max_bytes for spec in declared}
    assert sizes[StreamName.TURNS] == 5
    assert sizes[StreamName.DEAD] == streams()[StreamName.DEAD].max_bytes
    assert {spec.replicas for spec in declared} == {3}


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        (StreamName.INBOUND, subjects.inbound("slack", "bot", "none")),
        (StreamName.ROUTED, subjects.routed("main", 31, SESSION)),
        (StreamName.TURNS, subjects.turn("main")),
        (StreamName.RESULTS, subjects.result("main", SESSION)),
        (StreamName.OUTBOUND, subjects.outbound("slack", "bot", "none")),
        (StreamName.EVENTS, subjects.event("session", "ended")),
        (StreamName.DEAD, subjects.dead(Stage.OUTBOX)),
    ],
)
def test_each_subject_is_kept_by_one_stream(name: StreamName, subject: str) -> None:
    listening = [
        spec.name
        for spec in declared_streams()
        if any(matches(pattern, subject) for pattern in spec.subjects)
    ]
    assert listening == [name]


@pytest.mark.parametrize("subject", [subjects.delta("main", SESSION), subjects.api("p", "a", "b")])
def test_other_subjects_are_kept_by_none(subject: str) -> None:
    patterns = [pattern for spec in declared_streams() for pattern in spec.subjects]
    assert not any(matches(pattern, subject) for pattern in patterns)


def durables() -> dict[tuple[str, str], DurableSpec]:
    agents = [Agent("main"), Agent("sales", "stream", timedelta(seconds=3))]
    declared = declared_durables(agents, [("slack", "bot")], slots=2)
    return {(spec.stream, spec.name): spec for spec in declared}


def test_durables_are_declared_for_agents_accounts_and_routers() -> None:
    assert list(durables()) == [
        ("TURNS", "main"),
        ("ROUTED", "sales-0"),
        ("ROUTED", "sales-1"),
        ("OUTBOUND", "slack=bot"),
        ("ADVISORIES", "routers"),
    ]


def test_one_message_of_a_slot_is_in_work() -> None:
    slot = durables()["ROUTED", "sales-1"]
    assert slot.filter_subject == "chat.v1.routed.sales.1.*"
    assert (slot.max_ack_pending, slot.max_deliver) == (1, 5)
    assert slot.ack_wait == timedelta(seconds=3)


def test_notifications_come_again_until_they_are_answered() -> None:
    turns = durables()["TURNS", "main"]
    assert turns.filter_subject == "chat.v1.turn.main"
    assert (turns.ack_wait, turns.max_deliver) == (timedelta(seconds=10), -1)


def test_nothing_to_deliver_is_given_up() -> None:
    assert durables()["OUTBOUND", "slack=bot"].filter_subject == "chat.v1.outbound.slack.bot.*"
    assert durables()["OUTBOUND", "slack=bot"].max_deliver == -1


def test_accounts_with_dashes_do_not_share_a_durable() -> None:
    assert outbound_durable("a-b", "c") != outbound_durable("a", "b-c")


@given(NAMES, NAMES)
def test_the_durable_of_an_account_parses_back(platform: str, account: str) -> None:
    assert tuple(outbound_durable(platform, account).split("=")) == (platform, account)


@given(NAMES, st.integers(0, 99))
def test_the_durable_of_a_slot_parses_back(agent: str, slot: int) -> None:
    assert routed_durable(agent, slot).rsplit("-", 1) == [agent, str(slot)]
