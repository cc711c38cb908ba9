"""Many at once: first messages of new conversations, and turns that take longer than an ack."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from nats.aio.client import Client

from chatlane_client import open_connection
from chatlane_schemas import Chat, InboundEvent, Sender, encode
from chatlane_schemas.topology import subjects
from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.service.load_users import Person, people
from tests.support.service.processes import ACCOUNT, PLATFORM, TURN_AGENT
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene

pytestmark = pytest.mark.acceptance

ITEMS: Final = 200
ACK_WAIT: Final = timedelta(seconds=1)
LONGER: Final = 1.5 * ACK_WAIT
SLOTS: Final = 25

THREADS: Final = range(501, 1002)
GROUPS: Final = 8
TOGETHER: Final = timedelta(seconds=30)


async def test_c28_items_that_wait_in_a_client_are_not_given_to_another(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    members = people(ITEMS, [TURN_AGENT])
    async with open_scene(tmp_path, nats_url, database_url, members) as scene:
        await scene.start(routers=1, workers=0, subscribers=0)
        await _shorten_the_ack_wait(scene.client)
        for name in ("worker-1", "worker-2"):
            scene.service.worker(name, think=LONGER, slots=SLOTS)
        await asyncio.gather(*(scene.users.say(person) for person in members))
        await scene.verify()
        turns = await scene.recorder.fetch("SELECT attempt, worker FROM turns")
        assert Counter(turn[0] for turn in turns) == {1: ITEMS}
        shares = Counter(turn[1] for turn in turns)
        assert shares.keys() == {"worker-1", "worker-2"}
        report_line(f"{ITEMS} turns of {LONGER} each: {dict(shares)}")


async def _shorten_the_ack_wait(client: Client) -> None:
    jetstream = client.jetstream()
    config = (await jetstream.consumer_info("TURNS", TURN_AGENT)).config
    config.ack_wait = ACK_WAIT.total_seconds()
    await jetstream.add_consumer("TURNS", config)


async def test_c29_first_messages_at_the_same_instant_open_one_session(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with (
        open_scene(tmp_path, nats_url, database_url, []) as scene,
        open_connection(nats_url, name="second adapter") as other,
    ):
        await scene.start(routers=2, workers=0, subscribers=0)
        said = Counter({_key(thread): scene.users.chance.randint(2, 8) for thread in THREADS})
        publishing = asyncio.create_task(_say_at_once(said, [scene.client, other]))
        # Partitions change hands twice while the conversations begin.
        await scene.process("router 2").stop()
        scene.process("router 2").start()
        await publishing
        await scene.recorder.until_owned(ALL_PARTITIONS // 2, ALL_PARTITIONS // 2)
        assert await _until_waiting(scene, said.total()) == said
        keys = [row[0] for row in await scene.recorder.fetch("SELECT session_key FROM sessions")]
        assert sorted(keys) == sorted(said)
        assert await scene.recorder.value("SELECT count(*) FROM turns") == len(THREADS)
        assert await scene.recorder.dead() == {}


def _group(thread: int) -> str:
    return str(-90 - thread % GROUPS)


def _key(thread: int) -> str:
    group = _group(thread)
    return f"agent:{TURN_AGENT}:{PLATFORM}:{ACCOUNT}:group:{group}:thread={thread}"


async def _say_at_once(said: Counter[str], clients: list[Client]) -> None:
    """Publish all first messages of a thread together, over several connections."""
    await asyncio.gather(
        *(
            _publish(clients[number % len(clients)], _event(thread, number))
            for thread in THREADS
            for number in range(said[_key(thread)])
        )
    )


def _event(thread: int, number: int) -> InboundEvent:
    person = Person(f"{thread}-{number}")
    group = Chat(id=_group(thread), kind="group")
    return person.event("first", person.name).model_copy(
        update={"chat": group, "thread_id": str(thread), "sender": Sender(id=str(number))}
    )


async def _publish(client: Client, event: InboundEvent) -> None:
    subject, headers = subjects.inbound_for(event), {"Nats-Msg-Id": event.id}
    await client.jetstream().publish(
        subject, encode(event), headers=headers, timeout=TOGETHER.total_seconds()
    )


async def _until_waiting(scene: Scene, count: int) -> Counter[str]:
    """Wait until so many messages wait; return how many of each conversation do."""

    async def waiting() -> Counter[str]:
        rows = await scene.recorder.fetch(
            "SELECT sessions.session_key, count(*) FROM waiting"
            " JOIN sessions ON sessions.id = session_id GROUP BY sessions.session_key"
        )
        found = Counter(dict(map(tuple, rows)))
        assert found.total() >= count, found.total()
        return found

    return await eventually(waiting, TOGETHER)
