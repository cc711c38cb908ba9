"""Messages that are written, edited, deleted and told again, and what is left of them in the end.

The rule in its simplest words, to compare the real decisions with: one message at a time, no
batches, no places.
"""

from dataclasses import dataclass, field
from typing import Literal

from hypothesis import strategies as st

from chatlane_schemas.inbound import InboundEvent
from tests.support.worlds.kernel import event

What = Literal["message", "edit", "delete"]


@dataclass(frozen=True)
class Said:
    """One event about a message; equal ones are the same event, told again."""

    what: What
    mid: str
    number: int = 0
    version: int | None = None

    @property
    def text(self) -> str:
        """What the message says, as of this event."""
        return f"{self.what} {self.number}"

    def event(self) -> InboundEvent:
        """Return it as an adapter publishes it."""
        fields = {} if self.what == "message" else {"event_id": f"e{self.number}"}
        if self.version is not None:
            fields["version"] = str(self.version)
        if self.what != "delete":
            fields["text"] = self.text
        return event(chat="701", user="701", mid=self.mid, kind=self.what, **fields)


_MIDS = st.sampled_from(["1", "2"])
EVENTS = st.one_of(
    st.builds(Said, st.just("message"), _MIDS),
    st.builds(
        Said,
        st.just("edit"),
        _MIDS,
        st.integers(1, 5),
        st.sampled_from([None, 2, 10, 30]),
    ),
    st.builds(Said, st.just("delete"), _MIDS, st.integers(1, 2)),
)


@dataclass
class Told:
    """What the rule says of one message.

    Attributes:
        before: What it said before, once it stood in a transcript.
    """

    has_come: bool = False
    is_gone: bool = False
    is_written: bool = False
    text: str | None = None
    version: int | None = None
    before: list[str] = field(default_factory=list)


class Rule:
    """Applies events in the order of the log."""

    def __init__(self) -> None:
        self.messages: dict[str, Told] = {}
        self.order: list[str] = []
        self._written: list[str] = []
        self._seen: set[tuple[What, str, int]] = set()

    def hear(self, said: Said) -> None:
        """Take in one event."""
        name = (said.what, said.mid, said.number)
        if name in self._seen:
            return
        self._seen.add(name)
        told = self.messages.setdefault(said.mid, Told())
        if told.is_gone:
            return
        match said.what:
            case "message":
                told.has_come = True
                told.text = told.text or said.text
                self.order.append(said.mid)
            case "edit":
                known, new = told.version, said.version
                if known is None or new is None or new >= known:
                    self._change(told, said.text)
                    told.version = new
            case "delete":
                if told.has_come:
                    # One that waits leaves a row as well.
                    self._write(said.mid)
                self._change(told, None)
                told.is_gone = True

    def _change(self, told: Told, text: str | None) -> None:
        if told.is_written and told.text is not None and told.text != text:
            told.before.append(told.text)
        told.text = text

    def claim(self) -> None:
        """Let everything that waits be written."""
        for mid in self.order:
            self._write(mid)

    def _write(self, mid: str) -> None:
        if not self.messages[mid].is_written:
            self.messages[mid].is_written = True
            self._written.append(mid)

    def standing(self, *, written: bool) -> list[str | None]:
        """Return what the messages say that wait, or that are written, in order."""
        waiting = [mid for mid in self.order if mid not in self._written]
        return [self.messages[mid].text for mid in (self._written if written else waiting)]

    @property
    def revisions(self) -> list[str]:
        """Return what rows said before, in no order."""
        return sorted(text for told in self.messages.values() for text in told.before)
