"""Translate mail into events of chatlane."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parseaddr, parsedate_to_datetime
from hashlib import sha256
from html.parser import HTMLParser
from typing import Final, NamedTuple

from typing_extensions import override

from chatlane_schemas import Chat, InboundEvent, Sender
from chatlane_schemas.content.elements import Quote
from chatlane_schemas.inbound import ReturnAddress

_IDS: Final = re.compile(r"<([^<>\s]+)>")
_QUOTED: Final = re.compile(
    r"^(?:On .{1,200} wrote:|Am .{1,200} schrieb .{1,200}:|-+ ?Original .*)$"
)
_LONGEST_ID: Final = 256
_MOST_REFERENCES: Final = 20
_ANSWERED_FOR: Final = timedelta(days=30)
_BULK: Final = frozenset({"bulk", "junk", "list"})
_HIDDEN: Final = frozenset({"head", "script", "style", "title"})
_BREAKS: Final = {"br": "\n", "div": "\n", "li": "\n", "tr": "\n", "p": "\n\n"} | {
    f"h{level}": "\n\n" for level in range(1, 7)
}


class Thread(NamedTuple):
    """The headers of a mail that an answer needs to be shown below it.

    Attributes:
        references: Ids of the mails before, from the first one on.
    """

    subject: str
    references: tuple[str, ...]

    def as_text(self) -> str:
        """Return the thread as the value of a return address."""
        return json.dumps({"subject": self.subject, "references": self.references})

    @classmethod
    def of_text(cls, text: str) -> "Thread":
        """Return the thread of the value of a return address."""
        given = json.loads(text)
        return cls(given["subject"], tuple(given["references"]))


class MailFile(NamedTuple):
    """A file that is attached to a mail."""

    name: str | None
    media_type: str
    content: bytes


def files_of(content: bytes) -> list[MailFile]:
    """Return the files that are attached to a mail."""
    mail = message_from_bytes(content, policy=policy.default)
    files: list[MailFile] = []
    for part in mail.iter_attachments() if isinstance(mail, EmailMessage) else ():
        payload = part.get_payload(decode=True)
        # An attached mail has parts in place of bytes.
        raw = payload if isinstance(payload, bytes) else part.as_bytes()
        files.append(MailFile(part.get_filename(), part.get_content_type(), raw))
    return files


def event_of(make: Callable[..., InboundEvent], content: bytes) -> InboundEvent | None:
    """Return a mail as an event; None for a mail without an author, such as a bounce.

    Args:
        make: Returns an event of the account with some fields, as `AdapterClient.event`.
        content: The mail.

    Raises:
        ValueError: It is no mail.
    """
    mail = message_from_bytes(content, policy=policy.default)
    assert isinstance(mail, EmailMessage)  # noqa: S101 - by the policy
    name, address = parseaddr(_header(mail, "From"))
    address = address.lower()
    if "@" not in address or _header(mail, "Return-Path").strip() == "<>":
        return None
    message_id = _message_id(mail, content)
    before = _ids(_header(mail, "References")) or _ids(_header(mail, "In-Reply-To"))
    replied = _ids(_header(mail, "In-Reply-To"))
    subject = _header(mail, "Subject").strip()
    text, quoted = _without_quote(_text(mail))
    references = (*before, message_id)
    thread = Thread(subject, (references[0], *references[1:][-_MOST_REFERENCES:]))
    shown = [] if before or not subject else [f"Subject: {subject}"]
    return make(
        chat=Chat(id=address, kind="dm"),
        message_id=message_id,
        thread_id=_short(references[0]),
        reply_to=_short(replied[0]) if replied else None,
        sender=Sender(id=address, name=name or None, is_bot=_is_automatic(mail)),
        sent_at=_date(mail),
        text="\n\n".join(filter(None, [*shown, text])),
        quote=None if quoted is None else Quote(text=quoted),
        return_address=ReturnAddress(
            value=thread.as_text(), expires_at=datetime.now(UTC) + _ANSWERED_FOR
        ),
    )


def _header(mail: EmailMessage, name: str) -> str:
    return str(mail.get(name) or "")


def _ids(header: str) -> list[str]:
    return _IDS.findall(header)


def _short(message_id: str) -> str:
    """Return an id that the contract accepts."""
    if len(message_id.encode()) <= _LONGEST_ID:
        return message_id
    return sha256(message_id.encode()).hexdigest()


def _message_id(mail: EmailMessage, content: bytes) -> str:
    found = _ids(_header(mail, "Message-ID"))
    return _short(found[0]) if found else sha256(content).hexdigest()


def _is_automatic(mail: EmailMessage) -> bool:
    """Return whether a program wrote a mail, which must not be answered."""
    automatic = _header(mail, "Auto-Submitted").strip().lower()
    return (
        automatic not in {"", "no"}
        or _header(mail, "Precedence").strip().lower() in _BULK
        or mail.get("List-Id") is not None
        or mail.get("X-Autoreply") is not None
    )


def _date(mail: EmailMessage) -> datetime | None:
    try:
        found = parsedate_to_datetime(_header(mail, "Date"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _text(mail: EmailMessage) -> str:
    body = mail.get_body(("plain", "html"))
    if body is None:
        return ""
    try:
        content = str(body.get_content())
    except (LookupError, UnicodeError):
        # A charset that is not known.
        raw = body.get_payload(decode=True)
        content = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else ""
    return _of_html(content) if body.get_content_subtype() == "html" else content.strip()


def _without_quote(text: str) -> tuple[str, str | None]:
    """Return the text of a reply, and the text that it quotes below."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        rest = lines[number + 1 :]
        is_quote = all(not it.strip() or it.startswith(">") for it in rest) and any(rest)
        if is_quote and _QUOTED.match(line.strip()):
            quoted = "\n".join(it.removeprefix(">").removeprefix(" ") for it in rest).strip()
            return "\n".join(lines[:number]).strip(), quoted or None
    return text, None


def with_file_names(event: InboundEvent, files: Iterable[MailFile]) -> InboundEvent:
    """Return a mail with a line for each file that is not kept."""
    lines = [f"[attached file: {file.name or file.media_type}]" for file in files]
    text = "\n\n".join(filter(None, [event.text, *lines]))
    return event.model_copy(update={"text": text})


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _HIDDEN
        self.parts.append(_BREAKS.get(tag, ""))

    @override
    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN

    @override
    def handle_data(self, data: str) -> None:
        if self._hidden <= 0:
            self.parts.append(re.sub(r"\s+", " ", data))


def _of_html(content: str) -> str:
    reader = _Reader()
    reader.feed(content)
    lines = (line.strip() for line in "".join(reader.parts).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
