"""What the demo shows and writes down."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from chatlane_devkit.demo.bot_platform import BotOutcome
from chatlane_devkit.demo.console import ConsoleOutput
from chatlane_devkit.demo.report import (
    as_json,
    copy_rows,
    dead_letter_rows,
    dialogue_rows,
    event_rows,
    loss_rows,
    one_conversation,
    session_rows,
    write,
)
from chatlane_devkit.judge.dialogue import Call, Dialogue, OutboundText, Question, SentAlone
from chatlane_devkit.judge.history import (
    DeadLetter,
    History,
    LogEntry,
    Received,
    Row,
    Session,
    Turn,
)
from chatlane_devkit.judge.verdict import Check, Verdict
from chatlane_devkit.scenario.feed import Publication, parse_step

NOON = datetime(2026, 3, 12, 12, tzinfo=UTC)


def published(number: int, envelope: str, expect: str, **event: object) -> Publication:
    line = {"event": {"id": envelope, "message_id": number} | event, "expect": expect}
    step = parse_step(number, line)
    assert isinstance(step, Publication)
    return step


FEED = (
    published(1, "a", "accepted", text="one", sender={"name": "Ann"}),
    published(2, "b", "accepted", text="two", sender={"name": "Ben"}),
    published(3, "a", "duplicate", text="one"),
    published(4, "c", "duplicate", text="two"),
)
TEXT = "#1 heard: one\n#2 heard: two"
ROWS = [Row("s", 1, "user", "one", "1"), Row("s", 2, "user", "two", "2")]
HISTORY = History(
    log=[LogEntry(name, number, NOON, "chat") for number, name in enumerate("abc", 1)],
    received=[Received("", "s", 1, "o1", "", TEXT, agent="main", address=FEED[0].address)],
    sessions=[
        Session("s", "agent:main:telegram:assistant:group:1:user=1", "main", started_at=NOON),
        Session("t", "agent:main:discord:guild_bot:dm:2", "main", "idle", started_at=NOON),
    ],
    rows=[*ROWS, Row("s", 3, "assistant", TEXT)],
    dead_letters=[DeadLetter("d", "invalid", 9, "v: missing"), DeadLetter("e", "invalid", 8)],
    dead_notices=[],
)
VERDICT = Verdict((Check("all is well", 3, ()), Check("nothing is lost", 2, ("lost: one",))))


def test_sessions_are_counted_by_platform_and_agent() -> None:
    assert session_rows(HISTORY) == [
        ("discord", "main", 1, 1, 0, 0),
        ("telegram", "main", 1, 0, 2, 1),
    ]


def test_context_is_no_message_that_waits_for_an_answer() -> None:
    history = replace(HISTORY, rows=[*HISTORY.rows, Row("s", 4, "context", "liked it")])
    bot = BotOutcome(2, 0, 0, 0, 4)
    assert loss_rows(VERDICT, history, bot) == loss_rows(VERDICT, HISTORY, bot)
    assert session_rows(history) == session_rows(HISTORY)


def test_what_people_see_in_dialogues_is_counted_with_what_is_wrong_of_it() -> None:
    call = Call(at=1.0, kind="send", chat="c", platform_id="d", turn_id="t")
    piece = Call(
        at=2.0, kind="send", chat="c", platform_id="p", text="a", message_id="o", piece=0, pieces=2
    )
    asked = Question(at=1.0, name="q", chat="c", session_id="s", turn_id="t", attempt=1)
    sent = SentAlone(at=1.0, request_id="r", chat="c", text="hey", session_id="s", message_id="m")
    dialogue = Dialogue(
        history=History(turns=[Turn("t", "s", "done")]),
        calls=[call, piece],
        questions=[asked],
        sends=[sent, sent],
        outbound=[OutboundText(id="o", session_id="s", turn_id="t", text="ab")],
    )
    rows = {name: (seen, wrong) for name, _, seen, wrong in dialogue_rows(dialogue)}
    assert rows == {
        "drafts of live turns": (1, 1),
        # The second piece and the receipt are missing.
        "pieces of long answers": (1, 2),
        "questions to people": (1, 1),
        # It was not published, and is in no transcript.
        "messages outside turns": (1, 2),
    }


def test_copies_are_told_apart_by_who_stopped_them() -> None:
    assert [row[:3] for row in copy_rows(FEED, HISTORY)] == [
        ("the same envelope again", 1, 0),
        ("the same message in a new envelope", 1, 1),
    ]


def test_dead_letters_are_counted_by_reason() -> None:
    assert dead_letter_rows(HISTORY) == [("invalid", 2, "v: missing")]


def test_a_conversation_names_its_people() -> None:
    long = [Row("s", number, "user", "two", "2") for number in range(3, 8)]
    history = History(
        log=HISTORY.log,
        received=HISTORY.received,
        sessions=HISTORY.sessions,
        rows=[*ROWS, *long, Row("s", 8, "assistant", TEXT)],
    )
    key, lines = one_conversation(FEED, history)
    assert key == HISTORY.sessions[0].key
    assert lines[:2] == [("Ann", "#1 one"), ("Ben", "#2 two")]
    assert lines[-1] == ("", TEXT)


def test_messages_are_numbered_as_they_are_shown() -> None:
    """A transcript numbers answers as well, so its numbers would look like lost messages."""
    rows = [
        Row("s", 1, "user", "one", "1"),
        Row("s", 2, "assistant", "#1 heard: one"),
        Row("s", 3, "user", "two", "2"),
        Row("s", 4, "assistant", "#3 heard: two"),
    ]
    _, lines = one_conversation(FEED, replace(HISTORY, rows=rows))
    assert lines == [
        ("Ann", "#1 one"),
        ("", "#1 heard: one"),
        ("Ben", "#2 two"),
        ("", "#2 heard: two"),
    ]


def test_the_events_add_up_to_what_was_published() -> None:
    *parts, (name, total, _) = event_rows(FEED, HISTORY)
    assert (name, total) == ("all", len(FEED))
    assert sum(int(str(row[1])) for row in parts) == total


def test_losses_are_counted_for_both() -> None:
    twice = [*HISTORY.received, replace(HISTORY.received[0], text="#1 heard: one")]
    bot = BotOutcome(messages=3, lost=1, doubled=2, forgotten=4, kills=1)
    rows = [*HISTORY.rows, Row("s", 4, "user", "three", "3")]
    found = loss_rows(VERDICT, replace(HISTORY, received=twice, rows=rows), bot)
    assert [row[1:] for row in found] == [(3, 3), (1, 1), (1, 2), (0, 4)]


def test_without_any_session_there_is_no_conversation() -> None:
    history = History()
    assert one_conversation(FEED, history) == ("nobody was answered", [])


def test_the_report_is_json(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    write(path, as_json(VERDICT, FEED, HISTORY, {"total": 1.23456}))
    report = json.loads(path.read_text("utf-8"))
    assert report["is_good"] is False
    assert report["feed"] == {"accepted": 2, "duplicate": 2}
    assert report["checks"][1]["problems"] == ["lost: one"]
    assert report["seconds"] == {"total": 1.235}


def narrated() -> tuple[ConsoleOutput, io.StringIO]:
    output = io.StringIO()
    return ConsoleOutput(Console(file=output, width=100)), output


def test_a_verdict_shows_what_speaks_against_it() -> None:
    narrator, output = narrated()
    problems = tuple(f"lost: [{number}]" for number in range(10))
    narrator.verdict(Verdict((Check("all is well", 3, ()), Check("none lost", 2, problems))))
    text = output.getvalue()
    assert "✓ all is well (3)" in text
    assert "✗ none lost (2)" in text
    assert "lost: [7]" in text
    assert "and 2 more" in text


def test_without_a_terminal_progress_is_a_sentence_for_each_tenth() -> None:
    narrator, output = narrated()
    with narrator.progress(100, 50) as progress:
        for published_so_far in (1, 10, 12, 19, 35, 100):
            progress.show(published_so_far, published_so_far // 2)
    lines = output.getvalue().splitlines()
    assert [line.split("s  ")[1] for line in lines] == [
        "10 of 100 events published, 5 of 50 messages answered",
        "35 of 100 events published, 17 of 50 messages answered",
        "100 of 100 events published, 50 of 50 messages answered",
    ]


def test_on_a_terminal_progress_is_a_bar() -> None:
    output = io.StringIO()
    narrator = ConsoleOutput(Console(file=output, width=100, force_terminal=True))
    with narrator.progress(100, 50) as progress:
        progress.show(100, 50)
    assert "published" in output.getvalue()


def test_a_table_and_a_chat_show_what_people_wrote_as_it_is() -> None:
    narrator, output = narrated()
    narrator.headline("[not markup]")
    narrator.table("T", ("name", "count"), [("[bold]x", 3)])
    narrator.chat("a [key]", [("Ann", "[red]hi"), ("", "#1 heard: [red]hi")])
    text = output.getvalue()
    for expected in ("[not markup]", "[bold]x", "a [key]", "Ann  [red]hi", "#1 heard: [red]hi"):
        assert expected in text
