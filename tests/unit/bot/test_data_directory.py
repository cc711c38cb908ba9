"""One bot per directory, and no older program on newer data."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from chatlane.errors import ChatlaneError
from chatlane_bot.commands import app
from chatlane_bot.data_directory import DataDirectory, DataDirectoryError
from chatlane_bot.supervisor import trim_log, warning_of


def test_one_process_has_the_directory(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "bot")
    assert directory.holder() is None
    with directory.locked():
        assert directory.holder() is not None
        with pytest.raises(DataDirectoryError, match="already runs"), directory.locked():
            pass
    assert directory.holder() is None
    with directory.locked():
        pass


def test_the_data_of_another_postgres_are_refused_with_what_to_do(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "bot")
    with directory.locked():
        directory.require_known()
        directory.keep_ports({"nats": 15000})
        directory.require_known()
        assert directory.ports() == {"nats": 15000}
        data = directory.path / "postgres" / "data"
        data.mkdir(parents=True)
        (data / "PG_VERSION").write_text("9\n", "ascii")
        with pytest.raises(DataDirectoryError, match="Postgres 9"):
            directory.require_known()


def test_warnings_of_the_parts_are_shown_without_ids() -> None:
    line = '{"event": "model_refused", "level": "error", "error": "status 401", "turn_id": "1"}'
    assert warning_of(line) == "model_refused error=status 401"
    assert warning_of('{"event": "router_started", "level": "info"}') is None
    assert warning_of("[1] 2026/11/30 [INF] nats") is None


def test_a_large_log_is_moved_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "router.log"
    with path.open("ab", buffering=0) as log:
        log.write(b"x" * 100)
        trim_log(path, max_bytes=200)
        assert path.stat().st_size == 100
        trim_log(path, max_bytes=50)
        log.write(b"next")
    assert path.read_bytes() == b"next"
    assert (tmp_path / "router.old.log").stat().st_size == 100


def test_the_key_of_erasures_is_made_once_and_is_secret(tmp_path: Path) -> None:
    key = DataDirectory(tmp_path).erasure_key()
    assert len(key) >= 32
    assert DataDirectory(tmp_path).erasure_key() == key
    assert (tmp_path / "erasure.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["../../x", "", "a/b", "a b", "x" * 65])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    result = CliRunner().invoke(app, ["--name", name, "--model", "openai:x"])
    assert result.exit_code == 2
    assert "letters, digits" in result.stderr


@pytest.mark.parametrize("subcommand", ["backup", "restore"])
def test_a_backup_names_its_bot_before_or_after_the_subcommand(
    subcommand: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = str(tmp_path / "backup.tgz")
    directories: list[Path] = []

    def note(directory: DataDirectory, _: Path) -> str:
        directories.append(directory.path)
        return ""

    function = {"backup": "back_up", "restore": "restore"}[subcommand]
    monkeypatch.setattr(f"chatlane_bot.backup.{function}", note)
    for arguments in (
        ["--name", "ann", subcommand, file],
        [subcommand, file, "--name", "ann"],
        ["--data", str(tmp_path / "other"), subcommand, file],
        [subcommand, file, "--data", str(tmp_path / "other")],
        ["--data", str(tmp_path / "other"), subcommand, file, "--name", "ann"],
    ):
        assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    ann, other = tmp_path / "chatlane/ann", tmp_path / "other"
    assert directories == [ann, ann, other, other, ann]


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    options = ["--data", str(tmp_path), "--model", "openai:x", "--base-url", "nonsense"]
    with pytest.raises(ChatlaneError, match="base_url"):
        CliRunner().invoke(app, options, catch_exceptions=False)
    assert not (tmp_path / "chatlane.toml").exists()
