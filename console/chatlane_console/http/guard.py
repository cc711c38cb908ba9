"""Guard every request: host, forged requests, size and speed of bodies, headers of responses."""

import asyncio
from collections.abc import Collection, Mapping, MutableMapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatlane_console.http.problems import ProblemError, problem_response

CSRF_HEADER: Final = "X-Chatlane-Request"
"""Header that every request needs that changes something.

A page of another site cannot set it without a preflight, which the console never answers.
"""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_BODY_PATIENCE: Final = timedelta(seconds=30)
# Of a body that its route reads, after the time above.
_SLOWEST_BYTES_PER_SECOND: Final = 16 * 1024
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_ONLY_ENCRYPTED: Final = {"Strict-Transport-Security": "max-age=31536000"}


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        super().__init__(code)

    def as_problem(self) -> ProblemError:
        return ProblemError(self.status, self.code, self.detail)


class Guard:
    """Refuses requests that no page of the console makes, before they reach a route."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        max_body_bytes: int,
        larger_bodies: Mapping[str, int],
        streamed_bodies: Mapping[str, int],
        is_encrypted: bool,
    ) -> None:
        """Guard an application.

        Args:
            app: The application.
            hosts: Host names that requests may be for.
            max_body_bytes: Largest body.
            larger_bodies: Largest body of paths that take more.
            streamed_bodies: Largest body of paths whose routes read it while it comes.
            is_encrypted: Whether browsers reach it over TLS.
        """
        self._app = app
        self._hosts = hosts
        self._max_body_bytes = max_body_bytes
        self._larger_bodies = larger_bodies
        self._streamed_bodies = streamed_bodies
        self._headers = {**_HEADERS, **(_ONLY_ENCRYPTED if is_encrypted else {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(scope, message)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            if scope["method"] not in _SAFE:
                _check_origin(headers)
                receive = await self._limited(scope["path"], headers, receive)
        except _RefusedError as refused:
            response = problem_response(refused.status, refused.code, refused.detail)
            await response(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    async def _limited(self, path: str, headers: Headers, receive: Receive) -> Receive:
        """Return a receiver of a body that is neither too large nor too slow.

        Raises:
            _RefusedError: It is.
        """
        if (most := self._streamed_bodies.get(path)) is not None:
            _check_length(headers, most)
            return _streamed(receive, most)
        most = self._larger_bodies.get(path, self._max_body_bytes)
        _check_length(headers, most)
        return _replayed(await _read_body(receive, most), receive)

    def _check_host(self, headers: Headers) -> None:
        # A page of another name that leads to this address could read all answers.
        try:
            name = urlsplit(f"//{headers.get('host', '')}").hostname
        except ValueError:
            name = None
        if name not in self._hosts:
            raise _RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, "wrong_host", "this is not the host of the console"
            )

    def _add_headers(self, scope: Scope, message: MutableMapping[str, Any]) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in self._headers.items():
            headers[name] = value
        # What a person sees must not stay in a shared computer's cache.
        if scope["path"].startswith("/api/"):
            headers["Cache-Control"] = "no-store"
            # An answer may be a file of somebody else.
            headers["Content-Security-Policy"] = f"{_POLICY}; sandbox"


def _check_length(headers: Headers, max_bytes: int) -> None:
    """Refuse a body that says that it is too large.

    Raises:
        _RefusedError: It is.
    """
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> _RefusedError:
    return _RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", f"a body has at most {max_bytes} bytes"
    )


def _too_slow() -> _RefusedError:
    return _RefusedError(HTTPStatus.REQUEST_TIMEOUT, "too_slow", "the body took too long")


async def _read_body(receive: Receive, max_bytes: int) -> bytes:
    """Return a whole body.

    Raises:
        _RefusedError: It is too large, too slow, or has no end.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_PATIENCE.total_seconds()):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _RefusedError(HTTPStatus.BAD_REQUEST, "incomplete", "no whole body")
                body += message.get("body", b"")
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise _too_slow() from None


def _streamed(receive: Receive, max_bytes: int) -> Receive:
    """Return a receiver that refuses a body which gets too large or is too slow.

    Its errors are problems, because the route has begun by then.
    """
    loop = asyncio.get_running_loop()
    begun_at = loop.time()
    received = 0
    is_complete = False

    async def receive_some() -> Message:
        nonlocal received, is_complete
        if is_complete:
            return await receive()
        patience = _BODY_PATIENCE.total_seconds() + received / _SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout_at(begun_at + patience):
                message = await receive()
        except TimeoutError:
            raise _too_slow().as_problem() from None
        received += len(message.get("body", b""))
        if received > max_bytes:
            raise _too_large(max_bytes).as_problem()
        is_complete = not message.get("more_body", False)
        return message

    return receive_some


def _check_origin(headers: Headers) -> None:
    """Refuse a change that a page of another site may have caused.

    Raises:
        _RefusedError: The request lacks the header, or names another origin.
    """
    origin = headers.get("origin")
    is_foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
    is_cross_site = headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}
    if CSRF_HEADER.lower() not in headers or is_foreign or is_cross_site:
        raise _RefusedError(
            HTTPStatus.FORBIDDEN,
            "forged",
            f"a change needs the header {CSRF_HEADER}, from a page of the console",
        )


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives a body that was read, and then goes on."""
    is_given = False

    async def receive_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
