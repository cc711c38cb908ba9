"""How commands connect: soon, or not at all."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

from chatlane.cli.shared import options
from chatlane.cli.shared.error_report import CommandError
from chatlane.config.settings import load_settings
from chatlane.nats.connection import Bus, BusOptions


async def test_a_command_ends_although_its_cancellation_gets_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As nats-py loses one now and then while a server refuses it."""

    async def connect(_self: Bus, _options: BusOptions) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def close(_self: Bus) -> None:
        """Nothing was opened."""

    monkeypatch.setattr(Bus, "connect", connect)
    monkeypatch.setattr(Bus, "close", close)
    monkeypatch.setattr(options, "_CONNECT_WITHIN", timedelta(milliseconds=10))
    settings = load_settings(environ={"CHATLANE_NATS__URL": "nats://nowhere.invalid:4222"})
    with pytest.raises(CommandError, match="no NATS server answers"):
        async with asyncio.timeout(10), options.open_nats(settings, "test"):
            raise AssertionError("it connected")
