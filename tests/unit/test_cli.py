"""What the command line says without any server."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chatlane.cli.commands import app
from chatlane.cli.options import DEV_CONFIG
from chatlane_devkit.demo.dev_server import STATE_FILE
from tests.support.logs import restored_logging


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRunner]:
    monkeypatch.chdir(tmp_path)
    with restored_logging():
        yield CliRunner()


def test_without_a_command_there_is_help(cli: CliRunner) -> None:
    result = cli.invoke(app, [])

    for command in ("demo", "dev", "chat", "router", "echo-worker", "admin", "sessions", "dead"):
        assert command in result.output


@pytest.mark.parametrize(
    "command",
    [
        ["demo"],
        ["dev"],
        ["chat"],
        ["router"],
        ["echo-worker"],
        ["admin"],
        ["admin", "apply"],
        ["admin", "verify"],
        ["admin", "migrate"],
        ["sessions"],
        ["session"],
        ["dead"],
    ],
)
def test_every_command_explains_itself(cli: CliRunner, command: list[str]) -> None:
    result = cli.invoke(app, [*command, "--help"])

    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_version_is_shown(cli: CliRunner) -> None:
    assert cli.invoke(app, ["--version"]).output.startswith("chatlane 0.")


def test_wrong_settings_are_told_in_lines_and_exit_with_2(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[router]\nslots = 0\n[reset]\nmode = 'weekly'\n")

    result = cli.invoke(app, ["router", "--config", "bad.toml"])

    assert result.exit_code == 2
    assert [line.split(":")[1].strip() for line in result.stderr.splitlines()] == [
        "router.slots",
        "reset.mode",
    ]


def test_commands_look_where_dev_leaves_its_address() -> None:
    assert DEV_CONFIG == STATE_FILE


def test_help_imports_no_server_and_no_broker() -> None:
    """`--help` must be quick, and work without the extra `dev`."""
    program = (
        "import sys; from chatlane.cli.commands import app; "
        "print([m for m in ('faststream', 'chatlane.app', 'chatlane_devkit.servers.embedded') "
        "if m in sys.modules])"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)  # noqa: S603

    assert ended.stdout.decode().strip() == "[]"


def test_a_person_need_not_stand_on_the_command_line(cli: CliRunner) -> None:
    asked = cli.invoke(app, ["people", "erase", "-"], input="telegram/bot/1087968824\nn\n")
    assert asked.exit_code == 1
    assert "Delete everything of telegram/bot/1087968824 for good?" in asked.output

    wrong = cli.invoke(app, ["people", "export", "-"], input="1087968824\n")
    assert wrong.exit_code == 2
    assert "write it as PLATFORM/ACCOUNT/ID" in wrong.stderr
