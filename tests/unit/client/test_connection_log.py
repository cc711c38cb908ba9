"""What the client logs about its connection."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane_client import open_connection
from chatlane_client.transport.connection_log import ConnectionLog, RepeatLimit
from chatlane_client.transport.secured import Refusal


def test_a_text_passes_once_per_interval() -> None:
    now = [0.0]
    limit = RepeatLimit(timedelta(seconds=60), clock=lambda: now[0])
    assert [limit.allows("a"), limit.allows("a"), limit.allows("b")] == [True, False, True]
    now[0] = 59.9
    assert not limit.allows("a")
    now[0] = 60.0
    assert limit.allows("a")
    limit.clear()
    assert limit.allows("a")


def test_a_server_that_is_away_is_logged_once_with_address_and_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ConnectionLog("worker", "nats://ann:secret@one.example:4222, two.example:4223")
    for _ in range(8):
        log.failed(ConnectionRefusedError(111, "Connection refused"), is_connected=False)
        log.failed(TimeoutError(), is_connected=False)

    assert caplog.messages == [
        (
            "nats_unreachable, still trying: one.example:4222, two.example:4223: "
            "ConnectionRefusedError: [Errno 111] Connection refused"
        ),
        "nats_unreachable, still trying: one.example:4222, two.example:4223: TimeoutError",
    ]
    log.reconnected()
    log.failed(TimeoutError(), is_connected=False)
    assert len(caplog.messages) == 3
    assert "secret" not in caplog.text


def test_a_refusal_and_a_lost_connection_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = ConnectionLog("worker", ["nats://one.example:4222"])
    log.refused(Refusal("publish", "permissions violation"))
    log.disconnected()
    log.closed()

    assert caplog.messages == [
        "nats_refused: one.example:4222, publish: permissions violation",
        "nats_disconnected, reconnecting: one.example:4222",
        "nats_closed: one.example:4222",
    ]


def test_a_connection_that_our_side_closes_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    log = ConnectionLog("worker", "nats://one.example:4222")
    log.is_closing = True
    log.disconnected()
    log.closed()
    log.failed(TimeoutError(), is_connected=False)

    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize("servers", ["", [], "nats://a,,nats://b", "http://127.0.0.1:4222"])
async def test_an_address_that_is_not_of_nats_is_refused(servers: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"nats://127\.0\.0\.1:4222"):
        async with open_connection(servers, name="test"):
            pass


@pytest.mark.integration
async def test_a_normal_end_logs_no_warning(
    nats_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="chatlane_client"):
        async with open_connection(nats_url, name="test"):
            pass

    assert caplog.messages == []


async def test_what_keeps_a_connection_from_beginning_is_raised(tmp_path: Path) -> None:
    missing = str(tmp_path / "seed")

    with pytest.raises(FileNotFoundError):
        async with open_connection("nats://127.0.0.1:1", name="worker", nkey_seed_file=missing):
            pass
