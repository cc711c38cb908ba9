"""Sends each message to the Restate object of its chat; its id is the idempotency key."""

import asyncio
from os import environ
from urllib.parse import quote

import httpx

from tests.benchmarks.comparison.programs.chat_api import Update, connect, poll


async def main() -> None:
    """Send until killed."""
    ingress = httpx.AsyncClient(base_url=environ["INGRESS_URL"], timeout=5, trust_env=False)

    async def take(update: Update) -> None:
        url = f"/Chat/{quote(update['chat'], safe='')}/hear/send"
        while True:
            try:
                key = {"idempotency-key": update["message_id"]}
                (await ingress.post(url, json=update, headers=key)).raise_for_status()
            except httpx.HTTPError:
                await asyncio.sleep(0.1)
            else:
                return

    async with connect() as http, ingress:
        await poll(http, take)


if __name__ == "__main__":
    asyncio.run(main())
