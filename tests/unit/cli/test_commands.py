"""What the command line says without any server."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO
from uuid import UUID

import pytest
from typer.testing import CliRunner

from chatlane.cli.commands import app
from chatlane.cli.shared.error_report import CommandError
from chatlane.cli.shared.options import DEV_CONFIG
from chatlane.cli.shared.short_ids import matching, only_match, short_digits
from chatlane.cli.shared.terminal import age, typed_lines
from chatlane.errors import StoreUnavailableError
from chatlane_devkit.dev.server import STATE_FILE
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
        ["check"],
        ["admin"],
        ["admin", "apply"],
        ["admin", "verify"],
        ["admin", "migrate"],
        ["sessions"],
        ["sessions", "show"],
        ["dead-letters", "list"],
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
        "print([m for m in ('faststream', 'chatlane.app', 'chatlane_servers.embedded') "
        "if m in sys.modules])"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)  # noqa: S603

    assert ended.stdout.decode().strip() == "[]"


def test_a_command_imports_no_other() -> None:
    """A process that serves must start soon, and most of its start are imports."""
    program = (
        "import sys; from chatlane.cli.commands import app; "
        "app(['console', '--help'], standalone_mode=False); "
        "print([m for m in ('chatlane.cli.serve', 'chatlane_adapters', 'chatlane_bridges', "
        "'chatlane_client', 'chatlane_schemas', 'nats') if m in sys.modules])"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)  # noqa: S603

    assert ended.stdout.decode().splitlines()[-1] == "[]"


def test_a_command_that_there_is_not_is_refused_and_the_next_one_named(cli: CliRunner) -> None:
    refused = cli.invoke(app, ["sesions"])

    assert refused.exit_code == 2
    assert "Did you mean 'sessions'?" in refused.output


def test_a_person_need_not_stand_on_the_command_line(cli: CliRunner) -> None:
    asked = cli.invoke(app, ["people", "erase", "-"], input="telegram/bot/1087968824\nn\n")
    assert asked.exit_code == 1
    assert "Delete all data of telegram/bot/1087968824 for good?" in asked.output

    wrong = cli.invoke(app, ["people", "export", "-"], input="1087968824\n")
    assert wrong.exit_code == 2
    assert "write it as PLATFORM/ACCOUNT/ID" in wrong.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--person", "ann"),
        ("list", "--person", "A b/local/ann"),
        ("list", "--platform", "no such!"),
        ("list", "--active", "soon"),
        ("list", "--principal", "A b"),
        ("--limit", "1", "list"),
        ("title", "agent:main:terminal:local:dm:ann", "words", "--clear"),
        ("label", "agent:main:terminal:local:dm:ann", "words", "--clear"),
        ("update", "agent:main:terminal:local:dm:ann"),
        ("update", "agent:main:terminal:local:dm:ann", "--patch", "[1]"),
        ("create", "--settings", "{"),
        ("prune", "--days", "0"),
        ("archive",),
        ("folders",),
        ("move", "agent:main:terminal:local:dm:ann", "--person", "terminal/local/ann"),
    ],
)
def test_a_wrong_command_line_is_refused_before_any_server_is_asked(
    cli: CliRunner, arguments: tuple[str, ...]
) -> None:
    refused = cli.invoke(app, ["sessions", *arguments])

    assert refused.exit_code == 2, refused.output
    assert refused.stderr
    assert "Traceback" not in refused.output


@pytest.mark.parametrize("name", ["n" * 300, "\udcff"])
def test_a_name_that_is_no_id_is_refused(cli: CliRunner, name: str) -> None:
    refused = cli.invoke(app, ["chat", "--as", name])

    assert refused.exit_code == 2
    assert refused.stderr.startswith("chatlane: the name after --as ")
    assert len(refused.stderr.splitlines()) == 1


async def read_lines(stream: TextIO) -> list[str]:
    return [line async for line in typed_lines(stream)]


async def test_a_line_of_a_file_need_not_be_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"a\xff\nb\n")

    with path.open(encoding="utf-8") as file:
        assert await read_lines(file) == ["a\N{REPLACEMENT CHARACTER}\n", "b\n"]


async def test_a_line_that_no_message_can_hold_is_told() -> None:
    theirs, ours = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(ours, "w", encoding="utf-8") as pipe:
            pipe.write("x" * 3_000_000)

    writing = asyncio.to_thread(write)
    with os.fdopen(theirs, encoding="utf-8") as pipe:
        reading = asyncio.create_task(read_lines(pipe))
        written = asyncio.create_task(writing)
        with pytest.raises(CommandError, match="a line has more than 1048576 bytes"):
            await reading
    await written


EXAMPLE = Path(__file__).parents[3] / "examples" / "event.json"


@pytest.fixture
def declared(tmp_path: Path) -> None:
    (tmp_path / "chatlane.toml").write_text("[platforms.terminal.accounts.local]\n")


@pytest.mark.usefixtures("declared")
def test_the_example_event_is_routed(cli: CliRunner) -> None:
    explained = cli.invoke(app, ["explain", str(EXAMPLE), "--offline"])

    assert explained.exit_code == 0, explained.output
    assert "agent:main:terminal:local:dm:ann" in explained.output


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not JSON"),
        ("[]", "a field is invalid"),
        (
            EXAMPLE.read_text().replace('"v": 1', '"v": 99'),
            "this release does not know its version",
        ),
        (
            EXAMPLE.read_text().replace('"local"', '"lokal"'),
            "account terminal/lokal is not declared",
        ),
        (EXAMPLE.read_text().replace('"dm"', '"privat"'), "dm|group|supergroup|channel"),
    ],
)
def test_an_event_that_no_router_could_process_is_an_error(
    cli: CliRunner, text: str, problem: str
) -> None:
    said = cli.invoke(app, ["explain", "-", "--offline"], input=text)
    as_json = cli.invoke(app, ["explain", "-", "--offline", "--json"], input=text)

    assert said.exit_code == as_json.exit_code == 1
    assert said.stdout == ""
    assert problem in said.stderr
    assert "dead letter" in as_json.stdout


@pytest.mark.usefixtures("declared")
def test_a_field_that_routers_ignore_is_named(cli: CliRunner) -> None:
    text = EXAMPLE.read_text().replace('"text"', '"txet": "x", "text"')
    said = cli.invoke(app, ["explain", "-", "--offline"], input=text)

    assert said.exit_code == 0
    assert said.stderr == "chatlane: this release ignores the unknown field 'txet'\n"


def test_a_missing_event_file_is_an_error_that_names_the_example(cli: CliRunner) -> None:
    missing = cli.invoke(app, ["explain", "event.json"])

    assert missing.exit_code == 1
    assert "there is no file event.json: examples/event.json" in missing.stderr


def test_the_end_of_an_id_stands_for_the_id() -> None:
    ids = [
        UUID("018f0000-0000-8000-8000-00000000abcd"),
        UUID("018f0000-0000-8000-8000-00001111abcd"),
    ]

    assert matching("1111abcd", ids) == [ids[1]]
    assert only_match("1111abcd", [ids[1]], "session", "chatlane sessions") == ids[1]
    assert short_digits("0000-ABCD") == "0000abcd"
    assert short_digits("abc") is None
    assert short_digits("agent:main:terminal:local:dm:ann") is None
    with pytest.raises(CommandError, match="write more of it") as several:
        only_match("abcd", matching("abcd", ids), "session", "chatlane sessions")
    with pytest.raises(CommandError, match="`chatlane sessions` lists them") as none:
        only_match("ffff", [], "session", "chatlane sessions")
    assert (several.value.exit_code, none.value.exit_code) == (2, 3)


@pytest.mark.parametrize(
    ("past", "shown"),
    [
        (timedelta(seconds=-5), "0s"),
        (timedelta(seconds=59.9), "59s"),
        (timedelta(minutes=3, seconds=30), "3m"),
        (timedelta(hours=47), "1d"),
    ],
)
def test_tables_show_how_long_ago_something_was(past: timedelta, shown: str) -> None:
    assert age(datetime.now(UTC) - past) == shown


@pytest.mark.parametrize(
    ("sqlstate", "text"),
    [
        ("28P01", "check user and password"),
        ("28000", "check user and password"),
        ("3D000", "no database of this name"),
        ("", "does not answer"),
        ("42501", "chatlane admin grants"),
    ],
)
def test_an_error_of_postgres_says_what_to_check(sqlstate: str, text: str) -> None:
    assert text in str(StoreUnavailableError(sqlstate))


def test_check_names_each_mistake_in_a_file_of_notices(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "de.toml").write_text('stoped = "x"\ntitle = "{titel}"\n')
    (tmp_path / "ours.toml").write_text(
        'notices.file = "de.toml"\n[platforms.telegram.accounts.bot]\n'
    )

    result = cli.invoke(app, ["check", "--config", "ours.toml"])

    assert result.exit_code == 2
    assert "de.toml: stoped: there is no such id" in result.output
    assert "de.toml: title: there is no field {titel} here" in result.output


def test_check_counts_what_is_declared(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text("[platforms.telegram.accounts.bot]\n")

    result = cli.invoke(app, ["check", "--config", "ours.toml"])

    assert result.exit_code == 0
    assert result.output == ("the settings are valid: 1 platform, 1 account, 1 profile, 1 agent\n")
