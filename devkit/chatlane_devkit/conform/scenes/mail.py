"""A mail server as a scene."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from itertools import count
from time import monotonic
from typing import ClassVar
from uuid import uuid4

from typing_extensions import override

from chatlane_devkit.conform.scenes.scene import Ability, Scene
from chatlane_devkit.platforms.mail.server import (
    MAILBOX,
    MailServer,
    new_message_id,
    open_mail_server,
)
from chatlane_servers.embedded import free_port

_TRIES_AGAIN_AFTER = 6.0
_NO_CHANGES = "mail that is sent is not changed"


@dataclass(frozen=True, slots=True)
class _Talk:
    """A person, and the first mail of their usual thread."""

    address: str
    root: str = field(default_factory=new_message_id)


class MailScene(Scene):
    """A mailbox: each thread of a person is a conversation."""

    platform: ClassVar[str] = "mail"
    lacks: ClassVar[Mapping[Ability, str]] = {
        Ability.EDITS: _NO_CHANGES,
        Ability.DELETES: _NO_CHANGES,
        Ability.REACTIONS: "there are no reactions to mail",
        Ability.ALBUMS: "a mail has all its files; there are no albums",
        Ability.LONG_ANSWERS: "a mail takes each text that chatlane carries",
    }

    def __init__(self, server: MailServer) -> None:
        self._server = server
        server.lmtp_ports = (free_port(), free_port())
        self._numbers = count(1)
        # A router that judged before has the messages of that run.
        self._run = uuid4().hex[:8]

    @override
    def variables(self, nats_url: str, account: str) -> dict[str, str]:
        return {
            "CHATLANE_ADAPTER_NATS_URL": nats_url,
            "CHATLANE_ADAPTER_ACCOUNT": account,
            "CHATLANE_ADAPTER_ADDRESS": MAILBOX,
            "CHATLANE_ADAPTER_LMTP_PORT": str(self._server.lmtp_ports[0]),
            "CHATLANE_ADAPTER_SMTP_PORT": str(self._server.port),
            "CHATLANE_ADAPTER_SMTP_SECURITY": "none",
            "CHATLANE_ADAPTER_RETRY_SECONDS": str(_TRIES_AGAIN_AFTER),
        }

    @override
    def variables_of_second(self) -> dict[str, str]:
        return {"CHATLANE_ADAPTER_LMTP_PORT": str(self._server.lmtp_ports[1])}

    @override
    async def new_chat(self) -> _Talk:
        return _Talk(f"person-{next(self._numbers)}-{self._run}@x.test")

    @override
    async def new_threads(self) -> tuple[_Talk, str, str]:
        return await self.new_chat(), new_message_id(), new_message_id()

    @override
    async def write(self, chat: _Talk, text: str, thread: str | None = None) -> EmailMessage:
        mail = EmailMessage()
        mail["From"], mail["To"] = chat.address, MAILBOX
        mail["Message-ID"] = new_message_id()
        mail["References"] = thread or chat.root
        mail.set_content(text)
        self._server.deliver(mail)
        return mail

    @override
    def shown(self, chat: _Talk, thread: str | None = None) -> list[str]:
        return [
            str(mail.get_content()).strip()
            for mail in self._server.to(chat.address)
            if thread is None or str(mail["References"]).split()[0] == thread
        ]

    @override
    def calls(self, chat: _Talk) -> int:
        return self._server.tries[chat.address]

    @override
    def limit(self, chat: _Talk, seconds: float) -> None:
        # The server does not say for how long; the adapter decides.
        self._server.limited_until[chat.address] = monotonic() + min(seconds, _TRIES_AGAIN_AFTER)

    @override
    def block(self, chat: _Talk, *, is_blocked: bool) -> None:
        if is_blocked:
            self._server.refused.add(chat.address)
        else:
            self._server.refused.discard(chat.address)

    @override
    async def write_twice(self, chat: _Talk, text: str) -> None:
        self._server.deliver(await self.write(chat, text))

    @override
    def lose_answers(self, chat: _Talk) -> None:
        self._server.unanswered.add(chat.address)

    @override
    def restore_answers(self, chat: _Talk) -> None:
        self._server.unanswered.discard(chat.address)


@asynccontextmanager
async def open_mail_scene() -> AsyncIterator[MailScene]:
    """Run a mail server for the length of the block."""
    async with open_mail_server() as server:
        yield MailScene(server)
