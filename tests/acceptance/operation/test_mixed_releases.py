"""Routers, workers and subscribers of two releases beside each other: an upgrade, and the way back.

The database is migrated first, one migration at a time, and keeps the schema of this release.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, LiteralString

import asyncpg
import pytest

from chatlane.postgres.migrations import known_versions
from chatlane_devkit.judge.event_log import EventLog, read_event_log
from chatlane_devkit.judge.verdict import Run, judge
from chatlane_schemas.topology.streams import StreamName
from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.servers.databases import grant_rights
from tests.support.servers.migrations import apply_each
from tests.support.service.previous_release import (
    HistoryMissingError,
    PreviousRelease,
    unpack,
)
from tests.support.service.processes import Process, apply_topology
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600), pytest.mark.slow]

PER_SECOND: Final = 40
LEASE: Final = timedelta(seconds=1)
# With kills in between, a turn may be with more than three workers.
MAX_ATTEMPTS: Final = 20
HALF: Final = ALL_PARTITIONS // 2
# Of each agent, after every step.
ANSWERS: Final = 20
# And after every migration.
ANSWERS_BETWEEN: Final = 3
# Where adapters of the previous release forward what they deliver.
FORWARDED: Final = "test.forwarded"

_STATES: Final[LiteralString] = """
SELECT state FROM deliveries WHERE message_id = ANY($1::uuid[])
"""

# What a process of a release tells of its statements; they are known by their first comment.
_STATEMENTS: Final = """
import importlib, json, pkgutil, chatlane.store as store
modules = [importlib.import_module(f"chatlane.store.{it.name}")
           for it in pkgutil.iter_modules(store.__path__)]
spaces = modules + [it for module in modules for it in vars(module).values()
                    if isinstance(it, type) and it.__module__ == module.__name__]
print(json.dumps({f"{space.__name__}.{name}": value for space in spaces
                  for name, value in vars(space).items()
                  if isinstance(value, str) and value.lstrip().startswith("-- ")}))
