"""Spans of the client, and the W3C trace context in NATS headers.

Only the interface of OpenTelemetry is used: a program that sets up no SDK gets no spans, and what
was traced before it stays traced. Baggage is never passed on, since anything may be in it.
"""

import contextlib
from collections.abc import Iterator, Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_W3C = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("chatlane_client")


def trace_headers() -> dict[str, str]:
    """Return the headers that carry the current context: none where nothing is traced."""
    headers: dict[str, str] = {}
    _W3C.inject(headers)
    return headers


def context_of(headers: Mapping[str, str] | None) -> Context:
    """Return the context that a message came with, which may be none."""
    return _W3C.extract(headers or {}, context=Context())


def link_to(traceparent: str) -> Link | None:
    """Return a link to the trace of a message; None when it is no valid context."""
    context = trace.get_current_span(context_of({"traceparent": traceparent})).get_span_context()
    return Link(context) if context.is_valid else None


@contextlib.contextmanager
def span(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, str | int],
    *,
    parent: Context | None = None,
    links: list[Link] | None = None,
) -> Iterator[Span]:
    """Trace the block; an error is noted by its type, for its text may quote what people wrote.

    Args:
        name: What is done; never with an id in it.
        kind: Who is at the other end.
        attributes: Declared names and ids of chatlane's own.
        parent: By default the current context.
        links: To what else is dealt with.
    """
    with _tracer.start_as_current_span(
        name,
        context=parent,
        kind=kind,
        attributes={"messaging.system": "nats", **attributes},
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        try:
            yield current
        except BaseException as exc:
            current.set_status(Status(StatusCode.ERROR, type(exc).__qualname__))
            raise
