"""Rules for published, handed over and received messages."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from chatlane_devkit.judge.delivery_checks import answer_text_problems, delivery_order_problems
from chatlane_devkit.judge.history import (
    Handed,
    History,
    Published,
    firsts,
    grouped,
    shown,
    stream_sessions,
    users,
)


def stream_problems(history: History) -> Iterator[str]:
    """Yield every problem of the streams and of the deliveries from them."""
    yield from _published_problems("routed", history.routed, is_contiguous=False)
    yield from _published_problems("outbound", history.outbound, is_contiguous=True)
    yield from _routed_problems(history)
    yield from overlaps(history.handed)
    yield from _handed_problems(history)
    yield from _received_problems(history)
    yield from _answer_problems(history)
    yield from _hearing_problems(history)


def overlaps(handed: Sequence[Handed]) -> Iterator[str]:
    """Yield every message that was handed over before its predecessor was acknowledged."""
    given: dict[str, dict[int, float]] = defaultdict(dict)
    acknowledged: dict[tuple[str, int], float] = {}
    for note in sorted(handed, key=lambda note: note.at):
        if note.what == "given":
            given[note.session_id].setdefault(note.seq, note.at)
        else:
            acknowledged.setdefault((note.session_id, note.seq), note.at)
    for session_id, times in given.items():
        for earlier, later in pairwise(sorted(times)):
            done_at = acknowledged.get((session_id, earlier))
            if done_at is None or done_at > times[later]:
                yield f"two at once: {later} of {session_id} was given before {earlier} was done"


def _handed_problems(history: History) -> Iterator[str]:
    given = {it.id for it in history.handed}
    for it in history.routed if given else ():
        if it.id not in given:
            yield f"lost: {it.id} was never given to a subscriber"


def _published_problems(
    name: str, messages: Sequence[Published], *, is_contiguous: bool
) -> Iterator[str]:
    for message_id, count in Counter(it.id for it in messages).items():
        if count > 1:
            yield f"doubled: {message_id} is {count} times on {name}"
    for session_id, session_messages in grouped(messages, lambda it: it.session_id).items():
        numbers = [it.number for it in session_messages]
        if len({it.subject for it in session_messages}) > 1:
            yield f"split: {name} of {session_id} is on several subjects"
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            yield f"inverted: {name} of {session_id} has {shown(numbers)}"
        elif is_contiguous and numbers != list(range(1, len(numbers) + 1)):
            yield f"gap: {name} of {session_id} has {shown(numbers)}"


def _routed_problems(history: History) -> Iterator[str]:
    stream = stream_sessions(history)
    due = {row.id: row for row in users(history.rows) if row.session_id in stream}
    found = {it.id for it in history.routed}
    yield from (f"lost: {it} was never published to its agent" for it in sorted(due.keys() - found))
    yield from (f"made up: {it} on routed" for it in sorted(found - due.keys()))
    for it in history.routed:
        row = due.get(it.id)
        if row and (row.session_id, row.seq) != (it.session_id, it.number):
            yield f"misrouted: {it.id} is {it.number} of {it.session_id}, its row {row.seq}"
        if row and it.text and row.text != it.text:
            yield f"changed: the text of {it.id} on routed"


def _received_problems(history: History) -> Iterator[str]:
    keys = {session.id: session.key for session in history.sessions}
    yield from delivery_order_problems(history.received, keys)
    for it in history.received:
        if it.key != keys.get(it.session_id):
            yield f"misrouted: {it.id} of {keys.get(it.session_id)} was received by {it.key}"
    yield from _delivery_problems(history)
    arrived = {it.id for it in history.received}
    yield from (
        f"lost: {it.id} never reached its chat" for it in history.outbound if it.id not in arrived
    )
    yield from (
        f"unanswered: {it.key} got a {it.kind}" for it in history.received if it.kind != "answer"
    )


def _delivery_problems(history: History) -> Iterator[str]:
    """Compare the messages that chats received with the published ones."""
    published = {it.id: it for it in history.outbound}
    for it in history.received if published else ():
        known = published.get(it.id)
        if known is None:
            yield f"made up: {it.key} received {it.id}, which was never published"
        elif (known.session_id, known.number) != (it.session_id, it.out_seq):
            yield (
                f"misrouted: {it.id} is {known.number} of {known.session_id}, and was received as "
                f"{it.out_seq} of {it.session_id}"
            )
        elif known.text and known.text != it.text:
            yield f"changed: the text of {it.id} on its way to {it.key}"


def _answer_problems(history: History) -> Iterator[str]:
    """Compare the answers that each chat received with the transcript."""
    yield from answer_text_problems(history.rows, history.received)
    sent_ids = {(sent.key, sent.message_id) for sent in history.sent}
    for it in history.received:
        if it.kind == "answer" and (it.key, it.reply_to) not in sent_ids:
            yield f"misrouted: {it.id} replies to {it.reply_to!r}, which {it.key} never wrote"


def _hearing_problems(history: History) -> Iterator[str]:
    """Compare the messages that agents report to each chat with the messages of that chat."""
    heard_texts: dict[str, list[str]] = defaultdict(list)
    for it in history.received:
        heard_texts[it.key] += it.heard
    sent_messages = grouped(firsts(history.sent), lambda sent: sent.key)
    for key in heard_texts.keys() | sent_messages.keys():
        wanted = [sent.text for sent in sent_messages.get(key, [])]
        missing, extra = (
            Counter(wanted) - Counter(heard_texts[key]),
            Counter(heard_texts[key]) - Counter(wanted),
        )
        yield from (f"unanswered: nobody heard {text!r}" for text in missing)
        for text in extra:
            kind = "answered twice" if text in wanted else "misrouted"
            yield f"{kind}: {key} was told of {text!r}"
        if not missing and not extra and heard_texts[key] != wanted:
            yield f"inverted: {key} was heard as {shown(heard_texts[key])}"
