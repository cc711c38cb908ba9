"""An adapter that forwards each outbound message to a subject, and waits for the answer there.

Usage: `python forwarding_adapter.py URL PLATFORM ACCOUNT SUBJECT`. It runs with the client that
Python imports, so that it can be of either release.
"""

import asyncio
import signal
import sys
from typing import Final

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import OutboundMessage

# A message that is forwarded twice counts as delivered twice.
_PATIENCE_SECONDS: Final = 60


async def main(url: str, platform: str, account: str, subject: str) -> None:
    """Deliver until SIGTERM."""
    async with open_connection(url, name="forwarding adapter") as client:
        adapter = AdapterClient(client, platform=platform, account=account)

        async def forward(message: OutboundMessage) -> None:
            body = message.model_dump_json(exclude_none=True).encode()
            await client.request(subject, body, timeout=_PATIENCE_SECONDS)

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, adapter.stop)
        await adapter.deliver(forward)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
