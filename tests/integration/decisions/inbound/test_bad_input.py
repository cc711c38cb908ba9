"""Whatever a publisher sends: set aside with its reason, or run; never in anybody's way."""

import json
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final

import pytest

from chatlane.domain.catalog import Catalog
from chatlane.domain.policy import KeyRules
from chatlane_schemas.envelope import MAX_BODY_BYTES
from tests.support.worlds.kernel import Fields, Kernel, Placed, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}
WORDS: Final = "words of the body"

GOOD: Final[Fields] = {
    "v": 1,
    "id": "e1",
    "at": "2026-05-11T09:00:00Z",
    "platform": "telegram",
    "account": "bot",
    "message_id": "1",
    "chat": {"id": "701"},
    "sender": {"id": "701"},
    "text": WORDS,
}


def nested(depth: int) -> Any:  # noqa: ANN401 - lists all the way down
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def body(**changes: Any) -> bytes:  # noqa: ANN401 - any JSON
    told = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    return json.dumps(told).encode()


UNREADABLE = {
    "not JSON": (b"{" + WORDS.encode(), "not_json"),
    "nothing": (b"", "not_json"),
    "not UTF-8": (body().replace(b"701", b"\xff\xfe1"), "not_json"),
    "a NUL between": (body() + b"\0", "not_json"),
    "not a number": (body(usage=...).replace(b'"1"', b"NaN", 1), "not_json"),
    "a list": (b"[" + body() + b"]", "invalid"),
    "no version": (body(v=...), "invalid"),
    "another version": (body(v=2), "unknown_version"),
    "a version in words": (body(v="1"), "unknown_version"),
    "true as version": (body(v=True), "unknown_version"),
    "no envelope id": (body(id=...), "invalid"),
    "an envelope id with a space": (body(id="a b"), "invalid"),
    "no platform": (body(platform=...), "invalid"),
    "text as a number": (body(text=5), "invalid"),
    "an unknown kind": (body(kind="poke"), "invalid"),
    "an unknown kind of chat": (body(chat={"id": "701", "kind": "planet"}), "invalid"),
    "a time without zone": (body(at="2026-05-11T09:00:00"), "invalid"),
    "too many attachments": (body(attachments=[{"media_type": "a/b"}] * 101), "invalid"),
    "oversized": (body(text=WORDS + "x" * MAX_BODY_BYTES), "oversized"),
    "too deep": (body(more=nested(40)), "too_deep"),
    "deep as the sea": (b'{"v":1,"x":' + b"[" * 100_000, "too_deep"),
    "a NUL in an id": (body(message_id="1\0"), "bad_id"),
    "a NUL in the chat": (body(chat={"id": "70\u00001"}), "bad_id"),
    "a lone surrogate in an id": (body(sender={"id": "\ud800"}), "bad_id"),
    "a float as id": (body(chat={"id": 701.0}), "bad_id"),
    "a list as id": (body(chat={"id": ["701"]}), "bad_id"),
    "true as id": (body(sender={"id": True}), "bad_id"),
    "a long id": (body(thread_id="x" * 257), "bad_id"),
    "a long integer": (body().replace(b'"701"', b"9" * 300, 1), "bad_id"),
    "an endless integer": (body().replace(b'"701"', b"9" * 5000, 1), "not_json"),
    "another chat than the subject's": (body(chat={"id": "702"}), "subject_mismatch"),
    "another account than the subject's": (body(account="other"), "subject_mismatch"),
    "another platform than the subject's": (body(platform="slack"), "subject_mismatch"),
    "no chat although the subject has one": (
        body(chat=..., sender=...),
        "subject_mismatch",
    ),
}


async def hear(kernel: Kernel, *bodies: bytes) -> list[Placed]:
    """Let bodies arrive as if from the chat of `GOOD`, in one batch."""
    model = kernel.logged(event(**ANN), at("09:00"))
    messages = [
        kernel.raw("inbound", model.partition, model.subject, one, at("09:00")) for one in bodies
    ]
    await kernel.decide(messages)
    return [await kernel.placed(one) for one in messages]


async def test_everything_unreadable_is_set_aside_with_its_reason(kernel: Kernel) -> None:
    """All in one batch, with readable messages between them that nothing delays."""
    bodies: list[bytes] = []
    for number, (one, _) in enumerate(UNREADABLE.values()):
        bodies += [one, body(id=f"good{number}", message_id=f"good{number}", text=f"m{number}")]
    placed = await hear(kernel, *bodies)
    found = dict(zip(UNREADABLE, (one.dead for one in placed[::2]), strict=True))
    assert found == {name: reason for name, (_, reason) in UNREADABLE.items()}
    assert {one.session for one in placed[1::2]} == {placed[1].session}
    seen = [text for claimed in await kernel.run_all() for text in texts(claimed)]
    assert seen == [f"m{number}" for number in range(len(UNREADABLE))]


