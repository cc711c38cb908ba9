"""Every kind of damage to questions, drafts, pieces and sent messages, made by hand, is named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chatlane_devkit.judge.dialogue import (
    Call,
    DeliveryState,
    Dialogue,
    OutboundText,
    Outcome,
    Question,
    Quoted,
    Reply,
    SentAlone,
)
from chatlane_devkit.judge.history import (
    History,
    Published,
    ReceiptEntry,
    Result,
    Row,
    Sent,
    Session,
    Spell,
    Turn,
)
from chatlane_devkit.judge.verdict import Run, judge, unwatched

KEY = "agent:helper:test:talk:dm:d1"
HEARD = "#1 heard: choose a"
LONG = "#5 heard: long b\nLine 0.\nLine 1."


def piece(at: float, message_id: str, number: int, text: str, **its: Any) -> Call:  # noqa: ANN401
    out_seq = {"o1": 1, "o2": 2, "o3": 3, "o4": 4}[message_id]
    of = {"kind": "send", "platform_id": f"p{message_id}{number}", **its}
    return Call(
        at=at,
        chat="d1",
        message_id=message_id,
        session_id="s1",
        out_seq=out_seq,
        piece=number,
        text=text,
        **of,
    )


def good() -> Dialogue:
    """Return a chat in which a question was asked, a reminder sent, and a draft became an answer."""
    return Dialogue(
        history=History(
            sent=(
                Sent(KEY, 1, "m1", "e1", "choose a", "helper"),
                Sent(KEY, 2, "m2", "e2", "long b", "helper"),
            ),
            sessions=(Session("s1", KEY, "helper"),),
            rows=(
                Row("s1", 1, "user", "choose a", "m1", turn_id="t1"),
                Row("s1", 2, "assistant", "question q1 choose", turn_id="t1"),
                Row("s1", 3, "user", "Yes q1"),
                Row("s1", 4, "assistant", HEARD, turn_id="t1"),
                Row("s1", 5, "user", "long b", "m2", turn_id="t2"),
                Row("s1", 6, "context", "react c"),
                Row("s1", 7, "assistant", "reminder r1"),
                Row("s1", 8, "assistant", LONG, turn_id="t2"),
            ),
            turns=(Turn("t1", "s1", "done", 2, "x", "r1"), Turn("t2", "s1", "done", 1, "y", "r2")),
            results=(Result("r1", "t1", 2, "x"), Result("r2", "t2", 1, "y")),
            late=frozenset(),
            outbound=[Published("s1", number, f"o{number}") for number in range(1, 5)],
            receipts=(ReceiptEntry("e9", "o1", "delivered"),),
            spells=(
                Spell("s1", "t1", 1, 1, 2),
                Spell("s1", "t1", 2, 3, 8),
                Spell("s1", "t2", 1, 9, 13),
            ),
        ),
        chats={"d1": KEY, "d2": "agent:helper:test:talk:dm:d2"},
        calls=(
            piece(4, "o1", 0, "question q1 choose", buttons=(("Yes q1", "v"), ("No q1", "w"))),
            piece(8, "o2", 0, HEARD),
            Call(at=10, kind="send", chat="d1", platform_id="pd", text="[t2] ", turn_id="t2"),
            Call(at=11, kind="edit", chat="d1", platform_id="pd", text="[t2] 0", turn_id="t2"),
            piece(12, "o3", 0, "reminder r1"),
            piece(13, "o4", 0, "#5 heard: long b", kind="edit", platform_id="pd", pieces=2),
            piece(14, "o4", 1, "Line 0.\nLine 1.", pieces=2),
            piece(16, "o4", 1, "Line 0.\nLine 1.", pieces=2, platform_id="again"),
        ),
        questions=(
            Question(at=1.5, name="q0", chat="d1", session_id="s1", turn_id="t1", attempt=1),
            Question(at=3.5, name="q1", chat="d1", session_id="s1", turn_id="t1", attempt=2),
        ),
        outcomes=(Outcome(at=7, name="q1", value="q1:yes", is_default=False),),
        replies=(
            Reply(at=5, begun_at=4.5, name="q1", chat="d1", text="Yes q1", is_press=True),
            Reply(at=5, begun_at=4.5, name="q1", chat="d2", text="Yes q1", is_press=True),
            Reply(at=6, begun_at=5.5, name="q0", chat="d1", text="Yes q0", is_press=True),
        ),
        sends=(
            SentAlone(
                at=11,
                request_id="r",
                chat="d1",
                text="reminder r1",
                session_id="s1",
                message_id="o3",
            ),
            SentAlone(
                at=11,
                request_id="r",
                chat="d1",
                text="reminder r1",
                session_id="s1",
                message_id="o3",
            ),
        ),
        quotes=(Quoted(platform_id="po20", text=HEARD),),
        reactions=("react c",),
        outbound=(
            OutboundText(id="o1", session_id="s1", turn_id="t1", text="question q1 choose"),
            OutboundText(id="o2", session_id="s1", turn_id="t1", text=HEARD),
            OutboundText(id="o3", session_id="s1", turn_id="", text="reminder r1"),
            OutboundText(id="o4", session_id="s1", turn_id="t2", text=LONG),
        ),
        deliveries=(
            DeliveryState(
                message_id="o1", state="delivered", sent=1, pieces=1, platform_ids=["po10"]
            ),
            DeliveryState(
                message_id="o2", state="delivered", sent=1, pieces=1, platform_ids=["po20"]
            ),
            DeliveryState(
                message_id="o3", state="delivered", sent=1, pieces=1, platform_ids=["po30"]
            ),
            DeliveryState(
                message_id="o4", state="delivered", sent=2, pieces=2, platform_ids=["pd", "again"]
            ),
        ),
        ends={"adapter": [15.0]},
        reported={"pd": 10.5},
        stored={"o4": 12.0},
    )


def problems(its: Dialogue) -> list[str]:
    return judge(Run(History(dialogue=its))).problems


def without(items: Any, place: int) -> Any:  # noqa: ANN401
    return [*items[:place], *items[place + 1 :]]


def with_call(its: Dialogue, call: Call) -> Dialogue:
    return replace(its, calls=[*its.calls, call])


def with_row(its: Dialogue, place: int, **changed: Any) -> Dialogue:  # noqa: ANN401
    rows = list(its.history.rows)
    rows[place] = replace(rows[place], **changed)
    return replace(its, history=replace(its.history, rows=rows))


def with_rows(its: Dialogue, *rows: Row) -> Dialogue:
    return replace(its, history=replace(its.history, rows=[*its.history.rows, *rows]))


def draft_stays(its: Dialogue, **changed: Any) -> Dialogue:  # noqa: ANN401
    """Let the answer be another message than the draft."""
    calls = [
        replace(call, kind="send", platform_id="px") if call.at == 13 else call
        for call in its.calls
    ]
    deliveries = [
        replace(state, platform_ids=["px", "again"]) if state.message_id == "o4" else state
        for state in its.deliveries
    ]
    return replace(its, calls=calls, deliveries=deliveries, **changed)


def test_nothing_is_wrong_with_a_good_dialogue() -> None:
    assert problems(good()) == []


def test_a_draft_that_stays_is_explained_by_a_crash_before_its_report() -> None:
    its = good()
    late = {"reported": {"pd": 10.5}, "stored": {"o4": 12.0}, "ends": {"adapter": [10.2, 15.0]}}
    assert problems(draft_stays(its, **late)) == []


DAMAGES: dict[str, tuple[Callable[[Dialogue], Dialogue], str]] = {
    "a message never arrives": (lambda its: replace(its, calls=its.calls[1:]), "lost: o1 never"),
    "a piece never arrives": (lambda its: replace(its, calls=its.calls[:-2]), "lost: pieces [1]"),
    "a piece comes again without a crash": (
        lambda its: replace(its, ends={}),
        "doubled: piece 1 of o4 came again without a crash",
    ),
    "an earlier piece comes again": (
        lambda its: with_call(its, piece(17, "o4", 0, "#5 heard: long b", pieces=2)),
        "doubled: piece 0 of o4 came again after piece 1",
    ),
    "a piece is changed": (
        lambda its: replace(its, calls=[replace(its.calls[0], text="?"), *its.calls[1:]]),
        "changed: the text of o1",
    ),
    "pieces change places": (
        lambda its: replace(
            its, calls=[replace(it, at=12.5) if it.at == 14 else it for it in its.calls]
        ),
        "inverted: the pieces of o4",
    ),
    "a message is made up": (
        lambda its: replace(its, outbound=its.outbound[1:]),
        "made up: the chat d1 got o1",
    ),
    "a receipt is lost": (
        lambda its: replace(
            its, deliveries=[replace(its.deliveries[0], state="handed"), *its.deliveries[1:]]
        ),
        "lost: the receipt of o1",
    ),
    "a delivery is lost": (
        lambda its: replace(its, deliveries=its.deliveries[1:]),
        "lost: o1 has no delivery",
    ),
    "a message is given up": (
        lambda its: replace(
            its, deliveries=[replace(its.deliveries[0], state="failed"), *its.deliveries[1:]]
        ),
        "lost: o1 was given up",
    ),
    "a receipt is applied twice": (
        lambda its: replace(
            its, deliveries=[replace(its.deliveries[0], sent=2), *its.deliveries[1:]]
        ),
        "counted: 2 of 1 pieces of o1",
    ),
    "an id of a platform is wrong": (
        lambda its: replace(
            its, deliveries=[replace(its.deliveries[0], platform_ids=["?"]), *its.deliveries[1:]]
        ),
        "misrouted: the platform's ids of o1",
    ),
    "a draft stays": (draft_stays, "lost: draft pd stays beside its answer, without a crash"),
    "a draft that was reported is forgotten": (
        lambda its: draft_stays(its, ends={"adapter": [11.5, 15.0]}, stored={"o4": 17.0}),
        "forgotten: draft pd was reported and stays",
    ),
    "a question is never answered": (
        lambda its: replace(its, outcomes=()),
        "lost: question q1 was never answered",
    ),
    "a question is answered twice": (
        lambda its: replace(its, outcomes=[*its.outcomes, *its.outcomes]),
        "answered twice: question q1",
    ),
    "a question gets the answer of another attempt": (
        lambda its: replace(its, outcomes=[replace(its.outcomes[0], value="q0:yes")]),
        "misrouted: question q1 got 'q0:yes'",
    ),
    "a question gets what its chat never said": (
        lambda its: replace(its, replies=its.replies[1:]),
        "misrouted: question q1 got 'q1:yes', which its chat never said",
    ),
    "a question gets its default although it was answered": (
        lambda its: replace(
            its, outcomes=[Outcome(at=40, name="q1", value="q1:default", is_default=True)]
        ),
        "lost: question q1 got its default",
    ),
    "a question is made up": (
        lambda its: replace(its, questions=its.questions[:1]),
        "made up: question q1",
    ),
    "a question outlives its turn": (
        lambda its: replace(its, questions_kept=1),
        "kept: 1 ended turns have a question",
    ),
    "an answer counts twice": (
        lambda its: with_rows(its, Row("s1", 9, "user", "Yes q1")),
        "answered twice: 'Yes q1' is in the transcript 2 times",
    ),
    "the answer to an old attempt counts": (
        lambda its: with_rows(its, Row("s1", 9, "user", "Yes q0")),
        "late: 'Yes q0' counts, and its attempt was over",
    ),
    "an answer counts in another chat": (
        lambda its: replace(
            with_rows(its, Row("s2", 1, "user", "Yes q1")),
            history=replace(
                with_rows(its, Row("s2", 1, "user", "Yes q1")).history,
                sessions=[*its.history.sessions, Session("s2", its.chats["d2"], "helper")],
            ),
        ),
        "misrouted: 'Yes q1' counts in d2",
    ),
    "a request sends twice": (
        lambda its: replace(its, sends=[its.sends[0], replace(its.sends[1], message_id="o9")]),
        "doubled: request r sent several messages",
    ),
    "a sent message is in the transcript twice": (
        lambda its: with_rows(its, Row("s1", 9, "assistant", "reminder r1")),
        "doubled: 'reminder r1'",
    ),
    "a sent message is not published": (
        lambda its: replace(its, outbound=[it for it in its.outbound if it.id != "o3"]),
        "lost: o3 was sent and never published",
    ),
    "a sent message is in no transcript": (
        lambda its: with_row(its, 6, text="?"),
        "lost: 'reminder r1' is in no transcript",
    ),
    "a sent message is in another session": (
        lambda its: replace(its, sends=[replace(it, chat="d2") for it in its.sends]),
        "misrouted: 'reminder r1' is in",
    ),
    "sent messages change places": (
        lambda its: replace(
            with_rows(its, Row("s1", 9, "assistant", "reminder r0")),
            sends=[replace(its.sends[0], at=1, request_id="r0", text="reminder r0"), *its.sends],
        ),
        "inverted: what was sent to d1",
    ),
    "a message is in no transcript": (
        lambda its: with_row(its, 0, message_id="?"),
        "lost: 'choose a' is in transcripts 0 times",
    ),
    "a message is in a transcript twice": (
        lambda its: with_rows(its, Row("s1", 9, "user", "choose a", "m1")),
        "doubled: 'choose a' is in transcripts 2 times",
    ),
    "a message is not heard": (
        lambda its: with_row(its, 7, text="?"),
        "unanswered: nobody heard 'long b'",
    ),
    "a message is heard twice": (
        lambda its: with_rows(its, Row("s1", 9, "assistant", HEARD)),
        "answered twice: 'choose a' was heard 2 times",
    ),
    "a chat is told something else": (
        lambda its: with_row(its, 7, text="#5 heard: long b"),
        "told otherwise: message 4 of s1",
    ),
    "a transcript has a gap": (lambda its: with_row(its, 7, seq=9), "gap: "),
    "a reaction is lost": (lambda its: with_row(its, 5, text="?"), "lost: reaction 'react c'"),
    "a reply leads nowhere": (
        lambda its: replace(its, quotes=[replace(its.quotes[0], text=None)]),
        "lost: the message po20",
    ),
    "a reply leads to another message": (
        lambda its: replace(its, quotes=[replace(its.quotes[0], text="reminder r1")]),
        "misrouted: a reply to po20",
    ),
    "an adapter knows of a turn of another account": (
        lambda its: replace(its, foreign=["t9"]),
        "misrouted: an adapter knows of turn t9",
    ),
    "two attempts run at once": (
        lambda its: replace(
            its,
            history=replace(
                its.history, spells=[Spell("s1", "t1", 1, 1, 5), *its.history.spells[1:]]
            ),
        ),
        "two at once: ",
    ),
    "a receipt is about nothing": (
        lambda its: replace(
            its, history=replace(its.history, receipts=[ReceiptEntry("e9", "o9", "delivered")])
        ),
        "made up: receipt e9",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(damage: str) -> None:
    damaged, expected = DAMAGES[damage]
    found = problems(damaged(good()))
    assert any(problem.startswith(expected) for problem in found), found


def test_what_no_participant_reports_is_named() -> None:
    assert "unwatched: nobody tells what platforms took" in unwatched(History(dialogue=Dialogue()))
    found = unwatched(History(dialogue=good()))
    assert not [problem for problem in found if "dialogues" in problem or "platforms" in problem]
