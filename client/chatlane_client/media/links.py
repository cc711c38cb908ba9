"""Serve the files of a local directory by signed links, for development."""

import hmac
import mimetypes
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import time
from typing import Final
from urllib.parse import quote

import obstore
from aiohttp import web
from obstore.store import LocalStore

_SECRET_BYTES: Final = 32
# No browser runs or guesses what people send.
_HEADERS: Final = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
}


def link_secret(directory: Path) -> bytes:
    """Return the secret of the links to a directory, made at the first use.

    Links stay valid over restarts, and all processes on the directory make the same.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "link-secret"
    if path.exists() and path.stat().st_size != _SECRET_BYTES:
        # A process was killed while it wrote it; nobody could check links that it signs.
        path.unlink(missing_ok=True)
    if not path.exists():
        with NamedTemporaryFile(dir=directory) as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
            # The file has its content once it has its name: another process may read it at once.
            with suppress(FileExistsError):
                os.link(file.name, path)
    return path.read_bytes()


class LinkServer:
    """Serves files to everybody who has a link that has not ended.

    Args:
        store: Holds the files.
        secret: Signs links.
        public_url: Address under which others reach the server; None for its own.
    """

    def __init__(self, store: LocalStore, secret: bytes, public_url: str | None = None) -> None:
        self._store = store
        self._secret = secret
        self._url = public_url or ""

    @asynccontextmanager
    async def run(self, host: str, port: int) -> AsyncIterator[None]:
        """Serve for the length of the block; port 0 takes a free one."""
        application = web.Application()
        application.add_routes([web.get("/files/{key:.+}", self._serve)])
        # Links are secrets, so there is no log of requests.
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            self._url = self._url or f"http://{host}:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()

    async def sign(self, key: str, lifetime: timedelta) -> str:
        """Return a link to a file that ends after some time."""
        until = int(time() + lifetime.total_seconds())
        return (
            f"{self._url}/files/{quote(key)}?until={until}&signature={self._signature(key, until)}"
        )

    def _signature(self, key: str, until: int) -> str:
        return hmac.digest(self._secret, f"{until} {key}".encode(), "sha256").hex()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["key"]
        until = request.query.get("until", "")
        if not (until.isascii() and until.isdigit()) or int(until) < time():
            raise web.HTTPForbidden(text="the link has ended")
        given = request.query.get("signature", "").encode()
        if not hmac.compare_digest(self._signature(key, int(until)).encode(), given):
            raise web.HTTPForbidden(text="the link is not valid")
        try:
            found = await obstore.get_async(self._store, key)
        except FileNotFoundError as error:
            raise web.HTTPNotFound from error
        response = web.StreamResponse(headers=_HEADERS)
        response.content_type = mimetypes.guess_type(key)[0] or "application/octet-stream"
        response.content_length = found.meta["size"]
        await response.prepare(request)
        async for chunk in found.stream():
            await response.write(bytes(chunk))
        await response.write_eof()
        return response