"""


@pytest.fixture
def previous(tmp_path: Path) -> PreviousRelease:
    """The release before ours."""
    try:
        return unpack(tmp_path / "previous")
    except HistoryMissingError as missing:
        pytest.skip(str(missing))


@dataclass(slots=True)
class Stage:
    """A scene, and the release before ours to put on it."""

    scene: Scene
    previous: PreviousRelease
    before_grants: bool = True

    async def routers(self, *names: str) -> None:
        """Start routers, of the previous release where their name says `old`."""
        service = self.scene.service
        started = [service.router(name, variables=self._router_variables(name)) for name in names]
        await service.until_started(*started)

    def workers(self, *names: str) -> None:
        """Start workers, of the previous release where their name says `old`."""
        for name in names:
            self.scene.service.worker(name, variables=self._variables(name))

    def subscribers(self, *names: str) -> None:
        """Start subscribers, of the previous release where their name says `old`."""
        for name in names:
            old = {"program": self.previous.subscriber} if name.startswith("old") else {}
            self.scene.service.subscriber(name, **old, variables=self._variables(name))

    def old_adapter(self, name: str) -> None:
        """Start an adapter of the previous release, which reports nothing."""
        self.scene.service.adapter(name, FORWARDED, self.previous.variables)

    async def apply_previous_topology(self) -> None:
        """Run `chatlane admin apply` of the previous release."""
        config = str(self.scene.service.config)
        await self.previous.run("-m", "chatlane", "admin", "apply", "--config", config)

    def _router_variables(self, name: str) -> dict[str, str]:
        """Return what a router is started with: before there are roles it is the owner."""
        owner = {"CHATLANE_POSTGRES__DSN": self.scene.service.dsn} if self.before_grants else {}
        return {**self._variables(name), **owner}

    def _variables(self, name: str) -> dict[str, str]:
        return self.previous.variables if name.startswith("old") else {}

    async def stop(self, *names: str) -> None:
        """End processes in order."""
        for name in names:
            process = self._process(name)
            await process.stop()
            assert process.exit_code == 0, name

    async def kill(self, *names: str) -> None:
        """End processes as a broken machine would."""
        for name in names:
            if event_log := self.scene.service.event_log:
                EventLog(event_log, "test").note("killed", name)
            await self._process(name).kill()

    def _process(self, name: str) -> Process:
        return self.scene.service.processes.pop(name)

    async def until_work_flows(self, *counts: int) -> None:
        """Wait until partitions are shared out so, and then for answers of every agent."""
        await self.scene.recorder.until_owned(*counts)
        await self.scene.until_answers_flow(ANSWERS)
        self.scene.require_running()


async def test_two_releases_share_the_work_on_the_way_up_and_back(
    nats_url: str,
    empty_database_url: str,
    previous: PreviousRelease,
    tmp_path: Path,
    report_line: ReportLine,
) -> None:
    async with open_scene(
        tmp_path,
        nats_url,
        empty_database_url,
        lease=LEASE,
        turn_lease=LEASE,
        max_attempts=MAX_ATTEMPTS,
        is_listening=False,
    ) as scene:
        scene.service.event_log = tmp_path / "event_log.jsonl"
        stage = Stage(scene, previous)
        async with scene.users.listening_to(FORWARDED):
            await _install(stage)
            async with scene.users.talking(PER_SECOND):
                await _upgrade(stage)
                await _deliver_with_receipts(stage)
                await _go_back(stage)
            await _verify(stage)
        report_line(f"{len(scene.users.sent)} messages, {await _answers(scene)}")


async def _install(stage: Stage) -> None:
    """Set the previous release up, by its own commands."""
    config = str(stage.scene.service.config)
    owner = {"CHATLANE_POSTGRES__DSN": stage.scene.service.dsn}
    migrating = ("-m", "chatlane", "admin", "migrate", "--config", config)
    await stage.previous.run(*migrating, variables=owner)
    await _delete_streams(stage)
    await stage.apply_previous_topology()
    assert await _schema(stage.scene) < set(known_versions())
    stage.workers("old-worker-1")
    stage.subscribers("old subscriber 1")
    stage.old_adapter("old adapter 1")
    await stage.routers("old router 1", "old router 2")


async def _upgrade(stage: Stage) -> None:
    """Migrate first, then routers and workers, then change the streams; on the way some die."""
    await stage.until_work_flows(HALF, HALF)
    await _migrate_one_by_one(stage)
    await grant_rights(stage.scene.service.dsn)
    stage.before_grants = False
    assert await _schema(stage.scene) == set(known_versions())
    await stage.stop("old router 1")
    await stage.routers("old router 3")
    await stage.until_work_flows(HALF, HALF)

    stage.workers("new-worker-1")
    stage.subscribers("new subscriber 1")
    await stage.routers("new router 1")
    await stage.kill("old router 3")
    await stage.until_work_flows(HALF, HALF)
    await stage.kill("new router 1", "new-worker-1", "new subscriber 1")
    await stage.until_work_flows(ALL_PARTITIONS)

    stage.workers("new-worker-2")
    stage.subscribers("new subscriber 2")
    await stage.routers("new router 2")
    await stage.stop("old router 2", "old subscriber 1")
    await stage.kill("old-worker-1")
    await stage.until_work_flows(ALL_PARTITIONS)
    router = stage.scene.process("new router 2")
    await router.until_logged("topology_differs", count=2)
    await apply_topology(stage.scene.service.settings)
    await router.until_logged("topology_mended", count=2)


async def _deliver_with_receipts(stage: Stage) -> None:
    """Let an adapter of this release deliver for a while, and wait until its receipts are read."""
    scene = stage.scene
    await stage.stop("old adapter 1")
    async with scene.users.listening(is_stopped=True):
        await stage.until_work_flows(ALL_PARTITIONS)
    stage.old_adapter("old adapter 2")
    delivered = {it.id for it in scene.users.received} - set(scene.users.forwarded)
    assert len(delivered) >= ANSWERS

    async def are_reported() -> bool:
        rows = await scene.recorder.fetch(_STATES, list(delivered))
        assert Counter(row[0] for row in rows) == {"delivered": len(delivered)}
        return True

    await eventually(are_reported, scene.patience)


async def _migrate_one_by_one(stage: Stage) -> None:
    """Apply what is newer, and let the previous release work on what each migration leaves."""
    scene = stage.scene
    directory = scene.service.directory / "migrations"
    directory.mkdir()
    async for _ in apply_each(scene.service.dsn, directory, await _schema(scene)):
        await scene.until_answers_flow(ANSWERS_BETWEEN)
        scene.require_running()


async def _go_back(stage: Stage) -> None:
    """Give the work back to the previous release, which keeps the new schema."""
    router = stage.scene.process("new router 2")
    told = len(router.events("topology_differs"))
    await stage.apply_previous_topology()
    # Until then it writes events that no stream of the previous release stores.
    await router.until_logged("topology_differs", count=told + 1)
    stage.workers("old-worker-2")
    stage.subscribers("old subscriber 2")
    await stage.routers("old router 3")
    await stage.until_work_flows(HALF, HALF)
    await stage.kill("new router 2")
    await stage.stop("new-worker-2", "new subscriber 2")
    await stage.until_work_flows(ALL_PARTITIONS)


async def _verify(stage: Stage) -> None:
    scene = stage.scene
    scene.recorder.unreported = scene.users.forwarded
    await scene.recorder.until_settled(scene.users)
    stored = [raw.subject async for raw in scene.recorder.stored("EVENTS")]
    assert any(subject.startswith("chat.v1.event.turn.ended.") for subject in stored)
    assert scene.service.event_log is not None
    spells = read_event_log(scene.service.event_log).spells
    found = judge(Run(replace(await scene.recorder.history(scene.users), spells=spells))).problems
    assert not found, "\n".join(found)
    assert await _answers(scene) > Counter({"old": ANSWERS, "new": ANSWERS})


async def _delete_streams(stage: Stage) -> None:
    """Undo what the scene has applied: the streams of this release."""
    jetstream = stage.scene.client.jetstream()
    for name in StreamName:
        await jetstream.delete_stream(name)


async def _schema(scene: Scene) -> set[str]:
    rows = await scene.recorder.fetch("SELECT version FROM schema_migrations")
    return {row[0] for row in rows}


async def _answers(scene: Scene) -> Counter[str]:
    """Return how many turns the workers of each release answered."""
    rows = await scene.recorder.fetch("SELECT worker FROM turns WHERE state = 'done'")
    return Counter(row[0].partition("-")[0] for row in rows)


async def test_every_statement_of_the_previous_release_fits_the_schema_of_this_one(
    database_url: str, previous: PreviousRelease
) -> None:
    statements = json.loads(await previous.run("-c", _STATEMENTS))
    assert len(statements) > 30
    connection = await asyncpg.connect(database_url)
    try:
        for name, statement in statements.items():
            try:
                await connection.prepare(statement)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{name}: {error}")
    finally:
        await connection.close()
