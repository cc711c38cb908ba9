"""The service as it runs in production: every part a process of its own, on real servers."""

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from string import Template
from typing import Any, Final

from typing_extensions import override

from chatlane.config.settings import Settings, load_settings
from chatlane.connections import declared_topology
from chatlane.failpoints import CRASH_VARIABLE, FREEZE_VARIABLE
from chatlane.nats.jetstream import JetStream
from chatlane.nats.topology import apply
from chatlane_client import open_connection
from chatlane_servers.programs import LogTail, Program
from tests.support.eventually import eventually
from tests.support.servers.databases import login_of
from tests.support.servers.nats_users import Keys
from tests.support.service.forked_process import ForkedProcess

PLATFORM: Final = "test"
ACCOUNT: Final = "bot"
TURN_AGENT: Final = "main"
STREAM_AGENT: Final = "desk"
PARTITIONS: Final = 16
SLOTS: Final = 4
ROUTER_LEASE: Final = timedelta(seconds=3)
TURN_LEASE: Final = timedelta(seconds=2)
STREAM_ACK_WAIT: Final = timedelta(seconds=3)
DUPLICATE_WINDOW: Final = timedelta(minutes=10)

# Who connects to NATS, where it has users: see `user_nats`.
USERS: Final[Mapping[str, Mapping[str, object]]] = {
    "router": {"role": "router"},
    "worker": {"role": "worker", "agent": TURN_AGENT},
    "subscriber": {
        "role": "worker",
        "agent": STREAM_AGENT,
        "delivery": "stream",
        "slots": SLOTS,
    },
    "adapter": {"role": "adapter", "account": f"{PLATFORM}/{ACCOUNT}"},
}

_STARTED_WITHIN: Final = timedelta(seconds=90)
_ROOT: Final = Path(__file__).parents[3]
_SUBSCRIBER: Final = _ROOT / "examples" / "subscriber.py"
_WATCHED: Final = Path(__file__).with_name("watched_subscriber.py")
_WORKER: Final = Path(__file__).with_name("watched_worker.py")
_TYPESCRIPT_WORKER: Final = Path(__file__).with_name("watched_worker.mjs")
_NODE: Final = Path(__file__).with_name("node_program.py")
_ADAPTER: Final = Path(__file__).with_name("forwarding_adapter.py")

_CONFIG: Final = Template("""
[nats]
url = "$nats_url"
publish_timeout = "$publish_timeout"

[postgres]
dsn = "$dsn"
statement_timeout = "$statement_timeout"
lock_timeout = "$lock_timeout"

[router]
partitions = $partitions
slots = $slots
lease = "$lease"
renew_interval = "$renew_interval"
$router

[streams]
replicas = $replicas
duplicate_window = "$duplicate_window"

[streams.max_bytes]
inbound = "64MiB"
routed = "64MiB"
turns = "64MiB"
results = "64MiB"
outbound = "64MiB"
events = "64MiB"
dead = "64MiB"
advisories = "16MiB"

[http]
port = 0

[log]
format = "json"

[agents.$turn_agent]
lease = "$turn_lease"
max_attempts = $max_attempts

[agents.$stream_agent]
delivery = "stream"
ack_wait = "$stream_ack_wait"

[profiles.$stream_agent]

[platforms.$platform.accounts.$account]
profiles = ["default", "$stream_agent"]
$more
""")


def config_text(
    nats_url: str,
    dsn: str,
    *,
    lease: timedelta = ROUTER_LEASE,
    turn_lease: timedelta = TURN_LEASE,
    max_attempts: int = 3,
    duplicate_window: timedelta = DUPLICATE_WINDOW,
    partitions: int = PARTITIONS,
    replicas: int = 1,
    router: str = "",
    more: str = "",
) -> str:
    """Return a `chatlane.toml` with two agents and an account that may speak to both."""
    milliseconds = round(lease.total_seconds() * 1000)
    return _CONFIG.substitute(
        nats_url=nats_url,
        dsn=dsn,
        statement_timeout=f"{milliseconds * 9 // 20}ms",
        lock_timeout=f"{milliseconds * 3 // 10}ms",
        partitions=partitions,
        replicas=replicas,
        slots=SLOTS,
        lease=f"{milliseconds}ms",
        renew_interval=f"{milliseconds // 3}ms",
        router=router,
        turn_agent=TURN_AGENT,
        turn_lease=f"{turn_lease.total_seconds():g}s",
        max_attempts=max_attempts,
        duplicate_window=f"{duplicate_window.total_seconds():g}s",
        publish_timeout=f"{min(2.0, duplicate_window.total_seconds() / 5):g}s",
        stream_agent=STREAM_AGENT,
        stream_ack_wait=f"{STREAM_ACK_WAIT.total_seconds():g}s",
        platform=PLATFORM,
        account=ACCOUNT,
        more=more,
    )


