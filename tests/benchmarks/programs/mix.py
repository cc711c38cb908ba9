"""The demo's mix: in which order its feed opens conversations, goes on with them, and errs.

The order and the shares are those of the feed that `chatlane demo` plays. The bodies have the size
of all others here, and the chats of each round through the feed are new ones.
"""

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Final, Literal, NamedTuple

from chatlane_devkit.scenario.feed import Publication, publications, read_feed
from chatlane_devkit.scenario.scenario_generator import SCENARIO_FILE

What = Literal["message", "command", "repeat", "reaction", "broken"]

_BY_EXPECTATION: Final[dict[str, What]] = {
    "accepted": "message",
    "obeyed": "command",
    "duplicate": "repeat",
    "kept": "reaction",
    "dead": "broken",
}


class Arrival(NamedTuple):
    """One message of the mix.

    Attributes:
        what: `repeat` is the message before of the same chat once more, `broken` cannot be read.
        chat: New in each round through the feed.
        profile: `default` is served with turns, `notes` as a stream.
        text: Of commands only; what others say is only long.
    """

    what: What
    chat: str
    profile: str
    text: str = ""


@cache
def _day() -> tuple[Publication, ...]:
    return publications(read_feed(SCENARIO_FILE))


def shares() -> dict[str, float]:
    """Return what part of the feed is what, the `notes` among its messages, and new chats."""
    day = list(_round(0))
    parts: dict[str, int] = {
        what: sum(its.what == what for its in day) for what in _BY_EXPECTATION.values()
    }
    parts["notes"] = sum(its.profile == "notes" for its in day)
    parts["new chat"] = len({its.chat for its in day if its.what == "message"})
    return {what: its / len(day) for what, its in parts.items()}


def arrivals() -> Iterator[Arrival]:
    """Yield the feed round after round, without end."""
    for number in count():
        yield from _round(number)


def _round(number: int) -> Iterator[Arrival]:
    last = Arrival("message", f"{number}-0", "default")
    for its in _day():
        what = _BY_EXPECTATION[its.expect]
        if what in ("message", "command"):
            talk = _number(its.talk)
            profile = "notes" if its.agent == "notes" else "default"
            last = Arrival("message", f"{number}-{talk}", profile)
        yield last._replace(what=what, text=its.text.partition("@")[0] if what == "command" else "")


@cache
def _number(talk: str) -> int:
    """Return a short name of a conversation of the feed."""
    return sorted({its.talk for its in _day()}).index(talk)
