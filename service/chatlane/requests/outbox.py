"""Decide requests of agents that send a message to a chat outside a turn."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.decisions.operations.switch_and_fork import policy_of
from chatlane.decisions.result_applier import find_present
from chatlane.domain.addressing.keys import (
    MalformedKeyError,
    ParsedKey,
    key_text,
    parse_session_key,
)
from chatlane.domain.addressing.sources import class_of
from chatlane.domain.effects import Effects
from chatlane.domain.ids import derived_id
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.sessions.refusals import conflict, invalid, no_session, not_found
from chatlane.domain.sessions.session_flags import opened_session
from chatlane.domain.states import Lane
from chatlane.domain.turns.retries import address_of
from chatlane.domain.turns.turn_results import add_message
from chatlane.store.addressing import lanes
from chatlane.store.conversations import sessions
from chatlane.store.conversations.session_views import find_view
from chatlane.store.history import messages
from chatlane_schemas.content.visible_text import is_blank
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.outbox import OutboxReply

if TYPE_CHECKING:
    from uuid import UUID

    from chatlane.domain.catalog import Account, Agent, Catalog, Destination
    from chatlane.domain.states import Session
    from chatlane.requests.context import Call
    from chatlane_schemas.results import Part
    from chatlane_schemas.session_api.outbox import OutboxSend
    from chatlane_schemas.session_api.sessions import ApiError
    from chatlane_schemas.source import Source

# Far more rows than an agent writes between two messages of users.
_ROWS_LOOKED_AT: Final = 1000


class _Chat(NamedTuple):
    """A chat to send to.

    Attributes:
        key: Key of its conversation.
        lane: Its lane; None if it has none yet.
    """

    key: str
    lane: Lane | None


class _RefusedError(Exception):
    """The request is refused, and nothing is written."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


async def send(request: OutboxSend, call: Call) -> OutboxReply:
    """Send a message to a chat, or return an error and write nothing."""
    try:
        session_id, message_id = await _send(request, call)
    except _RefusedError as refused:
        return OutboxReply(id=new_envelope_id(), at=datetime.now(UTC), error=refused.error)
    return OutboxReply(
        id=new_envelope_id(), at=datetime.now(UTC), session_id=session_id, message_id=message_id
    )


async def _send(request: OutboxSend, call: Call) -> tuple[UUID, UUID]:
    if says_nothing(request.message):
        raise _RefusedError(invalid("message: says nothing"))
    sender = await find_view(call.connection, request.session_id)
    if sender is None:
        raise _RefusedError(no_session())
    agent = call.catalog.agents.get(sender.agent)
    if agent is None:
        raise _RefusedError(conflict("its agent is not declared any more"))
    if _kind_of(request.to) not in agent.send_to:
        message = "to: the settings do not let this agent send there (send_to)"
        raise _RefusedError(invalid(message))
    effects = Effects()
    lanes_of: list[Lane] = []
    session: Session | None
    if request.to == "session":
        session = await _lock(sender.id, call)
        if session is None or session.ended_at is not None:
            raise _RefusedError(conflict("the session has ended"))
    else:
        chat = await _find_chat(request.to, sender.session_key, call)
        session = await _session_of(chat, agent, call, effects)
        lane = chat.lane or Lane(chat.key, session.id)
        lane.session_id = session.id
        lanes_of.append(lane)
    target = await _target(session, call)
    message_id = derived_id(call.at, call.trigger, "sent")
    add_message(
        Speaking(session, agent.name, target, call.at), request.message, message_id, effects
    )
    await call.unit_of_work.write(effects, lanes_of=lanes_of, sessions_of=[session])
    return session.id, message_id


def says_nothing(said: Part) -> bool:
    """Return whether a message has neither visible text nor files."""
    return is_blank(said.text or "") and not said.attachments


def _kind_of(destination: str) -> Destination:
    if destination in {"session", "origin"}:
        return "origin"
    return "chat" if ":" in destination else "home"


async def _find_chat(destination: str, session_key: str, call: Call) -> _Chat:
    """Return the chat that a request names."""
    try:
        key = parse_session_key(session_key)
    except MalformedKeyError:
        raise _RefusedError(_no_chat()) from None
    if destination == "origin":
        return _Chat(session_key, await lanes.find_by_any_key(call.connection, session_key))
    where, separator, chat_id = destination.partition(":")
    account = _account_of(where, key, call.catalog, needs_home=not separator)
    if account is None:
        message = "to: names no account, or several, that this persona may use"
        raise _RefusedError(invalid(message))
    platform, home_channel = where.partition("/")[0], account.home
    thread = None
    if not separator and home_channel is not None:
        chat_id, thread = home_channel.chat_id, home_channel.thread_id
    keys = [
        key_text(ParsedKey(key.profile, platform, account.name, chat_class, chat_id, thread))
        for chat_class in ("dm", "group")
    ]
    for chat_key in keys:
        lane = await lanes.find_of_chat(call.connection, chat_key)
        if lane is not None:
            return _Chat(lane.session_key, lane)
    if separator or home_channel is None:
        # A conversation begins with a person, except in a home channel.
        raise _RefusedError(_no_conversation())
    return _Chat(keys[class_of(home_channel.kind) == "group"], None)


def _account_of(
    where: str, key: ParsedKey, catalog: Catalog, *, needs_home: bool
) -> Account | None:
    """Return the account that a destination means; the sender's own one if there are several."""
    platform, _, name = where.partition("/")
    declared = catalog.platforms.get(platform)
    fitting = [
        account
        for account in (declared.accounts.values() if declared else ())
        if key.profile in account.profiles
        and name in {"", account.name}
        and (account.home is not None or not needs_home)
    ]
    own = [
        account
        for account in fitting
        if (platform, account.name) == (key.platform, key.account) and not needs_home
    ]
    found = own or fitting
    return found[0] if len(found) == 1 else None


async def _session_of(chat: _Chat, agent: Agent, call: Call, effects: Effects) -> Session:
    """Return the locked session of a chat, or open one."""
    before = None if chat.lane is None else await _lock(chat.lane.session_id, call)
    if before is not None and before.agent != agent.name:
        raise _RefusedError(_no_conversation())
    if before is not None and before.ended_at is None:
        return before
    return opened_session(
        derived_id(call.at, call.trigger, "session"),
        session_key=chat.key,
        agent=agent.name,
        at=call.at,
        policy=policy_of(call.catalog, chat.key),
        owner=None if before is None else before.owner,
        effects=effects,
    )


async def _lock(session_id: UUID, call: Call) -> Session | None:
    return (await sessions.lock(call.connection, [session_id])).get(session_id)


async def _target(session: Session, call: Call) -> Source:
    """Return the present address of a session, without the message that was answered last."""
    stored = None
    if not session.is_new:
        stored = await messages.find_last_source(call.connection, session.id, _ROWS_LOOKED_AT)
    address = address_of(session) if stored is None else stored
    [present] = await find_present(call.connection, [(session.owner, address)], call.at)
    if present is None or call.catalog.find_account(present.platform, present.account) is None:
        raise _RefusedError(_no_chat())
    return present.model_copy(update={"message_id": None})


def _no_chat() -> ApiError:
    return conflict("the session has no chat that an account serves")


def _no_conversation() -> ApiError:
    return not_found("there is no conversation with this chat")
