"""Decide requests about what a person has typed and read in a session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.domain.sessions.refusals import no_session, stale
from chatlane.requests.projects import no_person
from chatlane.store.addressing import identities
from chatlane.store.catalogue import person_state
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.person_state import (
    SessionDraft,
    SessionDraftReply,
    SessionRead,
    SessionReadReply,
)

if TYPE_CHECKING:
    from chatlane.postgres.pool import Connection
    from chatlane.requests.context import Call
    from chatlane_schemas.session_api.sessions import ApiError


async def change(
    request: SessionDraft | SessionRead, call: Call
) -> SessionDraftReply | SessionReadReply:
    """Keep a draft, or mark what a person has read."""
    return await write(call.connection, request)


async def write(
    connection: Connection, request: SessionDraft | SessionRead
) -> SessionDraftReply | SessionReadReply:
    """Keep a draft, or mark what a person has read, in a transaction that publishes nothing."""
    held = await _held(connection, request)
    if isinstance(request, SessionRead):
        if not isinstance(held, tuple):
            return SessionReadReply(id=new_envelope_id(), at=datetime.now(UTC), error=held)
        owner, last_seq = held
        place = await person_state.mark_read(
            connection, request.session_id, owner, min(request.through_seq, last_seq)
        )
        return SessionReadReply(id=new_envelope_id(), at=datetime.now(UTC), through_seq=place)
    if not isinstance(held, tuple):
        return _draft_reply(error=held)
    return await _keep_draft(connection, request, held[0])


async def _keep_draft(
    connection: Connection, request: SessionDraft, owner: str
) -> SessionDraftReply:
    if not request.text:
        is_gone = await person_state.remove_draft(
            connection, request.session_id, owner, request.replaces
        )
        return _draft_reply(error=None if is_gone else _other_words())
    changed_at = await person_state.keep_draft(
        connection, request.session_id, owner, request.text, request.replaces
    )
    return _draft_reply(changed_at, None if changed_at else _other_words())


async def _held(
    connection: Connection, request: SessionDraft | SessionRead
) -> tuple[str, int] | ApiError:
    """Return the owner and the last place of the session of a request, or the refusal."""
    owners = await identities.find_owners(connection, request.acting_for)
    if not owners:
        return no_person()
    held = await person_state.hold(connection, request.session_id, owners)
    return no_session() if held is None else held


def _other_words() -> ApiError:
    return stale("the draft has other words than those that this text replaces")


def _draft_reply(
    changed_at: datetime | None = None, error: ApiError | None = None
) -> SessionDraftReply:
    return SessionDraftReply(
        id=new_envelope_id(), at=datetime.now(UTC), changed_at=changed_at, error=error
    )
