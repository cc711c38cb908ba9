"""Read the files of Slack messages."""

from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from yarl import URL

from chatlane_schemas import Attachment

_CHUNK: Final = 2**16
_FETCH_TIME: Final = aiohttp.ClientTimeout(total=50, sock_connect=10)
_OK: Final = 200


class NotFetchedError(Exception):
    """Slack does not give a file."""


async def content_of_file(
    session: aiohttp.ClientSession, file: Attachment, token: str, api_url: str
) -> AsyncIterator[bytes]:
    """Yield the bytes of a file.

    Args:
        session: Fetches it.
        file: The file with the address that Slack names.
        token: Token of the bot.
        api_url: Address of the Web API; its host may get the token as well.

    Raises:
        NotFetchedError: Slack does not give it, or it is on another service.
    """
    url = file.url or ""
    host = URL(url).host or ""
    if host != URL(api_url).host and not f".{host}".endswith(".slack.com"):
        # Another service must not get the token, and may be an address inside of the network.
        raise NotFetchedError(host)
    headers = {"Authorization": f"Bearer {token}"}
    async with session.get(
        url, headers=headers, allow_redirects=False, timeout=_FETCH_TIME
    ) as response:
        is_login = response.content_type == "text/html" and file.media_type != "text/html"
        if response.status != _OK or is_login:
            raise NotFetchedError(response.status)
        async for chunk in response.content.iter_chunked(_CHUNK):
            yield chunk
