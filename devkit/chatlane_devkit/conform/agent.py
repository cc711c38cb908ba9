"""The agent that answers while an adapter is judged: it says what it was given."""

from dataclasses import dataclass, field

from chatlane_client import Answer, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The input of the agent in one turn.

    Attributes:
        texts: Texts of the messages that the turn answers, in order.
        files: Number of their files.
        history: What the transcript holds before the turn, as texts with the kinds of their rows.
        undelivered: How many of its answers were reported as not delivered.
    """

    texts: tuple[str, ...]
    files: int
    history: tuple[tuple[str, str], ...]
    undelivered: int


@dataclass(slots=True)
class ConformAgent:
    """An agent that answers `heard ` and what it was given.

    Attributes:
        turns: What it was given, in order.
        answers: Other answers, by what the person wrote.
    """

    turns: list[Heard] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)

    async def answer(self, turn: Turn) -> Answer:
        """Answer a turn."""
        history = await turn.history(50)
        received = Heard(
            texts=tuple(message.text or "" for message in turn.messages),
            files=sum(len(message.attachments) for message in turn.messages),
            history=tuple((row.kind or row.role, row.content or "") for row in history),
            undelivered=len(turn.undelivered),
        )
        self.turns.append(received)
        last = received.texts[-1].strip()
        if last in self.answers:
            return self.answers[last]
        return "\n\n".join(f"heard {text or f'{received.files} files'}" for text in received.texts)

    def given(self, token: str) -> list[str]:
        """Return the texts with this token that the agent was given, in order."""
        return [text.strip() for turn in self.turns for text in turn.texts if token in text]

    def turns_of(self, token: str) -> list[Heard]:
        """Return the turns with a message that has this token."""
        return [turn for turn in self.turns if any(token in text for text in turn.texts)]
