"""Build and parse subjects; no other module does.

Platform ids never appear raw in a subject; every token is a declared name, a digest, a number or an
id made by chatlane.
"""

import re
from functools import cache, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from chatlane_schemas.dead import Stage
    from chatlane_schemas.inbound import InboundEvent

ROOT: Final = "chat.v1"

# Tokens of each subject; `wildcards` turns an address into a stream or permission pattern.
INBOUND: Final = f"{ROOT}.inbound.{{platform}}.{{account}}.{{chat}}"
LOG: Final = f"{ROOT}.log.{{partition}}.{{platform}}.{{account}}.{{chat}}"
ROUTED: Final = f"{ROOT}.routed.{{agent}}.{{slot}}.{{session}}"
TURN: Final = f"{ROOT}.turn.{{agent}}"
RESULT: Final = f"{ROOT}.result.{{agent}}.{{session}}"
RLOG: Final = f"{ROOT}.rlog.{{partition}}.{{agent}}.{{session}}"
OUTBOUND: Final = f"{ROOT}.outbound.{{platform}}.{{account}}.{{chat}}"
DELIVERER: Final = f"{ROOT}.deliverer.{{platform}}.{{account}}"
CURSOR: Final = f"{ROOT}.cursor.{{platform}}.{{account}}.{{cursor}}"
EVENT: Final = f"{ROOT}.event.{{noun}}.{{verb}}"
ENDING: Final = f"{ROOT}.event.ending.{{agent}}"
UNDELIVERED: Final = f"{ROOT}.event.undelivered.{{agent}}"
# The last four tokens tell whose turn it is: rights are cut by them.
TURN_EVENT: Final = f"{ROOT}.event.turn.{{verb}}.{{platform}}.{{account}}.{{audience}}.{{session}}"
DEAD: Final = f"{ROOT}.dead.{{stage}}"
DELTA: Final = f"{ROOT}.delta.{{agent}}.{{turn}}"
PIECE: Final = f"{ROOT}.piece.{{agent}}.{{platform}}.{{account}}.{{audience}}.{{session}}"
RECAP: Final = f"{ROOT}.recap.{{agent}}.{{platform}}.{{account}}.{{audience}}.{{session}}"
FOLLOW: Final = f"{ROOT}.follow.{{agent}}.{{platform}}.{{account}}.{{audience}}.{{session}}"
CONTROL: Final = f"{ROOT}.control.{{agent}}.{{turn}}"
API: Final = f"{ROOT}.api.{{principal}}.{{noun}}.{{verb}}"
API_OF_AGENT: Final = f"{API}.{{agent}}"
API_FOR_ACCOUNT: Final = f"{API}.{{platform}}.{{account}}"

Audience: TypeAlias = Literal["person", "shared"]
"""Who talks in a session: one person, or everybody in a chat."""

NO_CHAT: Final = "none"
CHAT_TOKEN_DIGITS: Final = 16

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}")
_CHAT: Final = re.compile(r"[0-9a-f]{16}|none")
_LOG_SUBJECT: Final = re.compile(
    rf"chat\.v1\.log\.([0-9]{{1,9}})\.({_NAME.pattern})\.({_NAME.pattern})\.({_CHAT.pattern})"
)
_RLOG_SUBJECT: Final = re.compile(
    rf"chat\.v1\.rlog\.([0-9]{{1,9}})\.({_NAME.pattern})\.([0-9a-f-]{{36}})"
)
_SLOT_MASK: Final = 2**32 - 1

_FNV_OFFSET: Final = 2166136261
_FNV_PRIME: Final = 16777619
_UINT32: Final = 2**32


class SubjectError(ValueError):
    """A token that must not enter a subject, or a subject of another form."""


class LogSubject(NamedTuple):
    """Subject of a stored inbound event."""

    partition: int
    platform: str
    account: str
    chat: str


class ResultLogSubject(NamedTuple):
    """Subject of a stored result."""

    partition: int
    agent: str
    session_id: UUID


class LiveTurnPath(NamedTuple):
    """The tokens of a live turn's subjects; None stands for any.

    Attributes:
        platform: Platform of the chat that the answer goes to.
        account: Account of the chat that the answer goes to.
        audience: Who talks in the session.
    """

    platform: str | None = None
    account: str | None = None
    audience: Audience | None = None
    session_id: UUID | None = None

    def of(self, address: str, *, agent: str | None = None, verb: str | None = None) -> str:
        """Return the subject of one of the addresses of a live turn."""
        tokens = {
            "agent": agent,
            "verb": verb,
            "platform": self.platform,
            "account": self.account,
            "audience": self.audience,
            "session": None if self.session_id is None else str(self.session_id),
        }
        known = {name: declared_name(token) for name, token in tokens.items() if token is not None}
        return wildcards(address, **known)


