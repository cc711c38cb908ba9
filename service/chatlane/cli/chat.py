"""`chatlane chat`: a terminal as a chat platform."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final, TextIO
from uuid import uuid4

import nats.errors
import typer
from pydantic import ValidationError

from chatlane.cli.shared.error_report import UNANSWERED, WRONG_SETTINGS, CommandError
from chatlane.cli.shared.options import (
    Config,
    duration_option,
    open_nats,
    read_client_settings,
    shown,
)
from chatlane.cli.shared.terminal import typed_lines
from chatlane.observability.logs import without_controls
from chatlane_client.adapter import AdapterClient
from chatlane_client.errors import (
    RetryLaterError,
    UnconfirmedPublishError,
    UndeclaredAccountError,
)
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.inbound import Chat, InboundEvent, Sender
from chatlane_schemas.outbound import OutboundKind, OutboundMessage
from chatlane_schemas.topology import subjects

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from chatlane.config.settings import Settings

PLATFORM: Final = "terminal"

_STORED_WITHIN: Final = timedelta(seconds=10)
_LOST_AFTER: Final = timedelta(seconds=3)
_POLL_INTERVAL: Final = timedelta(milliseconds=100)
_ENDING_COMMANDS: Final = (["new"], ["reset"], ["stop"])
_GREEN: Final = "\x1b[32m"
_PLAIN: Final = "\x1b[0m"
_CLEAR_LINE: Final = "\r\x1b[2K"


def chat(
    config: Config = None,
    *,
    person: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Your name; each name has its own chat.")
    ],
    account: Annotated[
        str, typer.Option(help="Account of platform `terminal` to write to.")
    ] = "local",
    profile: Annotated[
        str | None, typer.Option(help="Profile to talk to.", show_default="default")
    ] = None,
    wait: Annotated[
        timedelta,
        typer.Option(
            parser=duration_option,
            metavar="DURATION",
            show_default="30s",
            help="How long to wait for missing answers after the end of piped input.",
        ),
    ] = timedelta(seconds=30),
) -> None:
    """Talk to an agent from this terminal.

    Each line is a message; Ctrl-D ends. With piped input the command ends when each
    message has its answer. chatlane.toml must declare the account
    (`[platforms.terminal.accounts.local]`).
    """
    if not person.strip():
        raise CommandError("--as needs a name, such as `--as ann`", exit_code=WRONG_SETTINGS)
    try:
        Sender(id=person, name=person)
    except ValidationError as exc:
        problem = f"the name after --as {exc.errors()[0]['msg'].removeprefix('id ')}"
        raise CommandError(problem, exit_code=WRONG_SETTINGS) from exc
    settings = read_client_settings(config)
    _check_declared(settings, account, profile)
    asyncio.run(_talk(settings, Address(person, account, profile), wait))


@dataclass(frozen=True, slots=True)
class Address:
    """The user who writes, and the account and profile that receive the messages."""

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
        """Subject of the answers to this person."""
        return subjects.outbound(PLATFORM, self.account, subjects.chat_token(self.person))


@dataclass(slots=True)
class Screen:
    """Prints answers between the lines that a person types.

    Attributes:
        answered: Set while every message has its answer.
        unanswered: Ids and texts of the messages without an answer, oldest first.
    """

    person: str
    is_terminal: bool
    out: TextIO
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    unanswered: dict[str, str] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def prompt(self) -> None:
        """Print the prompt for the next line."""
        if self.is_terminal:
            self._write(f"{self.person}> ")

    def await_answer(self, message_id: str, text: str) -> None:
        """Expect an answer to a message."""
        self.unanswered[message_id] = text
        self.answered.clear()

    async def show(self, raw: "Msg") -> None:
        """Print an answer, or drop it as a duplicate."""
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
        self._note_answer(message)

    def _note_answer(self, message: OutboundMessage) -> None:
        ids = (message.reply_to, message.target.message_id)
        found = next((known for known in ids if known in self.unanswered), None)
        if found is None:
            return
        # Messages that share a turn have one answer, which replies to the last of them.
        if message.kind is OutboundKind.ANSWER or _ends_turns(self.unanswered[found]):
            earlier = list(self.unanswered)
            for message_id in earlier[: earlier.index(found)]:
                del self.unanswered[message_id]
        del self.unanswered[found]
        if not self.unanswered:
            self.answered.set()

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


def _ends_turns(text: str) -> bool:
    """Return whether a line is a command after which earlier messages may have no answer."""
    return text.startswith("/") and text[1:].split(maxsplit=1)[:1] in _ENDING_COMMANDS


async def _talk(settings: "Settings", address: Address, wait: timedelta) -> None:
    from chatlane.nats.tasks import end_task

    screen = Screen(address.person, sys.stdin.isatty() and sys.stdout.isatty(), sys.stdout)
    async with open_nats(settings, "chatlane-chat") as client, _listening(client, address, screen):
        adapter = AdapterClient(client, platform=PLATFORM, account=address.account)
        talking = asyncio.create_task(_send_lines(adapter, address, screen, wait))
        lost = asyncio.create_task(_until_lost(client))
        try:
            await asyncio.wait({talking, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                raise CommandError(
                    f"the connection to NATS at {settings.nats.url} is lost", exit_code=UNANSWERED
                )
            talking.result()
        finally:
            await end_task(talking)
            await end_task(lost)


async def _send_lines(
    adapter: AdapterClient, address: Address, screen: Screen, wait: timedelta
) -> None:
    screen.prompt()
    async for line in typed_lines(sys.stdin):
        if text := line.strip():
            event = address.event(text)
            screen.await_answer(event.message_id or "", text)
            await _publish(adapter, event)
        screen.prompt()
    await _until_answered(screen, wait)


async def _until_lost(client: "Client") -> None:
    """Return when the connection has been down for longer than a restart of the server takes."""
    lost_at: float | None = None
    while lost_at is None or monotonic() - lost_at < _LOST_AFTER.total_seconds():
        await asyncio.sleep(_POLL_INTERVAL.total_seconds())
        if client.is_connected:
            lost_at = None
        elif lost_at is None:
            lost_at = monotonic()


@asynccontextmanager
async def _listening(client: "Client", address: Address, screen: Screen) -> AsyncIterator[None]:
    """Show new answers to this person for the length of the block.

    An ephemeral consumer and not the durable of the account: several people may chat over one
    account, and each sees only their own chat.
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
            "NATS refuses an ephemeral consumer on OUTBOUND, which no role may create: "
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
            f"no stream stored the message within {shown(_STORED_WITHIN)}: check that there is a "
            "stream INBOUND (`chatlane admin apply` creates it)"
        ) from exc
    except UndeclaredAccountError as exc:
        raise CommandError(str(exc)) from exc
    except RetryLaterError as exc:
        raise CommandError("the stream INBOUND is full: check that a router runs") from exc