async def test_a_dead_letter_is_announced_without_its_body(kernel: Kernel) -> None:
    await hear(kernel, *(one for one, _ in UNREADABLE.values()))
    letters = await kernel.published("DEAD")
    assert len(letters) == len(UNREADABLE)
    for letter, (one, reason) in zip(letters, UNREADABLE.values(), strict=True):
        assert (letter["stage"], letter["reason"]) == ("inbound", reason)
        assert letter["digest"] == sha256(one).hexdigest()
        assert letter["size_bytes"] == len(one)
        assert letter["log"] == "inbound"
        assert WORDS not in json.dumps(letter)
    rows = await kernel.fetch("SELECT digest, body, detail FROM dead_letters")
    assert {row["body"] for row in rows} == {one for one, _ in UNREADABLE.values()}
    assert not any(WORDS in (row["detail"] or "") for row in rows)
    subjects = await kernel.fetch("SELECT DISTINCT subject FROM outbox WHERE stream = 'DEAD'")
    assert [row[0] for row in subjects] == ["chat.v1.dead.inbound"]


async def test_a_dead_letter_read_again_is_the_same_one(kernel: Kernel) -> None:
    """The log is read again after a restart; what was set aside has no mark, but an id."""
    await hear(kernel, b"{", b"{}")
    await hear(kernel.restarted(), b"{", b"{}")
    assert await kernel.value("SELECT count(*) FROM dead_letters") == 2
    ids = [letter["id"] for letter in await kernel.published("DEAD")]
    assert ids[:2] == ids[2:]


async def test_a_subject_that_is_none_of_the_log_is_a_mismatch(kernel: Kernel) -> None:
    model = kernel.logged(event(**ANN), at("09:00"))
    for number, subject in enumerate(("chat.v1.log.x.telegram.bot.none", "chat.v1.log.0.t", "")):
        message = kernel.raw("inbound", 0, subject, model.body, at(f"09:0{number}"))
        await kernel.decide([message])
        assert (await kernel.placed(message)).dead == "subject_mismatch"


async def test_what_is_not_declared_is_set_aside(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(profiles={"sales": "main"}, allowed=["main"]))
    reasons = [
        (await kernel.say(event("myspace", **ANN))).dead,
        (await kernel.say(event(**ANN, account="other"))).dead,
        (await kernel.say(event(**ANN, profile="unheard"))).dead,
        (await kernel.say(event(**ANN, profile="sales"))).dead,
        (await kernel.say(event(thr="1"))).dead,
        (await kernel.say(event(kind="edit", thr="1"))).dead,
    ]
    assert reasons == [
        "unknown_account",
        "unknown_account",
        "unknown_profile",
        "profile_forbidden",
        "no_conversation",
        "no_conversation",
    ]


async def test_ids_too_long_for_any_index_are_set_aside_together(
    kernel_with: KernelWith,
) -> None:
    """Each is short enough alone; the key of all four would be refused by the database."""
    kernel = await kernel_with(catalog(keys=KeyRules(thread_sessions_per_user=True)))
    long = "☃" * 85
    one = event(kind_of_chat="group", chat=long, thr=long, user=long, scope=long, text="x")
    assert (await kernel.say(one)).dead == "bad_id"
    fits = event(kind_of_chat="group", chat=long, thr=long, user=long, text="x")
    assert (await kernel.say(fits)).session_id is not None


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        pytest.param(r"what is \u0000 this", "what is � this", id="NUL"),
        pytest.param(r"\u0000", "�", id="only a NUL"),
        pytest.param(r"half \ud800 of it", "half � of it", id="lone high surrogate"),
        pytest.param(r"half \udc00 of it", "half � of it", id="lone low surrogate"),
        pytest.param(r"turned \udc00\ud800 round", "turned �� round", id="wrong order"),
        pytest.param(r"whole \ud83d\ude00 pair", "whole 😀 pair", id="a pair stays"),
        pytest.param(r"\\u0000 in words", r"\u0000 in words", id="the escape itself in words"),
    ],
)
async def test_text_the_database_refuses_is_shown_and_runs(
    kernel: Kernel, sent: str, stored: str
) -> None:
    """C39: in the text of a message and in names; what is around it is kept."""
    told = body(text="@", chat={"id": "701", "name": "@"}).replace(b"@", sent.encode())
    (placed,) = await hear(kernel, told)
    claimed = await kernel.run_turn(placed.session)
    assert texts(claimed) == [stored]
    assert claimed.source is not None
    assert claimed.source.chat is not None
    assert claimed.source.chat.name == stored
    assert (await kernel.said(placed.session))[0] == stored


