"""Run the adapters of accounts: connections, order of the stop, health."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from nats.aio.client import Client

from chatlane_adapters.kit.files import FileKeeper, KeepingAdapter
from chatlane_adapters.kit.health import serve_health
from chatlane_adapters.kit.metrics import CountedPlatform
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.kit.settings import AdapterMediaSettings, AdapterSettings
from chatlane_adapters.kit.voice import VoiceCommand
from chatlane_client import AdapterClient, open_connection
from chatlane_client.media.store import MediaStore, open_media

_log: Final = logging.getLogger(__name__)


async def run_platform(platform: Platform, settings: AdapterSettings) -> None:
    """Serve an account until SIGTERM or SIGINT; see `run_platforms`."""
    await run_platforms([(platform, settings)])


async def run_platforms(platforms: Sequence[tuple[Platform, AdapterSettings]]) -> None:
    """Serve accounts until SIGTERM or SIGINT.

    Messages in hand are finished first. Then what receives ends, then the connections close.

    Args:
        platforms: Each account with its settings. Those of the first one say where health is served.

    Raises:
        UndeclaredAccountError: chatlane.toml does not declare an account.
        ConnectionClosedError: A connection to NATS is closed for good.
    """
    async with AsyncExitStack() as stack:
        media = await stack.enter_async_context(open_media(AdapterMediaSettings()))
        accounts = [await _opened(stack, *account, media) for account in platforms]
        settings = platforms[0][1]
        if settings.health_port is not None:
            port = await stack.enter_async_context(
                serve_health(
                    settings.health_host,
                    settings.health_port,
                    lambda: dict.fromkeys(
                        complaint
                        for account in accounts
                        for complaint in _complaints(account.platform, account.client)
                    ),
                )
            )
            _log.info("health_served", extra={"port": port})
        beside = [part for account in accounts for part in _beside(account)]
        for platform, account in platforms:
            names = {"platform": platform.capabilities.platform, "account": account.account}
            _log.info("adapter_started", extra=names)
        await accounts[0].adapter.run(_delivery_of(accounts), *beside)


class _Account(NamedTuple):
    """An account with its open connection."""

    platform: Platform
    client: Client
    adapter: AdapterClient
    counted: CountedPlatform


async def _opened(
    stack: AsyncExitStack,
    platform: Platform,
    settings: AdapterSettings,
    media: MediaStore | None,
) -> _Account:
    """Connect an account; the connections close with the stack."""
    able = platform.capabilities
    client = await stack.enter_async_context(
        open_connection(
            settings.nats_url.split(","),
            name=f"{able.platform} adapter",
            principal=settings.principal,
            nkey_seed_file=_text(settings.nkey_seed_file),
            credentials_file=_text(settings.credentials_file),
            tls_ca_file=_text(settings.tls_ca_file),
        )
    )
    platform.media = media
    await stack.enter_async_context(platform)
    names = (settings.platform or able.platform, settings.account)
    adapter = KeepingAdapter(
        client,
        platform=names[0],
        account=names[1],
        budget=platform.budget(),
        keeper=_keeper_of(platform, settings),
    )
    stack.push_async_callback(adapter.stop_fetching)
    counted = CountedPlatform(platform, names)
    counted.watch(adapter)
    return _Account(platform, client, adapter, counted)


def _keeper_of(platform: Platform, settings: AdapterSettings) -> FileKeeper | None:
    """Return the keeper of files; None if files stay on the platform."""
    command = settings.voice_command
    has_work = platform.media is not None or bool(command)
    if not platform.capabilities.has_readable_files or not has_work:
        return None
    voice = VoiceCommand(command, settings.voice_seconds) if command else None
    return FileKeeper(platform, platform.media, voice, AdapterMediaSettings().max_bytes)


def _beside(account: _Account) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield the parts of an adapter that run beside the delivery of an account."""
    platform, _, adapter, counted = account
    able = platform.capabilities
    if platform.receives_in_every_process:
        yield platform.receive(adapter)
    else:
        yield adapter.run_leased(lambda: platform.receive(adapter))
    if able.has_typing:
        yield adapter.show_typing(counted.show_typing)
    if able.has_drafts:
        yield adapter.show_drafts(counted, limit=able.text_limit)
    if able.has_buttons and able.has_edits:
        yield adapter.close_questions(counted.edit)


def _delivery_of(accounts: Sequence[_Account]) -> Coroutine[Any, Any, None]:
    """Return the delivery of all accounts; a signal stops the first one, which stops the others."""
    first, *others = [
        account.adapter.deliver_pieces(
            account.counted.deliver,
            limit=account.platform.capabilities.text_limit,
            has_buttons=account.platform.capabilities.has_buttons,
            render=account.platform.renderer,
        )
        for account in accounts
    ]

    async def deliver() -> None:
        async with asyncio.TaskGroup() as deliveries:
            for other in others:
                deliveries.create_task(other)
            await first
            for account in accounts[1:]:
                account.adapter.stop()

    return deliver() if others else first


def _complaints(platform: Platform, client: Client) -> tuple[str, ...]:
    """Return why this process cannot do all of its work; empty if it can."""
    found = {
        "nats": not client.is_connected,
        "platform": not platform.is_connected,
        "account": bool(platform.refused),
    }
    return tuple(name for name, is_wrong in found.items() if is_wrong)


def _text(path: object) -> str | None:
    return None if path is None else str(path)
