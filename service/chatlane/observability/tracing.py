"""The trace context of messages, and one span for each batch that holds traced ones.

Everything that follows from a message carries its context, whether or not this process exports
traces. A span per message would cost too much time: a batch has one span, in the trace of its first
traced message and linked to the others.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chatlane.errors import MissingTracingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from opentelemetry.trace import SpanContext

    from chatlane.domain.log import LogMessage, Trace

PARENT: Final = "traceparent"
_STATE: Final = "tracestate"
# The value goes into a header and into the database, so only the standard format is accepted.
_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_STATES: Final = re.compile(r"[!-~][ -~]{0,511}")
# The SDK's limit of links per span.
_MOST_LINKS: Final = 128
_EXPORT_SECONDS: Final = 3

_W3C: Final = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("chatlane")


def trace_of(headers: Mapping[str, str]) -> Trace | None:
    """Return the trace context in the headers of a message, if there is a valid one."""
    parent, state = headers.get(PARENT), headers.get(_STATE)
    if parent is None or _PARENT.fullmatch(parent) is None:
        return None
    if state is None or _STATES.fullmatch(state) is None:
        return ((PARENT, parent),)
    return (PARENT, parent), (_STATE, state)


def batch_committed(messages: Iterable[LogMessage], began_ns: int) -> None:
    """Trace a batch that was just committed, if any of its messages is traced.

    Args:
        messages: Messages of the batch.
        began_ns: Start of its transaction, in nanoseconds since the epoch.
    """
    traced = [message for message in messages if message.trace is not None]
    if not traced:
        return
    contexts = [context for message in traced if (context := _sampled(message.trace)) is not None]
    if not contexts:
        return
    first, *others = contexts[: _MOST_LINKS + 1]
    parent = trace.set_span_in_context(trace.NonRecordingSpan(first), Context())
    _tracer.start_span(
        "route batch",
        context=parent,
        kind=SpanKind.CONSUMER,
        links=[Link(other) for other in others],
        start_time=began_ns,
        attributes={
            "messaging.system": "nats",
            "messaging.operation.type": "process",
            "chatlane.traced_messages": len(contexts),
        },
    ).end()


def _sampled(carrier: Trace | None) -> SpanContext | None:
    span = trace.get_current_span(_W3C.extract(dict(carrier or ()), context=Context()))
    context = span.get_span_context()
    return context if context.is_valid and context.trace_flags.sampled else None


@contextmanager
def sending_traces(endpoint: str | None, version: str) -> Iterator[None]:
    """Export the spans of this process to a collector for the length of the block.

    Args:
        endpoint: OTLP over HTTP; None exports nothing, and then a span costs nothing.
        version: Release shown in the spans.

    Raises:
        MissingTracingError: The packages that export traces are not installed.
    """
    if endpoint is None:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 # optional
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as exc:
        raise MissingTracingError from exc
    resource = Resource.create({"service.name": "chatlane-router", "service.version": version})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()
