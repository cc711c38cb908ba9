"""The recipe of docs/operations.md: backups taken while people write, restored to other moments.

What was acknowledged and is in one of the stores is neither lost nor done twice; what cannot come
back is what only the lost part of both had, and that is counted to the message.
"""

import re
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from chatlane.dev.binaries import server_directory
from chatlane.dev.servers import NatsServer, PostgresServer, open_nats, open_postgres
from chatlane.settings import load_settings
from chatlane.store.migrations import migrate
from chatlane_schemas.streams import StreamName
from tests.acceptance.conftest import Tell
from tests.support.checker import problems
from tests.support.crowd import Crowd, people
from tests.support.database_backup import dump, restore_database
from tests.support.eventually import eventually
from tests.support.history import History, Sent
from tests.support.scene import ALL_PARTITIONS, Scene, open_scene
from tests.support.service import apply_topology
from tests.support.stream_backup import Backup, back_up, restore

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

PER_SECOND: Final = 40
# Of each agent, before and after a backup.
ANSWERS: Final = 25
# What people write while no router runs.
UNREAD: Final = 30
DATABASE: Final = "chatlane"
# Shorter than the drill, so that nothing in it rests on a repeat that the server knows by chance.
WINDOW: Final = timedelta(seconds=3)
# As long as the backups are old, and longer.
WINDOW_OF_A_RESTORE: Final = timedelta(hours=1)
PATIENCE: Final = timedelta(seconds=60)
# In which order a stream agent's answers stand among what was written meanwhile is decided anew:
# its messages keep their ids and their order, and may have other numbers than they were sent with.
_OTHER_PLACE: Final = re.compile(r"misrouted: \S+ is \d+ of \S+, its row \d+$")


@dataclass(slots=True)
class Drill:
    """The service with servers of its own, and what was backed up."""

    scene: Scene
    nats: NatsServer
    postgres: PostgresServer
    directory: Path
    streams: tuple[Backup, ...] = ()

    @property
    def crowd(self) -> Crowd:
        """Who writes."""
        return self.scene.crowd

    async def start(self) -> None:
        """Start one of everything."""
        await self.scene.start(routers=1, workers=1, subscribers=1)

    async def back_up_database(self) -> None:
        """Dump it while everything runs."""
        await dump(self.postgres, self.scene.service.dsn, self.directory / "dump")

    async def back_up_streams(self) -> None:
        """Back all streams up, one after the other, those that answers go to at the end."""
        names = [name for name in StreamName if name is not StreamName.ADVISORIES]
        self.streams = tuple([await back_up(self.scene.client, name) for name in names])

    async def stop(self) -> None:
        """Stop workers first, which answer what they have, then routers; adapters stay."""
        processes = self.scene.service.processes
        for name in ("worker-1", "subscriber 1", "router 1"):
            await processes.pop(name).stop()

    async def restore_database(self) -> None:
        """Restore it, and bring it to this release."""
        self.scene.witness.close()
        dsn = self.scene.service.dsn
        await restore_database(self.postgres, dsn, self.directory / "dump")
        await migrate(dsn)

    async def restore_streams(self) -> None:
        """Restore all of them."""
        for backup in self.streams:
            await restore(self.scene.client, backup)

    async def widen_window(self) -> None:
        """Let the streams know again what they took since the backup."""
        service = self.scene.service
        text = service.config.read_text("utf-8")
        old, new = (
            f'duplicate_window = "{its.total_seconds():g}s"'
            for its in (WINDOW, WINDOW_OF_A_RESTORE)
        )
        assert old in text
        service.config.write_text(text.replace(old, new), "utf-8")
        service.settings = load_settings(service.config, {})
        await apply_topology(service.settings)
        await self.nats.stop()
        await self.nats.start()

    async def catch_up(self) -> None:
        """Start a router, and let it read what the logs have; then start the others."""
        service = self.scene.service
        router = service.router("router 1")
        await service.until_started(router)
        await self.scene.witness.until_owned(ALL_PARTITIONS, timeout=PATIENCE)

        async def is_read() -> bool:
            unread = await self.scene.witness.unread()
            assert not unread, unread
            return True

        await eventually(is_read, PATIENCE)
        service.worker("worker-1")
        service.subscriber("subscriber 1")

    async def history(self) -> History:
        """Return what there is to judge once everything is answered."""
        await self.scene.witness.until_settled(self.crowd, PATIENCE)
        self.scene.require_running()
        return await self.scene.witness.history(self.crowd)


@pytest.fixture
async def drill(tmp_path: Path) -> AsyncIterator[Drill]:
    with server_directory() as directory:
        async with (
            open_nats(directory / "nats") as nats,
            open_postgres(directory / "postgres") as postgres,
        ):
            connection = await asyncpg.connect(postgres.url)
            await connection.execute(f"CREATE DATABASE {DATABASE}")
            await connection.close()
            dsn = postgres.dsn(DATABASE)
            await migrate(dsn)
            async with open_scene(
                tmp_path, nats.url, dsn, people(12), duplicate_window=WINDOW
            ) as scene:
                yield Drill(scene, nats, postgres, tmp_path)


