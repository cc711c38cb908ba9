"""Offer declared agents of chatlane on NATS."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

from chatlane_bridges.synadia.offered_agent import OfferedAgent
from chatlane_bridges.synadia.settings import Declarations, OfferSettings
from chatlane_client.media.store import MediaSettings, open_media


async def offer_agents(
    settings: OfferSettings, declared: Declarations, tell: Callable[[str], None]
) -> None:
    """Answer prompts until SIGTERM.

    Args:
        settings: The settings.
        declared: The agents.
        tell: Gets a line with the subject of each agent.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(settings.connection("synadia agents"))
        media = MediaSettings(
            url=settings.media_url,
            public_url=settings.media_public_url,
            listen_host=settings.media_listen_host,
            listen_port=settings.media_listen_port,
        )
        store = await stack.enter_async_context(open_media(media))
        bus = await stack.enter_async_context(settings.agents_connection("synadia agents"))
        for name, agent in declared.agents.items():
            offered = OfferedAgent(client, settings, name, agent, store)
            await stack.enter_async_context(offered.offered(bus))
            tell(f"synadia: agents.prompt.{settings.host}.{settings.owner}.{name}")
        await stopping.wait()