# Cached, because every turn of an account asks for the same tokens.
@lru_cache(maxsize=4096)
def _turn_event_head(verb: str, platform: str, account: str, audience: Audience) -> str:
    return LiveTurnPath(platform, account, audience).of(TURN_EVENT, verb=verb).removesuffix("*")


def turn_event(verb: str, path: LiveTurnPath) -> str:
    """Return the subject of an event about a turn; the path must be complete."""
    platform, account, audience, session_id = path
    if platform is None or account is None or audience is None or session_id is None:
        raise SubjectError("the path of a turn event is not complete")
    return f"{_turn_event_head(verb, platform, account, audience)}{session_id}"


def wildcards(address: str, **tokens: str) -> str:
    """Return an address with `*` for every part that is not given."""
    return _PLACEHOLDER.sub(lambda part: tokens.get(part[1], "*"), address)


def common_pattern(first: str, second: str) -> str | None:
    """Return the pattern of the subjects that match two patterns with `*`; None if none does."""
    pairs = list(zip(first.split("."), second.split("."), strict=False))
    if first.count(".") != second.count("."):
        return None
    if any("*" not in pair and pair[0] != pair[1] for pair in pairs):
        return None
    return ".".join(right if left == "*" else left for left, right in pairs)


def filled(address: str, **tokens: str) -> str:
    """Return an address with the given parts filled in; other parts stay placeholders."""
    return _PLACEHOLDER.sub(lambda part: tokens.get(part[1], part[0]), address)


def placeholders(address: str) -> tuple[str, ...]:
    """Return the names of the variable parts of an address, in order."""
    return tuple(_PLACEHOLDER.findall(address))


def follow_of(piece: str) -> str:
    """Return the subject to ask for a recap of the turn whose piece came on a subject."""
    return piece.replace(f"{ROOT}.piece.", f"{ROOT}.follow.", 1)


def declared_name(token: str) -> str:
    """Return the token if it is a declared name.

    Raises:
        SubjectError: It is not of 1 to 64 characters out of `[a-z0-9_-]`.
    """
    if _NAME.fullmatch(token) is None:
        raise SubjectError(f"not a declared name of 1 to 64 [a-z0-9_-]: {len(token)} characters")
    return token


def _chat(token: str) -> str:
    if _CHAT.fullmatch(token) is None:
        raise SubjectError(f"not a chat token: {len(token)} characters")
    return token


def _index(number: int, kind: str) -> int:
    if number < 0:
        raise SubjectError(f"{kind} is negative: {number}")
    return number


# Cached, because the messages of a chat and their answers ask for the same token.
@lru_cache(maxsize=8192)
def chat_token(
    chat_id: str | None,
    sender_id: str | None = None,
    sender_alt_id: str | None = None,
) -> str:
    """Return the token of a chat, or of the sender where there is no chat id.

    Missing and `""` both mean none.
    """
    stands_for = chat_id or sender_alt_id or sender_id
    if not stands_for:
        return NO_CHAT
    return sha256(stands_for.encode()).hexdigest()[:CHAT_TOKEN_DIGITS]


def chat_token_of(event: "InboundEvent") -> str:
    """Return the token of the chat of an event."""
    chat, sender = event.chat, event.sender
    return chat_token(
        chat.id if chat else None,
        sender.id if sender else None,
        sender.alt_id if sender else None,
    )


def inbound(platform: str, account: str, chat: str) -> str:
    """Return the subject on which an adapter publishes events of this chat."""
    return f"{ROOT}.inbound.{declared_name(platform)}.{declared_name(account)}.{_chat(chat)}"


def inbound_for(event: "InboundEvent") -> str:
    """Return the subject on which an adapter publishes this event."""
    return inbound(event.platform, event.account, chat_token_of(event))


def log_filter(partition: int) -> str:
    """Return the filter for one partition of the inbound log."""
    return f"{ROOT}.log.{_index(partition, 'partition')}.*.*.*"


def rlog_filter(partition: int) -> str:
    """Return the filter for one partition of the result log."""
    return f"{ROOT}.rlog.{_index(partition, 'partition')}.*.*"


def parse_log(subject: str) -> LogSubject:
    """Return the parsed subject of a stored event.

    Raises:
        SubjectError: The subject is not of the inbound log.
    """
    found = _LOG_SUBJECT.fullmatch(subject)
    if found is None:
        raise SubjectError("not a subject of the inbound log")
    partition, platform, account, chat = found.groups()
    return LogSubject(int(partition), platform, account, chat)


