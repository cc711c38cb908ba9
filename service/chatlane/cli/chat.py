"""A terminal as a platform: what is typed goes in like from any chat network, answers come out."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final, TextIO
from uuid import uuid4

import nats.errors
import typer

from chatlane.cli.options import (
    Config,
    duration_option,
    open_nats,
    read_client_settings,
    shown,
)
from chatlane.cli.reporting import CommandError
from chatlane.logs import without_controls
from chatlane_client.adapter import AdapterClient
from chatlane_client.errors import RetryLaterError, UnconfirmedPublishError
from chatlane_schemas import subjects
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.inbound import Chat, InboundEvent, Sender
from chatlane_schemas.outbound import OutboundMessage

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from chatlane.settings import Settings

PLATFORM: Final = "terminal"

_STORED_WITHIN: Final = timedelta(seconds=10)
_CHUNK_BYTES: Final = 65_536
# Longer than any message may be: what is too long is refused as such.
_LONGEST_LINE_BYTES: Final = 1024 * 1024
_GREEN: Final = "\x1b[32m"
_PLAIN: Final = "\x1b[0m"
_CLEAR_LINE: Final = "\r\x1b[2K"


def chat(
    config: Config = None,
    *,
    person: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Who you are; each name has its own chat.")
    ],
    account: Annotated[
        str, typer.Option(help="The account of platform `terminal` to write to.")
    ] = "local",
    profile: Annotated[
        str | None, typer.Option(help="The profile to talk to; by default the default one.")
    ] = None,
    wait: Annotated[
        timedelta,
        typer.Option(
            parser=duration_option,
            metavar="DURATION",
            show_default="30s",
            help="At the end of piped input, how long to wait for the last answer.",
        ),
    ] = timedelta(seconds=30),
) -> None:
    """Talk to an agent from this terminal.

    Each line is a message; Ctrl-D ends. Lines may be piped in: then it ends when the last one
    is answered. The account must be declared in chatlane.toml
    (`[platforms.terminal.accounts.local]`).
    """
    settings = read_client_settings(config)
    _check_declared(settings, account)
    asyncio.run(_talk(settings, Address(person, account, profile), wait))


@dataclass(frozen=True, slots=True)
class Address:
    """Who speaks, and to whom."""

    person: str
    account: str
    profile: str | None

    def event(self, text: str) -> InboundEvent:
        """Return a line as an inbound event."""
        return InboundEvent(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            message_id=uuid4().hex,
            platform=PLATFORM,
            account=self.account,
            profile=self.profile,
            chat=Chat(id=self.person, kind="dm"),
            sender=Sender(id=self.person, name=self.person),
            sent_at=datetime.now(UTC),
            text=text,
        )

    @property
    def outbound_subject(self) -> str:
        """Where answers to this person appear."""
        return subjects.outbound(PLATFORM, self.account, subjects.chat_token(self.person))


@dataclass(slots=True)
class Screen:
    """Prints answers between the lines that are being typed.

    Attributes:
        answered: Set when the message that was sent last has its answer.
    """

    person: str
    is_terminal: bool
    out: TextIO
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    awaited: str | None = None
    _seen: set[str] = field(default_factory=set)

    def prompt(self) -> None:
        """Ask for the next line."""
        if self.is_terminal:
            self._write(f"{self.person}> ")

    def await_answer(self, message_id: str) -> None:
        """Note which message was sent last."""
        self.awaited = message_id
        self.answered.clear()

    async def show(self, raw: "Msg") -> None:
        """Print an answer; a copy of one is dropped."""
        try:
            message = decode(OutboundMessage, raw.data)
        except DecodeError:
            return
        if message.id in self._seen:
            return
        self._seen.add(message.id)
        text = without_controls(message.text or "", keep="\n\t")
        if self.is_terminal:
            self._write(f"{_CLEAR_LINE}{_GREEN}{message.agent}>{_PLAIN} {text}\n")
            self.prompt()
        else:
            self._write(f"{message.agent}> {text}\n")
        if self.awaited in {message.reply_to, message.target.message_id}:
            self.answered.set()

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


async def _talk(settings: "Settings", address: Address, wait: timedelta) -> None:
    screen = Screen(address.person, sys.stdin.isatty() and sys.stdout.isatty(), sys.stdout)
    async with open_nats(settings, "chatlane-chat") as client, _listening(client, address, screen):
        adapter = AdapterClient(client, platform=PLATFORM, account=address.account)
        screen.prompt()
        async for line in _lines(sys.stdin):
            if text := line.strip():
                event = address.event(text)
                screen.await_answer(event.message_id or "")
                await _publish(adapter, event)
            screen.prompt()
        await _until_answered(screen, wait)


@asynccontextmanager
async def _listening(client: "Client", address: Address, screen: Screen) -> AsyncIterator[None]:
    """Show what is said to this person from now on.

    A consumer of its own and not the durable of the account: several people may sit at
    terminals of one account, and each wants only what is said to them.
    """
    from nats.js.api import ConsumerConfig, DeliverPolicy

    try:
        subscription = await client.jetstream().subscribe(
            address.outbound_subject,
            cb=screen.show,
            ordered_consumer=True,
            config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW),
        )
    except nats.errors.TimeoutError as exc:
        raise CommandError(
            "NATS does not let us read OUTBOUND with a reader of our own, which no role may: "
            "`chatlane chat` is for servers without users, such as those of `chatlane dev`"
        ) from exc
    try:
        yield
    finally:
        await subscription.unsubscribe()


async def _publish(adapter: AdapterClient, event: InboundEvent) -> None:
    try:
        await adapter.publish(event, give_up_after=_STORED_WITHIN)
    except UnconfirmedPublishError as exc:
        raise CommandError(
            f"no stream took the message within {shown(_STORED_WITHIN)}: "
            "is there a stream INBOUND (`chatlane admin apply`)?"
        ) from exc
    except RetryLaterError as exc:
        raise CommandError("the stream INBOUND is full: are routers running?") from exc


async def _until_answered(screen: Screen, wait: timedelta) -> None:
    if screen.is_terminal or screen.awaited is None:
        return
    try:
        async with asyncio.timeout(wait.total_seconds()):
            await screen.answered.wait()
    except TimeoutError as exc:
        raise CommandError(
            f"no answer within {shown(wait)}: are a router and a worker of this agent running? "
            "`chatlane dead` lists what was set aside"
        ) from exc


async def _lines(stream: TextIO) -> AsyncIterator[str]:
    """Yield lines as they come, without a thread that would keep the process from ending."""
    reader = asyncio.StreamReader(limit=_LONGEST_LINE_BYTES)
    loop = asyncio.get_running_loop()
    descriptor = stream.fileno()

    def read() -> None:
        # Readable, so it does not block; and the terminal, which others share, stays blocking.
        if chunk := os.read(descriptor, _CHUNK_BYTES):
            reader.feed_data(chunk)
        else:
            loop.remove_reader(descriptor)
            reader.feed_eof()

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:
        # A file is always ready.
        for line in stream:
            yield line
        return
    try:
        while raw := await reader.readline():
            yield raw.decode(errors="replace")
    finally:
        loop.remove_reader(descriptor)


def _check_declared(settings: "Settings", account: str) -> None:
    if not settings.platforms:
        # Without a chatlane.toml only the routers know.
        return
    platform = settings.platforms.get(PLATFORM)
    if platform is None or account not in platform.accounts:
        raise CommandError(
            f"account {account!r} of platform {PLATFORM!r} is not declared, so every message "
            f"would be set aside: add [platforms.{PLATFORM}.accounts.{account}] to chatlane.toml"
        )
