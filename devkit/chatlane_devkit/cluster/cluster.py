"""`make cluster`: run a production-like chatlane on one machine, with faults during the feed.

Builds the image twice, as two versions; starts `deploy/cluster.yaml` with new keys and passwords;
plays the feed of the demo in one of its containers; and meanwhile rolls the routers to the other
image, kills a worker, stops the nats-server that leads INBOUND, and lets the standby take over from
a Postgres that is killed. The verdict is the demo's. Afterwards everything is removed.
"""

import asyncio
import json
import secrets
import shutil
import sys
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final, cast

import trustme
from rich.console import Console

from chatlane.config.nats_users import SEED_SUFFIX, make_keys, read_users, server_config
from chatlane_devkit.cluster.compose import Compose, Container, EngineError, ran
from chatlane_devkit.cluster.external_run import CUE, REPORT
from chatlane_devkit.demo.console import ConsoleOutput
from chatlane_servers.conditions import until
from chatlane_servers.programs import cancel_on_stop_signals

ROOT: Final = Path(__file__).parents[3]
CLUSTER_REPORT: Final = Path("var/cluster-report.json")

NATS: Final = ("nats-1", "nats-2", "nats-3")
PRIMARY: Final = "postgres-1"
STANDBY: Final = "postgres-2"
ROUTERS: Final = ("router-1", "router-2", "router-3")
WORKERS: Final = ("worker-1", "worker-2")

_VERSION_LABEL: Final = "org.opencontainers.image.version"
_DATABASE: Final = "chatlane"
# Groups to which `chatlane admin grants` gives rights, and the login roles in the first of them.
_APPLICATION: Final = "chatlane_application"
_LOGINS: Final = ("router", "provisioner", "feed")
_ALTOGETHER: Final = timedelta(minutes=15)
_BUILT_WITHIN: Final = timedelta(minutes=10)
_STARTED_WITHIN: Final = timedelta(minutes=3)
# Time for which a stopped nats-server stays down.
_AWAY: Final = timedelta(seconds=5)
_EXIT_INTERRUPTED: Final = 130

# Paths in the containers.
_AUTHORITY: Final = "/etc/chatlane/ca.crt"
_USERS: Final = ROOT / "deploy" / "cluster" / "users.toml"
# NATS user of each process.
_SEEDS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "router": ("router",),
    "provisioner": ("provisioner",),
    "worker": ("main-worker",),
    "subscriber": ("notes-worker",),
    "feed": (
        "router",
        "operator",
        "telegram-assistant",
        "discord-guild_bot",
        "slack-workbot",
        "whatsapp-phone",
        "terminal-local",
    ),
}

# Settings that a cluster needs beyond those of the demo. Sizes are for one node of three on a
# laptop.
_STREAMS: Final = """
[streams]
replicas = 3

[streams.max_bytes]
inbound = "256MiB"
routed = "128MiB"
turns = "64MiB"
results = "256MiB"
outbound = "128MiB"
events = "64MiB"
dead = "64MiB"
advisories = "16MiB"
"""


def main() -> int:
    """Run it and return the exit code: 0 only when every guarantee held."""
    narrator = ConsoleOutput(Console())
    try:
        return asyncio.run(_run(narrator))
    except EngineError as error:
        narrator.tell(str(error))
        return 1
    except TimeoutError:
        narrator.tell(f"it took longer than {_ALTOGETHER}")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        narrator.tell("interrupted; everything was removed")
        return _EXIT_INTERRUPTED


async def _run(narrator: ConsoleOutput) -> int:
    cancel_on_stop_signals()
    async with asyncio.timeout(_ALTOGETHER.total_seconds()):
        narrator.headline("Three nats-servers, two Postgres, three routers, in containers")
        async with open_cluster(narrator.tell) as cluster:
            narrator.tell(f"all is set up after {narrator.seconds:.0f} s; now the feed is played")
            code = await cluster.play()
            await cluster.require_disturbed()
            report = await cluster.report()
        CLUSTER_REPORT.parent.mkdir(exist_ok=True)
        CLUSTER_REPORT.write_text(report, "utf-8")
        narrator.tell(f"everything was removed after {narrator.seconds:.0f} s")
        narrator.tell(f"report: {CLUSTER_REPORT}")
    return code


