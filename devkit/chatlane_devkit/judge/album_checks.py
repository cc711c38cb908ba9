"""Check that one answer covers all messages of an album."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from chatlane_devkit.judge.history import History, Session
from chatlane_devkit.scenario.feed import Publication


def albums_in(feed: Sequence[Publication]) -> dict[tuple[str, str], list[str]]:
    """Return the message ids of each album, by conversation and album."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for publication in feed:
        if publication.expect == "accepted" and publication.album:
            found[publication.talk, publication.album].append(publication.message_id)
    return found


def album_problems(
    feed: Sequence[Publication], found: Mapping[str, Sequence[Session]], history: History
) -> Iterator[str]:
    """Yield the albums that no single answer covers.

    Args:
        found: The sessions of each conversation.
    """
    message_ids = {(row.session_id, row.seq): row.message_id for row in history.rows}
    reported: dict[str, list[set[str]]] = defaultdict(list)
    for answer in history.received:
        answered_ids = {
            message_ids.get((answer.session_id, message.seq), "")
            for message in answer.heard_messages()
        }
        reported[answer.session_id].append(answered_ids)
    for (talk, album), wanted in albums_in(feed).items():
        answers = [
            message_ids_of_answer
            for session in found.get(talk, ())
            for message_ids_of_answer in reported[session.id]
        ]
        if not any(answered.issuperset(wanted) for answered in answers):
            yield f"{talk}: album {album} was not answered as one"