async def test_results_with_such_text_are_stored_and_sent(kernel: Kernel) -> None:
    """C39: also in keys of objects."""
    placed = await kernel.say(event(**ANN, mid="1", text="hi"))
    claimed = await kernel.claim_live(placed.session)
    await kernel.answer(
        claimed,
        parts=[{"text": "a\0b"}],
        transcript=[
            {"role": "assistant", "tool_calls": [{"k\0": "a\0b", "\ud800": ["\0"]}]},
            {"role": "tool", "content": "\0", "tool_call_id": "\ud800", "tool_name": "t\0"},
        ],
    )
    assert await kernel.said(placed.session) == ["hi", None, "�"]
    (answer,) = await kernel.published("OUTBOUND")
    assert answer["text"] == "a�b"
    details = await kernel.value("SELECT details FROM messages WHERE role = 'assistant'")
    assert json.loads(details) == {"tool_calls": [{"k�": "a�b", "�": ["�"]}]}


BAD_RESULTS: list[tuple[bytes, str]] = [
    (b"{", "not_json"),
    (b"{}", "invalid"),
    (b'{"v": 7}', "unknown_version"),
    (b'{"v":1,"x":' + b"[" * 100_000, "too_deep"),
    (b" " * (MAX_BODY_BYTES + 1), "oversized"),
]


async def test_results_nobody_can_read_are_set_aside(kernel: Kernel) -> None:
    placed = await kernel.say(event(**ANN, mid="1", text="hi"))
    claimed = await kernel.claim_live(placed.session)
    model = kernel.turn_result(claimed, "done")
    partition, subject = model.partition, model.subject
    broken = [kernel.raw("results", partition, subject, one, at("09:01")) for one, _ in BAD_RESULTS]
    elsewhere = subject.replace(str(placed.session), "00000000-0000-0000-0000-000000000000")
    broken += [
        kernel.raw("results", partition, elsewhere, model.body, at("09:01")),
        kernel.raw("results", partition, "chat.v1.rlog.1.main.x", model.body, at("09:02")),
    ]
    await kernel.decide([*broken, model])
    expected = [*(reason for _, reason in BAD_RESULTS), "subject_mismatch", "subject_mismatch"]
    assert sorted(await kernel.dead()) == sorted(("results", reason) for reason in expected)
    assert await kernel.said(placed.session) == ["hi", "done"]


async def test_unknown_fields_are_read_over(kernel: Kernel) -> None:
    """A newer adapter may say more than this router knows."""
    (placed,) = await hear(kernel, body(mood="good", chat={"id": "701", "colour": "red"}))
    assert texts(await kernel.run_turn(placed.session)) == [WORDS]


async def test_integers_are_ids_with_all_their_digits(kernel: Kernel) -> None:
    """C05 and C14: one adapter sends numbers, another text; they mean the same chat."""
    text = await kernel.say(event(chat="9007199254740993", user="7", mid="1", text="a"))
    number = await kernel.say(event(chat=9007199254740993, user=7, mid="2", text="b"))
    near = await kernel.say(event(chat=9007199254740992, user=7, mid="3", text="c"))
    repeat = await kernel.say(event(chat=9007199254740993, user=7, mid=1, text="a"), at("09:01"))
    assert text.session == number.session != near.session
    assert repeat.session_id is None


ODD_IDS = ["!r.a.b:ex.org", "a b", "*", ">", "ünï☃", "a.*.>", "\t", "'; DROP TABLE lanes; --"]


async def test_ids_that_mean_something_in_subjects_are_only_ids(kernel: Kernel) -> None:
    """C41: each has its own session, and its answer a subject of its own."""
    placed = [
        await kernel.say(event("custom", chat=one, user="1", mid="1", text=f"to {one}"))
        for one in ODD_IDS
    ]
    assert len({one.session for one in placed}) == len(ODD_IDS)
    await kernel.run_all()
    rows = await kernel.fetch("SELECT subject, payload FROM outbox WHERE stream = 'OUTBOUND'")
    assert len({row["subject"] for row in rows}) == len(ODD_IDS)
    assert {json.loads(row["payload"])["target"]["chat"]["id"] for row in rows} == set(ODD_IDS)
    assert all(row["subject"].count(".") == 5 and row["subject"].isascii() for row in rows)
