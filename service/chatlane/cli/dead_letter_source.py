"""Describe the origin of a dead letter: platform, account, chat, and the undeclared name."""

import json
from typing import TYPE_CHECKING, NamedTuple

from chatlane.cli.shared.terminal import short_id
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.topology import subjects

if TYPE_CHECKING:
    from chatlane.domain.effects import DeadRow


class Source(NamedTuple):
    """Origin and problem of a dead letter; empty if neither subject nor body shows it."""

    sender: str
    problem: str


def find_source(letter: "DeadRow") -> Source:
    """Return the origin of a dead letter and its problem.

    The subject names platform and account. The chat id and the profile are in the body, which may
    be anything: a chat without a readable id is named by the token of its subject.
    """
    body = _parsed(letter.body)
    inbound = _log_subject(letter.subject)
    if inbound is None:
        session = letter.session_id and f"session {short_id(letter.session_id)}"
        return Source(session or "", letter.detail or "")
    account = f"{inbound.platform}/{inbound.account}"
    chat = body.get("chat")
    chat_id = chat.get("id") if isinstance(chat, dict) else None
    sender = f"{account} chat {chat_id or inbound.chat}"
    return Source(sender, _problem(letter, account, body))


def _problem(letter: "DeadRow", account: str, body: dict[str, object]) -> str:
    profile = body.get("profile")
    match letter.reason:
        case DeadReason.UNKNOWN_ACCOUNT:
            return f"account {account} is not declared"
        case DeadReason.UNKNOWN_PROFILE if profile:
            return f"profile {profile} is not declared"
        case DeadReason.PROFILE_FORBIDDEN if profile:
            return f"account {account} does not allow profile {profile}"
        case _:
            return letter.detail or ""


def _log_subject(subject: str | None) -> subjects.LogSubject | None:
    try:
        return subjects.parse_log(subject or "")
    except subjects.SubjectError:
        return None


def _parsed(body: bytes | None) -> dict[str, object]:
    try:
        parsed = json.loads(body or b"null")
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