@dataclass(slots=True)
class Cluster:
    """The running containers, and the faults that can be triggered in them.

    Attributes:
        images: The first image, and the image that the routers are rolled to; by version.
        stopped: The nats-server that was stopped.
    """

    compose: Compose
    images: dict[str, str]
    stopped: str = ""
    _tell: Callable[[str], None] = print
    _said: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    async def play(self) -> int:
        """Play the feed in its container, perform its cues, and return its exit code."""
        feed = await self.compose.container("feed")
        process = await asyncio.create_subprocess_exec(
            *(
                "docker",
                "exec",
                "--interactive",
                feed.id,
                "python",
                "-m",
                "chatlane_devkit.cluster.external_run",
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                # Both are pipes, as requested above.
                writing = tasks.create_task(self._write_to(cast("StreamWriter", process.stdin)))
                await self._read_from(cast("StreamReader", process.stdout), tasks)
                writing.cancel()
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def require_disturbed(self) -> None:
        """Require that all three disturbances happened and that the cluster recovered.

        Raises:
            EngineError: A disturbance is missing.
        """
        *_, rolled_to = self.images
        for name in ROUTERS:
            state = await (await self.compose.container(name)).state()
            if state["Config"]["Labels"][_VERSION_LABEL] != rolled_to:
                raise EngineError(f"{name} does not run version {rolled_to}")
        if not self.stopped or not await self._are_in_order(NATS):
            raise EngineError("not every nats-server is there and up to date")
        in_recovery = await self._query(STANDBY, "SELECT pg_is_in_recovery()")
        if in_recovery != "f" or (await self._state(PRIMARY))["Running"]:
            raise EngineError(f"{STANDBY} is not the primary")
        self._tell(f"routers run version {rolled_to}, {STANDBY} is the primary")

    async def report(self) -> str:
        """Return the report of the run as JSON."""
        return await (await self.compose.container("feed")).executed("cat", str(REPORT))

    async def happen(self, cue: str) -> None:
        """Perform a cue; return when its fault is over.

        Raises:
            EngineError: It could not be done.
        """
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "router": self._roll_routers,
            "worker": self._kill_worker,
            "nats": self._stop_leader,
            "postgres": self._promote,
        }
        await acts[cue]()

    async def _roll_routers(self) -> None:
        """Roll every router to the other image, one after the other."""
        _, (version, image) = self.images.items()
        self.compose.environment["CHATLANE_ROUTER_IMAGE"] = image
        for name in ROUTERS:
            await self.compose.up(name)
            seconds = await (await self.compose.container(name)).until_healthy(_STARTED_WITHIN)
            self._say(
                f"{name} runs version {version}; it was ready {seconds:.1f} s after its start"
            )

    async def _kill_worker(self) -> None:
        name = WORKERS[0]
        worker = await self.compose.container(name)
        await worker.kill()
        self._say(f"killed {name} with SIGKILL")
        await worker.start()
        self._say(f"started {name} again")

    async def _stop_leader(self) -> None:
        """Stop the nats-server that leads INBOUND for a while."""
        self.stopped = name = await self._leader_of("INBOUND")
        server = await self.compose.container(name)
        await server.kill()
        self._say(f"killed {name} with SIGKILL; it led INBOUND")
        await asyncio.sleep(_AWAY.total_seconds())
        await server.start()
        seconds = await server.until_healthy(_STARTED_WITHIN)
        self._say(f"started {name} again; it was up to date after {seconds:.1f} s")

    async def _promote(self) -> None:
        """Kill the primary, and promote the standby."""
        replica = await self._query(PRIMARY, "SELECT sync_state FROM pg_stat_replication")
        if replica != "sync":
            raise EngineError(f"the standby does not follow: {replica or 'nobody does'}")
        await (await self.compose.container(PRIMARY)).kill()
        self._say(f"killed {PRIMARY} with SIGKILL")
        standby = await self.compose.container(STANDBY)
        await standby.executed("bash", "-c", 'pg_ctl promote --pgdata "$PGDATA"')
        self._say(f"promoted {STANDBY}")

    async def _read_from(self, feed: StreamReader, tasks: asyncio.TaskGroup) -> None:
        """Pass on the output of the feed, and start the cues in it."""
        async for line in feed:
            text = line.decode(errors="replace")
            if text.startswith(CUE):
                _ = tasks.create_task(self._answer(text.removeprefix(CUE).strip()))
            else:
                sys.stdout.write(text)
                sys.stdout.flush()

    async def _write_to(self, feed: StreamWriter) -> None:
        while True:
            line = await self._said.get()
            feed.write(json.dumps(line).encode() + b"\n")
            # The feed may have ended with an error, which its exit code shows.
            with suppress(ConnectionError):
                await feed.drain()

    async def _answer(self, cue: str) -> None:
        try:
            await self.happen(cue)
        except (EngineError, TimeoutError) as error:
            self._said.put_nowait({"failed": cue, "why": str(error)})
        else:
            self._said.put_nowait({"done": cue})

    def _say(self, sentence: str) -> None:
        """Make the feed print a line, so that it appears in the order of the feed's output."""
        self._said.put_nowait({"tell": sentence})

    async def _leader_of(self, stream: str) -> str:
        """Return the nats-server that leads a stream."""
        first = await self.compose.container(NATS[0])
        address = "http://127.0.0.1:8222/jsz?accounts=true&streams=true"
        account_info = json.loads(await first.executed("wget", "-q", "-O", "-", address))
        for account in account_info["account_details"]:
            for detail in account["stream_detail"]:
                if detail["name"] == stream:
                    return str(detail["cluster"]["leader"])
        raise EngineError(f"nobody leads {stream}")

    async def _query(self, service: str, statement: str) -> str:
        container = await self.compose.container(service)
        return (await queried(container, statement)).strip()

    async def _state(self, service: str) -> dict[str, Any]:
        state = await (await self.compose.container(service)).state()
        return dict(state["State"])

    async def _are_in_order(self, services: tuple[str, ...]) -> bool:
        states = [await self._state(service) for service in services]
        return all(state["Running"] and state["Health"]["Status"] == "healthy" for state in states)


async def queried(container: Container, statements: str, database: str = _DATABASE) -> str:
    """Run SQL in a Postgres container as its superuser and return the bare values."""
    program = ("psql", "--username=postgres", f"--dbname={database}", "--no-psqlrc")
    options = ("--tuples-only", "--no-align", "--quiet", "--set=ON_ERROR_STOP=1")
    return await container.executed(*program, *options, stdin=statements)


@asynccontextmanager
async def open_cluster(tell: Callable[[str], None]) -> AsyncIterator[Cluster]:
    """Build, start everything in order, and remove it at the end of the block.

    Args:
        tell: Prints a line.

    Raises:
        EngineError: A service did not start, or something is left at the end.
    """
    project = f"chatlane-cluster-{secrets.token_hex(4)}"
    directory = Path(tempfile.mkdtemp(prefix=f"{project}-"))
    compose = Compose(
        ROOT / "deploy" / "cluster.yaml", project, {"CHATLANE_CLUSTER": str(directory)}
    )
    images: dict[str, str] = {}
    try:
        images = await _build(project, tell)
        image = next(iter(images.values()))
        compose.environment |= {"CHATLANE_IMAGE": image, "CHATLANE_ROUTER_IMAGE": image}
        Material(directory).make()
        await _start(compose, directory, tell)
        yield Cluster(compose, images, _tell=tell)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        await _remove(compose, images)


async def _build(project: str, tell: Callable[[str], None]) -> dict[str, str]:
    """Build two images that differ in their version, and return their names by version."""
    images = {"0.1.0": f"{project}:this", "0.1.0+next": f"{project}:next"}
    for version, image in images.items():
        await ran(
            *("make", "image", f"VERSION={version}"),
            directory=ROOT,
            environment={"CHATLANE_IMAGE": image},
            patience=_BUILT_WITHIN,
        )
        tell(f"built version {version}")
    return images


async def _start(compose: Compose, directory: Path, tell: Callable[[str], None]) -> None:
    await compose.up(*NATS, PRIMARY)
    await asyncio.gather(*(_until_healthy(compose, name) for name in (*NATS, PRIMARY)))
    tell("three nats-servers have a leader, Postgres takes connections")
    await _add_standby(compose, directory)
    tell("commits wait for the standby")
    await _add_logins(compose, directory)
    for job in ("migrate", "grants", "apply"):
        await compose.job(job)
    tell("streams and tables are set up")
    others = (*WORKERS, "subscriber", "feed")
    await compose.up(*ROUTERS, *others)
    await asyncio.gather(*(_until_healthy(compose, name) for name in ROUTERS))
    tell("three routers are ready")


async def _until_healthy(compose: Compose, service: str) -> None:
    try:
        await (await compose.container(service)).until_healthy(_STARTED_WITHIN)
    except EngineError as error:
        raise EngineError(f"{service}: {error}") from error


async def _add_standby(compose: Compose, directory: Path) -> None:
    """Start the standby, and make commits wait for it from then on.

    In this order: the standby is a copy, and must not wait for itself when it is the primary.
    """
    primary = await compose.container(PRIMARY)
    password = (directory / "secrets" / "postgres" / "replication").read_text("utf-8")
    await queried(primary, f"CREATE ROLE replication REPLICATION LOGIN PASSWORD '{password}'")
    await compose.up(STANDBY)
    await _until_healthy(compose, STANDBY)
    await queried(primary, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    await queried(primary, "SELECT pg_reload_conf()")

    async def is_synchronous() -> bool:
        state = await queried(primary, "SELECT sync_state FROM pg_stat_replication")
        return state.strip() == "sync"

    await until(is_synchronous, _STARTED_WITHIN)


async def _add_logins(compose: Compose, directory: Path) -> None:
    """Create the login roles that do not own the tables."""
    primary = await compose.container(PRIMARY)
    await queried(primary, f"CREATE ROLE {_APPLICATION} NOLOGIN")
    for name in _LOGINS:
        password = (directory / "secrets" / "postgres" / name).read_text("utf-8")
        login = f"LOGIN PASSWORD '{password}' IN ROLE {_APPLICATION}"
        await queried(primary, f"CREATE ROLE chatlane_{name} {login}")


async def _remove(compose: Compose, images: dict[str, str]) -> None:
    """Remove everything, also during cancellation.

    Raises:
        EngineError: Something is left.
    """
    removing = asyncio.ensure_future(_remove_all(compose, images))
    while not removing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(removing)
    removing.result()


async def _remove_all(compose: Compose, images: dict[str, str]) -> None:
    await compose.remove()
    for image in images.values():
        # An image that was never built cannot be removed.
        with suppress(EngineError):
            await ran("docker", "image", "rm", "--no-prune", image)
    if left := await compose.leftovers():
        raise EngineError(f"left behind: {', '.join(left)}")


@dataclass(frozen=True, slots=True)
class Material:
    """Certificates, passwords and chatlane.toml for the containers.

    The user in a container differs between images, so the files are readable for all users; only
    the owner can pass through their directory.
    """

    directory: Path

    def make(self) -> None:
        """Create all files."""
        authority = trustme.CA()
        self._certify(authority, "nats", *NATS)
        self._certify(authority, "postgres", PRIMARY, STANDBY)
        authority.cert_pem.write_to_path(self._file("etc/ca.crt"))
        self._make_settings()
        self._make_accounts()
        for folder in self.directory.rglob("*"):
            folder.chmod(0o755 if folder.is_dir() else 0o644)

    def _certify(self, authority: trustme.CA, folder: str, *names: str) -> None:
        certificate = authority.issue_cert(*names)
        chain, *_ = certificate.cert_chain_pems
        chain.write_to_path(self._file(f"tls/{folder}/tls.crt"))
        certificate.private_key_pem.write_to_path(self._file(f"tls/{folder}/tls.key"))
        authority.cert_pem.write_to_path(self._file(f"tls/{folder}/ca.crt"))

    def _make_settings(self) -> None:
        """Write chatlane.toml, and the database login of each process; workers have none."""
        urls = ",".join(f"tls://{name}:4222" for name in NATS)
        template = files("chatlane_devkit.demo").joinpath("data/stack.toml").read_text("utf-8")
        text = Template(template).substitute(nats_url=urls, dsn="postgresql://nobody@nowhere/none")
        settings = text.replace("[postgres]", f'tls_ca_file = "{_AUTHORITY}"\n\n[postgres]')
        self._file("etc/chatlane.toml").write_text(f"{settings}{_STREAMS}", "utf-8")
        self._secret("postgres/replication")
        both = f"{PRIMARY}:5432,{STANDBY}:5432"
        self._make_dsn("owner", "postgres", self._secret("postgres/postgres"), PRIMARY)
        for name in _LOGINS:
            self._make_dsn(name, f"chatlane_{name}", self._secret(f"postgres/{name}"), both)

    def _make_dsn(self, service: str, user: str, password: str, hosts: str) -> None:
        query = f"sslmode=verify-full&sslrootcert={_AUTHORITY}"
        dsn = f"postgresql://{user}:{password}@{hosts}/{_DATABASE}?{query}"
        self._file(f"secrets/{service}/CHATLANE_POSTGRES__DSN").write_text(dsn, "utf-8")

    def _make_accounts(self) -> None:
        """Create a key for every user and the server configuration, and distribute the seeds."""
        users = read_users(_USERS)
        made = self.directory / "made"
        keys = make_keys(users, made)
        accounts = server_config(users.with_keys(keys), datetime.now(UTC).date())
        self._file("nats/accounts.conf").write_text(accounts, "utf-8")
        for service, names in _SEEDS_OF.items():
            for name in names:
                seed = (made / "cluster" / name).with_suffix(SEED_SUFFIX).read_bytes()
                self._file(f"seeds/{service}/{name}{SEED_SUFFIX}").write_bytes(seed)
        shutil.rmtree(made)

    def _secret(self, name: str) -> str:
        password = secrets.token_hex(16)
        self._file(f"secrets/{name}").write_text(password, "utf-8")
        return password

    def _file(self, name: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
