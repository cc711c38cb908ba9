"""Find the lane of an old conversation. Pure.

The importer takes the parts of an old key from the key itself, not from the rules in force today:
a conversation that a whole group could read must never become the private conversation of the
person who wrote first in it.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.addressing.keys import ParsedKey, key_text
from chatlane.domain.addressing.people import person_form
from chatlane.domain.addressing.sources import Address
from chatlane.domain.catalog import Agent, Catalog, canonical_profile
from chatlane.domain.policy import KeyRules
from chatlane.importer.records import Origin
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.session_api.sessions import CHAT_ORIGIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chatlane.importer.records import OldSession

# Every part that the address still has after `_counted` was part of the old key.
OLD_RULES: Final = KeyRules(group_sessions_per_user=True, thread_sessions_per_user=True)

PROGRAMS: Final = frozenset({"acp", "cli", "cron", "tui"})
"""Sources of old sessions that no chat opened; their sessions need no declared platform."""

_PROGRAM_ACCOUNT: Final = "hermes"
_NO_CHAT: Final = "it was held in no chat"
_WHATSAPP: Final = "whatsapp"
_OLD_KEY: Final = re.compile(r"agent:([^:]*):([^:]*):([^:]*)(?::(.*))?", re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]+")


class Placed(NamedTuple):
    """The destination of an old conversation.

    Attributes:
        address: The address its session key is built from after aliases are resolved; None if
            it has no lane.
        author: The id of the user who wrote in it, if that was a single user.
        why_no_lane: The reason, set if `address` is None.
        origin: What opened it: a chat, or one of `PROGRAMS`.
    """

    profile: str
    agent: Agent
    platform: str
    account: str
    address: Address | None
    author: str | None = None
    why_no_lane: str | None = None
    origin: str = CHAT_ORIGIN

    def history_key(self, session_id: str) -> str:
        """Return the key of a session without a lane."""
        return key_text(
            ParsedKey(self.profile, self.platform, self.account, "dm", f"hermes:{session_id}")
        )


class Unplaceable(NamedTuple):
    """The reason why an old conversation cannot be imported."""

    reason: str


class _Counted(NamedTuple):
    """The parts of an address that stand in an old key; user ids in the form of the key."""

    chat: str | None
    thread: str | None
    user: str | None


def place(
    session: OldSession,
    catalog: Catalog,
    accounts: Mapping[str, str],
    profile: str | None,
) -> Placed | Unplaceable:
    """Return the destination of an old conversation.

    Args:
        accounts: The account name of the old gateway, by platform.
        profile: The profile to import into; None uses the profile in the old key.
    """
    matched = _OLD_KEY.fullmatch(session.key or "")
    origin = session.origin or (_origin_in(matched) if matched else None)
    platform = (origin.platform if origin else session.source).lower()
    wanted = profile or (matched[1] if matched else None) or (origin.profile if origin else None)
    nowhere = _declared(catalog, platform, accounts.get(platform), wanted)
    if isinstance(nowhere, Unplaceable) or matched is None or origin is None:
        return nowhere
    if platform not in catalog.platforms:
        return nowhere
    return _in_lane(nowhere, matched, origin)


def _declared(
    catalog: Catalog, platform: str, account: str | None, wanted: str | None
) -> Placed | Unplaceable:
    declared = catalog.platforms.get(platform)
    if declared is None and platform in PROGRAMS:
        return _of_program(catalog, platform, canonical_profile(wanted))
    if declared is None:
        return Unplaceable(f"chatlane.toml declares no platform {platform}")
    name = account or _only(declared.accounts)
    if name is None:
        return Unplaceable(f"say which account it is: --account {platform}=NAME")
    found = catalog.resolve_profile(platform, name, wanted)
    if isinstance(found, DeadReason):
        return Unplaceable(f"{found.value}: account {name}, profile {canonical_profile(wanted)}")
    nowhere = Placed(found.name, found.agent, platform, name, None, why_no_lane=_NO_CHAT)
    return nowhere._replace(origin=platform) if platform in PROGRAMS else nowhere


def _of_program(catalog: Catalog, program: str, profile: str) -> Placed | Unplaceable:
    agent = catalog.profiles.get(profile)
    if agent is None:
        return Unplaceable(f"chatlane.toml declares no profile {profile}")
    return Placed(
        profile,
        catalog.agents[agent],
        program,
        _PROGRAM_ACCOUNT,
        None,
        why_no_lane=_NO_CHAT,
        origin=program,
    )


def _in_lane(nowhere: Placed, matched: re.Match[str], origin: Origin) -> Placed:
    counted = _counted(matched, origin)
    if counted is None:
        return nowhere._replace(why_no_lane="its key does not follow from its address")
    if counted.chat is None and (origin.chat_id or counted.user is None):
        return nowhere._replace(why_no_lane="several chats shared its key")
    address = _address(nowhere, origin, counted)
    is_one_person = address.chat_class == "dm" or counted.user is not None
    return nowhere._replace(
        address=address,
        author=(origin.user_id or origin.user_id_alt) if is_one_person else None,
        why_no_lane=None,
        origin=CHAT_ORIGIN,
    )


def _only(accounts: Mapping[str, object]) -> str | None:
    return next(iter(accounts)) if len(accounts) == 1 else None


def _origin_in(matched: re.Match[str]) -> Origin | None:
    """Return the address in an old key, or None if its parts are ambiguous."""
    _, platform, chat_type, rest = matched.groups()
    parts = (rest or "").split(":")
    if not all(_NUMBER.fullmatch(part) for part in parts) or len(parts) > (
        2 if chat_type == "dm" else 1
    ):
        return None
    return Origin(
        platform, chat_type, chat_id=parts[0], thread_id=parts[1] if len(parts) > 1 else None
    )


def _counted(matched: re.Match[str], origin: Origin) -> _Counted | None:
    """Return the parts of the address that stand in the key, preferring the most parts that fit."""
    _, platform, chat_type, rest = matched.groups()
    if platform != origin.platform or chat_type != origin.chat_type:
        return None
    text = rest or ""
    if platform == _WHATSAPP:
        return _counted_on_whatsapp(text, origin)
    users = (origin.participant, None) if chat_type != "dm" else (None,)
    choices = product((origin.chat_id, None), (origin.thread_id, None), users)
    for chat, thread, user in choices:
        if text == ":".join(filter(None, (chat, thread, user))):
            return _Counted(chat, thread, user)
    for thread in (origin.thread_id, None):
        if origin.participant and text == ":".join(filter(None, (origin.participant, thread))):
            return _Counted(None, thread, origin.participant)
    return None


def _counted_on_whatsapp(text: str, origin: Origin) -> _Counted | None:
    # The key holds user ids as bare numbers, whatever their original form.
    parts = text.split(":") if text else []
    if origin.chat_type == "dm":
        if len(parts) == 1 or (len(parts) > 1 and parts[1:] == [origin.thread_id]):
            thread = origin.thread_id if len(parts) > 1 else None
            if origin.chat_id is None:
                return _Counted(None, thread, parts[0])
            return _Counted(parts[0], thread, None)
        return _Counted(None, None, None) if not parts else None
    if not parts or parts[0] != origin.chat_id:
        return None
    after = parts[1:]
    thread = origin.thread_id if origin.thread_id and origin.thread_id in after[:1] else None
    user = after[1:] if thread else after
    return _Counted(parts[0], thread, user[0] if user else None) if len(user) <= 1 else None


def _address(placed: Placed, origin: Origin, counted: _Counted) -> Address:
    """Return the address with only the parts of the old key, and the other ids the key implies."""
    address = Address(
        platform=placed.platform,
        account=placed.account,
        scope=origin.scope,
        profile=placed.profile,
        chat_id=origin.chat_id,
        chat_kind=origin.chat_type,
        thread_id=None if counted.thread in {None, "0"} else counted.thread,
    )
    if address.chat_class == "group" and counted.user is None:
        return address
    # In a DM these ids only add aliases of the person.
    address = address.with_ids(origin.chat_id, origin.user_id, origin.user_id_alt)
    if placed.platform != _WHATSAPP:
        return address
    known, number = (
        (origin.chat_id, counted.chat)
        if address.chat_class == "dm" and counted.chat is not None
        else (origin.participant, counted.user)
    )
    return address._replace(sender_aliases=tuple(filter(None, [_other_form(known, number)])))


def _other_form(raw: str | None, number: str | None) -> str | None:
    """Return the person's id of the other kind if the key was built from that id."""
    form = person_form(_WHATSAPP, raw) if raw else None
    if form is None or not number or not number.isdigit() or form.partition("@")[0] == number:
        return None
    return number if form.endswith("@lid") else f"{number}@lid"


