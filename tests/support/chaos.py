"""A supervisor: the whole service, people who write to it, and a nemesis; then the verdict.

Embedded servers, for nobody else's can be killed and frozen.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import asyncpg

from chatlane_devkit.dialogue import dialogue_config
from chatlane_devkit.dialogue.people import KINDS, DialoguePeople
from chatlane_devkit.dialogue.record import dialogue_of, parted
from chatlane_devkit.judge.event_log import EventLog
from chatlane_devkit.judge.history import History, LogEntry
from chatlane_devkit.judge.verdict import LONGEST_WAIT, Run, judge, unwatched
from chatlane_servers.embedded import EmbeddedServer, open_nats, open_postgres
from tests.support.dialogue.processes import (
    open_dialogue_people,
    platform_log_of,
    start_dialogues,
)
from tests.support.eventually import eventually
from tests.support.nemesis import CRASH_POINT, POINTS, WEIGHTS, Nemesis, Point
from tests.support.servers.databases import migrated, open_database
from tests.support.servers.lossy_link import LossyLink, through
from tests.support.servers.nats_users import with_keys
from tests.support.service.load_users import LoadUsers, people
from tests.support.service.processes import DUPLICATE_WINDOW, USERS
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene

LEASE: Final = timedelta(seconds=1)
TURN_LEASE: Final = timedelta(seconds=1)
# A turn may be with one worker after another that is killed.
MAX_ATTEMPTS: Final = 20
_MOST_SHOWN: Final = 40
# A process that is to end at a point may take a while to get there and end after it.
_PATIENCE_OF_ALL: Final = LONGEST_WAIT / 3


Script = Callable[["Stage"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Plan:
    """A run, up to the chances of the machine.

    Attributes:
        messages: At least so many are written, repeats included.
        faults: At least so many are made; people write until then.
        per_second: By all people together, whether they are answered or not, up to
            `most_unheard` messages without an answer.
        pause: Between two faults, on average.
        messages_per_fault: So many are written for each fault, on a machine that is too slow for
            `per_second`, too.
        patience: How long the messages may take to be written.
        weights: How likely each kind of fault is; what is missing never happens.
        points: Where processes end themselves.
        think: How long a turn takes.
        slots: Turns that a worker takes at once.
        repeated: One message in so many is sent twice; 0 for none.
        settled_within: How long answers may take after the last fault.
        longest_wait: More is found to be a stall.
        router: A program in place of ours, with `variables` in its environment.
        of_first: More variables of the first router only.
        script: What happens instead of chance.
        talkers: People who are asked, get drafts and long answers, and are sent to; 0 for none.
        kinds: What they write, and how often.
        typescript: The built TypeScript client, for the second of the two workers.
    """

    seed: int
    messages: int
    per_second: float
    pause: timedelta
    faults: int = 0
    messages_per_fault: int = 0
    patience: timedelta = timedelta(minutes=5)
    people: int = 60
    most_unheard: int = 2_000
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    points: Sequence[Point] = POINTS
    repeated: int = 20
    think: timedelta = timedelta(milliseconds=20)
    slots: int = 8
    duplicate_window: timedelta = DUPLICATE_WINDOW
    settled_within: timedelta = timedelta(seconds=60)
    longest_wait: timedelta = LONGEST_WAIT
    router: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    of_first: Mapping[str, str] = field(default_factory=dict)
    script: Script | None = None
    talkers: int = 12
    kinds: Mapping[str, int] = field(default_factory=lambda: KINDS)
    typescript: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    Attributes:
        faults: How many of each kind; crash points that were reached are counted beside them.
        ended: Processes that ended by themselves, and their exit codes.
        slowest: The longest wait for an answer, in seconds.
        held_back: For how many seconds people could not write, because too much was unanswered.
    """

    sent: int
    faults: Counter[str]
    ended: tuple[tuple[str, int | None], ...]
    slowest: float
    settled_after: float
    held_back: float
    problems: tuple[str, ...]

    @property
    def fault_count(self) -> int:
        """How many faults were made."""
        return self.faults.total() - self.faults[CRASH_POINT]

    def summary(self) -> str:
        """Return the figures in one line."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.sent} messages, {self.fault_count} faults ({kinds}), "
            f"{len(self.ended)} ended by themselves, slowest answer {self.slowest:.1f} s, "
            f"settled after {self.settled_after:.1f} s, held back for {self.held_back:.1f} s, "
            f"{len(self.problems)} problems"
        )

    def report(self, plan: Plan) -> str:
        """Return the figures, what is wrong, and how to see it again."""
        return "\n".join([f"seed {plan.seed}: {self.summary()}", *self.problems[:_MOST_SHOWN]])


@dataclass(frozen=True, slots=True)
class Stage:
    """A scene, and what of it can be broken.

    Attributes:
        earlier: Entries of INBOUND from before a script created it again.
        talkers: People who do more than ask; None if there are none.
    """

    scene: Scene
    servers: Mapping[str, EmbeddedServer]
    links: Mapping[str, LossyLink]
    earlier: list[LogEntry]
    talkers: DialoguePeople | None

    async def start(self, plan: "Plan") -> None:
        """Start two of everything; one of each reaches its servers over links."""
        service = self.scene.service
        nats = self.links["nats link"].url
        dsn = through(service.router_dsn, self.links["postgres link"].port)
        linked: dict[str, str] = {"CHATLANE_NATS__URL": nats, "CHATLANE_POSTGRES__DSN": dsn}
        routers = [
            service.router(
                "router 1", plan.router, variables={**linked, **plan.variables, **plan.of_first}
            ),
            service.router("router 2", plan.router, variables=plan.variables),
        ]
        service.worker(
            "worker-1", think=plan.think, slots=plan.slots, variables={"CHATLANE_NATS__URL": nats}
        )
        if plan.typescript is None:
            service.worker("worker-2", think=plan.think, slots=plan.slots)
        else:
            service.typescript_worker(
                "worker-2", plan.typescript, think=plan.think, slots=plan.slots
            )
        service.subscriber("subscriber 1")
        service.subscriber("subscriber 2")
        if self.talkers is not None:
            start_dialogues(service)
        await service.until_started(*routers)
        await self.scene.recorder.until_owned(*[ALL_PARTITIONS // 2] * 2)

    @asynccontextmanager
    async def dialogues(self) -> AsyncIterator[None]:
        """Let the talkers talk during the block, if there are any."""
        if self.talkers is None:
            yield
        else:
            async with self.talkers.talking():
                yield

    async def history(self, event_log: Path) -> History:
        """Return everything there is to judge."""
        history = await self.scene.watched_history(event_log)
        others, of_dialogues = parted(history)
        if self.talkers is None:
            return others
        dialogue = await dialogue_of(
            self.scene.recorder.records,
            of_dialogues,
            self.talkers.chats,
            event_log=event_log,
            platform_log=platform_log_of(self.scene.service),
        )
        return replace(others, dialogue=dialogue)


async def _notice_deadlocks(dsn: str, database: str) -> None:
    """Let Postgres look for deadlocks before a lock timeout ends them unseen."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"ALTER DATABASE {database} SET deadlock_timeout = '50ms'")
    finally:
        await connection.close()


