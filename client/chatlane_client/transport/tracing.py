"""Spans of the client, and the W3C trace context in NATS headers.

The module uses only the API of OpenTelemetry: a program without an SDK records no spans, and an
incoming trace context is still passed on. Baggage is never passed on, because it may contain
anything.
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
    """Return the headers that carry the current context; none if there is no trace."""
    headers: dict[str, str] = {}
    _W3C.inject(headers)
    return headers


def context_of(headers: Mapping[str, str] | None) -> Context:
    """Return the trace context of a message, which may be empty."""
    return _W3C.extract(headers or {}, context=Context())


def link_to(traceparent: str) -> Link | None:
    """Return a link to the trace of a message; None if its context is not valid."""
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
    """Trace the block; record only the type of an error, because its text may quote a message.

    Args:
        name: Name of the operation; never with an id in it.
        kind: Role of the other side.
        attributes: Declared names and ids made by chatlane.
        parent: Parent context; by default the current one.
        links: Links to the other traces that the block handles.
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
