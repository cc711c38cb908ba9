"""The format of the logs of a process: text on a terminal, JSON elsewhere."""

import json
import os
import pty
import subprocess
import sys
from typing import Final

import pytest

_PROGRAM: Final = """
from chatlane.cli.serve import log_as_set
from chatlane.config.settings import load_settings
from chatlane.observability.logs import get_logger

log_as_set(load_settings(environ={}))
get_logger("router").info("router_started", partitions=32)
"""


def _run(stderr: int) -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], stderr=stderr, check=True, timeout=60)  # noqa: S603


def test_a_terminal_shows_logs_as_text() -> None:
    master, slave = pty.openpty()
    try:
        _run(slave)
        line = os.read(master, 65_536).decode()
    finally:
        os.close(master)
        os.close(slave)

    assert "router_started" in line
    assert "partitions" in line
    with pytest.raises(json.JSONDecodeError):
        json.loads(line)


def test_a_pipe_gets_logs_as_json() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as lines:
        _run(writer)
        os.close(writer)
        (line,) = lines.readlines()

    written = json.loads(line)
    assert (written["event"], written["partitions"]) == ("router_started", 32)
