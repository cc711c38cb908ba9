"""`chatlane smoke`: one message through an installation and back, as an adapter's user of NATS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Annotated, Any, Final
from uuid import uuid4

import typer

from chatlane.cli.shared.error_report import UNANSWERED, WRONG_SETTINGS, CommandError
from chatlane.cli.shared.options import (
    Config,
    duration_option,
    open_nats,
    read_client_settings,
    shown,
)
from chatlane.nats.tasks import end_task
from chatlane.observability.logs import without_controls
from chatlane_client.adapter import AdapterClient
from chatlane_client.delivery.message_sender import Deliver
from chatlane_client.errors import (
    RetryLaterError,
    UnconfirmedPublishError,
    UndeclaredAccountError,
)
from chatlane_client.turn_reader import TurnUpdate
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.inbound import Chat, InboundEvent, Sender
from chatlane_schemas.live_turns import TurnStarted
from chatlane_schemas.outbound import OutboundKind, OutboundMessage

# All runs write to one chat, so that they leave one session and not one for each run.
_CHAT: Final = "smoke"
_TEXT: Final = "smoke test"
_STORED_WITHIN: Final = timedelta(seconds=10)
_LATE_EVENT: Final = timedelta(seconds=2)
_STOPPED_WITHIN: Final = timedelta(seconds=5)


def smoke(
    config: Config = None,
    *,
    account: Annotated[
        str,
        typer.Option(
            metavar="PLATFORM/ACCOUNT",
            help="Test account that chatlane.toml declares. It must have no other adapter.",
        ),
    ] = "smoke/test",
    profile: Annotated[
        str | None, typer.Option(help="Profile to talk to.", show_default="default")
    ] = None,
    wait: Annotated[
        timedelta,
        typer.Option(
            parser=duration_option,
            metavar="DURATION",
            show_default="60s",
            help="How long to wait for the answer.",
        ),
    ] = timedelta(seconds=60),
) -> None:
    """Send a message to an agent and wait for its answer, as a platform would.

    It shows that NATS, routers, Postgres and a worker work together: exit code 0, and the time of
    each step. It connects as the adapter of the test account.
    """
    platform, _, name = account.partition("/")
    if not platform or not name:
        raise CommandError(
            "--account needs a platform and a name: smoke/test", exit_code=WRONG_SETTINGS
        )
    settings = read_client_settings(config)

    async def run() -> None:
        steps = _Steps()
        async with open_nats(settings, "chatlane-smoke") as client:
            steps.note("connected to NATS")
            adapter = AdapterClient(client, platform=platform, account=name)
            await _send_and_wait(adapter, _event(platform, name, profile), steps, wait)

    asyncio.run(run())


@dataclass(slots=True)
class _Steps:
    """Prints each step with the time since the last one."""

    last: str = "begun"
    _at: float = field(default_factory=monotonic)

    def note(self, step: str, at: float | None = None) -> None:
        """Print a step that ended at a monotonic time, by default now."""
        now = max(at or monotonic(), self._at)
        typer.echo(f"{step:<32} {now - self._at:8.3f} s")
        self.last, self._at = step, now


def _event(platform: str, account: str, profile: str | None) -> InboundEvent:
    now = datetime.now(UTC)
    return InboundEvent(
        id=new_envelope_id(),
        at=now,
        message_id=uuid4().hex,
        platform=platform,
        account=account,
        profile=profile,
        chat=Chat(id=_CHAT, kind="dm"),
        sender=Sender(id=_CHAT, name="Smoke test"),
        sent_at=now,
        text=_TEXT,
    )


async def _send_and_wait(
    adapter: AdapterClient, event: InboundEvent, steps: _Steps, wait: timedelta
) -> None:
    answer: asyncio.Future[tuple[OutboundMessage, float]]
    answer = asyncio.get_running_loop().create_future()

    async def receive(message: OutboundMessage) -> str:
        # Answers that came too late for an earlier run are delivered as well.
        if message.reply_to == event.message_id and not answer.done():
            answer.set_result((message, monotonic()))
        return message.id

    async with adapter.watch() as updates:
        await _publish(adapter, event)
        steps.note("stored in INBOUND")
        starting = asyncio.create_task(_note_start(updates, steps))
        try:
            async with _delivering(adapter, receive) as delivering:
                ended: set[asyncio.Future[Any]] = {answer, delivering}
                await asyncio.wait(
                    ended, timeout=wait.total_seconds(), return_when=asyncio.FIRST_COMPLETED
                )
            # The answer may come before the event that its turn has started.
            await asyncio.wait({starting}, timeout=_LATE_EVENT.total_seconds())
        finally:
            await end_task(starting)
    if not answer.done():
        raise CommandError(
            f"no answer within {shown(wait)} after the step {steps.last!r}: check that a router and "
            "a worker of this agent run; `chatlane dead-letters list` shows messages that no "
            "router could process",
            exit_code=UNANSWERED,
        )
    message, answered_at = answer.result()
    if message.kind is not OutboundKind.ANSWER:
        raise CommandError(
            f"a notice came in place of an answer: {without_controls(message.text or '')}"
        )
    steps.note(f"answered by agent {message.agent}", answered_at)


async def _note_start(updates: AsyncIterator[TurnUpdate], steps: _Steps) -> None:
    async for update in updates:
        chat = update.source.chat if isinstance(update, TurnStarted) else None
        if chat is not None and chat.id == _CHAT:
            steps.note("routed, and claimed by a worker")
            return


@asynccontextmanager
async def _delivering(
    adapter: AdapterClient, receive: Deliver
) -> AsyncIterator[asyncio.Task[None]]:
    """Deliver for the length of the block, and finish the delivery that has begun."""
    delivering = asyncio.create_task(adapter.deliver(receive))
    try:
        yield delivering
        adapter.stop()
        await asyncio.wait({delivering}, timeout=_STOPPED_WITHIN.total_seconds())
        if delivering.done():
            delivering.result()
    finally:
        await end_task(delivering)


async def _publish(adapter: AdapterClient, event: InboundEvent) -> None:
    try:
        await adapter.publish(event, give_up_after=_STORED_WITHIN)
    except UnconfirmedPublishError as exc:
        raise CommandError(
            f"INBOUND did not store the message within {shown(_STORED_WITHIN)}",
            exit_code=UNANSWERED,
        ) from exc
    except RetryLaterError as exc:
        raise CommandError("INBOUND is full: check that a router runs") from exc
    except UndeclaredAccountError as exc:
        raise CommandError(str(exc), exit_code=WRONG_SETTINGS) from exc
