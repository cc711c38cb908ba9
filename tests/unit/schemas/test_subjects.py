"""Subjects: what they are made of, and what never gets into one."""

import re
from collections.abc import Callable
from hashlib import sha256
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane_schemas import Chat, InboundEvent, Sender, Stage, decode
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.subjects import SubjectError

SESSION = UUID("0195e6a0-0000-8000-8000-0000000000ff")
NAMES = st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True)
WRONG_NAMES = ["", "A", "a.b", "*", ">", "a b", "a\0", "a\n", "é", "x" * 65, "a/b", "$JS"]


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("chat", "sender", "alt", "token"),
    [
        ("701", "1", "2", digest("701")),
        ("", "1", "2", digest("2")),
        (None, "1", "2", digest("2")),
        (None, "1", "", digest("1")),
        (None, "1", None, digest("1")),
        (None, None, None, "none"),
        ("", "", "", "none"),
        ("0", None, None, digest("0")),
        ("ünï☃", None, None, digest("ünï☃")),
    ],
)
def test_a_chat_is_a_digest(
    chat: str | None, sender: str | None, alt: str | None, token: str
) -> None:
    assert subjects.chat_token(chat, sender, alt) == token


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_id_gives_one_plain_token(foreign: str) -> None:
    subject = subjects.inbound("matrix", "bot", subjects.chat_token(foreign))
    assert re.fullmatch(r"chat\.v1\.inbound\.matrix\.bot\.[0-9a-f]{16}", subject)


def test_the_subject_of_an_event_is_that_of_its_chat() -> None:
    head = b'"v": 1, "id": "a", "at": "2026-03-01T12:00:00Z", "account": "bot"'
    event = decode(InboundEvent, b'{"platform": "Slack", %b, "chat": {"id": "C5"}}' % head)
    assert subjects.inbound_for(event) == f"chat.v1.inbound.slack.bot.{digest('C5')}"
    assert subjects.chat_token_of(event.model_copy(update={"chat": None})) == "none"
    alone = event.model_copy(update={"chat": Chat(), "sender": Sender(id="1", alt_id="u")})
    assert subjects.chat_token_of(alone) == digest("u")


def test_the_subjects_of_messages() -> None:
    assert subjects.routed("sales", 7, SESSION) == f"chat.v1.routed.sales.7.{SESSION}"
    assert subjects.routed_filter("sales", 7) == "chat.v1.routed.sales.7.*"
    assert subjects.turn("main") == "chat.v1.turn.main"
    assert subjects.result("main", SESSION) == f"chat.v1.result.main.{SESSION}"
    assert subjects.outbound("slack", "bot", "none") == "chat.v1.outbound.slack.bot.none"
    assert subjects.outbound_filter("slack", "bot") == "chat.v1.outbound.slack.bot.*"
    assert subjects.event("session", "started") == "chat.v1.event.session.started"
    assert subjects.dead(Stage.INBOUND) == "chat.v1.dead.inbound"
    assert subjects.delta("main", SESSION) == f"chat.v1.delta.main.{SESSION}"
    assert subjects.api("ops", "session", "list") == "chat.v1.api.ops.session.list"
    assert subjects.api("w1", "turn", "claim", "main") == "chat.v1.api.w1.turn.claim.main"
    for_account = subjects.api_for_account("web", "session", "get", "slack", "bot")
    assert for_account == "chat.v1.api.web.session.get.slack.bot"
    assert subjects.log_filter(31) == "chat.v1.log.31.*.*.*"
    assert subjects.rlog_filter(0) == "chat.v1.rlog.0.*.*"


