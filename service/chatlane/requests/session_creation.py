"""Decide requests that open a session or submit a message to one."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from chatlane.decisions.operations.switch_and_fork import policy_of
from chatlane.domain.addressing.keys import (
    MalformedKeyError,
    ParsedKey,
    key_text,
    parse_session_key,
)
from chatlane.domain.addressing.owners import parse_owner_text
from chatlane.domain.catalog import canonical_profile
from chatlane.domain.counts import CountName
from chatlane.domain.effects import Effects
from chatlane.domain.ids import derived_id
from chatlane.domain.lanes import Placement
from chatlane.domain.resolved_message import ResolvedMessage, details_json
from chatlane.domain.sessions.refusals import conflict, invalid, no_lane
from chatlane.domain.sessions.session_flags import opened_session
from chatlane.domain.states import Lane
from chatlane.domain.turns.retries import address_of
from chatlane.requests.context import Shown
from chatlane.requests.session_lookup import session_reply
from chatlane.store import questions
from chatlane.store.addressing import identities, lanes
from chatlane.store.conversations import session_changes, sessions
from chatlane.store.history import messages
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.inbound import InboundEvent, Sender
from chatlane_schemas.session_api.sessions import ApiError
from chatlane_schemas.source import source_json
from chatlane_schemas.topology.subjects import SubjectError, declared_name

if TYPE_CHECKING:
    from uuid import UUID

    from chatlane.domain.catalog import Agent, Catalog
    from chatlane.domain.states import Session
    from chatlane.requests.context import Call, Case, Outcome
    from chatlane_schemas.content.front_end import FrontEnd
    from chatlane_schemas.questions import TurnReply
    from chatlane_schemas.session_api.people import Person, PersonId
    from chatlane_schemas.session_api.session_openings import SessionCreate, SessionSubmit
    from chatlane_schemas.session_api.sessions import SessionReply

# Far more rows than an agent writes between two messages of users.
_ROWS_LOOKED_AT: Final = 1000


async def create(request: SessionCreate, call: Call) -> SessionReply:
    """Open a session and return it, or return an error and write nothing."""
    return await session_reply(call.connection, await _create(request, call))


async def _create(request: SessionCreate, call: Call) -> Outcome:
    connection = call.connection
    session_id = derived_id(call.at, call.trigger, "session")
    owner = await _owner(request.acting_for, call)
    if isinstance(owner, ApiError):
        return owner
    place = await _place(request, session_id, call)
    if isinstance(place, ApiError):
        return place
    lane, key = place
    agent = _agent(key, call.catalog, has_lane=lane is not None)
    if agent is None:
        return invalid("profile: not declared, or not for this account")
    effects = Effects()
    session = opened_session(
        session_id,
        session_key=key_text(key),
        agent=agent.name,
        at=call.at,
        policy=policy_of(call.catalog, key_text(key)),
        owner=owner,
        effects=effects,
    )
    lanes_of = [] if lane is None else [Lane(lane.session_key, session_id, lane.bound_to)]
    await call.unit_of_work.write(effects, lanes_of=lanes_of, sessions_of=[session])
    config = None if request.config is None else to_json(request.config).decode()
    await session_changes.describe(
        connection,
        session_id,
        origin=request.origin,
        cwd=request.cwd,
        model=request.model,
        config=config,
    )
    return session_id


async def _owner(person: Person | None, call: Call) -> str | ApiError | None:
    if person is None:
        return None
    identity = await identities.find(call.connection, person)
    return invalid("acting_for.id: names no person") if identity is None else identity.owner


async def _place(
    request: SessionCreate, session_id: UUID, call: Call
) -> tuple[Lane | None, ParsedKey] | ApiError:
    """Return the lane that is to point to the session (None without one) and the key."""
    if request.session_key is None:
        try:
            account = declared_name(call.principal)
        except SubjectError:
            return invalid("the principal is no declared name")
        profile = canonical_profile(request.profile)
        key = ParsedKey(profile, request.origin, account, "dm", str(session_id))
        return None, key
    connection = call.connection
    lane = await lanes.find_by_any_key(connection, request.session_key)
    try:
        key = parse_session_key(request.session_key if lane is None else lane.session_key)
    except MalformedKeyError:
        return invalid("session_key: is no key of a lane")
    led = {} if lane is None else await sessions.lock(connection, [lane.session_id])
    before = None if lane is None else led.get(lane.session_id)
    if request.acting_for is not None:
        owners = await identities.find_owners(connection, request.acting_for)
        if before is None or before.owner not in (owners or ()):
            return no_lane()
    if before is not None and before.ended_at is None:
        return conflict("the lane leads to a session that has not ended")
    return lane or Lane(key_text(key), session_id), key


def _agent(key: ParsedKey, catalog: Catalog, *, has_lane: bool) -> Agent | None:
    """Return the agent of a profile; the account of a lane must be allowed to address it.

    Without a lane the key has no account of a platform: its names are those of origin and principal.
    """
    if has_lane and key.platform in catalog.platforms:
        found = catalog.resolve_profile(key.platform, key.account, key.profile)
        return None if isinstance(found, DeadReason) else found.agent
    name = catalog.profiles.get(key.profile)
    return None if name is None else catalog.agents.get(name)


async def submit(request: SessionSubmit, case: Case) -> Outcome:
    """Deliver a message to a session, as if it came from the source of the last message."""
    session = case.session
    if session.ended_at is not None:
        return conflict("the session has ended")
    if session.suspended_at is not None:
        return conflict("the session is suspended; reopen it first")
    agent = case.call.catalog.agents.get(session.agent)
    if agent is None:
        return conflict("its agent is not declared any more")
    content = {"text": request.text, "attachments": request.attachments}
    event = await person_event(session, case.call, request, **content)
    arrived = arrived_event(event, session, agent, case.call)
    if request.front_end is not None:
        arrived = _with_front_end(arrived, request.front_end)
    effects = Effects()
    running = [] if session.active_turn is None else [session.active_turn]
    open_questions = await questions.find_open(case.connection, running)
    placement = Placement(
        {}, {session.id: session}, set(), effects, case.call.slots, open_questions=open_questions
    )
    turn_id = placement.answers_question(arrived, session)
    if turn_id is None:
        placement.deliver(arrived, session)
    # For a session without a lane, the caller chose the platform name, so it is no metric label.
    platform = event.platform if event.platform in case.call.catalog.platforms else "api"
    if turn_id is None:
        effects.count((CountName.ROUTED, platform))
    await case.call.unit_of_work.write(effects, sessions_of=[session])
    message_id = derived_id(case.call.at, arrived.digests[0], "message")
    return Shown(session.id, message_id, turn_id=turn_id)


def _with_front_end(arrived: ResolvedMessage, front_end: FrontEnd) -> ResolvedMessage:
    """Return a message with tools and context of its front end among its stored fields."""
    given = front_end.model_dump_json(exclude_none=True)
    return arrived._replace(
        details=f'{arrived.details[:-1]},"front_end":{given}}}',
        size_bytes=arrived.size_bytes + len(given.encode()),
    )


def arrived_event(
    event: InboundEvent, session: Session, agent: Agent, call: Call
) -> ResolvedMessage:
    """Return a message that a person sent by request, as it arrives in a locked session."""
    return ResolvedMessage(
        event=event,
        session_key=session.session_key,
        former_keys=(),
        digests=(sha256(b"request\0" + call.trigger).digest(),),
        agent=agent,
        policy=policy_of(call.catalog, session.session_key),
        stored_at=call.at,
        size_bytes=len(event.model_dump_json(exclude_none=True).encode()),
        source=source_json(event),
        details=details_json(event),
        notices=call.catalog.notices_of(session.platform),
    )


def _author(person: Person, session: Session) -> PersonId:
    """Return the id under which a person writes in a session: the one on the account of its owner."""
    place = None if session.owner is None else parse_owner_text(session.owner)[:2]
    on_account = (id_ for id_ in person.ids if (id_.platform, id_.account) == place)
    return next(on_account, person)


async def person_event(
    session: Session,
    call: Call,
    request: SessionSubmit | TurnReply,
    **content: Any,  # noqa: ANN401 - fields of the event
) -> InboundEvent:
    """Return an event for words of a request, as if it came from the source of the last message."""
    stored = await messages.find_last_source(call.connection, session.id, _ROWS_LOOKED_AT)
    address = address_of(session) if stored is None else stored
    author = None if request.acting_for is None else _author(request.acting_for, session)
    return InboundEvent(
        id=request.id,
        at=call.at,
        platform=address.platform,
        account=address.account,
        scope=address.scope,
        profile=address.profile,
        chat=address.chat,
        thread_id=address.thread_id,
        sender=None if author is None else Sender(id=author.id),
        **content,
    )
