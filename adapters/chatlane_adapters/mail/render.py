"""Translate pieces of outbound messages into mail."""

from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr

from chatlane_adapters.kit.markdown import as_html, parse
from chatlane_adapters.mail.decode import Thread
from chatlane_client import Piece, chat_of
from chatlane_schemas import TextFormat


def message_id_of(piece: Piece, address: str) -> str:
    """Return the id of the mail of a piece, the same for each attempt."""
    return f"{piece.key}@{address.rpartition('@')[2]}"


def mail_of(piece: Piece, *, address: str, name: str | None) -> EmailMessage:
    """Return the mail that shows a piece.

    Args:
        piece: The piece.
        address: Our address.
        name: Our name.
    """
    target = piece.message.target
    mail = EmailMessage(policy=SMTP)
    mail["From"] = formataddr((name or "", address))
    mail["To"] = chat_of(target)
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail["Message-ID"] = f"<{message_id_of(piece, address)}>"
    # No program answers such a mail, so two of them cannot talk for ever.
    mail["Auto-Submitted"] = "auto-replied"
    returned = target.return_address
    thread = Thread("", ()) if returned is None else Thread.of_text(returned.value)
    subject = " ".join(thread.subject.split())
    mail["Subject"] = subject if subject[:3].lower() == "re:" else f"Re: {subject}".strip()
    if thread.references:
        mail["In-Reply-To"] = f"<{piece.message.reply_to or thread.references[-1]}>"
        mail["References"] = " ".join(f"<{it}>" for it in thread.references)
    links = [f"{it.name or it.media_type}: {it.url}" for it in piece.attachments if it.url]
    text = "\n\n".join(filter(None, [piece.text, *links])) or "…"
    mail.set_content(text)
    if piece.message.format is TextFormat.MARKDOWN:
        mail.add_alternative(as_html(parse(text)), subtype="html")
    return mail
