"""The session that goes on behind a summary of another one. Pure, as `lanes`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chatlane.domain.counts import CountName
from chatlane.domain.effects import Publication
from chatlane.domain.ids import derived_id
from chatlane.domain.sessions.transcripts import COMPRESSION
from chatlane_schemas.codec import encode
from chatlane_schemas.events import SessionStarted
from chatlane_schemas.subjects import event as event_subject

if TYPE_CHECKING:
    from datetime import datetime

    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session


def session_behind(parent: Session, at: datetime, trigger: bytes, effects: Effects) -> Session:
    """Return the session in which a conversation goes on behind a summary.

    For the people in it nothing begins: clocks, flags and owner are those of the parent. Only
    what is counted per session begins anew.

    Args:
        parent: The session that was summed up; has ended.
        at: When it was asked for.
        trigger: What makes its id this one.
        effects: Where the event goes.
    """
    child = replace(
        parent,
        id=derived_id(at, trigger, "session"),
        started_at=max(at, parent.started_at),
        start_reason=None,
        parent_id=parent.id,
        link_kind=COMPRESSION,
        ended_at=None,
        end_reason=None,
        active_turn=None,
        next_seq=1,
        next_arrival=1,
        next_out_seq=1,
        is_new=True,
        # Whatever of them is in force: they were written for the parent only.
        has_new_flags=True,
    )
    started = SessionStarted(
        id=str(derived_id(at, child.id.bytes, "session.started")),
        at=child.started_at,
        session_id=child.id,
        session_key=child.session_key,
        agent=child.agent,
        previous_session_id=parent.id,
    )
    effects.publications.append(
        Publication(
            None, "EVENTS", event_subject("session", "started"), started.id, encode(started)
        )
    )
    effects.count((CountName.SESSIONS_STARTED, child.agent, COMPRESSION))
    return child
