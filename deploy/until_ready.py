"""Waits until routers are ready: `python until_ready.py PORT...`, their ports on loopback.

Needs nothing but Python, as `make up` does.
"""

import sys
import time
from collections.abc import Iterable
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Final

PATIENCE_SECONDS: Final = 90
POLL_SECONDS: Final = 0.2


def is_ready(port: int) -> bool:
    """Ask one router."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def main(ports: Iterable[int]) -> int:
    """Wait for all, say so, and return the exit code."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    waiting = set(ports)
    while waiting and time.monotonic() < deadline:
        waiting = {port for port in waiting if not is_ready(port)}
        if waiting:
            time.sleep(POLL_SECONDS)
    for port in sorted(waiting):
        sys.stderr.write(f"http://127.0.0.1:{port}/readyz does not say that it is ready\n")
    return 1 if waiting else 0


if __name__ == "__main__":
    sys.exit(main(map(int, sys.argv[1:])))
