"""The trace context in headers, and the one span of a batch."""

import builtins
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chatlane.domain.log import LogMessage, Trace
from chatlane.errors import MissingTracingError
from chatlane.observability import tracing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)


def parent(number: int, flags: str = "01") -> str:
    return f"00-{TRACE[:-2]}{number:02x}-00f067aa0ba902b7-{flags}"


def message(trace: Trace | None) -> LogMessage:
    return LogMessage("inbound", 1, 1, NOON, "subject", None, b"", trace)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


def test_a_context_is_taken_as_it_is() -> None:
    headers = {"traceparent": parent(1), "tracestate": "one=1,two=2", "baggage": "name=Ann"}
    assert tracing.trace_of(headers) == tuple(headers.items())[:2]
    assert tracing.trace_of({"traceparent": parent(1)}) == (("traceparent", parent(1)),)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"traceparent": ""},
        {"traceparent": "nonsense"},
        {"traceparent": parent(1) + "\r\nNats-Expected-Stream: OTHER"},
        {"traceparent": parent(1).upper()},
        {"traceparent": f"ff{parent(1)[2:]}"},
        {"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"},
        {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
        {"tracestate": "one=1"},
    ],
)
def test_what_is_no_context_is_left_out(headers: dict[str, str]) -> None:
    assert tracing.trace_of(headers) is None


@pytest.mark.parametrize("state", ["", "é", "a\r\nb: c", "x" * 513])
def test_a_state_that_no_header_takes_is_left_out(state: str) -> None:
    headers = {"traceparent": parent(1), "tracestate": state}
    assert tracing.trace_of(headers) == (("traceparent", parent(1)),)


def test_a_batch_has_one_span_linked_to_all_its_sampled_messages(
    spans: InMemorySpanExporter,
) -> None:
    contexts = [parent(1), parent(2, "00"), None, parent(3)]
    messages = [message(None if one is None else (("traceparent", one),)) for one in contexts]

    tracing.batch_committed(messages, began_ns=1)

    (span,) = spans.get_finished_spans()
    assert span.context.trace_id == int(f"{TRACE[:-2]}01", 16)
    assert [link.context.trace_id for link in span.links] == [int(f"{TRACE[:-2]}03", 16)]
    assert span.start_time == 1


@pytest.mark.parametrize("trace", [None, (("traceparent", parent(1, "00")),)])
def test_a_batch_without_a_sampled_message_has_no_span(
    spans: InMemorySpanExporter, trace: Trace | None
) -> None:
    tracing.batch_committed([message(trace)], began_ns=1)
    assert spans.get_finished_spans() == ()


def test_a_missing_package_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    really_import = builtins.__import__

    def without_sdk(name: str, *rest: object, **more: object) -> object:
        if name.startswith("opentelemetry.exporter"):
            raise ImportError(name)
        return really_import(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_sdk)
    sending = tracing.sending_traces("http://127.0.0.1:9/v1/traces", "1")
    with pytest.raises(MissingTracingError, match=r"chatlane\[otel\]"), sending:
        pytest.fail("was entered")


def test_nothing_is_set_up_without_an_endpoint() -> None:
    with tracing.sending_traces(None, "1"):
        assert trace.get_tracer_provider().__class__.__name__ == "ProxyTracerProvider"
