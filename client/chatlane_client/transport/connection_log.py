"""Log connection events readably: which server, and what is wrong."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from chatlane_client.transport.secured import Refusal, without_chats

_log = logging.getLogger("chatlane_client")

REPEAT_INTERVAL: Final = timedelta(minutes=1)


class RepeatLimit:
    """Allows each text once per interval, so that a lasting fault does not flood the log."""

    def __init__(
        self, interval: timedelta = REPEAT_INTERVAL, clock: Callable[[], float] = monotonic
    ) -> None:
        self._interval = interval.total_seconds()
        self._clock = clock
        self._logged_at: dict[str, float] = {}

    def allows(self, text: str) -> bool:
        """Return whether a text may be logged now; if so, record it."""
        now = self._clock()
        logged_at = self._logged_at.get(text)
        if logged_at is not None and now - logged_at < self._interval:
            return False
        self._logged_at = {
            known: at for known, at in self._logged_at.items() if now - at < self._interval
        }
        self._logged_at[text] = now
        return True

    def clear(self) -> None:
        """Allow every text again, because the fault is over."""
        self._logged_at.clear()


class ConnectionLog:
    """Logs the events of one connection.

    Attributes:
        is_closing: Whether this process closes the connection, in which case its end is not logged.
    """

    def __init__(self, name: str, servers: str | list[str]) -> None:
        """Create the log of a connection.

        Args:
            name: Name of the connection.
            servers: Its URLs; their credentials are not logged.
        """
        urls = servers.split(",") if isinstance(servers, str) else servers
        self._name = name
        self._servers = ", ".join(map(_address, urls))
        self._limit = RepeatLimit()
        self.is_closing = False

    def refused(self, refusal: Refusal) -> None:
        """Log an operation that NATS denies."""
        detail = without_chats(refusal.detail)
        if self._limit.allows(detail):
            about = {"connection": self._name, "what": refusal.what, "error": detail}
            _log.warning(
                "nats_refused: %s, %s: %s", self._servers, refusal.what, detail, extra=about
            )

    def failed(self, error: Exception, *, is_connected: bool) -> None:
        """Log an error of the connection, or of an attempt to connect."""
        text = f"{type(error).__name__}: {without_chats(str(error))}".removesuffix(": ")
        # A hanging server causes different errors at each attempt; one line is enough for all.
        kind = text if is_connected else type(error).__name__
        if self.is_closing or isinstance(error, asyncio.CancelledError):
            return
        if self._limit.allows(kind):
            about = {"connection": self._name, "error": text}
            event = "nats_error" if is_connected else "nats_unreachable, still trying"
            _log.warning(f"{event}: %s: %s", self._servers, text, extra=about)

    def disconnected(self) -> None:
        """Log the loss of the connection, unless this process closes it."""
        if not self.is_closing:
            about = {"connection": self._name}
            _log.warning("nats_disconnected, reconnecting: %s", self._servers, extra=about)

    def reconnected(self) -> None:
        """Log that the connection is back."""
        self._limit.clear()
        _log.info("nats_reconnected: %s", self._servers, extra={"connection": self._name})

    def key_unreadable(self, error: Exception) -> None:
        """Log that the key file cannot be read."""
        about = {"connection": self._name, "error": type(error).__name__}
        _log.warning("nats_key_unreadable: %s", type(error).__name__, extra=about)

    def closed(self) -> None:
        """Log the end of the connection, unless this process closed it."""
        if not self.is_closing:
            _log.warning("nats_closed: %s", self._servers, extra={"connection": self._name})


def _address(url: str) -> str:
    """Return host and port of a URL, without user and password."""
    parts = urlsplit(url.strip() if "://" in url else f"nats://{url.strip()}")
    return parts.netloc.rpartition("@")[2]
