"""The demo's feed: a JSON Lines file of published messages and their expected results.

A line is an `event` (published through the adapter client) or a `subject` with a `body` (text) or
`raw` (base64) that is published as it is. `expect` is the expected result: `accepted`, `duplicate`,
`kept` (stored in the log, starts nothing), `obeyed` (a command, answered with `reply`; `begins` a
new session or not) or `dead:<reason>`; accepted and obeyed lines name their conversation (`talk`),
accepted ones their agent. Other lines direct the player: `settle` waits until all is answered,
`pause` waits some seconds, `cue` triggers a fault. Nothing here uses the router's own rules: the
expectations were written together with the events.
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
    """A line of the feed is not valid.

    Attributes:
        number: Line number, from 1.
    """

    def __init__(self, number: int, problem: str) -> None:
        self.number = number
        super().__init__(f"line {number} of the feed: {problem}")


@dataclass(frozen=True, slots=True)
class Address:
    """The place of a message, as text; missing parts are empty.

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
    """One message of the feed and its expected result.

    Attributes:
        number: Line number; the order of the feed.
        nats_id: The `Nats-Msg-Id` it is published with.
        event: The inbound event, as far as it can be read.
        subject: Subject of a raw body; None when the adapter client publishes the event.
        body: The raw body; None with the adapter client.
        reason: Reason of the expected dead letter.
        talk: Name of its conversation.
        text: Its text as the transcript must have it.
        hears: The text that the agent reports.
        reply: The router's answer to a command.
        begins: The command begins a new session.
        settles: Number of times the player waited for all answers before it.
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
        """The album that the message belongs to; empty when there is none."""
        return _id_text(self.event.get("album_id"))

    @property
    def platform(self) -> str:
        """The platform's name."""
        return str(self.event.get("platform", ""))

    @property
    def is_from_person(self) -> bool:
        """The event counts as a person's activity."""
        return bool(self.event.get("kind", "message") == "message")

    @property
    def address(self) -> Address:
        """The place that the event was published for."""
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
    """Wait until everything published so far has been read and answered."""

    why: str


@dataclass(frozen=True, slots=True)
class Cue:
    """Trigger a fault in one part: `router`, `worker`, `nats` or `postgres`."""

    name: str


Step = Publication | Pause | Settle | Cue


def read_feed(path: Path) -> tuple[Step, ...]:
    """Read a feed.

    Raises:
        FeedError: A line has none of the described forms.
    """
    return tuple(_steps(path.read_text("utf-8")))


def publications(steps: tuple[Step, ...]) -> tuple[Publication, ...]:
    """Return the publications of the feed, in order."""
    return tuple(step for step in steps if isinstance(step, Publication))


def cleaned(text: str) -> str:
    """Return a text with U+FFFD for every character that cannot be stored."""
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
        number: Line number, from 1.
        line: The line as read.
        settles: Number of settle lines before it.

    Raises:
        KeyError, ValueError: The line is not valid.
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
        # A body that cannot be decoded has no envelope id, so no adapter could set the header.
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
    # Spaces before the last brace: the same JSON, only larger.
    return body if missing <= 0 else body[:-1] + b" " * missing + body[-1:]


def _event_in(body: bytes) -> dict[str, Any]:
    """Return the event of a raw body, or an empty one if it has none."""
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _id_text(value: object) -> str:
    return "" if value is None else str(value)