class Process(Program):
    """A program whose log can be asked for what happened.

    Attributes:
        is_forked: Whether its next life is a copy of a process that has imported everything.
    """

    is_forked = False

    def __init__(self, name: str, arguments: list[str], directory: Path, **variables: str) -> None:
        super().__init__(name, arguments, directory, variables)
        self.told: list[dict[str, Any]] = []
        self._tail = LogTail(self.log_path)

    @override
    def start(self) -> None:
        if not self.is_forked:
            super().start()
        elif not self.is_running:
            self._process = ForkedProcess(
                self._arguments[1:], log_path=self.log_path, environment=self._environment
            )

    def start_with_failpoint(self, crash_at: str) -> None:
        """Start the process once with a failpoint; later starts have none."""
        plain = self._environment
        self._environment = {**plain, CRASH_VARIABLE: crash_at}
        self.start()
        self._environment = plain

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal, or None while it runs."""
        return self._process.exit_code if self._process else None

    async def wait(self, timeout: timedelta) -> None:  # noqa: ASYNC109 # a deadline per call
        """Return when it has ended.

        Raises:
            TimeoutError: It still runs.
        """
        if self._process:
            await self._process.wait(timeout)

    @property
    def is_frozen(self) -> bool:
        """Whether it is stopped, by itself or by us."""
        if self.pid is None:
            return False
        status = Path(f"/proc/{self.pid}/stat").read_text("ascii")
        return status.rpartition(")")[2].split()[0] == "T"

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send(signal_number)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return what it logged under this name, in all its lives."""
        lines = [line for line in self._tail.new_lines() if line.startswith("{")]
        self.told += [json.loads(line) for line in lines]
        return [told for told in self.told if told.get("event") == name]

    async def until_logged(self, name: str, count: int = 1) -> dict[str, Any]:
        """Wait until it has logged something so often; return what it logged last."""

        def has_told() -> list[dict[str, Any]]:
            told = self.events(name)
            if len(told) < count:
                self.require_running()
            return told[count - 1 :]

        return (await eventually(has_told, _STARTED_WITHIN))[-1]


