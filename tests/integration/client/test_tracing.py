"""One trace from an adapter over router and worker back to the adapter, on real servers."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import asyncpg
import pytest
from nats.aio.client import Client
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chatlane.observability import tracing as service_tracing
from chatlane_client import Turn, TurnFailedError
from chatlane_client.transport import tracing as client_tracing
from chatlane_schemas import InboundEvent, encode
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import Chats, delivering, said, working
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


class Spans:
    """What was traced in this process."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    async def one(self, name: str) -> ReadableSpan:
        await eventually(lambda: self.named(name))
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Trace client and router, without touching what the process has for everybody."""
    made = Spans()
    monkeypatch.setattr(client_tracing, "_tracer", made.provider.get_tracer("client"))
    monkeypatch.setattr(service_tracing, "_tracer", made.provider.get_tracer("service"))
    yield made
    made.provider.shutdown()


@pytest.fixture(autouse=True)
async def router(bus_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[None]:
    async with real_router(tmp_path, bus_url, database_url):
        yield


def parents(spans: Sequence[ReadableSpan]) -> list[int | None]:
    return [None if span.parent is None else span.parent.span_id for span in spans]


async def test_one_trace_leads_from_the_question_to_the_answer(
    client: Client, spans: Spans
) -> None:
    inner: list[int] = []

    async def answer(turn: Turn) -> str:
        inner.append(trace.get_current_span().get_span_context().span_id)
        return turn.text

    chats = Chats()
    async with working(client, answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await chats.until_said("hello")
        delivered = await spans.one("deliver OUTBOUND")

    published, turn = await spans.one("publish INBOUND"), await spans.one("turn")
    batches = spans.named("route batch")
    everything = [published, turn, delivered, *batches]
    assert len(batches) == 2, "of the message and of the result"
    assert {span.context.trace_id for span in everything} == {published.context.trace_id}
    assert parents([published]) == [None]
    assert parents([turn, delivered]) == [published.context.span_id, turn.context.span_id]
    assert sorted(map(str, parents(batches))) == sorted(
        [str(published.context.span_id), str(turn.context.span_id)]
    )
    assert inner == [turn.context.span_id], "what a handler traces is within its turn"
    told = str([span.to_json() for span in everything])
    assert "hello" not in told
    assert "person-1" not in told


async def until_waiting(database_url: str, count: int) -> None:
    """Wait until so many messages wait for a turn."""
    connection = await asyncpg.connect(database_url)
    try:
        await eventually(
            lambda: connection.fetchval("SELECT count(*) = $1 FROM waiting", count),
        )
    finally:
        await connection.close()


async def test_a_turn_is_linked_to_every_message_it_answers(
    client: Client, spans: Spans, database_url: str
) -> None:
    chats = Chats()
    async with delivering(client, chats.deliver) as adapter:
        for text in ("one", "two", "three"):
            await adapter.publish(said(text))
        await until_waiting(database_url, 3)

        async def answer(turn: Turn) -> str:
            return f"{len(turn.messages)} messages"

        async with working(client, answer):
            await chats.until_said("3 messages")
            turn = await spans.one("turn")

    traces = [span.context.trace_id for span in spans.named("publish INBOUND")]
    assert [link.context.trace_id for link in turn.links] == traces[:2]
    assert turn.context.trace_id == traces[2]


async def test_an_error_is_noted_without_its_text(client: Client, spans: Spans) -> None:
    async def fail(turn: Turn) -> str:
        raise TurnFailedError(f"cannot say {turn.text}", retry=False)

    chats = Chats()
    async with working(client, fail), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("a secret"))
        turn = await spans.one("turn")

    assert not turn.status.is_ok
    assert "secret" not in turn.to_json()


async def test_a_stream_worker_finds_the_context_in_its_headers(
    client: Client, spans: Spans
) -> None:
    chats = Chats()
    async with delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello", agent="desk"))
        headers = await routed_headers(client)

    published = await spans.one("publish INBOUND")
    context = f"00-{published.context.trace_id:032x}-{published.context.span_id:016x}-"
    assert headers["traceparent"].startswith(context)


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
THEIRS = {"traceparent": PARENT, "tracestate": "theirs=1"}


async def publish_traced(client: Client, event: InboundEvent) -> None:
    """Be an adapter that others have given a context, and that traces nothing itself."""
    headers = {**THEIRS, "baggage": "name=Ann"}
    await client.jetstream().publish(subjects.inbound_for(event), encode(event), headers=headers)


async def test_what_others_traced_is_passed_on_by_who_traces_nothing(client: Client) -> None:
    await publish_traced(client, said("hello", agent="desk"))

    found = await routed_headers(client)

    assert {name: found[name] for name in THEIRS} == THEIRS
    assert "baggage" not in found


async def test_what_others_traced_goes_through_a_turn_to_its_answer(client: Client) -> None:
    async def answer(turn: Turn) -> str:
        return turn.text

    async with working(client, answer):
        await publish_traced(client, said("hello"))
        found = await only_headers(client, StreamName.OUTBOUND)

    assert {name: found[name] for name in THEIRS} == THEIRS
    assert "baggage" not in found


async def test_without_a_trace_nothing_is_added(client: Client) -> None:
    chats = Chats()
    async with delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello", agent="desk"))
        assert (await routed_headers(client)).keys() == {"Nats-Msg-Id"}


async def routed_headers(client: Client) -> dict[str, str]:
    """Return the headers of the one message that was routed to the stream agent."""
    return await only_headers(client, StreamName.ROUTED)


async def only_headers(client: Client, stream: StreamName) -> dict[str, str]:
    """Return the headers of the one message of a stream, once it is there."""
    jetstream = client.jetstream()

    async def has_come() -> bool:
        return (await jetstream.stream_info(stream)).state.messages == 1

    await eventually(has_come)
    stored = await jetstream.get_msg(stream, seq=1)
    return dict(stored.headers or {})