@pytest.mark.parametrize("wrong", WRONG_NAMES)
def test_no_other_token_gets_into_a_subject(wrong: str) -> None:
    chat = subjects.chat_token("1")
    builders: list[Callable[[], str]] = [
        lambda: subjects.inbound(wrong, "bot", chat),
        lambda: subjects.inbound("slack", wrong, chat),
        lambda: subjects.inbound("slack", "bot", wrong),
        lambda: subjects.outbound(wrong, "bot", chat),
        lambda: subjects.outbound("slack", wrong, chat),
        lambda: subjects.outbound("slack", "bot", wrong),
        lambda: subjects.outbound_filter(wrong, "bot"),
        lambda: subjects.routed(wrong, 1, SESSION),
        lambda: subjects.routed_filter(wrong, 1),
        lambda: subjects.turn(wrong),
        lambda: subjects.result(wrong, SESSION),
        lambda: subjects.delta(wrong, SESSION),
        lambda: subjects.event(wrong, "started"),
        lambda: subjects.event("session", wrong),
        lambda: subjects.api(wrong, "turn", "claim"),
        lambda: subjects.api("w", wrong, "claim"),
        lambda: subjects.api("w", "turn", wrong),
        lambda: subjects.api("w", "turn", "claim", wrong),
    ]
    for build in builders:
        with pytest.raises(SubjectError) as caught:
            build()
        assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("build", [subjects.log_filter, subjects.rlog_filter])
def test_partitions_are_not_negative(build: Callable[[int], str]) -> None:
    with pytest.raises(SubjectError):
        build(-1)


@given(st.integers(0, 255), NAMES, NAMES, st.text(max_size=9).map(digest) | st.just("none"))
def test_log_subjects_parse_back(partition: int, platform: str, account: str, chat: str) -> None:
    subject = f"chat.v1.log.{partition}.{platform}.{account}.{chat}"
    assert subjects.parse_log(subject) == (partition, platform, account, chat)


@given(st.integers(0, 255), NAMES, st.uuids())
def test_result_log_subjects_parse_back(partition: int, agent: str, session: UUID) -> None:
    parsed = subjects.parse_rlog(f"chat.v1.rlog.{partition}.{agent}.{session}")
    assert parsed == (partition, agent, session)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "chat.v1.log.1.slack.bot",
        "chat.v1.log.1.slack.bot.none.more",
        "chat.v1.log.x.slack.bot.none",
        "chat.v1.log.-1.slack.bot.none",
        "chat.v1.log.\u0661.slack.bot.none",
        "chat.v1.log.1.Slack.bot.none",
        "chat.v1.log.1.slack..none",
        "chat.v1.log.1.slack.bot.NONE",
        "chat.v1.log.1.slack.bot.none\n",
        "chat.v1.log.1.slack.bot.0123456789abcde",
        "chat.v2.log.1.slack.bot.none",
        "chat.v1.inbound.slack.bot.none",
        "chatxv1.log.1.slack.bot.none",
    ],
)
def test_other_subjects_are_not_of_the_inbound_log(subject: str) -> None:
    with pytest.raises(SubjectError):
        subjects.parse_log(subject)


@pytest.mark.parametrize(
    "subject",
    [
        f"chat.v1.rlog.1.main.{str(SESSION).upper()}",
        f"chat.v1.rlog.1.main.{SESSION.hex}",
        f"chat.v1.rlog.1.main.{'-' * 36}",
        f"chat.v1.rlog.1.Main.{SESSION}",
        f"chat.v1.rlog.1.main.{SESSION}.x",
    ],
)
def test_other_subjects_are_not_of_the_log_of_results(subject: str) -> None:
    with pytest.raises(SubjectError):
        subjects.parse_rlog(subject)


@given(st.uuids(), st.integers(1, 64))
def test_the_slot_is_made_of_the_last_32_bits(session: UUID, slots: int) -> None:
    assert subjects.slot_of(session, slots) == int(session.hex[-8:], 16) % slots


@pytest.mark.parametrize(
    ("tokens", "hashed"),
    [
        ((), 0x811C9DC5),
        (("a",), 0xE40C292C),
        (("foobar",), 0xBF9CF968),
        (("foo", "bar"), 0xBF9CF968),
    ],
)
def test_partitions_are_fnv_1a(tokens: tuple[str, ...], hashed: int) -> None:
    assert subjects.partition_of(2**32, *tokens) == hashed


def test_an_address_with_all_parts_given_is_a_subject() -> None:
    parts = {"platform": "slack", "account": "bot", "chat": "none"}
    assert subjects.placeholders(subjects.INBOUND) == tuple(parts)
    assert subjects.filled(subjects.INBOUND, **parts) == subjects.inbound(**parts)
    assert subjects.wildcards(subjects.INBOUND, account="bot") == "chat.v1.inbound.*.bot.*"
    assert subjects.filled(subjects.API, noun="a") == "chat.v1.api.{principal}.a.{verb}"
