"""The report of the conformance suite, and the gate that blocks the way to NATS."""

import asyncio
import contextlib
import json

from chatlane_devkit.conform.nats_gate import NatsGate
from chatlane_devkit.conform.report import Finding, Outcome, as_json, as_lines, passes, summary

PASSED = Finding(check="order", asks="messages keep their order", outcome=Outcome.PASSED)
FAILED = Finding(
    check="limits",
    asks="a limit is kept",
    outcome=Outcome.FAILED,
    reason="it slept",
    advice="raise RetryAfter",
)
SKIPPED = Finding(check="albums", asks="albums", outcome=Outcome.SKIPPED, reason="has none")


def test_only_a_run_without_failures_passes() -> None:
    assert passes([PASSED, SKIPPED])
    assert not passes([PASSED, FAILED])
    assert not passes([SKIPPED])
    assert not passes([])


def test_a_failure_says_what_was_seen_and_what_to_fix() -> None:
    text = "\n".join(as_lines(FAILED))
    assert "it slept" in text
    assert "Fix: raise RetryAfter" in text
    assert len(as_lines(PASSED)) == 1


def test_the_json_report_has_every_check() -> None:
    report = json.loads(as_json([PASSED, FAILED]))
    assert report["passed"] is False
    assert [it["outcome"] for it in report["checks"]] == ["passed", "failed"]


def test_the_summary_counts_the_outcomes() -> None:
    assert summary([PASSED, PASSED, SKIPPED]) == "2 passed, 1 skipped"


async def test_a_blocked_gate_passes_nothing_on_and_a_dropped_connection_loses_it() -> None:
    received = bytearray()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(100):
            received.extend(chunk)
            writer.write(b"+OK")
        writer.close()

    async with await asyncio.start_server(keep, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        gate = NatsGate(f"nats://127.0.0.1:{port}")
        async with gate.opened():
            address = gate.url.rpartition(":")[2]
            reader, writer = await asyncio.open_connection("127.0.0.1", int(address))
            writer.write(b"first")
            assert await reader.readexactly(3) == b"+OK"
            gate.block()
            writer.write(b"second")
            await writer.drain()
            gate.drop()
            gate.open()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        assert bytes(received) == b"first"
