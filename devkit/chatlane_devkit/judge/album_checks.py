"""Check that one answer covers all messages of an album."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from chatlane_devkit.judge.history import History, Session
from chatlane_devkit.scenario.feed import Publication


def albums_in(feed: Sequence[Publication]) -> dict[tuple[str, str], list[str]]:
    """Return the message ids of each album, by conversation and album."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for its in feed:
        if its.expect == "accepted" and its.album:
            found[its.talk, its.album].append(its.message_id)
    return found


def album_problems(
    feed: Sequence[Publication], found: Mapping[str, Sequence[Session]], history: History
) -> Iterator[str]:
    """Yield the albums that no single answer covers.

    Args:
        found: The sessions of each conversation.
    """
    message_ids = {(row.session_id, row.seq): row.message_id for row in history.rows}
    heard: dict[str, list[set[str]]] = defaultdict(list)
    for answer in history.received:
        said = {
            message_ids.get((answer.session_id, its.seq), "") for its in answer.heard_messages()
        }
        heard[answer.session_id].append(said)
    for (talk, album), wanted in albums_in(feed).items():
        answers = [said for session in found.get(talk, ()) for said in heard[session.id]]
        if not any(said.issuperset(wanted) for said in answers):
            yield f"{talk}: album {album} was not answered as one"