async def test_a_database_older_than_the_streams_decides_again_what_they_have(
    drill: Drill, tell: Tell
) -> None:
    await drill.start()
    async with drill.crowd.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
        await drill.back_up_database()
        at_backup = len(drill.crowd.sent)
        await drill.scene.until_answers_flow(ANSWERS)
        await drill.stop()
        since = len(drill.crowd.sent)
        await eventually(lambda: len(drill.crowd.sent) >= since + UNREAD, PATIENCE)
    await drill.restore_database()
    await drill.widen_window()
    answered = await _answers(drill)
    async with drill.crowd.talking(PER_SECOND):
        await drill.catch_up()
        await drill.scene.until_answers_flow(ANSWERS)
    history = await drill.history()
    found = _found(history)
    assert not found, "\n".join(found)
    assert await drill.scene.witness.late() == frozenset()
    # What had been answered was not asked again: whoever answered it then is in the database now.
    kept = {row[0] for row in await drill.scene.witness.fetch("SELECT result_id FROM turns")}
    assert answered <= kept
    recalled = len(drill.scene.process("router 1").events("claim_recalled"))
    assert recalled > 0
    tell(
        f"{since - at_backup} of {len(drill.crowd.sent)} messages decided twice, "
        f"{recalled} forgotten claims recalled, nothing lost or repeated"
    )


async def test_streams_older_than_the_database_lose_what_nobody_had_decided(
    drill: Drill, tell: Tell
) -> None:
    await drill.start()
    async with drill.crowd.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
        await drill.back_up_streams()
        await drill.scene.until_answers_flow(ANSWERS)
    await drill.history()
    decided = len(drill.crowd.sent)
    await drill.stop()
    async with drill.crowd.talking(PER_SECOND):
        await eventually(lambda: len(drill.crowd.sent) >= decided + UNREAD, PATIENCE)
    lost = _take_from(drill.crowd, decided)
    await drill.restore_streams()
    await drill.widen_window()
    await drill.catch_up()
    async with drill.crowd.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
    await drill.scene.process("router 1").until_told("log_replaced")
    history = await drill.history()
    # The end of each stream went; what had been decided before is known all the same.
    gone = {its.envelope_id for its in drill.crowd.sent} - set(history.inbound)
    assert gone <= {its.envelope_id for its in drill.crowd.sent[:decided]}
    found = _found(_whole(history, drill.crowd.sent, gone))
    assert not found, "\n".join(found)
    assert not _messages(history) & {its.message_id for its in lost}
    tell(
        f"{len(gone)} messages gone from the log and known, {len(lost)} that only its lost part "
        f"had, of {len(drill.crowd.sent) + len(lost)}"
    )


async def test_both_older_at_different_moments_lose_what_neither_has(
    drill: Drill, tell: Tell
) -> None:
    await drill.start()
    async with drill.crowd.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
        await drill.back_up_database()
        await drill.scene.until_answers_flow(ANSWERS)
    await drill.history()
    await drill.back_up_streams()
    kept = len(drill.crowd.sent)
    answered = await _answers(drill)
    async with drill.crowd.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
    await drill.history()
    await drill.stop()
    lost = _take_from(drill.crowd, kept)
    await drill.restore_database()
    await drill.restore_streams()
    await drill.widen_window()
    # Whoever remembers numbers of the lost part would take new answers for repeats.
    drill.crowd.restart_adapter()
    async with drill.crowd.listening():
        await drill.catch_up()
        async with drill.crowd.talking(PER_SECOND):
            await drill.scene.until_answers_flow(ANSWERS)
        history = await drill.history()
    texts = {its.text for its in lost}
    remembered = [its for its in history.received if not texts & set(its.heard)]
    found = _found(replace(history, received=remembered))
    assert not found, "\n".join(found)
    assert not _messages(history) & {its.message_id for its in lost}
    results = {row[0] for row in await drill.scene.witness.fetch("SELECT result_id FROM turns")}
    assert answered <= results
    tell(f"{len(lost)} of {len(drill.crowd.sent) + len(lost)} messages were in neither backup")


def _take_from(crowd: Crowd, place: int) -> list[Sent]:
    """Forget what was sent from a place on, and return it: nobody has it any more."""
    lost, crowd.sent[place:] = crowd.sent[place:], []
    known = {its.message_id for its in crowd.sent}
    # A repeat of something older is lost as an envelope only.
    gone = [its for its in lost if its.message_id not in known]
    for its in gone:
        crowd.unheard.pop(its.text, None)
    return gone


def _whole(history: History, sent: Iterable[Sent], gone: Collection[str]) -> History:
    """Return a history with the ends of the streams that were lost after they had done their work."""
    inbound = [its.envelope_id for its in sent if its.envelope_id in gone]
    seen = set(history.inbound)
    # In the order in which they were sent; the log has the others in the order of chats, too.
    whole = [its.envelope_id for its in sent if its.envelope_id in seen or its.envelope_id in gone]
    assert len(inbound) == len(gone)
    return replace(history, inbound=whole, routed=(), outbound=(), results=(), started=())


def _found(history: History) -> list[str]:
    return [line for line in problems(history) if not _is_expected(line, history)]


def _is_expected(line: str, history: History) -> bool:
    if not history.routed and "was never published to its agent" in line:
        return True
    return _OTHER_PLACE.fullmatch(line) is not None


def _messages(history: History) -> set[str]:
    return {row.message_id for row in history.rows}


async def _answers(drill: Drill) -> set[str]:
    """Return the ids of the results of turns in their log."""
    history = await drill.scene.witness.history(drill.crowd)
    return {its.id for its in history.results}
