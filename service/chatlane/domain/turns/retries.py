"""Queue stored messages for another answer, as if they had just come. Pure, as `lanes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import from_json, to_json

from chatlane.domain.addressing.keys import parse_session_key
from chatlane.domain.effects import MessageRow, Publication, WaitingRow
from chatlane.domain.ids import derived_id
from chatlane.domain.prompts.context import prompted_message
from chatlane.domain.sessions.session_flags import staff_pause_of
from chatlane.domain.turns.lifecycle import open_turn
from chatlane_schemas.codec import encode
from chatlane_schemas.inbound import Chat, Sender
from chatlane_schemas.results import Role
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.source import Source
from chatlane_schemas.topology.subjects import routed as routed_subject
from chatlane_schemas.topology.subjects import slot_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.catalog import Agent
    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session


class PersonRow(NamedTuple):
    """A transcript row of a person; `details` and `source` are JSON text."""

    content: str | None
    details: str | None
    author: str | None
    platform_message_id: str | None
    source: str | None
    created_at: datetime


def queue_again(
    session: Session,
    agent: Agent,
    rows: Iterable[PersonRow],
    *,
    at: datetime,
    trigger: bytes,
    slots: int,
    effects: Effects,
) -> None:
    """Queue messages again at the end of an idle session, in order, under new ids.

    Answers under the old ids still belong to the rows that were taken out: they are late.

    Args:
        session: Locked; its rows of these messages have been taken out.
    """
    for number, row in enumerate(rows):
        message_id = derived_id(at, trigger, f"message:{session.id.hex}", number)
        if agent.delivery == "stream":
            _route(session, row, message_id, agent=agent, slots=slots, effects=effects)
        else:
            _let_wait(session, row, message_id, effects)
    if agent.delivery != "stream":
        open_turn(session, at, trigger, effects)


def _source_of(session: Session, row: PersonRow) -> str:
    return row.source or address_of(session).model_dump_json(exclude_none=True)


def address_of(session: Session) -> Source:
    """Derive an address from the session key, for rows that did not come from a chat."""
    key = parse_session_key(session.session_key)
    return Source(
        platform=key.platform,
        account=key.account,
        scope=key.scope,
        profile=key.profile,
        chat=Chat(id=key.chat, kind=key.chat_class),
        thread_id=key.thread,
        sender=None if key.user is None else Sender(id=key.user),
    )


def _let_wait(session: Session, row: PersonRow, message_id: UUID, effects: Effects) -> None:
    # First: it fails for a session whose key is no address.
    source, details = _source_of(session, row), row.details or "{}"
    effects.waiting.append(
        WaitingRow(
            session_id=session.id,
            arrival=session.take_arrival(),
            session_key=session.session_key,
            message_id=message_id,
            author=row.author,
            platform_message_id=row.platform_message_id,
            size_bytes=len((row.content or "").encode()) + len(details.encode()),
            content=row.content,
            details=details,
            source=source,
            stored_at=row.created_at,
        )
    )


def _route(
    session: Session,
    row: PersonRow,
    message_id: UUID,
    *,
    agent: Agent,
    slots: int,
    effects: Effects,
) -> None:
    source = _source_of(session, row)
    seq = session.take_seq()
    effects.messages.append(
        MessageRow(
            session_id=session.id,
            seq=seq,
            id=message_id,
            role=Role.USER,
            content=row.content,
            details=row.details,
            author=row.author,
            platform_message_id=row.platform_message_id,
            source=source,
            created_at=row.created_at,
        )
    )
    effects.publications.append(
        _routed(session, row, message_id, seq=seq, agent=agent, slots=slots)
    )


def route_again(
    session: Session,
    row: PersonRow,
    message_id: UUID,
    *,
    seq: int,
    agent: Agent,
    slots: int,
    effects: Effects,
) -> None:
    """Publish a routed message that the stream no longer holds, with its id and place.

    The stream may still know its old message id and drop it as a duplicate, so the id changes.
    """
    routed = _routed(session, row, message_id, seq=seq, agent=agent, slots=slots)
    effects.publications.append(routed._replace(message_id=f"again:{message_id}"))


def _routed(
    session: Session, row: PersonRow, message_id: UUID, *, seq: int, agent: Agent, slots: int
) -> Publication:
    fields = from_json(row.details or "{}") | {
        "v": 1,
        "id": str(message_id),
        "at": row.created_at,
        "session_id": session.id,
        "session_key": session.session_key,
        "agent": session.agent,
        "seq": seq,
        "source": from_json(_source_of(session, row)),
        "text": row.content,
        "stored_at": row.created_at,
        "session_is_new": seq == 1,
        "staff_until": staff_pause_of(session, row.created_at),
    }
    # Through JSON: the contract is strict about Python types and lenient about JSON types.
    routed = RoutedMessage.model_validate_json(to_json(fields))
    if agent.prompts is not None:
        routed = prompted_message(agent.prompts, routed)
    return Publication(
        session.id,
        "ROUTED",
        routed_subject(session.agent, slot_of(session.id, slots), session.id),
        routed.id,
        encode(routed),
    )
