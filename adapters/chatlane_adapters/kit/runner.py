"""Run the adapter of one account: connections, order of the stop, health."""

import logging
from contextlib import AsyncExitStack
from typing import Final

from nats.aio.client import Client

from chatlane_adapters.kit.health import serve_health
from chatlane_adapters.kit.metrics import CountedPlatform, CountingAdapter
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.kit.settings import AdapterSettings
from chatlane_client import open_connection

_log: Final = logging.getLogger(__name__)


async def run_platform(platform: Platform, settings: AdapterSettings) -> None:
    """Serve an account until SIGTERM or SIGINT.

    Messages in hand are finished first. Then what receives ends, then the connections close.

    Raises:
        UndeclaredAccountError: chatlane.toml does not declare the account.
        ConnectionClosedError: The connection to NATS is closed for good.
    """
    able = platform.capabilities
    async with AsyncExitStack() as stack:
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
        await stack.enter_async_context(platform)
        if settings.health_port is not None:
            port = await stack.enter_async_context(
                serve_health(
                    settings.health_host,
                    settings.health_port,
                    lambda: _complaints(platform, client),
                )
            )
            _log.info("health_served", extra={"port": port})
        names = (settings.platform or able.platform, settings.account)
        adapter = CountingAdapter(
            client, platform=names[0], account=names[1], budget=platform.budget()
        )
        counted = CountedPlatform(platform, names)
        counted.watch(adapter)
        if platform.receives_in_every_process:
            beside = [platform.receive(adapter)]
        else:
            beside = [adapter.run_leased(lambda: platform.receive(adapter))]
        if able.has_typing:
            beside.append(adapter.show_typing(counted.show_typing))
        if able.has_drafts:
            beside.append(adapter.show_drafts(counted, limit=able.text_limit))
        if able.has_buttons and able.has_edits:
            beside.append(adapter.close_questions(counted.edit))
        _log.info("adapter_started", extra={"platform": able.platform, "account": settings.account})
        await adapter.run(
            adapter.deliver_pieces(
                counted.deliver,
                limit=able.text_limit,
                has_buttons=able.has_buttons,
                render=platform.renderer,
            ),
            *beside,
        )


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