def parse_rlog(subject: str) -> ResultLogSubject:
    """Return the parsed subject of a stored result.

    Raises:
        SubjectError: The subject is not of the result log.
    """
    found = _RLOG_SUBJECT.fullmatch(subject)
    if found is None:
        raise SubjectError("not a subject of the log of results")
    partition, agent, session = found.groups()
    return ResultLogSubject(int(partition), agent, _session(session))


def _session(token: str) -> UUID:
    try:
        return UUID(token)
    except ValueError as exc:
        raise SubjectError("not a session id") from exc


def slot_of(session_id: UUID, slots: int) -> int:
    """Return the slot of a session: the last 32 bits of its id, modulo the slots."""
    return (session_id.int & _SLOT_MASK) % slots


def routed(agent: str, slot: int, session_id: UUID) -> str:
    """Return the subject of a message for a stream agent."""
    return f"{ROOT}.routed.{declared_name(agent)}.{_index(slot, 'slot')}.{session_id}"


def routed_filter(agent: str, slot: int) -> str:
    """Return the filter for one slot of a stream agent."""
    return f"{ROOT}.routed.{declared_name(agent)}.{_index(slot, 'slot')}.*"


@cache
def turn(agent: str) -> str:
    """Return the subject of the turn notifications for an agent."""
    return f"{ROOT}.turn.{declared_name(agent)}"


def result(agent: str, session_id: UUID) -> str:
    """Return the subject on which a worker publishes a result."""
    return f"{ROOT}.result.{declared_name(agent)}.{session_id}"


def outbound(platform: str, account: str, chat: str) -> str:
    """Return the subject of outbound messages to this chat."""
    return f"{ROOT}.outbound.{declared_name(platform)}.{declared_name(account)}.{_chat(chat)}"


def outbound_filter(platform: str, account: str) -> str:
    """Return the filter for all outbound messages of one account."""
    return f"{ROOT}.outbound.{declared_name(platform)}.{declared_name(account)}.*"


def deliverer(platform: str, account: str) -> str:
    """Return the subject of the lease of the process that delivers for an account."""
    return f"{ROOT}.deliverer.{declared_name(platform)}.{declared_name(account)}"


WEBHOOK_CURSORS: Final = "webhooks"
"""The place of a platform in the cursors of processes that send webhooks; the account is their user."""


def cursor(platform: str, account: str, name: str) -> str:
    """Return the subject of a cursor of an account.

    Raises:
        SubjectError: The name has other characters than `a-z0-9_-`, or more than 64.
    """
    return filled(
        CURSOR,
        platform=declared_name(platform),
        account=declared_name(account),
        cursor=declared_name(name),
    )


@cache
def event(noun: str, verb: str) -> str:
    """Return the subject of an event, such as `session`, `started`."""
    return f"{ROOT}.event.{declared_name(noun)}.{declared_name(verb)}"


def ending(agent: str) -> str:
    """Return the subject that announces timed session ends to the workers of an agent."""
    return event("ending", agent)


def undelivered(agent: str) -> str:
    """Return the subject that announces failed deliveries to the workers of an agent."""
    return event("undelivered", agent)


def dead(stage: "Stage") -> str:
    """Return the subject of the dead letters of a stage."""
    return f"{ROOT}.dead.{declared_name(stage)}"


def delta(agent: str, turn_id: UUID) -> str:
    """Return the subject of the text that a running turn streams; not stored."""
    return f"{ROOT}.delta.{declared_name(agent)}.{turn_id}"


def control(agent: str, turn_id: UUID) -> str:
    """Return the subject of control messages to the worker of a running turn; not stored."""
    return f"{ROOT}.control.{declared_name(agent)}.{turn_id}"


def control_filter(agent: str) -> str:
    """Return the filter for all control messages to the workers of an agent."""
    return f"{ROOT}.control.{declared_name(agent)}.*"


def api(principal: str, noun: str, verb: str, agent: str | None = None) -> str:
    """Return the subject of a request; permissions pin the principal."""
    subject = f"{ROOT}.api.{declared_name(principal)}.{declared_name(noun)}.{declared_name(verb)}"
    return subject if agent is None else f"{subject}.{declared_name(agent)}"


def api_for_account(principal: str, noun: str, verb: str, platform: str, account: str) -> str:
    """Return the subject of a request on behalf of a person who talks to this account."""
    return f"{api(principal, noun, verb)}.{declared_name(platform)}.{declared_name(account)}"


def partition_of(count: int, *tokens: str) -> int:
    """Return the partition that the server's `partition(count, ...)` assigns to these tokens.

    FNV-1a in 32 bits over the tokens without a separator.

    Source: nats-server, server/subject_transform.go, `getHashPartition`.
    """
    digest = _FNV_OFFSET
    for byte in "".join(tokens).encode():
        digest = (digest ^ byte) * _FNV_PRIME % _UINT32
    return digest % count
