import json
import logging
from io import StringIO
from pathlib import Path

import pytest
from aiohttp import ClientSession
from pydantic import ValidationError

from chatlane_adapters.kit.health import serve_health
from chatlane_adapters.kit.settings import AdapterSettings
from chatlane_client.transport.json_logs import JsonFormatter


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLANE_ADAPTER_ACCOUNT", "main")
    monkeypatch.setenv("CHATLANE_ADAPTER_HEALTH_PORT", "8080")
    settings = AdapterSettings()
    assert settings.account == "main"
    assert settings.health_port == 8080


def test_a_value_may_be_a_file_of_the_directory_of_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CHATLANE_ADAPTER_SECRETS_DIR", str(tmp_path))
    (tmp_path / "chatlane_adapter_account").write_text("main\n")
    (tmp_path / "chatlane_adapter_principal").write_text("from a file")
    monkeypatch.setenv("CHATLANE_ADAPTER_PRINCIPAL", "from a variable")
    settings = AdapterSettings()
    assert (settings.account, settings.principal) == ("main", "from a variable")


def test_an_error_of_the_settings_shows_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLANE_ADAPTER_ACCOUNT", "main")
    monkeypatch.setenv("CHATLANE_ADAPTER_LOG_LEVEL", "s3cret")
    with pytest.raises(ValidationError) as refused:
        AdapterSettings()
    assert "log_level" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_an_address_that_is_none_of_nats_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLANE_ADAPTER_ACCOUNT", "main")
    monkeypatch.setenv("CHATLANE_ADAPTER_NATS_URL", "nats://one:4222,http://two:4222")
    with pytest.raises(ValidationError, match="'http' is no scheme of NATS"):
        AdapterSettings()


def _line(name: str, message: str, *arguments: object, **extra: object) -> dict[str, object]:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    record = logging.makeLogRecord(
        {"name": name, "levelname": "INFO", "msg": message, "args": arguments, **extra}
    )
    handler.emit(record)
    line: dict[str, object] = json.loads(stream.getvalue())
    return line


def test_a_log_keeps_our_facts() -> None:
    line = _line("chatlane_adapters.kit.runner", "adapter_started", account="main")
    assert line["event"] == "adapter_started"
    assert line["account"] == "main"


@pytest.mark.parametrize("name", ["aiogram.event", "nio.rooms", "slack_sdk", "root"])
def test_a_log_keeps_no_words_of_a_library(name: str) -> None:
    line = _line(name, "got %s", "what a person wrote", update="what a person wrote")
    assert "what a person wrote" not in json.dumps(line)
    assert line["logger"] == name


async def test_health_tells_whether_the_process_is_ready() -> None:
    complaints: list[str] = []
    async with (
        serve_health("127.0.0.1", 0, lambda: complaints) as port,
        ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        assert (await http.get("/readyz")).status == 200
        complaints.append("nats")
        refused = await http.get("/readyz")
        assert (refused.status, (await refused.json())["complaints"]) == (503, ["nats"])
        assert (await http.get("/livez")).status == 200
        assert "python_info" in await (await http.get("/metrics")).text()
