"""`chatlane dev` tells in words what passes by."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from chatlane_devkit.demo.traffic import sentence
from chatlane_schemas import (
    Chat,
    DeadLetter,
    DeadReason,
    EndReason,
    Envelope,
    InboundEvent,
    Kind,
    OutboundMessage,
    ResetReason,
    Sender,
    SessionEnded,
    SessionStarted,
    Source,
    Stage,
)

NOON = datetime(2026, 3, 12, 12, tzinfo=UTC)
ID = UUID(int=7)
SOURCE = Source(platform="terminal", account="local", chat=Chat(id="ann"))


def said(text: str | None, sender: Sender | None, kind: Kind = Kind.MESSAGE) -> InboundEvent:
    return InboundEvent(
        id="e1",
        at=NOON,
        platform="terminal",
        account="local",
        chat=Chat(id="ann"),
        sender=sender,
        text=text,
        kind=kind,
    )


def started(reason: ResetReason | None) -> SessionStarted:
    return SessionStarted(
        id="s1",
        at=NOON,
        session_id=ID,
        session_key="agent:main",
        agent="main",
        source=SOURCE,
        reason=reason,
    )


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (said("hi", Sender(id="7", name="Ann")), "Ann → terminal: hi"),
        (said(None, Sender(id="7"), Kind.REACTION), "7 → terminal: (reaction)"),
        (said("news", None), "somebody → terminal: news"),
        (
            OutboundMessage(
                id="o1", at=NOON, session_id=ID, out_seq=1, agent="main", target=SOURCE, text="yes"
            ),
            "main → terminal: yes",
        ),
        (started(None), f"session {ID} started: agent:main"),
        (started(ResetReason.IDLE), f"session {ID} started (idle): agent:main"),
        (
            SessionEnded(
                id="s2",
                at=NOON,
                session_id=ID,
                session_key="agent:main",
                agent="main",
                reason=EndReason.IDLE,
            ),
            f"session {ID} ended (idle)",
        ),
        (
            DeadLetter(
                id="d1",
                at=NOON,
                stage=Stage.INBOUND,
                reason=DeadReason.INVALID,
                digest="0" * 64,
                size_bytes=3,
                detail="v: missing",
            ),
            "dead letter: invalid, v: missing",
        ),
        (Envelope(id="x", at=NOON), "Envelope"),
    ],
)
def test_every_kind_of_message_is_told_in_words(message: Envelope, words: str) -> None:
    assert sentence(message) == words
