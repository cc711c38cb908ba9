"""A worker whose turns an agent on NATS answers."""

import asyncio
import signal

from nats.aio.client import Client
from synadia_ai.agents import Agents, Identity, signer_from_creds_file, signer_from_seed

from chatlane_bridges.synadia.hosted_agent import HostedAgent
from chatlane_bridges.synadia.settings import WorkerSettings
from chatlane_client import TurnWorker


async def serve_turns(settings: WorkerSettings) -> None:
    """Serve turns until SIGTERM.

    Raises:
        ConnectionClosedError: A connection is closed for good.
    """
    async with (
        settings.connection("synadia worker") as client,
        settings.agents_connection("synadia worker") as bus,
    ):
        agents = Agents(nc=bus, identity=_identity(settings))
        try:
            worker = _worker(client, agents, settings)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, worker.stop)
            await worker.run()
        finally:
            await agents.close()


def _worker(client: Client, agents: Agents, settings: WorkerSettings) -> TurnWorker:
    return TurnWorker(
        client,
        settings.agent,
        HostedAgent(agents, settings).answer,
        slots=settings.slots,
        principal=settings.principal,
    )


def _identity(settings: WorkerSettings) -> Identity | None:
    if not settings.sign_prompts:
        return None
    if settings.agents_credentials_file is not None:
        return Identity(signer=signer_from_creds_file(settings.agents_credentials_file))
    if settings.agents_nkey_seed_file is not None:
        return Identity(signer=signer_from_seed(settings.agents_nkey_seed_file.read_text("ascii")))
    raise ValueError("sign_prompts needs agents_credentials_file or agents_nkey_seed_file")
