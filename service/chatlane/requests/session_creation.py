"""Decide requests that open a session or submit a message to one."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from pydantic_core import to_json

from chatlane.decisions.operations.request_context import Shown, no_lane, refused
from chatlane.decisions.operations.switch_and_fork import policy_of
from chatlane.domain.addressing.keys import (
    MalformedKeyError,
    ParsedKey,
    key_text,
    parse_session_key,
)
from chatlane.domain.catalog import canonical_profile
from chatlane.domain.counts import CountName
from chatlane.domain.effects import Effects
from chatlane.domain.ids import derived_id
from chatlane.domain.lanes import Placement, ResolvedMessage, details_json
from chatlane.domain.sessions.session_flags import opened_session
from chatlane.domain.states import Lane
from chatlane.domain.turns.retries import address_of
from chatlane.store.addressing import identities, lanes
from chatlane.store.conversations import session_changes, sessions
from chatlane.store.history import messages
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.inbound import InboundEvent, Sender
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode
from chatlane_schemas.source import source_json
from chatlane_schemas.topology.subjects import SubjectError, declared_name

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from chatlane.decisions.operations.request_context import Case, Outcome
    from chatlane.decisions.unit_of_work import UnitOfWork
    from chatlane.domain.catalog import Agent, Catalog
    from chatlane_schemas.session_api.people import Person
    from chatlane_schemas.session_api.session_openings import SessionCreate, SessionSubmit

# Far more rows than an agent writes between two messages of users.
_ROWS_LOOKED_AT: Final = 1000


@dataclass(frozen=True, slots=True)
class Opening:
    """A new request to open a session, and the transaction that decides it.

    Attributes:
        principal: The caller.
        at: Time of the request, and the only clock of the decision.
        trigger: Seed of the session id, so that a repeated request derives the same id.
    """

    unit_of_work: UnitOfWork
    catalog: Catalog
    principal: str
    at: datetime
    trigger: bytes

    async def create(self, request: SessionCreate) -> Outcome:
        """Open a session and return its id, or return an error and write nothing."""
        connection = self.unit_of_work.connection
        session_id = derived_id(self.at, self.trigger, "session")
        owner = await self._owner(request.acting_for)
        if isinstance(owner, ApiError):
            return owner
        place = await self._place(request, session_id)
        if isinstance(place, ApiError):
            return place
        lane, key = place
        agent = self._agent(key)
        if agent is None:
            return _invalid("profile: not declared, or not for this account")
        effects = Effects()
        session = opened_session(
            session_id,
            session_key=key_text(key),
            agent=agent.name,
            at=self.at,
            policy=policy_of(self.catalog, key_text(key)),
            owner=owner,
            effects=effects,
        )
        lanes_of = [] if lane is None else [Lane(lane.session_key, session_id, lane.bound_to)]
        await self.unit_of_work.write(effects, lanes_of=lanes_of, sessions_of=[session])
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

    async def _owner(self, person: Person | None) -> str | ApiError | None:
        if person is None:
            return None
        identity = await identities.find(self.unit_of_work.connection, person)
        return _invalid("acting_for.id: names no person") if identity is None else identity.owner

    async def _place(
        self, request: SessionCreate, session_id: UUID
    ) -> tuple[Lane | None, ParsedKey] | ApiError:
        """Return the lane that is to point to the session (None without one) and the key."""
        if request.session_key is None:
            try:
                account = declared_name(self.principal)
            except SubjectError:
                return _invalid("the principal is no declared name")
            profile = canonical_profile(request.profile)
            key = ParsedKey(profile, request.origin, account, "dm", str(session_id))
            return None, key
        connection = self.unit_of_work.connection
        lane = await lanes.find_by_any_key(connection, request.session_key)
        try:
            key = parse_session_key(request.session_key if lane is None else lane.session_key)
        except MalformedKeyError:
            return _invalid("session_key: is no key of a lane")
        led = {} if lane is None else await sessions.lock(connection, [lane.session_id])
        before = None if lane is None else led.get(lane.session_id)
        if request.acting_for is not None:
            owners = await identities.find_owners(connection, request.acting_for)
            if before is None or before.owner not in (owners or ()):
                return no_lane()
        if before is not None and before.ended_at is None:
            return refused(ApiErrorCode.CONFLICT, "the lane leads to a session that has not ended")
        return lane or Lane(key_text(key), session_id), key

    def _agent(self, key: ParsedKey) -> Agent | None:
        """Return the agent of a profile; the lane's account must be allowed to address it."""
        if key.platform in self.catalog.platforms:
            found = self.catalog.resolve_profile(key.platform, key.account, key.profile)
            return None if isinstance(found, DeadReason) else found.agent
        name = self.catalog.profiles.get(key.profile)
        return None if name is None else self.catalog.agents.get(name)


async def submit(request: SessionSubmit, case: Case) -> Outcome:
    """Deliver a message to a session, as if it came from the source of the last message."""
    session = case.session
    if session.ended_at is not None:
        return refused(ApiErrorCode.CONFLICT, "the session has ended")
    if session.suspended_at is not None:
        return refused(ApiErrorCode.CONFLICT, "the session is suspended; reopen it first")
    agent = case.catalog.agents.get(session.agent)
    if agent is None:
        return refused(ApiErrorCode.CONFLICT, "its agent is not declared any more")
    event = await _said(request, case)
    digest = sha256(b"request\0" + case.trigger).digest()
    arrived = ResolvedMessage(
        event=event,
        session_key=session.session_key,
        former_keys=(),
        digests=(digest,),
        agent=agent,
        policy=policy_of(case.catalog, session.session_key),
        stored_at=case.at,
        size_bytes=len(request.model_dump_json(exclude_none=True).encode()),
        source=source_json(event),
        details=details_json(event),
    )
    effects = Effects()
    placement = Placement({}, {session.id: session}, set(), effects, case.slots)
    placement.deliver(arrived, session)
    # For a session without a lane, the caller chose the platform name, so it is no metric label.
    platform = event.platform if event.platform in case.catalog.platforms else "api"
    effects.count((CountName.ROUTED, platform))
    await case.unit_of_work.write(effects, sessions_of=[session])
    return Shown(session.id, derived_id(case.at, digest, "message"))


async def _said(request: SessionSubmit, case: Case) -> InboundEvent:
    stored = await messages.find_last_source(
        case.unit_of_work.connection, case.session.id, _ROWS_LOOKED_AT
    )
    address = address_of(case.session) if stored is None else stored
    person: Person | None = request.acting_for
    return InboundEvent(
        id=request.id,
        at=case.at,
        platform=address.platform,
        account=address.account,
        scope=address.scope,
        profile=address.profile,
        chat=address.chat,
        thread_id=address.thread_id,
        sender=None if person is None else Sender(id=person.id),
        text=request.text,
        attachments=request.attachments,
    )


def _invalid(message: str) -> ApiError:
    return refused(ApiErrorCode.INVALID, message)
