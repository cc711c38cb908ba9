"""Logs that are not what they were: made anew, restored from a copy, cut off."""

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane_devkit.judge.history import LogEntry
from chatlane_devkit.judge.verdict import Run, judge
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import NatsServer, open_nats
from tests.support.backups.stream_backup import back_up, restore
from tests.support.eventually import eventually
from tests.support.service.load_users import people
from tests.support.service.processes import apply_topology
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene

pytestmark = pytest.mark.acceptance

MESSAGES = 4


@pytest.fixture
async def embedded_nats() -> AsyncIterator[NatsServer]:
    """A server whose files the test can reach."""
    with server_directory() as directory:
        async with open_nats(directory / "nats") as server:
            yield server


async def test_a_log_that_is_made_anew_is_read_from_its_beginning(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, people(6)) as scene:
        await scene.start(routers=1, workers=1, subscribers=1)
        await _everybody_writes(scene)
        await scene.verify()
        said = list(scene.users.sent)
        for name in ("INBOUND", "RESULTS"):
            await scene.client.jetstream().delete_stream(name)
        await apply_topology(scene.service.settings)
        # What the log must hold is what was acknowledged since.
        scene.users.sent.clear()
        for person in scene.users.members:
            for one in (its for its in said if its.key == person.key):
                await scene.users.repeat(person, one)
        await _everybody_writes(scene)
        await scene.verify()
        await scene.process("router 1").until_logged("log_replaced")


async def test_a_server_restored_from_a_copy_repeats_nothing(
    embedded_nats: NatsServer, database_url: str, tmp_path: Path
) -> None:
    async with open_scene(tmp_path, embedded_nats.url, database_url, people(6)) as scene:
        await scene.start(routers=1, workers=1, subscribers=1)
        await _everybody_writes(scene)
        await scene.recorder.until_settled(scene.users)
        store, copy = embedded_nats.directory / "store", tmp_path / "copy"
        await embedded_nats.stop()
        shutil.copytree(store, copy)
        await embedded_nats.start()
        await _everybody_writes(scene)
        await scene.verify()
        said = list(scene.users.sent)
        await embedded_nats.kill()
        shutil.rmtree(store)
        shutil.copytree(copy, store)
        await embedded_nats.start()
        await _everybody_writes(scene)
        await scene.recorder.until_settled(scene.users)
        await scene.process("router 1").until_logged("log_replaced")
        history = await scene.recorder.history(scene.users)
        # The end of every stream went with the old disk.
        kept = [its for its in scene.users.sent if its.envelope_id in history.stored_ids]
        lost = [its for its in scene.users.sent if its not in kept]
        assert lost == said[len(said) // 2 :]
        log = [*history.log, *(LogEntry(its.envelope_id) for its in lost)]
        found = judge(Run(replace(history, log=log, routed=(), outbound=()))).problems
        assert [line for line in found if not _tells_of_a_lost_stream(line)] == []


@pytest.mark.parametrize(
    "streams",
    [
        pytest.param(("INBOUND", "RESULTS"), marks=pytest.mark.long),
        ("INBOUND", "ROUTED", "TURNS", "RESULTS", "OUTBOUND"),
    ],
)
async def test_streams_restored_from_backups_under_a_router_repeat_nothing(
    nats_url: str, database_url: str, tmp_path: Path, streams: tuple[str, ...]
) -> None:
    """Restored streams have the age of the ones they were made of: only their ends give them away."""
    async with open_scene(tmp_path, nats_url, database_url, people(6)) as scene:
        await scene.start(routers=1, workers=1, subscribers=1)
        await _everybody_writes(scene)
        await scene.recorder.until_settled(scene.users)
        backups = [await back_up(scene.client, stream) for stream in streams]
        await _everybody_writes(scene)
        await scene.verify()
        said = list(scene.users.sent)
        for backup in backups:
            await restore(scene.client, backup)
        await _everybody_writes(scene)
        # Some platforms send again what the log has lost; it is known.
        for one in said[len(said) // 2 :]:
            person = next(its for its in scene.users.members if its.key == one.key)
            await scene.users.repeat(person, one)
        await scene.recorder.until_settled(scene.users)
        await scene.process("router 1").until_logged("log_replaced")
        history = await scene.recorder.history(scene.users)
        # The end of every restored stream is gone, and was dealt with before.
        gone = [its.envelope_id for its in said[len(said) // 2 :]]
        assert not set(gone) & set(history.stored_ids)
        log = [*history.log, *map(LogEntry, gone)]
        found = judge(Run(replace(history, log=log, routed=(), outbound=()))).problems
        assert [line for line in found if not _tells_of_a_lost_stream(line)] == []
        scene.require_running()


def _tells_of_a_lost_stream(line: str) -> bool:
    return "was never published to its agent" in line or "the log has the messages" in line


async def test_a_log_that_was_cut_off_is_told_and_passed_over(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, people(6)) as scene:
        await scene.start(routers=1, workers=1, subscribers=1)
        await _everybody_writes(scene)
        await scene.verify()
        await scene.process("router 1").stop()
        await _everybody_writes(scene)
        await scene.client.jetstream().purge_stream("INBOUND")
        scene.users.unheard.clear()
        scene.process("router 1").start()
        await scene.recorder.until_owned(ALL_PARTITIONS)

        async def is_told() -> bool:
            return set(await scene.recorder.dead()) == {"log_truncated"}

        await eventually(is_told, timedelta(seconds=20))
        for person in scene.users.members:
            await scene.users.say(person)
        await scene.until_all_is_heard()
        dead = await scene.recorder.fetch(
            "SELECT log, partition, sequence, detail FROM dead_letters ORDER BY partition"
        )
        assert {row[0] for row in dead} == {"inbound"}
        assert len({row[1] for row in dead}) == len(dead)
        assert all(row[3].startswith(f"sequences {row[2]} to ") for row in dead)

        async def are_told() -> bool:
            return len(await scene.recorder.stream("DEAD")) == len(dead)

        await eventually(are_told)
        scene.require_running()


async def _everybody_writes(scene: Scene) -> None:
    for _ in range(MESSAGES):
        for person in scene.users.members:
            await scene.users.say(person)