@dataclass(slots=True)
class Service:
    """All processes on one pair of servers.

    Attributes:
        directory: Holds configuration and logs.
        dsn: Of the owner of the database, as whom tests look and meddle.
        router_dsn: As whom the processes connect: with the rights of their role.
        processes: By name.
        event_log: Where workers tell of their turns, if anywhere.
        forks: Whether processes are copies of one that has imported everything, and so start at once;
            those of another release, and routers with parts of their own, never are.
        keys: Of `USERS`; None where NATS has no users.
    """

    directory: Path
    nats_url: str
    dsn: str
    router_dsn: str
    config: Path
    settings: Settings
    processes: dict[str, Process] = field(default_factory=dict)
    event_log: Path | None = None
    forks: bool = True
    keys: Keys | None = None

    @property
    def handed_over(self) -> Path:
        """What the subscribers noted."""
        return self.directory / "handed-over.jsonl"

    def router(
        self,
        name: str,
        script: Path | None = None,
        *,
        crash_at: str = "",
        freeze_at: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a router; `script` takes the place of `-m chatlane`.

        It may replace parts before others import them, so it is no copy.
        """
        program = [str(script)] if script else ["-m", "chatlane"]
        arguments = [*program, "router", "--config", str(self.config), *_failpoints(variables)]
        its = {**self._as("router"), **(variables or {}), **_failpoint(crash_at, freeze_at)}
        return self._start(name, arguments, its, forks=script is None)

    def worker(
        self,
        name: str,
        *,
        think: timedelta = timedelta(milliseconds=20),
        slots: int = 8,
        crash_at: str = "",
        freeze_at: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a worker of the turn agent; with an event log it records its turns."""
        watched = (
            [str(_WORKER), str(self.event_log), name] if self.event_log else ["-m", "chatlane"]
        )
        arguments = [*watched, "echo-worker", "--config", str(self.config), *_failpoints(variables)]
        arguments += ["--agent", TURN_AGENT, "--name", name, "--slots", str(slots)]
        arguments += ["--think", f"{think.total_seconds():g}s"]
        its = {**self._as("worker"), **(variables or {}), **_failpoint(crash_at, freeze_at)}
        return self._start(name, arguments, its)

    def subscriber(
        self,
        name: str,
        program: Path = _SUBSCRIBER,
        *,
        variables: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a copy of examples/subscriber.py that notes what it is given and acknowledges."""
        return self._start(
            name,
            [str(_WATCHED), str(program), str(self.handed_over)],
            {
                "NATS_URL": self.nats_url,
                **self._as_subscriber(),
                **(variables or {}),
                "AGENT": STREAM_AGENT,
                "SLOTS": str(SLOTS),
            },
        )

    def typescript_worker(
        self, name: str, package: Path, *, think: timedelta, slots: int
    ) -> Process:
        """Start a worker of the turn agent on the built TypeScript client; it records its turns."""
        assert self.keys is not None
        its = {"NATS_URL": self.nats_url, "PRINCIPAL": "worker", "PATH": os.environ["PATH"]}
        its["NKEY_SEED_FILE"] = str(self.keys.seed_file("worker"))
        milliseconds = str(round(think.total_seconds() * 1000))
        arguments = [str(_NODE), str(_TYPESCRIPT_WORKER), str(package), str(self.event_log), name]
        arguments += [TURN_AGENT, str(slots), milliseconds]
        return self._start(name, arguments, its, forks=False)

    def program(self, name: str, script: Path, *arguments: str, user: str) -> Process:
        """Start a program of a test as one of the users of NATS."""
        assert self.keys is not None
        its = {
            "NATS_URL": self.nats_url,
            "NKEY_SEED_FILE": str(self.keys.seed_file(user)),
            "PRINCIPAL": user,
        }
        return self._start(name, [str(script), *arguments], its)

    def adapter(self, name: str, subject: str, variables: Mapping[str, str]) -> Process:
        """Start an adapter that forwards what it delivers to a subject of NATS."""
        arguments = [str(_ADAPTER), self.nats_url, PLATFORM, ACCOUNT, subject]
        return self._start(name, arguments, variables)

    def _as(self, user: str) -> dict[str, str]:
        return {} if self.keys is None else self.keys.environment(user)

    def _as_subscriber(self) -> dict[str, str]:
        if self.keys is None:
            return {}
        name = "subscriber"
        return {"NKEY_SEED_FILE": str(self.keys.seed_file(name)), "PRINCIPAL": name}

    def _start(
        self, name: str, arguments: list[str], variables: Mapping[str, str], *, forks: bool = True
    ) -> Process:
        other_release = variables.get("PYTHONPATH")
        paths = [other_release, str(_ROOT), os.environ.get("PYTHONPATH")]
        path = os.pathsep.join(filter(None, paths))
        process = Process(name, arguments, self.directory, **{**variables, "PYTHONPATH": path})
        process.is_forked = self.forks and forks and not other_release
        self.processes[name] = process
        process.start()
        return process

    async def until_started(self, *routers: Process) -> None:
        """Wait until routers route."""
        for router in routers:
            await router.until_logged("router_started")

    async def stop(self) -> None:
        """End everything at once; what is tested is over."""
        for process in self.processes.values():
            await process.kill()


def _failpoint(crash_at: str, freeze_at: str) -> dict[str, str]:
    values = {CRASH_VARIABLE: crash_at, FREEZE_VARIABLE: freeze_at}
    return {name: value for name, value in values.items() if value}


def _failpoints(variables: Mapping[str, str] | None) -> list[str]:
    """Return the option that allows failpoints; the previous release does not know it."""
    is_other_release = variables is not None and "PYTHONPATH" in variables
    return [] if is_other_release else ["--enable-failpoints"]


@asynccontextmanager
async def open_service(
    directory: Path,
    nats_url: str,
    dsn: str,
    *,
    keys: Keys | None = None,
    **config: Any,  # noqa: ANN401 # as `config_text` has them
) -> AsyncIterator[Service]:
    """Write the configuration, apply the topology, and end every process at the end.

    Args:
        directory: For configuration and logs.
        nats_url: A server without streams.
        dsn: A migrated database, of its owner.
        keys: Of `USERS`, where NATS has users.
        config: As for `config_text`.
    """
    path = directory / "chatlane.toml"
    router_dsn = await login_of(dsn)
    path.write_text(config_text(nats_url, router_dsn, **config), "utf-8")
    settings = load_settings(path, {})
    await apply_topology(settings)
    service = Service(directory, nats_url, dsn, router_dsn, path, settings, keys=keys)
    try:
        yield service
    finally:
        await service.stop()


async def apply_topology(settings: Settings) -> None:
    """Do what `chatlane admin apply` does."""
    declared = declared_topology(settings)
    async with open_connection(settings.nats.url, name="admin") as client:
        await apply(JetStream(client), declared.streams, declared.durables)
