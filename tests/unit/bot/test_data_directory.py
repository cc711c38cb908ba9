"""One bot per directory, and no older program on newer data."""

from pathlib import Path

import pytest

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
