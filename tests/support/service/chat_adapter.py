"""An adapter of a platform without buttons that writes what it sends to the end of a file.

Usage: `python chat_adapter.py NATS_URL FILE`
"""

import asyncio
import json
import sys
from pathlib import Path

from chatlane_client import AdapterClient, Piece, open_connection
from tests.support.service.processes import ACCOUNT, PLATFORM


async def main(nats_url: str, sent: Path) -> None:
    """Deliver until killed."""

    async def send(piece: Piece) -> str:
        with sent.open("a", encoding="utf-8") as file:
            file.write(json.dumps(piece.text) + "\n")
        return piece.key

    async with open_connection(nats_url, name="adapter") as client:
        adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
        await adapter.deliver_pieces(send, has_buttons=False)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
