"""Our arithmetic gives the partition that the server gives."""

from uuid import UUID, uuid5

import nats
import pytest
from nats.js import JetStreamContext, api

from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, StreamSpec, declared_streams
from chatlane_schemas.topology.subjects import partition_of

pytestmark = pytest.mark.integration

NAMESPACE = UUID("0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01")
COUNTS = [1, 2, 7, 32]


def declared(name: StreamName, partitions: int) -> StreamSpec:
    [spec] = [spec for spec in declared_streams(partitions) if spec.name is name]
    return spec


async def add(jetstream: JetStreamContext, spec: StreamSpec) -> None:
    assert spec.subject_transform
    transform = api.SubjectTransform(
        src=spec.subject_transform.source, dest=spec.subject_transform.destination
    )
    await jetstream.add_stream(
        name=spec.name, subjects=list(spec.subjects), subject_transform=transform
    )


async def stored_subjects(
    jetstream: JetStreamContext, stream: str, published: list[str]
) -> list[str]:
    """Publish on the subjects and return what the stream calls them."""
    acknowledged = [await jetstream.publish(subject, b"{}") for subject in published]
    stored = [await jetstream.get_msg(stream, ack.seq) for ack in acknowledged]
    return [message.subject or "" for message in stored]


@pytest.mark.parametrize("partitions", COUNTS)
async def test_an_event_is_where_its_chat_is(nats_url: str, partitions: int) -> None:
    chats = [
        (platform, account, subjects.chat_token(str(number) if number else None))
        for number in range(40)
        for platform, account in (("telegram", "main_bot"), ("a", "b-c"), ("a-b", "c"))
    ]
    client = await nats.connect(nats_url)
    try:
        jetstream = client.jetstream()
        await add(jetstream, declared(StreamName.INBOUND, partitions))
        published = [subjects.inbound(*chat) for chat in chats]
        stored = await stored_subjects(jetstream, StreamName.INBOUND, published)
    finally:
        await client.close()
    expected = [(partition_of(partitions, *chat), *chat) for chat in chats]
    assert [subjects.parse_log(subject) for subject in stored] == expected
    assert len({partition for partition, *_ in expected}) == min(partitions, 32)


@pytest.mark.parametrize("partitions", COUNTS)
async def test_a_result_is_where_its_session_is(nats_url: str, partitions: int) -> None:
    sessions = [uuid5(NAMESPACE, str(number)) for number in range(100)]
    client = await nats.connect(nats_url)
    try:
        jetstream = client.jetstream()
        await add(jetstream, declared(StreamName.RESULTS, partitions))
        published = [subjects.result("main", session) for session in sessions]
        stored = await stored_subjects(jetstream, StreamName.RESULTS, published)
    finally:
        await client.close()
    expected = [(partition_of(partitions, str(session)), "main", session) for session in sessions]
    assert [subjects.parse_rlog(subject) for subject in stored] == expected
