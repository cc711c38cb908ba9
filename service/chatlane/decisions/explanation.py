"""Explain how a router would decide an inbound event; lock and write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic_core import from_json

from chatlane.decisions.command_inputs import name_of
from chatlane.decisions.inbound_decoder import ValidatedEvent, arrive, prepare_inbound
from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.keys import is_shared, parse_session_key
from chatlane.domain.commands import replies
from chatlane.domain.commands.command_handlers import may_use
from chatlane.domain.commands.command_words import CommandName
from chatlane.domain.dead_letters import RejectedMessage
from chatlane.domain.lanes import is_anothers, not_before
from chatlane.domain.log import LogMessage
from chatlane.domain.notices import ENGLISH
from chatlane.domain.policy import next_reset, reset_reason
from chatlane.domain.resolved_message import says_nothing
from chatlane.store.addressing import aliases, identities, lanes
from chatlane.store.conversations import sessions
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.inbound import InboundEvent, Kind
from chatlane_schemas.topology.subjects import inbound_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.addressing.keys import ParsedKey
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.policy import ResetPolicy
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane.domain.states import Session

Facts = dict[str, object]

_DEAD_LETTER: Final = "dead letter"
_REASONS: Final[Mapping[str, str]] = {
    DeadReason.NOT_JSON: "it is not JSON",
    DeadReason.INVALID: "a field is invalid",
    DeadReason.UNKNOWN_VERSION: "this release does not know its version",
    DeadReason.OVERSIZED: "it is too large",
    DeadReason.TOO_DEEP: "it is nested too deeply",
    DeadReason.BAD_ID: "an id is invalid",
    DeadReason.NO_CONVERSATION: "it belongs to no conversation",
    DeadReason.UNKNOWN_ACCOUNT: "its account is not declared",
    DeadReason.UNKNOWN_PROFILE: "its profile is not declared",
    DeadReason.PROFILE_FORBIDDEN: "its account does not allow the profile",
}

_ENDING: Final = frozenset({CommandName.NEW, CommandName.RESUME, CommandName.BRANCH})
_REFUSED_WHILE_RUNNING: Final = frozenset({CommandName.UNDO, CommandName.RETRY})


async def explain(
    body: bytes, catalog: Catalog, at: datetime, connection: PoolConnectionProxy | None
) -> Facts:
    """Return the decisions of a router by name, in the order in which it makes them.

    Args:
        at: When the log would store it.
        connection: A connection to the database; without one, other ids of people and chats are
            unknown, and the result does not describe a session.
    """
    try:
        event = decode(InboundEvent, body)
    except DecodeError as error:
        return {"outcome": _DEAD_LETTER, "reason": error.reason, "detail": error.detail}
    subject = inbound_for(event).replace(".inbound.", ".log.0.", 1)
    prepared = prepare_inbound(LogMessage("inbound", 0, 0, at, subject, None, body), catalog)
    if isinstance(prepared, RejectedMessage):
        return _refused(prepared)
    book = AliasBook()
    if connection is not None:
        address = prepared.declared.address
        book = await aliases.read_book(connection, prepared.lookups, [address])
    arrived = arrive(prepared, book)
    if isinstance(arrived, RejectedMessage):
        return _refused(arrived)
    facts = _placed(prepared, arrived, catalog)
    if connection is not None:
        facts |= await _session_facts(connection, arrived, at)
    return facts


def refusal_text(facts: Facts, detail: str | None = None) -> str | None:
    """Return why an event would become a dead letter, for people; None if it would not.

    Args:
        detail: A better description of what is wrong with its fields.
    """
    if facts["outcome"] != _DEAD_LETTER:
        return None
    reason = str(facts["reason"])
    text = _REASONS.get(reason, reason.replace("_", " "))
    more = detail or facts["detail"]
    return f"this event would become a dead letter: {text}{f' ({more})' if more else ''}"


def unknown_fields(body: bytes) -> list[str]:
    """Return the fields of an event that the contract does not know, which routers ignore."""
    try:
        event = from_json(body)
    except ValueError:
        return []
    known = InboundEvent.model_fields.keys()
    return sorted(event.keys() - known) if isinstance(event, dict) else []


def _refused(refused: RejectedMessage) -> Facts:
    return {"outcome": _DEAD_LETTER, "reason": refused.reason, "detail": refused.detail}


def _placed(prepared: ValidatedEvent, arrived: ResolvedMessage, catalog: Catalog) -> Facts:
    key = parse_session_key(arrived.session_key)
    return {
        "outcome": _outcome(arrived),
        **_command(arrived, catalog),
        "session_key": arrived.session_key,
        "former_keys": list(arrived.former_keys),
        "key_rules": list(_key_rules(prepared, key)),
        "is_shared": is_shared(key),
        "profile": key.profile,
        "agent": arrived.agent.name,
        "delivery": arrived.agent.delivery,
        "reset_policy": _policy(arrived.policy),
        "reset_policy_of": _level(catalog, key),
    }


def _outcome(arrived: ResolvedMessage) -> str:
    if arrived.is_ignored:
        return "kept: our own message, or of a bot that may not speak here or asks nothing"
    if arrived.targets:
        return f"kept: the {arrived.event.kind} changes the message it is about, if that is there"
    is_ours = arrived.staff_pause is not None
    if is_ours or not arrived.starts_turn or says_nothing(arrived.event):
        return _not_answered(arrived.event, is_ours=is_ours)
    if arrived.command is None:
        return "routed"
    if arrived.command.name is None:
        return "kept: a command to another bot"
    return "command"


def _not_answered(event: InboundEvent, *, is_ours: bool) -> str:
    """Return the outcome of an event that starts no turn, although it is of a person."""
    if is_ours:
        return "kept: one of our people wrote it, and it starts nothing"
    if event.observed:
        return "kept: context for later turns"
    if event.kind is Kind.MESSAGE:
        return "kept: it says nothing"
    return f"kept: an event of kind {event.kind} starts nothing"


def _command(arrived: ResolvedMessage, catalog: Catalog) -> Facts:
    command = arrived.command
    if command is None or command.name is None:
        return {}
    rules = catalog.platforms[arrived.event.platform].commands
    is_permitted = may_use(arrived, rules, command.name)
    return {
        "command": command.name,
        "argument": command.argument,
        **({"message": command.rest} if command.rest else {}),
        "is_permitted": is_permitted,
        "effect": replies.effect(ENGLISH, command.name) if is_permitted else "is refused",
    }


def _key_rules(prepared: ValidatedEvent, key: ParsedKey) -> list[str]:
    address, rules = prepared.declared.address, prepared.declared.platform.keys
    reasons = []
    if key.chat != address.chat_id:
        reasons.append(
            "the sender stands in for the chat, which has no id"
            if address.chat_id is None
            else "another id of this chat or person was seen first, and counts"
        )
    if key.thread is None and address.thread_id is not None:
        reasons.append("the thread is an address only: it is no topic of its own")
    if key.chat_class == "group" and address.participant is not None:
        reasons.append(_isolation(key, per_user=rules.group_sessions_per_user))
    if key.scope is not None:
        reasons.append("the scope counts because the event has one")
    return reasons


def _isolation(key: ParsedKey, *, per_user: bool) -> str:
    if key.user is not None:
        return "each person has a conversation of their own here"
    if not per_user:
        return "everybody shares it: group_sessions_per_user is off"
    return "everybody in the thread shares it: thread_sessions_per_user is off"


def _policy(policy: ResetPolicy) -> str:
    parts: list[str] = [policy.mode]
    if policy.resets_idle:
        parts.append(f"after {policy.idle} of silence")
    if policy.resets_daily:
        parts.append(f"at {policy.at_hour}:00 {policy.timezone}, quiet for {policy.quiet}")
    return ", ".join(parts)


def _level(catalog: Catalog, key: ParsedKey) -> str:
    platform = catalog.platforms[key.platform]
    if key.chat_class in platform.class_reset:
        return f"class {key.chat_class} of platform {key.platform}"
    if platform.reset is not None:
        return f"platform {key.platform}"
    return f"class {key.chat_class}" if key.chat_class in catalog.class_reset else "default"


async def _session_facts(
    connection: PoolConnectionProxy, arrived: ResolvedMessage, at: datetime
) -> Facts:
    bound = await lanes.find(connection, [arrived.session_key, *arrived.former_keys])
    # A lane under the key itself wins, then the oldest under former keys; ids sort by time.
    lane = bound.get(arrived.session_key) or min(
        bound.values(), key=lambda candidate: candidate.session_id, default=None
    )
    session = None if lane is None else await sessions.find(connection, lane.session_id)
    if session is not None and session.owner is not None:
        author = name_of(arrived)
        known = await identities.find_by_names(connection, [] if author is None else [author])
        owners = {identity.owner: identity.owners for identity in known.values()}
        if is_anothers(arrived, session.owner, owners):
            return {"session_id": None, "session": "the lane leads to another person's session"}
    if session is None or session.ended_at is not None:
        return {"session_id": None, "session": "a message would open a new one"}
    if (name := _told_router(arrived)) is not None:
        return {"session_id": str(session.id), "session": _fate_of_command(session, name)}
    now = not_before(at, session.last_activity_at)
    reason = reset_reason(session, arrived.policy, now)
    facts: Facts = {"session_id": str(session.id), "session": _fate(session, reason, arrived)}
    due = next_reset(session, arrived.policy, now)
    facts["next_reset"] = None if due is None else f"{due.reason} at {due.at.isoformat()}"
    return facts


def _told_router(arrived: ResolvedMessage) -> CommandName | None:
    command = arrived.command
    return command.name if command is not None and command.is_for_router_only else None


def _fate_of_command(session: Session, name: CommandName) -> str:
    if name in _ENDING:
        return "may end, as the command says"
    if session.active_turn is None:
        return "goes on"
    if name in _REFUSED_WHILE_RUNNING:
        return "goes on, and nothing changes while a turn runs"
    return "goes on, while a turn runs"


def _fate(session: Session, reason: str | None, arrived: ResolvedMessage) -> str:
    if reason is None or arrived.event.kind is Kind.SYSTEM:
        return "goes on, while a turn runs" if session.active_turn else "goes on"
    return f"ends ({reason}), and a message opens a new one"
