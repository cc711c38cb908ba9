"""The feed that comes with the package: its size, its variety, and where it comes from."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from chatlane_devkit.judge.album_checks import albums_in
from chatlane_devkit.scenario.feed import (
    Address,
    Cue,
    FeedError,
    Pause,
    Publication,
    Settle,
    cleaned,
    parse_step,
    publications,
    read_feed,
)
from chatlane_devkit.scenario.scenario_generator import (
    SCENARIO_FILE,
    differences,
    generate_scenario,
    main,
)
from chatlane_schemas import DecodeError, InboundEvent, decode
from chatlane_schemas.topology.subjects import inbound_for

STEPS = read_feed(SCENARIO_FILE)
FEED = publications(STEPS)


def test_the_file_is_what_its_generator_writes() -> None:
    assert list(differences()) == []


def test_another_seed_gives_another_day() -> None:
    assert generate_scenario("another") != SCENARIO_FILE.read_text("utf-8")


def test_check_fails_on_a_file_that_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "chatlane_devkit.scenario.scenario_generator.differences", lambda: iter(["it differs"])
    )
    assert main(["check"]) == 1
    assert capsys.readouterr().err == "it differs\n"


def test_anything_but_write_and_check_is_refused() -> None:
    assert main(["publish"]) == 2


def test_a_day_has_at_least_two_thousand_events_on_four_platforms() -> None:
    accepted = Counter(its.platform for its in FEED if its.expect == "accepted")
    assert accepted.total() >= 2000
    assert accepted.keys() == {"telegram", "discord", "slack", "whatsapp"}
    assert min(accepted.values()) >= 200


def test_everything_that_can_go_wrong_does() -> None:
    expectations = Counter(its.expect for its in FEED)
    kinds = {its.event.get("kind") for its in FEED}
    reasons = {its.reason for its in FEED if its.expect == "dead"}
    assert expectations["duplicate"] >= 30
    assert kinds >= {"edit", "delete", "reaction", "service", "migration", "system"}
    assert reasons == {
        "bad_id",
        "invalid",
        "no_conversation",
        "not_json",
        "oversized",
        "profile_forbidden",
        "subject_mismatch",
        "too_deep",
        "unknown_account",
        "unknown_profile",
        "unknown_version",
    }


def test_both_kinds_of_copies_are_there() -> None:
    envelopes = Counter(its.nats_id for its in FEED)
    copies = [its for its in FEED if its.expect == "duplicate"]
    assert {envelopes[its.nats_id] for its in copies} == {1, 2}


def test_every_copy_comes_after_what_it_copies() -> None:
    said: set[tuple[Address, str]] = set()
    for its in FEED:
        if its.expect in {"accepted", "obeyed"}:
            said.add((its.address, its.message_id))
        elif its.expect == "duplicate":
            assert its.message_id
            assert (its.address, its.message_id) in said


def test_an_album_and_a_slow_photo_are_shown() -> None:
    assert list(albums_in(FEED).values()) == [[its.message_id for its in FEED if its.album]]
    slow = next(its for its in FEED if its.event.get("awaits_files"))
    brought = next(its for its in FEED if its.event.get("kind") == "attachments")
    between = [its.text for its in FEED if slow.number < its.number < brought.number]
    assert slow.message_id == brought.message_id
    assert "Is that beetle after my beans?" in between
    assert slow.hears == "And this? [beetle.jpg]"


def test_a_message_id_is_used_once_in_a_chat() -> None:
    ids = Counter(
        (its.platform, its.event.get("scope"), its.address.chat, its.message_id)
        for its in FEED
        if its.expect in {"accepted", "obeyed"} and its.message_id
    )
    assert {key for key, count in ids.items() if count > 1} == set()


def test_one_place_leads_to_one_conversation() -> None:
    talks = {(its.address, its.talk) for its in FEED if its.expect == "accepted"}
    assert len(talks) == len({address for address, _ in talks})


def test_both_agents_are_addressed() -> None:
    agents = Counter(its.agent for its in FEED if its.expect == "accepted")
    assert agents.keys() == {"main", "notes"}
    assert agents["notes"] >= 50


def test_nobody_needs_more_than_one_conversation_but_those_with_two_addresses() -> None:
    chats: dict[str, set[str]] = {}
    for its in FEED:
        if its.expect == "accepted":
            chats.setdefault(its.talk, set()).add(its.address.chat)
    several = {talk for talk, its in chats.items() if len(its) > 1}
    assert {talk.split("/")[1] for talk in several} == {"allotment", "carla"}


def test_nothing_breaks_while_silence_is_measured() -> None:
    """Between the settle before a pause of Discord and the one after it there is no cue."""
    cues = [number for number, its in enumerate(STEPS) if isinstance(its, Cue)]
    discord = [
        number
        for number, its in enumerate(STEPS)
        if isinstance(its, Publication) and its.platform == "discord"
    ]
    settles = [number for number, its in enumerate(STEPS) if isinstance(its, Settle)]
    for cue in cues:
        since = max((number for number in settles if number < cue), default=0)
        until = min((number for number in settles if number > cue), default=len(STEPS))
        assert not [number for number in discord if since < number < until]


def test_the_feed_waits_for_answers_before_it_pauses() -> None:
    before = [one for one, other in pairwise(STEPS) if isinstance(other, Pause)]
    assert len(before) == 2
    assert all(isinstance(its, Settle) for its in before)


def test_all_four_things_break() -> None:
    cues = [its.name for its in STEPS if isinstance(its, Cue)]
    assert cues == ["router", "worker", "nats", "postgres"]


def test_no_text_looks_like_an_answer_of_the_echo_agent() -> None:
    assert not [its for its in FEED if its.expect == "accepted" and "heard: " in its.hears]


def test_many_languages_and_emoji_are_spoken() -> None:
    text = "".join(its.text for its in FEED)
    for sign in "ä¿çłşжのहأ你네ö😄🎉":
        assert sign in text


def test_what_cannot_be_stored_is_heard_with_a_replacement() -> None:
    heard = [its.hears for its in FEED if "\ufffd" in its.hears]
    assert heard == ["caf\ufffd half an emoji", "zero\ufffdbyte"]


def test_files_are_heard_by_name() -> None:
    step = parse_step(1, {"event": {"id": "e", "text": "hi"}, "expect": "accepted", "hears": "x"})
    assert isinstance(step, Publication)
    assert (step.text, step.hears) == ("hi", "x")


def test_padding_keeps_the_body_json() -> None:
    line = {"subject": "s", "body": '{"id": "e"}', "pad_bytes": 100, "expect": "dead:oversized"}
    step = parse_step(1, line)
    assert isinstance(step, Publication)
    assert step.body is not None
    assert len(step.body) == 100
    assert json.loads(step.body) == {"id": "e"}


def test_a_line_nobody_understands_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown expectation 'maybe'"):
        parse_step(3, {"event": {}, "expect": "maybe"})


def test_an_unreadable_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "feed.jsonl"
    path.write_text('{"pause": 1}\n{"event": {}}\n', "utf-8")
    with pytest.raises(FeedError, match="line 2 of the feed"):
        read_feed(path)


def test_surrogates_and_zero_bytes_are_replaced() -> None:
    assert cleaned("a\x00b\ud83dc 😄") == "a\ufffdb\ufffdc 😄"


def body_of(its: Publication) -> bytes:
    return its.body if its.body is not None else json.dumps(its.event).encode()


def test_what_is_not_broken_is_an_inbound_event() -> None:
    for its in FEED:
        if its.expect != "dead":
            event = decode(InboundEvent, body_of(its))
            assert event.id == its.nats_id
            assert its.subject in {None, inbound_for(event)}
            assert its.expect != "accepted" or (event.text or "") == its.text


DECODED_LATER = {
    "no_conversation",
    "subject_mismatch",
    "unknown_account",
    "unknown_profile",
    "profile_forbidden",
}


def test_what_is_broken_is_so_for_the_reason_given() -> None:
    for its in FEED:
        if its.expect == "dead" and its.reason in DECODED_LATER:
            event = decode(InboundEvent, body_of(its))
            assert (inbound_for(event) == its.subject) == (its.reason != "subject_mismatch")
        elif its.expect == "dead":
            with pytest.raises(DecodeError) as caught:
                decode(InboundEvent, body_of(its))
            assert caught.value.reason == its.reason
