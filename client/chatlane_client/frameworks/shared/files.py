"""Fetch the files that people sent, for models that read files."""

import asyncio
import http.client
import ipaddress
import logging
import urllib.request
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from typing_extensions import override

from chatlane_client.frameworks.shared.options import TurnOptions
from chatlane_schemas import Attachment, TurnMessage

_log = logging.getLogger("chatlane_client")

PDF: Final = "application/pdf"
_TIMEOUT_SECONDS: Final = 30.0


class LoadedFile(NamedTuple):
    """A file of a person."""

    media_type: str
    data: bytes
    name: str | None


async def files_of(messages: Iterable[TurnMessage], options: TurnOptions) -> list[LoadedFile]:
    """Return the images and PDF files of messages; the prompt mentions the others."""
    return [
        loaded
        for message in messages
        for file in message.attachments
        if is_readable(file, options) and (loaded := await load_file(file, options)) is not None
    ]


def is_readable(file: Attachment, options: TurnOptions) -> bool:
    """Return whether models read files of this type and size."""
    is_small = (file.size_bytes or 0) <= options.max_file_bytes
    return is_small and (file.media_type.startswith("image/") or file.media_type == PDF)


async def load_file(file: Attachment, options: TurnOptions) -> LoadedFile | None:
    """Return a file; None if it has no link, is too large or cannot be fetched."""
    if not file.url or (file.size_bytes or 0) > options.max_file_bytes:
        return None
    try:
        data = await asyncio.to_thread(_fetch, file.url, options)
    except (OSError, ValueError, http.client.HTTPException) as exc:
        # Without the text of the error, which has the link.
        _log.warning("file_not_loaded", extra={"error": type(exc).__name__})
        return None
    if len(data) > options.max_file_bytes:
        return None
    return LoadedFile(file.media_type, data, file.name)


def _fetch(url: str, options: TurnOptions) -> bytes:
    if urlsplit(url).scheme not in {"http", "https"}:
        raise ValueError("files are fetched by HTTP")
    local = options.has_local_files
    # Also the target of a redirect goes through these handlers, and proxies are not used.
    opener = urllib.request.OpenerDirector()
    for handler in (
        _Handler(has_local_files=local),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    with opener.open(url, timeout=_TIMEOUT_SECONDS) as response:
        data: bytes = response.read(options.max_file_bytes + 1)
        return data


class _Handler(urllib.request.HTTPSHandler):
    """Opens URLs, and refuses private addresses unless they are allowed."""

    def __init__(self, *, has_local_files: bool) -> None:
        super().__init__()
        self._has_local_files = has_local_files

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a URL without TLS."""
        return self.do_open(self._checked(_CheckedConnection), request)

    @override
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._checked(_CheckedTlsConnection), request)

    def _checked(self, kind: "type[_CheckedConnection | _CheckedTlsConnection]") -> Any:  # noqa: ANN401 - see typeshed
        return partial(kind, has_local_files=self._has_local_files)


class _CheckedConnection(http.client.HTTPConnection):
    """Refuses a private address before it sends anything."""

    def __init__(self, *args: Any, has_local_files: bool, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._has_local_files = has_local_files

    @override
    def connect(self) -> None:
        super().connect()
        _check_address(self, has_local_files=self._has_local_files)


class _CheckedTlsConnection(http.client.HTTPSConnection):
    """Refuses a private address before it sends a request."""

    def __init__(self, *args: Any, has_local_files: bool, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._has_local_files = has_local_files

    @override
    def connect(self) -> None:
        super().connect()
        _check_address(self, has_local_files=self._has_local_files)


def _check_address(connection: http.client.HTTPConnection, *, has_local_files: bool) -> None:
    address = ipaddress.ip_address(connection.sock.getpeername()[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if not (address.is_global or has_local_files):
        connection.close()
        raise PermissionError("files are not fetched from private addresses")
