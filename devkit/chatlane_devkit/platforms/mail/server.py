"""A mail server that a mailbox sends with, and that delivers to the mailbox."""

import asyncio
import smtplib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from email import message_from_bytes, policy
from email.message import EmailMessage
from itertools import count
from time import monotonic
from typing import Final

from aiosmtpd.smtp import SMTP, Envelope, Session

MAILBOX: Final = "desk@shop.test"
_AGAIN_AFTER: Final = 0.1
_WITHIN: Final = 5.0
_LOOK_AGAIN: Final = 0.02
_numbers: Final = count(1)


def new_message_id() -> str:
    """Return the id of a mail, in angle brackets."""
    return f"<{next(_numbers)}@x.test>"


class MailServer:
    """The server of people and of a mailbox.

    Attributes:
        port: Where the mailbox sends.
        lmtp_ports: Where mail to the mailbox is delivered: to the first of them that takes it.
        sent: What the mailbox has sent, in order.
        refused: People who do not exist.
        tries: How often the mailbox tried to send to a person.
        limited_until: Monotonic time until which mail to a person is put off.
        unanswered: People whose mail is taken, and the mailbox gets no answer.
    """

    def __init__(self) -> None:
        self.port = 0
        self.lmtp_ports: Sequence[int] = ()
        self.sent: list[EmailMessage] = []
        self.refused: set[str] = set()
        self.tries: Counter[str] = Counter()
        self.limited_until: dict[str, float] = {}
        self.unanswered: set[str] = set()
        self._queues: dict[str, asyncio.Queue[EmailMessage]] = defaultdict(asyncio.Queue)
        self._senders: list[asyncio.Task[None]] = []

    def to(self, address: str) -> list[EmailMessage]:
        """Return the mail to a person, in order."""
        return [mail for mail in self.sent if mail["To"] == address]

    def deliver(self, mail: EmailMessage) -> None:
        """Deliver a mail of a person to the mailbox, after their earlier mail, until it is taken."""
        person = str(mail["From"])
        if person not in self._queues:
            self._senders.append(asyncio.create_task(self._deliver(self._queues[person])))
        self._queues[person].put_nowait(mail)

    async def _deliver(self, queue: asyncio.Queue[EmailMessage]) -> None:
        while True:
            mail = await queue.get()
            while not await asyncio.to_thread(  # noqa: ASYNC110 - as a mail server tries again
                _is_taken, mail, self.lmtp_ports
            ):
                await asyncio.sleep(_AGAIN_AFTER)

    async def close(self) -> None:
        """Deliver nothing more."""
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

    async def handle_RCPT(  # noqa: N802 - aiosmtpd calls it
        self, _: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        """Return whether a person exists and may get mail now."""
        self.tries[address] += 1
        if address in self.refused:
            return "550 5.1.1 no such person"
        if self.limited_until.get(address, 0.0) > monotonic():
            return "451 4.7.1 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Take a mail of the mailbox."""
        content = envelope.content
        assert isinstance(content, bytes)  # noqa: S101 - as aiosmtpd gives it
        mail = message_from_bytes(content, policy=policy.default)
        assert isinstance(mail, EmailMessage)  # noqa: S101 - by the policy
        self.sent.append(mail)
        while not self.unanswered.isdisjoint(envelope.rcpt_tos):  # noqa: ASYNC110 - a test ends it
            await asyncio.sleep(_LOOK_AGAIN)
        return "250 OK"


def _is_taken(mail: EmailMessage, ports: Sequence[int]) -> bool:
    for port in ports:
        with suppress(OSError, smtplib.SMTPException):
            with smtplib.LMTP("127.0.0.1", port, timeout=_WITHIN) as lmtp:
                lmtp.send_message(mail)
            return True
    return False


@asynccontextmanager
async def open_mail_server() -> AsyncIterator[MailServer]:
    """Run a server for the length of the block."""
    mail, loop = MailServer(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(mail, loop=loop), "127.0.0.1", 0)
    mail.port = server.sockets[0].getsockname()[1]
    try:
        yield mail
    finally:
        server.close()
        await mail.close()