def holders(sessions: Mapping[str, OldSession], held: Mapping[str, str]) -> dict[str, str]:
    """Return the session that the next message would have gone to, by old key.

    Args:
        held: The session id of each key in the index. A compressed session is replaced by its
            child. If the session has ended, or the index lacks the key, the newest open session
            with this key is used.
    """
    children: dict[str, list[OldSession]] = {}
    newest: dict[str, OldSession] = {}
    for session in sessions.values():
        if session.parent_id is not None:
            children.setdefault(session.parent_id, []).append(session)
        if session.key and session.ended_at is None and session.row_count:
            before = newest.get(session.key)
            if before is None or before.started_at <= session.started_at:
                newest[session.key] = session
    found = {key: session.id for key, session in newest.items()}
    for key, session_id in held.items():
        tip = list(_compressed_into(sessions.get(session_id), children))[-1:]
        if tip and (tip[0].ended_at is None or key not in found):
            found[key] = tip[0].id
    return found


def _compressed_into(
    session: OldSession | None, children: Mapping[str, list[OldSession]]
) -> Iterator[OldSession]:
    passed: set[str] = set()
    while session is not None and session.id not in passed:
        passed.add(session.id)
        yield session
        if session.end_reason != "compression":
            return
        going_on = [child for child in children.get(session.id, ()) if not is_branch(child)]
        session = max(going_on, key=lambda child: child.started_at, default=None)


def is_branch(session: OldSession) -> bool:
    """Return whether a user or an agent branched the session, as opposed to a compression."""
    config = session.model_config or ""
    return '"_branched_from"' in config or '"_delegate_from"' in config


def link_of(session: OldSession, parent: OldSession | None) -> str | None:
    """Return the link kind of a session to its parent; None for a session that an agent delegated to."""
    if parent is None or '"_delegate_from"' in (session.model_config or ""):
        return None
    if parent.end_reason == "compression" and not is_branch(session):
        return "compression"
    return "branch" if is_branch(session) or parent.end_reason == "branched" else None
