"""Check the router's own messages: one answer per command, one notice per new session."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from chatlane_devkit.judge.history import History, LogEntry, Session
from chatlane_devkit.scenario.feed import Publication

NEW_AFTER_SILENCE: Final = "This is a new conversation: the last one ended after a quiet time."


def commands_in(feed: Sequence[Publication]) -> list[Publication]:
    """Return the commands of a feed that the router must execute."""
    return [publication for publication in feed if publication.expect == "obeyed"]


def beginnings(
    feed: Sequence[Publication], entries: Mapping[str, LogEntry]
) -> dict[str, list[int]]:
    """Return by conversation the log positions of requests for a new session."""
    found: dict[str, list[int]] = defaultdict(list)
    for command in commands_in(feed):
        if command.begins and command.nats_id in entries:
            found[command.talk].append(entries[command.nats_id].sequence)
    return found


def notice_problems(
    feed: Sequence[Publication], found: Mapping[str, Sequence[Session]], history: History
) -> Iterator[str]:
    """Compare the router's messages with the commands and with sessions that ended by silence.

    Args:
        found: The sessions of each conversation, oldest first.
    """
    notices = [message for message in history.received if message.kind == "notice"]
    due = Counter((command.message_id, command.reply) for command in commands_in(feed))
    due.update((session_id, NEW_AFTER_SILENCE) for session_id in _begun_after_silence(found))
    told = Counter(
        (
            notice.session_id
            if notice.text == NEW_AFTER_SILENCE
            else notice.cause.removeprefix("message "),
            notice.text,
        )
        for notice in notices
    )
    for (what, text), count in (due - told).items():
        yield f"{count} times not told: {text!r} to {what}"
    for (what, text), count in (told - due).items():
        yield f"{count} times told for nothing: {text!r} to {what}"
    yield from _misled(feed, history)


def _begun_after_silence(found: Mapping[str, Sequence[Session]]) -> Iterator[str]:
    for sessions in found.values():
        for before, after in pairwise(sessions):
            if before.end_reason == "idle":
                yield after.id


def _misled(feed: Sequence[Publication], history: History) -> Iterator[str]:
    """Describe answers to commands that went to another place than the command came from."""
    places = {(command.message_id, command.reply): command.address for command in commands_in(feed)}
    for message in history.received:
        place = places.get((message.cause.removeprefix("message "), message.text))
        if message.kind == "notice" and place is not None and place != message.address:
            yield f"told in the wrong place: {message.text!r}"
