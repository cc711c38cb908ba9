"""Open the session that continues another one after its summary. Pure, as `lanes`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chatlane.domain.counts import CountName
from chatlane.domain.effects import Publication
from chatlane.domain.ids import derived_id
from chatlane.domain.sessions.transcripts import COMPRESSION
from chatlane_schemas.codec import encode
from chatlane_schemas.events import SessionStarted
from chatlane_schemas.topology.subjects import event as event_subject

if TYPE_CHECKING:
    from datetime import datetime

    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session


def session_behind(parent: Session, at: datetime, trigger: bytes, effects: Effects) -> Session:
    """Return the session in which a conversation continues after a summary.

    For its people the conversation is the same: clocks, flags and owner are those of the parent.
    Only what is counted per session restarts.

    Args:
        parent: The summarized session; has ended.
        at: When the compaction was requested.
        trigger: Makes the id unique and repeatable.
        effects: Collects the event.
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
        # The child has to store all flags: the database holds them for the parent only.
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
