"""Rules for every run: the log, transcript numbers, deliveries to chats, and leftovers.

Every problem is one line that begins with the kind of damage, so that a test can require a kind.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from chatlane_devkit.judge.history import (
    History,
    LogEntry,
    Received,
    Row,
    grouped,
    shown,
)


def log_problems(log: Sequence[LogEntry], wanted: Iterable[str]) -> Iterator[str]:
    """Require that the log has each published message once.

    Args:
        log: The entries of the log.
        wanted: Ids of the messages that the server acknowledged.
    """
    stored = Counter(entry.nats_id for entry in log)
    for nats_id in dict.fromkeys(wanted):
        if not stored[nats_id]:
            yield f"lost: {nats_id} was acknowledged and is not in the log"
    for nats_id, count in stored.items():
        if count > 1:
            yield f"doubled: {nats_id} is in the log {count} times"


def receipt_problems(history: History, *, are_adapters_killed: bool) -> Iterator[str]:
    """Require that each receipt names a message of the run, and that it was delivered once.

    An adapter that is killed after its report may report the same message again.
    """
    known = {message.id for message in history.outbound}
    known.update(message.id for message in history.received)
    stored = Counter(receipt.nats_id for receipt in history.receipts)
    for nats_id, count in stored.items():
        if count > 1:
            yield f"doubled: receipt {nats_id} is in the log {count} times"
    for receipt in history.receipts:
        if receipt.message_id not in known:
            yield f"made up: receipt {receipt.nats_id} names {receipt.message_id}, not of the run"
    if are_adapters_killed:
        return
    delivered = Counter(
        receipt.message_id for receipt in history.receipts if receipt.state == "delivered"
    )
    for message_id, count in delivered.items():
        if count > 1:
            yield f"doubled: message {message_id} was reported as delivered {count} times"


def numbering_problems(rows: Sequence[Row], names: Mapping[str, str]) -> Iterator[str]:
    """Require that each transcript is numbered from 1 without a gap.

    Args:
        rows: The rows of all transcripts.
        names: Names of sessions by id, for the problem text.
    """
    for session_id, session_rows in grouped(rows, lambda row: row.session_id).items():
        numbers = sorted(row.seq for row in session_rows)
        if numbers != list(range(1, len(session_rows) + 1)):
            yield f"gap: {names.get(session_id, session_id)} is numbered {shown(numbers)}"


def delivery_order_problems(
    received: Sequence[Received], names: Mapping[str, str]
) -> Iterator[str]:
    """Require that each chat received every message of its session once, in order.

    Args:
        received: What the adapters received, in the order of arrival.
        names: Names of sessions by id, for the problem text.
    """
    for session_id, messages in grouped(received, lambda message: message.session_id).items():
        name = names.get(session_id, session_id)
        numbers = [message.out_seq for message in messages]
        missing = set(range(1, max(numbers) + 1)) - set(numbers)
        if len(set(numbers)) < len(numbers):
            yield f"doubled: {name} received {shown(numbers)}"
        elif numbers != sorted(numbers):
            yield f"inverted: {name} received {shown(numbers)}"
        elif missing:
            yield f"gap: {name} never received {shown(sorted(missing))}"


def answer_text_problems(rows: Sequence[Row], received: Sequence[Received]) -> Iterator[str]:
    """Compare the answers that each chat received with its transcript."""
    ordered = sorted(rows, key=lambda row: row.seq)
    written = grouped(
        (row for row in ordered if row.role == "assistant"), lambda row: row.session_id
    )
    answers = grouped(
        (message for message in received if message.kind == "answer"),
        lambda message: message.session_id,
    )
    for session_id in sorted(written.keys() | answers.keys()):
        expected = [row.text for row in written.get(session_id, ())]
        actual = [message.text for message in answers.get(session_id, ())]
        if expected != actual:
            pairs = zip(expected, actual, strict=False)
            shorter = min(len(expected), len(actual))
            place = next((n for n, (item, other) in enumerate(pairs) if item != other), shorter)
            yield (
                f"told otherwise: answer {place + 1} of {session_id} is "
                f"{expected[place : place + 1]}, its chat was told {actual[place : place + 1]}"
            )


def left_over_problems(left_over: Mapping[str, int]) -> Iterator[str]:
    """Require that no work is left over."""
    yield from (f"left over: {count} {name}" for name, count in left_over.items() if count)
