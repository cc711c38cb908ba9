"""The demo's feed: a JSON Lines file of what adapters publish and what must come of it.

A line is an `event` (published through the adapter client) or a `subject` with a `body` (text)
or `raw` (base64) that goes out as it is. `expect` says what must come of it: `accepted`,
`duplicate`, `kept` (stored in the log, starts nothing), `obeyed` (a command, answered with
`reply`; `begins` a new session or not) or `dead:<reason>`; accepted and obeyed lines name their
conversation (`talk`), accepted ones their agent. Other lines direct the player: `settle` waits until all
is answered, `pause` waits some seconds, `cue` lets something break. Nothing here asks the
router's own rules: the expectations were written down with the events.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

Expect = Literal["accepted", "duplicate", "kept", "obeyed", "dead"]

_UNSTORABLE: Final = frozenset({"\x00"})


class FeedError(ValueError):
    """A line of the feed cannot be read.

    Attributes:
        number: Which line, from 1.
    """

    def __init__(self, number: int, problem: str) -> None:
        self.number = number
        super().__init__(f"line {number} of the feed: {problem}")


@dataclass(frozen=True, slots=True)
class Address:
    """Where something was said, as text; what is missing is empty.

    Attributes:
        thread: As the platform sent it, so the same place may have several.
    """

    platform: str
    account: str
    scope: str
    chat: str
    thread: str
    sender: str


@dataclass(frozen=True, slots=True)
class Publication:
    """One message of the feed and what must come of it.

    Attributes:
        number: Line number; the order of the feed.
        nats_id: The `Nats-Msg-Id` it is published with.
        event: The inbound event, as far as there is one.
        subject: Where a raw body goes; None when the adapter client publishes the event.
        body: The raw body; None with the adapter client.
        reason: Why it becomes a dead letter.
        talk: Name of its conversation.
        text: Its text as the transcript must have it.
        hears: What the agent says it heard.
        reply: What the router answers to a command.
        begins: The command begins a new session.
        settles: How many times the player waited for all answers before it.
    """

    number: int
    nats_id: str
    event: Mapping[str, Any]
    subject: str | None
    body: bytes | None
    expect: Expect
    reason: str = ""
    talk: str = ""
    agent: str = ""
    text: str = ""
    hears: str = ""
    reply: str = ""
    begins: bool = False
    settles: int = 0

    @property
    def message_id(self) -> str:
        """The platform's message id as text; empty when there is none."""
        return _id_text(self.event.get("message_id"))

    @property
    def album(self) -> str:
        """The album it is part of; empty when there is none."""
        return _id_text(self.event.get("album_id"))

    @property
    def platform(self) -> str:
        """The platform's name."""
        return str(self.event.get("platform", ""))

    @property
    def is_from_person(self) -> bool:
        """Whether it counts as a person's activity."""
        return bool(self.event.get("kind", "message") == "message")

    @property
    def address(self) -> Address:
        """The place that it was published for."""
        chat = self.event.get("chat") or {}
        sender = self.event.get("sender") or {}
        return Address(
            self.platform,
            str(self.event.get("account", "")),
            _id_text(self.event.get("scope")),
            _id_text(chat.get("id")),
            _id_text(self.event.get("thread_id")),
            _id_text(sender.get("id")),
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause without messages."""

    length: timedelta
    why: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Go on when everything published so far was read and answered."""

    why: str


@dataclass(frozen=True, slots=True)
class Cue:
    """Something breaks now: `router`, `worker`, `nats` or `postgres`."""

    name: str


Step = Publication | Pause | Settle | Cue


def read_feed(path: Path) -> tuple[Step, ...]:
    """Read a feed.

    Raises:
        FeedError: A line is none of those that the module describes.
    """
    return tuple(_steps(path.read_text("utf-8")))


def publications(steps: tuple[Step, ...]) -> tuple[Publication, ...]:
    """Return the publications of the feed, in order."""
    return tuple(step for step in steps if isinstance(step, Publication))


def cleaned(text: str) -> str:
    """Return a text with U+FFFD for everything that cannot be stored."""
    return "".join(
        "\ufffd" if character in _UNSTORABLE or "\ud800" <= character <= "\udfff" else character
        for character in text
    )


def _steps(text: str) -> Iterator[Step]:
    settles = 0
    for number, line in enumerate(text.split("\n"), 1):
        if line:
            try:
                step = parse_step(number, json.loads(line), settles)
            except (KeyError, TypeError, ValueError) as error:
                raise FeedError(number, repr(error)) from error
            settles += isinstance(step, Settle)
            yield step


def parse_step(number: int, line: Mapping[str, Any], settles: int = 0) -> Step:
    """Parse one line of the feed.

    Args:
        number: Of the line, from 1.
        line: As read.
        settles: How many of the lines before it were a settle.

    Raises:
        KeyError, ValueError: The line is not understood.
    """
    if "pause" in line:
        return Pause(timedelta(seconds=line["pause"]), line.get("why", ""))
    if "settle" in line:
        return Settle(line.get("why", ""))
    if "cue" in line:
        return Cue(line["cue"])
    return _publication(number, line, settles)


def _publication(number: int, line: Mapping[str, Any], settles: int) -> Publication:
    expect, _, reason = line["expect"].partition(":")
    body = None if "event" in line else _raw_body(line)
    event = line["event"] if body is None else _event_in(body)
    is_readable = expect in {"accepted", "duplicate", "kept", "obeyed"}
    text = cleaned(event.get("text") or "") if is_readable else ""
    return Publication(
        number=number,
        # What cannot be decoded has no envelope id that anybody could have put in the header.
        nats_id=str(event["id"]) if is_readable else f"feed-{number}",
        event=event,
        subject=None if body is None else line["subject"],
        body=body,
        expect=_expectation(expect),
        reason=reason,
        talk=line.get("talk", ""),
        agent=line.get("agent", ""),
        text=text,
        hears=line.get("hears", text),
        reply=line.get("reply", ""),
        begins=line.get("begins", False),
        settles=settles,
    )


def _expectation(word: str) -> Expect:
    match word:
        case "accepted" | "duplicate" | "kept" | "obeyed" | "dead":
            return word
        case _:
            raise ValueError(f"unknown expectation {word!r}")


def _raw_body(line: Mapping[str, Any]) -> bytes:
    body = base64.b64decode(line["raw"]) if "raw" in line else line["body"].encode()
    missing = line.get("pad_bytes", 0) - len(body)
    # Blanks before the last brace: still the same JSON, only larger.
    return body if missing <= 0 else body[:-1] + b" " * missing + body[-1:]


def _event_in(body: bytes) -> dict[str, Any]:
    """Return the event of a raw body, or nothing where there is none."""
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _id_text(value: object) -> str:
    return "" if value is None else str(value)
