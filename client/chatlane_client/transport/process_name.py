"""Name this process for people."""

import os
import re
import socket


def process_name() -> str:
    """Return a name that tells people where this process runs: host and process id."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100]
    return f"{host}:{os.getpid()}"
