"""The command that turns a voice message into words."""

import logging
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from chatlane_adapters.kit.settings import AdapterSettings
from chatlane_adapters.kit.voice import VoiceCommand
from tests.support.eventually import eventually


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "voice.ogg"
    path.write_text("call me")
    return path


def shell(script: str, seconds: float = 30) -> VoiceCommand:
    return VoiceCommand(("sh", "-c", script), seconds)


async def test_the_output_of_the_command_is_the_words(file: Path) -> None:
    assert await shell("cat $0; echo").words(file) == "call me"


@pytest.mark.parametrize(
    "script", ["cat $0; exit 3", "true", "yes | head -c 300000", "kill -9 $$", "printf ' \\n'"]
)
async def test_a_command_that_finds_nothing_gives_no_words(file: Path, script: str) -> None:
    assert await shell(script).words(file) is None


async def test_a_command_that_is_too_slow_ends_with_what_it_started(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started = tmp_path / "started"
    slow = shell(f"sleep 300 & echo $! > {started}; wait", seconds=1)
    assert await slow.words(file) is None
    child = int(started.read_text())
    await eventually(lambda: _is_over(child), timedelta(seconds=10))
    assert [record.message for record in caplog.records] == ["voice_not_understood"]


def _is_over(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_the_command_gets_no_settings_of_the_adapter(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATLANE_ADAPTER_TOKEN", "s3cret")
    words = await shell("env; cat $0").words(file)
    assert words is not None
    assert words.endswith("call me")
    assert "s3cret" not in words


async def test_no_words_are_logged(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await shell("cat $0; exit 3").words(file)
    assert "call me" not in caplog.text


def test_a_command_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLANE_ADAPTER_ACCOUNT", "main")
    monkeypatch.setenv("CHATLANE_ADAPTER_VOICE_COMMAND", '["no-such-program"]')
    with pytest.raises(ValidationError, match="there is no program no-such-program"):
        AdapterSettings()
