"""Build and parse the session key: deterministic text that names one conversation.

    agent:<profile>:<platform>:<account>:<class>:<chat>[:thread=<t>][:user=<u>][:scope=<s>]

Every value is percent-encoded (UTF-8, upper-case hex) outside `[A-Za-z0-9._@+!$~-]`, so a
colon or an equals sign in a key always belongs to the grammar. A missing chat leaves its place
empty, which is unambiguous because ids are not empty.

Two addresses have the same key exactly if they have the same *identity* (`identity_of`):
profile, platform, account, class, scope, the chat, and the thread and user that count under
the rules in force. In a DM the identity is the peer: the chat id, or the id of the sender if no
chat id came. The two share one namespace on purpose. A platform that omits the chat id of a DM
identifies the chat by its person, so an adapter that starts to send that id later finds the
conversation again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from chatlane.domain.addressing.sources import class_of
from chatlane.domain.catalog import canonical_profile
from chatlane_schemas.dead import DeadReason

if TYPE_CHECKING:
    from chatlane.domain.addressing.sources import Address, ChatClass
    from chatlane.domain.policy import KeyRules

GRAMMAR_VERSION: Final = 1

# Postgres refuses index rows above 2,704 bytes. Only four ids at once, each long and with hardly
# any ASCII, come near. Such an event becomes a dead letter here, before the database refuses a
# batch.
MAX_KEY_BYTES: Final = 2600

# Accounts that stand for several people: anonymous admins, channels, the platform itself.
_PLACEHOLDER_SENDERS: Final = {"telegram": frozenset({"1087968824", "136817688", "777000"})}

_TELEGRAM: Final = "telegram"
_GENERAL_TOPIC: Final = "1"

_PLAIN: Final = re.compile(r"[A-Za-z0-9._@+!$~-]+")
_KEY: Final = re.compile(
    r"agent:([^:]+):([^:]+):([^:]+):(dm|group):([^:]*)"
    r"(?::thread=([^:]+))?(?::user=([^:]+))?(?::scope=([^:]+))?"
)


class MalformedKeyError(ValueError):
    """Raised for text that this grammar never writes."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"not a session key of grammar {GRAMMAR_VERSION}: {len(key)} characters")


@dataclass(frozen=True, slots=True)
class NoConversation:
    """The reason why an address has no conversation; becomes the detail of its dead letter."""

    reason: DeadReason
    detail: str


class ParsedKey(NamedTuple):
    """The parts of a key; the identity of a conversation."""

    profile: str
    platform: str
    account: str
    chat_class: ChatClass
    chat: str | None
    thread: str | None = None
    user: str | None = None
    scope: str | None = None


_NOBODY: Final = NoConversation(DeadReason.NO_CONVERSATION, "a DM with neither chat nor sender")
_TOO_LONG: Final = NoConversation(DeadReason.BAD_ID, f"session key above {MAX_KEY_BYTES} bytes")


def escaped(text: str) -> str:
    """Escape a value for a key; injective."""
    return text if _PLAIN.fullmatch(text) else quote(text, safe="@+!$")


def unescaped(text: str) -> str:
    """Return the original of an escaped value; raise UnicodeDecodeError if there is none."""
    return unquote_to_bytes(text).decode() if "%" in text else text


def session_key(address: Address, rules: KeyRules) -> str | NoConversation:
    """Return the key of the conversation of an event, or why there is none.

    The caller has resolved aliases.
    """
    identity = identity_of(address, rules)
    if isinstance(identity, NoConversation):
        return identity
    key = key_text(identity)
    return key if len(key) <= MAX_KEY_BYTES else _TOO_LONG


def identity_of(address: Address, rules: KeyRules) -> ParsedKey | NoConversation:
    """Return the identity of the conversation at an address.

    Source: docs/adr/0002-give-session-keys-one-escaped-grammar.md.
    """
    chat_class = address.chat_class
    thread = _thread_in_key(address, chat_class, rules)
    chat, user = address.chat_id, None
    if chat_class == "dm":
        chat = address.chat_or_sender
        if chat is None and rules.anonymous_dm == "refuse":
            return _NOBODY
    elif rules.group_sessions_per_user and (thread is None or rules.thread_sessions_per_user):
        user = address.participant
    return ParsedKey(
        address.profile,
        address.platform,
        address.account,
        chat_class,
        chat,
        thread,
        user,
        address.scope,
    )


def _thread_in_key(address: Address, chat_class: ChatClass, rules: KeyRules) -> str | None:
    """Return the thread if it is a conversation; the flag of the event decides before the rules."""
    thread = address.thread_id
    if thread is None:
        return None
    if address.platform == _TELEGRAM and chat_class != "dm" and thread == _GENERAL_TOPIC:
        # Telegram gives the General topic as 1 or not at all.
        return None
    counts = address.is_forum
    if counts is None:
        counts = rules.dm_threads if chat_class == "dm" else rules.group_threads
    return thread if counts else None


def key_text(identity: ParsedKey) -> str:
    """Return an identity as text; `parse_session_key` is the inverse."""
    profile, platform, account, chat_class, chat, thread, user, scope = identity
    key = _prefix(profile, platform, account, chat_class)
    if chat is not None:
        key += escaped(chat)
    if thread is not None:
        key += ":thread=" + escaped(thread)
    if user is not None:
        key += ":user=" + escaped(user)
    if scope is not None:
        key += ":scope=" + escaped(scope)
    return key


@lru_cache(maxsize=4096)
def _prefix(profile: str, platform: str, account: str, chat_class: str) -> str:
    names = (canonical_profile(profile), platform.lower(), account, class_of(chat_class))
    return f"agent:{':'.join(map(escaped, names))}:"


def parse_session_key(text: str) -> ParsedKey:
    """Return the identity of a key of this grammar.

    Raises:
        MalformedKeyError: The text is no key, or not in the one form this grammar writes.
    """
    match = _KEY.fullmatch(text)
    if match is None:
        raise MalformedKeyError(text)
    try:
        values = [unescaped(value) if value else None for value in match.groups()]
    except UnicodeDecodeError as exc:
        raise MalformedKeyError(text) from exc
    parsed = ParsedKey._make(values)
    if key_text(parsed) != text or (parsed.chat_class == "dm" and parsed.user is not None):
        raise MalformedKeyError(text)
    return parsed


def may_go_on_in(thread_key: str, key: str) -> bool:
    """Return whether a thread may use the session of the chat message that it was opened on.

    Both have to address the same profile. A private conversation that was moved to a group chat
    does not continue in its threads. Where each person has a separate thread session, only the
    author of the message continues the session.
    """
    thread, chat = parse_session_key(thread_key), parse_session_key(key)
    if thread.profile != chat.profile:
        return False
    if thread.chat_class == "group" and chat.chat_class == "dm":
        return False
    return thread.user is None or thread.user == chat.user


def is_placeholder(platform: str, sender: str) -> bool:
    """Return whether an id stands for several people of a platform."""
    return sender in _PLACEHOLDER_SENDERS.get(platform, ())


def is_shared(key: ParsedKey) -> bool:
    """Return whether several people may write under this key."""
    if key.chat_class == "dm":
        return key.chat is None
    return key.user is None or is_placeholder(key.platform, key.user)