async def _until_answered(screen: Screen, wait: timedelta) -> None:
    if screen.is_terminal or not screen.unanswered:
        return
    try:
        async with asyncio.timeout(wait.total_seconds()):
            await screen.answered.wait()
    except TimeoutError as exc:
        count = len(screen.unanswered)
        subject = "no answer" if count == 1 else f"no answer to {count} messages"
        raise CommandError(
            f"{subject} within {shown(wait)}: check that a router and a worker of this agent run; "
            "`chatlane dead-letters list` shows messages that no router could process"
        ) from exc


def _check_declared(settings: "Settings", account: str, profile: str | None) -> None:
    """Check account and profile.

    Routers would turn every message of an undeclared one into a dead letter.

    Raises:
        CommandError: chatlane.toml does not declare one of them, or does not allow the pair.
    """
    if not settings.platforms:
        # Without a chatlane.toml only the routers know the declarations.
        return
    match settings.catalog().resolve_profile(PLATFORM, account, profile):
        case DeadReason.UNKNOWN_ACCOUNT:
            raise CommandError(
                f"account {account!r} of platform {PLATFORM!r} is not declared: "
                f"add [platforms.{PLATFORM}.accounts.{account}] to chatlane.toml"
            )
        case DeadReason.UNKNOWN_PROFILE:
            raise CommandError(
                f"profile {profile!r} is not declared: add [profiles.{profile}] to chatlane.toml"
            )
        case DeadReason():
            raise CommandError(
                f"account {account!r} of platform {PLATFORM!r} does not allow profile {profile!r}: "
                f"add it to platforms.{PLATFORM}.accounts.{account}.profiles in chatlane.toml"
            )
        case _:
            return