@asynccontextmanager
async def _open_stage(directory: Path, plan: Plan) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        keys, config = with_keys(directory / "keys", {**USERS, **dialogue_config.USERS})
        nats = await enter(open_nats(directory / "nats", extra_config=config))
        # The log names the statements of a deadlock. What people say here was invented.
        names = {"log_error_verbosity": "default"}
        postgres = await enter(open_postgres(directory / "postgres", settings=names))
        name = await enter(open_database(postgres.url))
        dsn = postgres.dsn(name)
        await migrated(dsn)
        await _notice_deadlocks(dsn, name)
        links = {
            "nats link": await enter(LossyLink(nats.url).open()),
            "postgres link": await enter(LossyLink(postgres.url).open()),
        }
        scene = await enter(
            open_scene(
                directory,
                nats.url,
                dsn,
                people(plan.people),
                keys=keys,
                lease=LEASE,
                turn_lease=TURN_LEASE,
                max_attempts=MAX_ATTEMPTS,
                duplicate_window=plan.duplicate_window,
                more=dialogue_config.config(MAX_ATTEMPTS),
            )
        )
        scene.service.event_log = directory / "event_log.jsonl"
        talkers = await enter(open_dialogue_people(scene.service, plan.talkers, plan.kinds))
        yield Stage(scene, {"nats": nats, "postgres": postgres}, links, [], talkers)


