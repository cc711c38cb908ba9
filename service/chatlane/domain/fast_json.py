"""Write the two bodies that every new session needs without building their models first.

A model would validate again what the service made itself or has validated already, and that takes
longer than the decision. The contract defines the content; a test compares both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import to_json

from chatlane_schemas.envelope import VERSION

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.states import Session
    from chatlane_schemas.events import ResetReason


def turn_notice(  # noqa: PLR0917 - names would cost a tenth of it
    notice_id: str, at: datetime, turn_id: UUID, session_id: UUID, agent: str, dispatch: int
) -> bytes:
    """Return the body of a `TurnNotice`."""
    return to_json(
        {
            "v": VERSION,
            "id": notice_id,
            "at": at,
            "turn_id": turn_id,
            "session_id": session_id,
            "agent": agent,
            "dispatch": dispatch,
        }
    )


def session_started(
    started_id: str,
    session: Session,
    source: str | None,
    reason: ResetReason | None,
    previous_id: UUID | None,
) -> bytes:
    """Return the body of a `SessionStarted`.

    Args:
        source: `Source` of the message that opened it, as JSON text.
    """
    fields = {
        "v": VERSION,
        "id": started_id,
        "at": session.started_at,
        "session_id": session.id,
        "session_key": session.session_key,
        "agent": session.agent,
    }
    if reason is not None:
        fields["reason"] = reason
    if previous_id is not None:
        fields["previous_session_id"] = previous_id
    body = to_json(fields)
    return body if source is None else b'%b,"source":%b}' % (body[:-1], source.encode())
