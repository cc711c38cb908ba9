"""Fixtures of every tier: real servers and a database of its own for each test."""

import gc
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hypothesis
import pytest

from tests.support.parts import MARK_OF_PART, ONE_SERVER_FOLDERS, folder_of, part_of
from tests.support.servers.backends import (
    Backends,
    RunningPostgres,
    RunningServer,
    chosen_backends,
    delete_streams,
    open_test_nats,
    open_test_postgres,
)
from tests.support.servers.databases import execute, migrated, open_database

if TYPE_CHECKING:
    from xdist.remote import Producer  # type: ignore[import-untyped]
    from xdist.scheduler.loadfile import LoadFileScheduling  # type: ignore[import-untyped]
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

# A slow machine is no failure.
hypothesis.settings.register_profile("chatlane", deadline=None)
hypothesis.settings.load_profile("chatlane")

_BACKENDS = pytest.StashKey[Backends]()
_REPORT_LINES = pytest.StashKey[list[str]]()

_COUNTS: Final = "chatlane/parts"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that the targets `test` and `test-all` divide the tests by."""
    parser.addoption(
        "--part",
        choices=("together", "alone", "sweeps", "slow"),
        help="run only the tests that share the machine, that need it alone, or of those that "
        "`make test` leaves to `make test-all`, the ones that share it (`sweeps`) or need it alone",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files out that have no test of the chosen part: imports of all take half a minute."""
    mark = MARK_OF_PART.get(config.getoption("--part") or "")
    if mark is None or collection_path.suffix != ".py":
        return None
    return mark not in collection_path.read_text("utf-8") or None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what is collected from the garbage collector.

    Modules and tests are half a gigabyte that stays until the end: to look through it while it is
    made takes a quarter of the time of collection, and again and again while the tests run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the chosen part, and count those of each."""
    chosen = config.getoption("--part")
    if chosen is None:
        return
    parts = [part_of([mark.name for mark in item.iter_markers()]) for item in items]
    # With xdist only workers collect, and only the controller prints.
    if chosen == "together" and config.cache is not None:
        config.cache.set(_COUNTS, dict(Counter(parts)))
    config.hook.pytest_deselected(
        items=[item for item, part in zip(items, parts, strict=True) if part != chosen]
    )
    items[:] = [item for item, part in zip(items, parts, strict=True) if part == chosen]
    # Files of conformance and acceptance tests take longest, and so do folders that go to a single
    # process. At the end of a run, each would keep that process busy alone.
    items.sort(
        key=lambda item: (
            "conform" not in item.path.parts,
            folder_of(item.nodeid) not in ONE_SERVER_FOLDERS,
            item.get_closest_marker("acceptance") is None,
        )
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: "Producer"
) -> "LoadFileScheduling | None":
    """Give the tests of a file to one process, and those of some folders."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler.loadfile import LoadFileScheduling  # noqa: PLC0415

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            folder = folder_of(nodeid)
            return folder if folder in ONE_SERVER_FOLDERS else nodeid.partition("::")[0]

    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: "WorkerController") -> None:
    """Print the plan once the first worker has collected."""
    if node.gateway.id == "gw0":
        _print_plan(node.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print the plan of a run in one process."""
    if session.items and not hasattr(session.config, "workerinput"):
        _print_plan(session.config)


def _print_plan(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.cache is None or config.getoption("--part") != "together":
        return
    counts = config.cache.get(_COUNTS, {})
    together, alone = counts.get("together", 0), counts.get("alone", 0)
    reporter.write_line(
        f"make test: {together + alone} tests in 2 parts: {together} that share the machine, then "
        f"{alone} that need it alone; about 12 minutes on 2 idle cores. "
        f"`make test-all` runs {counts.get('sweeps', 0) + counts.get('slow', 0)} more."
    )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Choose the servers and say so in the first line."""
    # A shell that runs us in the background lets us, and all that we start, ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    backends = session.config.stash[_BACKENDS] = chosen_backends()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"test backends: {backends}")


@pytest.fixture
def report_line(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return what adds a line that is shown at the end of the run, such as how long a recovery took."""
    lines = request.config.stash.setdefault(_REPORT_LINES, [])

    def add(line: str) -> None:
        lines.append(f"{request.node.name}: {line}")

    return add


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show the lines of the report."""
    if lines := config.stash.get(_REPORT_LINES, []):
        terminalreporter.section("recoveries")
        for line in sorted(lines):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def backends(pytestconfig: pytest.Config) -> Backends:
    return pytestconfig.stash[_BACKENDS]


@pytest.fixture(scope="session")
async def shared_nats(backends: Backends) -> AsyncIterator[RunningServer]:
    """One NATS server for the whole run; tests want `nats_url`, which cleans it."""
    async with open_test_nats(backends.nats) as server:
        yield server


@pytest.fixture
async def nats_url(shared_nats: RunningServer) -> str:
    """URL of the shared NATS server, without any stream."""
    await delete_streams(shared_nats.url)
    return shared_nats.url


@pytest.fixture
async def nats_server(backends: Backends) -> AsyncIterator[RunningServer]:
    """A NATS server of the test's own, to be killed."""
    async with open_test_nats(backends.own_server) as server:
        yield server


@pytest.fixture(scope="session")
async def postgres_server(backends: Backends) -> AsyncIterator[RunningPostgres]:
    """One Postgres server for the whole run; tests want `database_url`."""
    async with open_test_postgres(backends.postgres) as server:
        yield server


@pytest.fixture(scope="session")
async def template_database(postgres_server: RunningPostgres) -> AsyncIterator[str]:
    """Name of a migrated database that nobody connects to."""
    async with open_database(postgres_server.url) as name:
        await migrated(postgres_server.dsn(name))
        # Its first connection writes a file of the catalog, which copies of the database have then.
        await execute(postgres_server.dsn(name), "SELECT 1")
        yield name


@pytest.fixture
async def database_url(
    postgres_server: RunningPostgres, template_database: str
) -> AsyncIterator[str]:
    """URL of a fresh, migrated database."""
    async with open_database(postgres_server.url, template_database) as name:
        yield postgres_server.dsn(name)


@pytest.fixture
async def empty_database_url(postgres_server: RunningPostgres) -> AsyncIterator[str]:
    """URL of a fresh database without any table."""
    async with open_database(postgres_server.url) as name:
        yield postgres_server.dsn(name)


@pytest.fixture
async def own_postgres(backends: Backends) -> AsyncIterator[RunningPostgres]:
    """A Postgres server of the test's own, to be killed; its databases are for the test to make."""
    async with open_test_postgres(backends.own_server) as server:
        yield server
