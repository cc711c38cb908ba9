"""The service in processes of its own, with users who write to it and a recorder that reads."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Final

from nats.aio.client import Client

from chatlane_client import open_connection
from chatlane_devkit.judge.event_log import read_event_log, read_handed
from chatlane_devkit.judge.history import History
from chatlane_devkit.judge.verdict import Run, judge
from tests.support.eventually import eventually
from tests.support.servers.nats_users import Keys
from tests.support.service.event_recorder import EventRecorder, open_event_recorder
from tests.support.service.load_users import LoadUsers, Person, people
from tests.support.service.processes import PARTITIONS, Process, Service, open_service

# Of both logs together.
ALL_PARTITIONS: Final = 2 * PARTITIONS
_ANSWERED_WITHIN: Final = timedelta(seconds=30)


@dataclass(slots=True)
class Scene:
    """Everything a test acts with.

    Attributes:
        patience: How long answers may take; more where disks or networks are slow on purpose.
    """

    service: Service
    client: Client
    users: LoadUsers
    recorder: EventRecorder
    patience: timedelta = _ANSWERED_WITHIN

    async def start(
        self,
        *,
        routers: int = 2,
        workers: int = 2,
        subscribers: int = 1,
        router_script: Path | None = None,
    ) -> None:
        """Start processes named `router 1`, `worker 1`, `subscriber 1` and so on, and wait for them."""
        names = [f"router {number}" for number in range(1, routers + 1)]
        started = [self.service.router(name, router_script) for name in names]
        for number in range(1, workers + 1):
            self.service.worker(f"worker-{number}")
        for number in range(1, subscribers + 1):
            self.service.subscriber(f"subscriber {number}")
        await self.service.until_started(*started)
        await self.recorder.until_owned(*[ALL_PARTITIONS // routers] * routers)

    def process(self, name: str) -> Process:
        """Return a process by its name."""
        return self.service.processes[name]

    async def claimed_by(self, worker: str) -> list[str]:
        """Return the turns that a worker holds."""
        query = "SELECT id::text FROM turns WHERE state = 'claimed' AND worker = $1"
        return [row[0] for row in await self.recorder.fetch(query, worker)]

    def require_running(self) -> None:
        """Fail when a process ended by itself."""
        for process in self.service.processes.values():
            process.require_running()

    async def until_answers_flow(self, count: int = 50) -> None:
        """Wait for so many more answers of each agent that somebody writes to."""
        before = self.users.heard_by_agent()
        agents = {person.agent for person in self.users.members}

        def have_come() -> bool:
            now = self.users.heard_by_agent()
            return all(now.get(its, 0) >= before.get(its, 0) + count for its in agents)

        await eventually(have_come, self.patience)

    async def until_unheard(self, count: int) -> None:
        """Wait until so many messages are without an answer."""
        await eventually(lambda: len(self.users.unheard) >= count, self.patience)

    async def until_all_is_heard(self) -> None:
        """Wait until everything that was written is answered."""

        def is_heard() -> bool:
            assert not self.users.unheard, sorted(self.users.unheard)
            return True

        await eventually(is_heard, self.patience)

    async def verify(self, *, dead: Iterable[str] = ()) -> None:
        """Wait until everything is answered, and require that nothing went wrong."""
        await self.recorder.until_settled(self.users, self.patience)
        found = judge(Run(await self.recorder.history(self.users), dead=dead)).problems
        assert not found, "\n".join(found)

    async def watched_history(self, event_log: Path) -> History:
        """Return what the recorder read and what all processes wrote to the event log."""
        said = read_event_log(event_log)
        return replace(
            await self.recorder.history(self.users),
            sent=said.sent,
            received=said.received,
            spells=said.spells,
            waits=said.waits,
            late=await self.recorder.records.late(),
            handed=read_handed(self.service.handed_over),
        )

    def recovery(self, moment: float) -> str:
        """Say how long those waited who wrote at a moment or after it."""
        return f"slowest answer {self.users.slowest_since(moment).total_seconds():.1f} s"


@asynccontextmanager
async def open_scene(
    directory: Path,
    nats_url: str,
    dsn: str,
    members: Iterable[Person] | None = None,
    *,
    keys: Keys | None = None,
    is_listening: bool = True,
    **config: Any,  # noqa: ANN401 # as `config_text` has them
) -> AsyncIterator[Scene]:
    """Set a stage without any process of the service yet.

    Args:
        directory: For configuration and logs.
        nats_url: A server without streams.
        dsn: A migrated database.
        members: Who writes; by default thirty people, half of them to each agent.
        keys: Of the users of the service, where NATS has users.
        is_listening: Whether an adapter of this process delivers from the beginning.
        config: As for `config_text`.
    """
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        service = await enter(open_service(directory, nats_url, dsn, keys=keys, **config))
        client = adapter = await enter(open_connection(nats_url, name="test"))
        if keys is not None:
            name = "adapter"
            seed = str(keys.seed_file(name))
            connecting = open_connection(nats_url, name=name, principal=name, nkey_seed_file=seed)
            adapter = await enter(connecting)
        recorder = await enter(open_event_recorder(dsn, client))
        users = LoadUsers(adapter, list(people(30) if members is None else members))
        async with users.listening() if is_listening else nullcontext():
            yield Scene(service, client, users, recorder)


def seconds_since(moment: float) -> str:
    """Return the time since a monotonic moment, for people."""
    return f"{monotonic() - moment:.1f} s"