async def run_chaos(directory: Path, plan: Plan) -> Outcome:
    """Let people write and things break, wait until all is quiet, and judge.

    Args:
        directory: Empty; for servers, logs and the event log.
        plan: What to do.
    """
    path = directory / "event_log.jsonl"
    async with _open_stage(directory, plan) as stage:
        scene = stage.scene
        scene.users.event_log = EventLog(path, "users")
        scene.users.repeated = plan.repeated
        scene.users.most_unheard = plan.most_unheard
        await stage.start(plan)
        nemesis = Nemesis(
            scene.service.processes,
            stage.servers,
            stage.links,
            Random(plan.seed),  # noqa: S311 - the same every time
            EventLog(path, "nemesis"),
            plan.weights,
            plan.points,
        )
        nemesis.has_mercy = lambda: _have_enough(scene.users, nemesis, plan)
        scene.users.chance = Random(plan.seed)  # noqa: S311 - the same every time
        if plan.script:
            stuck = await _play(plan.script, stage)
        else:
            stuck = await _trouble(stage, nemesis, plan)
        outcome = await _judge(stage, nemesis, path, plan)
        return replace(outcome, problems=(*stuck, *outcome.problems))


def _have_enough(users: LoadUsers, nemesis: Nemesis, plan: Plan) -> bool:
    """Return whether a slow machine has so much to make up for that nothing more may be broken.

    Most of what counts as a stall is left for it; what does not come by then is found all the same.
    """
    is_early = nemesis.fault_count * plan.messages_per_fault > len(users.sent)
    return is_early or users.longest_wait > _PATIENCE_OF_ALL


async def _play(script: Script, stage: Stage) -> list[str]:
    """Do what a script says; where the service does not get on, that is found, and it ends there."""
    try:
        async with stage.dialogues():
            await script(stage)
    except (AssertionError, TimeoutError) as error:
        return [f"never went on: {error}"]
    return []


async def _trouble(stage: Stage, nemesis: Nemesis, plan: Plan) -> list[str]:
    try:
        async with stage.dialogues():
            await _break(stage.scene, nemesis, plan)
    except (AssertionError, TimeoutError) as error:
        return [f"never went on: {error}"]
    return []


async def _break(scene: Scene, nemesis: Nemesis, plan: Plan) -> None:
    breaking = asyncio.create_task(nemesis.run(plan.pause))
    try:
        async with scene.users.talking(plan.per_second):
            await eventually(
                lambda: (
                    len(scene.users.sent) >= plan.messages and nemesis.fault_count >= plan.faults
                ),
                plan.patience,
            )
    finally:
        nemesis.stop()
        await breaking


async def _judge(stage: Stage, nemesis: Nemesis, path: Path, plan: Plan) -> Outcome:
    """Ask the event log, the streams and the database, and nobody else."""
    begin, scene = monotonic(), stage.scene
    try:
        await scene.recorder.until_settled(scene.users, plan.settled_within)
        found = []
    except AssertionError as error:
        found = [f"never settled: {error}"]
    settled_after = monotonic() - begin
    unread = await scene.recorder.until_read()
    history = await stage.history(path)
    history = replace(
        history,
        log=[*stage.earlier, *history.log],
        left_over={**history.left_over, "partitions that are not read": unread},
    )
    return Outcome(
        sent=len(history.sent),
        faults=nemesis.made,
        ended=tuple(nemesis.ended),
        slowest=max((wait.seconds for wait in history.waits), default=0.0),
        settled_after=settled_after,
        held_back=scene.users.held_back.total_seconds(),
        problems=(
            *found,
            *unwatched(history),
            *(f"ended: {name} ended by itself, exit code {code}" for name, code in nemesis.ended),
            *judge(Run(history, longest_wait=plan.longest_wait)).problems,
        ),
    )
