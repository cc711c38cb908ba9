"""Exits with 0 while the router in this container is alive: the image's health check.

`python livez.py /readyz` asks whether it is ready, instead.
"""

import sys
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from os import environ

# Not http.port of chatlane.toml: a check that runs every few seconds does not load the service.
PORT = int(environ.get("CHATLANE_HTTP__PORT") or 8080)


def main(path: str = "/livez") -> int:
    """Ask, and return the exit code."""
    connection = HTTPConnection("127.0.0.1", PORT, timeout=2)
    try:
        connection.request("GET", path)
        return int(connection.getresponse().status >= HTTPStatus.MULTIPLE_CHOICES)
    except (OSError, HTTPException):
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
