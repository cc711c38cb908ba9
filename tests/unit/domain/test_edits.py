"""Edits and deletes as pure decisions: which edit is the older one, and any order in one batch."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlane.domain.addressing.dedupe import digests, digests_of_message
from chatlane.domain.addressing.sources import address_of
from chatlane.domain.catalog import Agent
from chatlane.domain.edits import Edit, Originals, is_older
from chatlane.domain.effects import EARLY, Effects
from chatlane.domain.lanes import Placement
from chatlane.domain.policy import ResetPolicy
from chatlane.domain.resolved_message import ResolvedMessage, details_json
from chatlane_schemas.source import source_json
from tests.support.worlds.edit_model import EVENTS, Rule, Said

START = datetime(2026, 5, 11, 9, tzinfo=UTC)
KEY = "agent:main:telegram:bot:dm:701"


def edit(version: str | None = None, event_id: str | None = None) -> Edit:
    return Edit("text", (), version, event_id, 10)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2", "10"),
        ("1770.9", "1770.10"),
        ("1770", "1770.1"),
        ("007", "8"),
        ("9", "2026-05-11T09:00:00Z"),
        ("2026-05-11T09:00:00Z", "2026-05-11T09:00:01Z"),
        ("a", "b"),
        ("9", "٣"),
    ],
)
def test_versions_tell_which_edit_is_older(earlier: str, later: str) -> None:
    assert is_older(edit(earlier), later, None)
    assert not is_older(edit(later), earlier, None)
    assert not is_older(edit(later), later, None)


def test_of_one_version_the_number_of_the_event_tells() -> None:
    """Telegram tells the second of an edit and numbers its updates."""
    assert is_older(edit("1770", "100"), "1770", "101")
    assert not is_older(edit("1770", "102"), "1770", "101")
    assert not is_older(edit("1771", "1"), "1770", "101")
    assert is_older(edit(None, "9"), None, "10")


@pytest.mark.parametrize(
    ("one", "version", "event_id"),
    [
        (edit(), None, None),
        (edit("1"), None, "9"),
        (edit(None, "1"), "9", None),
        (edit(None, "a"), None, "b"),
        (edit(None, "1"), None, "b"),
    ],
)
def test_where_nothing_tells_the_later_one_in_the_log_is_newer(
    one: Edit, version: str | None, event_id: str | None
) -> None:
    assert not is_older(one, version, event_id)


def arrived(said: Said, agent: Agent) -> ResolvedMessage:
    event = said.event()
    address = address_of(event)
    return ResolvedMessage(
        event=event,
        session_key=KEY,
        former_keys=(),
        digests=digests(event, address),
        agent=agent,
        policy=ResetPolicy(),
        stored_at=START,
        size_bytes=100,
        source=source_json(event),
        details=details_json(event),
        targets=()
        if said.what == "message"
        else digests_of_message(event.message_id, event, address),
    )


def decided(story: list[Said], agent: Agent) -> Effects:
    effects = Effects()
    placement = Placement({}, {}, set(), effects, 32, originals=Originals())
    for said in story:
        placement.place(arrived(said, agent))
    return effects


@settings(max_examples=300, deadline=None)
@given(story=st.lists(EVENTS, max_size=12))
def test_what_waits_in_the_end_is_what_the_rule_says(story: list[Said]) -> None:
    effects = decided(story, Agent("main"))
    rule = Rule()
    for said in story:
        rule.hear(said)
    waiting = {row.arrival: row.content for row in effects.waiting}
    waiting.update({one.arrival: one.content for one in effects.waiting_changes})
    for _, arrival in effects.deleted_waiting:
        del waiting[arrival]
    assert [waiting[place] for place in sorted(waiting)] == rule.standing(written=False)
    assert sorted(row.content or "" for row in effects.revisions) == rule.revisions
    _check_marks(effects, rule)


@settings(max_examples=300, deadline=None)
@given(story=st.lists(EVENTS, max_size=12))
def test_what_is_written_in_the_end_is_what_the_rule_says(story: list[Said]) -> None:
    """A stream agent's messages are written at once, so each change leaves what was said."""
    effects = decided(story, Agent("main", delivery="stream"))
    rule = Rule()
    for said in story:
        rule.hear(said)
        rule.claim()
    rows = {row.seq: row.content for row in effects.messages}
    rows.update({one.seq: one.content for one in effects.row_changes})
    assert [rows[place] for place in sorted(rows)] == rule.standing(written=True)
    assert sorted(row.content or "" for row in effects.revisions) == rule.revisions
    _check_marks(effects, rule)


def _check_marks(effects: Effects, rule: Rule) -> None:
    """A mark is made once, and one of an early edit is resumed once, by whatever settles it."""
    made = [row.digest for row in effects.seen]
    assert len(made) == len(set(made))
    early = {row.digest for row in effects.seen if row.arrival == EARLY}
    resumed = [row.digest for row in effects.resumed]
    assert len(resumed) == len(set(resumed))
    assert set(resumed) <= early
    unsettled = [told for told in rule.messages.values() if not told.has_come and not told.is_gone]
    assert len(early) - len(resumed) == len(unsettled)
