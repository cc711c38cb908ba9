"""A service that is told to stop while it starts ends with 0, whatever it does at that moment."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ADDRESSES: Final = {
    # Nobody listens there: a router waits for both servers.
    "CHATLANE_NATS__URL": "nats://127.0.0.1:1",
    "CHATLANE_POSTGRES__DSN": "postgresql://nobody@127.0.0.1:1/none",
    "CHATLANE_HTTP__PORT": "0",
}
CONFIG: Final = '[platforms.telegram.accounts.bot]\n[agents.main]\ndelivery = "turns"\n'


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("command", "last_import"),
    [
        ("router", "typing"),
        ("router", "typer"),
        ("router", "chatlane.config.settings"),
        ("router", "chatlane.outbox.publisher"),
        ("router", "chatlane.app.lifecycle"),
        ("echo-worker", "typing"),
        ("echo-worker", "pydantic"),
        ("echo-worker", "chatlane.cli.echo_worker"),
    ],
)
def test_a_service_that_is_stopped_while_it_starts_ends_with_0(
    tmp_path: Path, command: str, last_import: str, number: signal.Signals
) -> None:
    config = tmp_path / "chatlane.toml"
    config.write_text(CONFIG, "utf-8")
    # Python writes a line for each module as soon as it is imported.
    with subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-X", "importtime", "-m", "chatlane", command, "--config", str(config)],
        env={**os.environ, **ADDRESSES},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        imported = (line.rpartition("|")[2].strip() for line in process.stderr)
        try:
            assert any(module == last_import for module in imported), "it was imported"
            process.send_signal(number)
            assert process.wait(30) == 0, process.stderr.read()
        finally:
            process.kill()
