"""`apply` makes the server what is declared and destroys nothing; `verify` only looks."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal
from uuid import uuid4

import pytest
from typing_extensions import override

from chatlane.nats import topology
from chatlane.nats.connection import BusOptions, open_bus
from chatlane.nats.event_storage import EventStorage
from chatlane.nats.jetstream import ApiRefusedError, JetStream, StreamState
from chatlane_schemas.envelope import MAX_PAYLOAD_BYTES
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import (
    TURN_EVENTS,
    DurableSpec,
    StreamName,
    StreamSpec,
    declared_durables,
    declared_streams,
)
from chatlane_schemas.topology.subjects import LiveTurnPath, wildcards
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import open_nats
from tests.support.servers.log_streams import PARTITIONS, LogStreams, log_specs

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Agent:
    name: str
    delivery: Literal["turns", "stream"]
    ack_wait: timedelta = timedelta(minutes=2)


ALL = declared_streams(PARTITIONS)
DURABLES = declared_durables(
    [Agent("main", "turns"), Agent("sales", "stream")], [("telegram", "bot")], slots=2
)


def changed(name: StreamName, **fields: Any) -> list[StreamSpec]:  # noqa: ANN401
    return [replace(one, **fields) if one.name is name else one for one in ALL]


def changed_durable(name: str, **fields: Any) -> list[DurableSpec]:  # noqa: ANN401
    return [replace(one, **fields) if one.name == name else one for one in DURABLES]


@pytest.fixture
def jetstream(logs: LogStreams) -> JetStream:
    return logs.jetstream


async def test_what_is_applied_is_as_declared_and_stays_so(jetstream: JetStream) -> None:
    done = await topology.apply(jetstream, ALL, DURABLES)
    assert "stream TURNS created" in done
    assert "durable sales-1 on ROUTED created" in done
    assert await topology.verify(jetstream, ALL, DURABLES) == []
    assert await topology.apply(jetstream, ALL, DURABLES) == []


async def test_a_server_that_takes_too_little_in_a_message_is_refused() -> None:
    with server_directory() as directory:
        async with (
            open_nats(directory / "nats", max_payload_bytes=MAX_PAYLOAD_BYTES - 1) as server,
            open_bus(BusOptions(url=server.url)) as bus,
        ):
            jetstream = JetStream(bus.client)
            await topology.apply(jetstream, ALL, DURABLES)
            (sentence,) = await topology.verify(jetstream, ALL, DURABLES)
            assert "takes 1048575 bytes in a message: set its max_payload to 1048576" in sentence


async def test_verify_names_what_is_missing_and_creates_nothing(jetstream: JetStream) -> None:
    for _ in range(2):
        found = await topology.verify(jetstream, ALL, DURABLES)
        assert "stream TURNS is missing: run `chatlane admin apply`" in found
        assert "durable main on TURNS is missing: run `chatlane admin apply`" in found
        missing = [sentence for sentence in found if " is missing: " in sentence]
        assert len(missing) == len(ALL) - len(topology.LOG_STREAMS) + len(DURABLES)


async def test_a_size_that_changed_is_reported_then_applied(logs: LogStreams) -> None:
    await logs.publish(0, ["kept"])
    before = await logs.jetstream.get_stream("INBOUND")
    specs = log_specs(max_bytes=32 * 1024 * 1024)
    assert await topology.verify(logs.jetstream, specs, []) == [
        f"stream {name}: max_bytes is 67108864, declared is 33554432"
        for name in ("INBOUND", "RESULTS")
    ]
    await topology.apply(logs.jetstream, specs, [])
    after = await logs.jetstream.get_stream("INBOUND")
    assert await topology.verify(logs.jetstream, specs, []) == []
    assert after.generation == before.generation
    assert after.last_sequence == 1


async def test_a_durable_that_changed_is_reported_then_applied(jetstream: JetStream) -> None:
    await topology.apply(jetstream, ALL, DURABLES)
    slower = changed_durable("sales-0", ack_wait=timedelta(minutes=5))
    assert await topology.verify(jetstream, ALL, slower) == [
        "durable sales-0 on ROUTED: ack_wait is 120000000000, declared is 300000000000"
    ]
    assert await topology.apply(jetstream, ALL, slower) == [
        "durable sales-0 on ROUTED updated: ack_wait"
    ]
    assert await topology.verify(jetstream, ALL, slower) == []


async def test_another_number_of_partitions_is_reported_and_never_applied(
    logs: LogStreams,
) -> None:
    specs = log_specs(partitions=PARTITIONS + 1)
    for _ in range(2):
        assert await topology.verify(logs.jetstream, specs, []) == [
            f"stream {name} has 4 partitions, router.partitions is 5: set router.partitions to 4, "
            "or move to new streams (docs/operations.md, Change the number of partitions)"
            for name in ("INBOUND", "RESULTS")
        ]
        assert await topology.apply(logs.jetstream, specs, []) == []
    assert await topology.verify(logs.jetstream, log_specs(), []) == []


async def test_another_way_of_dividing_is_reported(logs: LogStreams) -> None:
    [spec, _] = log_specs()
    assert spec.subject_transform
    dest = spec.subject_transform.destination.replace("1,2,3", "3")
    other = replace(spec, subject_transform=replace(spec.subject_transform, destination=dest))
    [found] = await topology.verify(logs.jetstream, [other], [])
    assert found.startswith("stream INBOUND: subject_transform is ")


async def test_a_log_without_generation_gets_one(logs: LogStreams) -> None:
    spec = log_specs()[0]
    await logs.jetstream.request("STREAM.DELETE.INBOUND")
    await logs.jetstream.request("STREAM.CREATE.INBOUND", topology.stream_config(spec))
    assert await topology.verify(logs.jetstream, [spec], []) == [
        "stream INBOUND has no generation: run `chatlane admin apply`"
    ]
    assert await topology.apply(logs.jetstream, [spec], []) == [
        "stream INBOUND updated: generation"
    ]
    assert await topology.verify(logs.jetstream, [spec], []) == []


async def test_what_the_server_does_not_accept_is_an_error(jetstream: JetStream) -> None:
    with pytest.raises(ApiRefusedError):
        await topology.apply(jetstream, changed(StreamName.TURNS, subjects=("a b",)), [])


PREVIOUS_EVENTS = (wildcards(subjects.EVENT),)


async def test_a_router_starts_on_the_streams_of_the_previous_release(jetstream: JetStream) -> None:
    streams = changed(StreamName.EVENTS, subjects=PREVIOUS_EVENTS)
    previous = [spec for spec in streams if not spec.is_of_adapters]
    fewer = changed_durable("telegram=bot", max_ack_pending=256)
    await topology.apply(jetstream, previous, fewer)
    assert await topology.verify(jetstream, ALL, DURABLES, is_starting=True) == []
    assert len(await topology.verify(jetstream, ALL, DURABLES)) == 4
    slower = changed_durable("sales-0", ack_wait=timedelta(minutes=5))
    assert len(await topology.verify(jetstream, ALL, slower, is_starting=True)) == 1


async def test_apply_leaves_the_subjects_that_a_newer_release_has_added(
    jetstream: JetStream,
) -> None:
    await topology.apply(jetstream, ALL, DURABLES)
    older = changed(StreamName.EVENTS, subjects=PREVIOUS_EVENTS, max_age=timedelta(hours=1))
    assert await topology.apply(jetstream, older, []) == ["stream EVENTS updated: max_age"]
    assert await topology.verify(jetstream, older, []) == []
    events = await jetstream.get_stream("EVENTS")
    assert TURN_EVENTS in events.config["subjects"]


async def test_events_without_a_stream_are_known_from_its_subjects(jetstream: JetStream) -> None:
    storage = EventStorage()
    turn = subjects.turn_event("ended", LiveTurnPath("telegram", "bot", "person", uuid4()))
    await storage.look(jetstream)
    assert not storage.lacks(turn)
    await topology.apply(jetstream, changed(StreamName.EVENTS, subjects=PREVIOUS_EVENTS), [])
    await storage.look(jetstream)
    assert storage.lacks(turn)
    assert not storage.lacks(subjects.event("session", "started"))
    await topology.apply(jetstream, ALL, [])
    await storage.look(jetstream)
    assert not storage.lacks(turn)


class GoingBack(JetStream):
    """Takes the turn events from EVENTS as soon as somebody has read the stream."""

    @override
    async def find_stream(self, stream: str) -> StreamState | None:
        state = await super().find_stream(stream)
        if stream == StreamName.EVENTS and state is not None:
            older = {**state.config, "subjects": list(PREVIOUS_EVENTS)}
            await self.request(f"STREAM.UPDATE.{stream}", older)
        return state


async def test_whoever_learns_that_events_differ_gets_no_event_that_they_lack(
    logs: LogStreams,
) -> None:
    jetstream = GoingBack(logs.bus.client)
    await topology.apply(jetstream, ALL, DURABLES)
    storage = EventStorage()
    turn = subjects.turn_event("ended", LiveTurnPath("telegram", "bot", "person", uuid4()))
    for _ in range(2):
        differences = await storage.compare(jetstream, ALL, DURABLES)
        assert storage.lacks(turn) or not differences
    assert storage.lacks(turn)
