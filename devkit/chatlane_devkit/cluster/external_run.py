"""Play the demo's feed on a running installation, and judge the outcome.

`python -m chatlane_devkit.cluster.external_run` runs in a separate container of the cluster, with
the connections of all adapters. Faults come from outside: a cue is a line on standard output that
begins with `CUE`, and lines of JSON on standard input report what happened (`{"tell": ...}`) and
that it is over (`{"done": cue}` or `{"failed": cue, "why": ...}`).
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from ssl import create_default_context
from time import monotonic
from typing import Any, Final

from nats.aio.client import Client
from rich.console import Console

from chatlane.config.settings import Settings, load_settings
from chatlane.nats.tasks import end_task
from chatlane_client.transport.connection import open_connection
from chatlane_devkit.demo.console import ConsoleOutput
from chatlane_devkit.demo.observer import Observer
from chatlane_devkit.demo.scenario_run import Account, ScenarioRun, Stage, accounts_of, log_to
from chatlane_devkit.scenario.feed import Publication, Step, read_feed
from chatlane_devkit.scenario.scenario_generator import SCENARIO_FILE
from chatlane_servers.programs import cancel_on_stop_signals

CUE: Final = "\x1e"
REPORT: Final = Path("/tmp/feed-report.json")  # noqa: S108 # the only place in the container
LINES_PER_SECOND: Final = 110.0
# Lines per second during a fault: few enough that some are left until it is over.
LINES_PER_SECOND_THEN: Final = 12.0
# A seed for each user, with its name: adapters `<platform>-<account>`.
SEEDS: Final = Path("/run/secrets/nats")

# A roll-out is over when the last router is ready again.
_PATIENCE: Final = timedelta(seconds=120)


class OutsideError(Exception):
    """The program outside could not perform a cue."""


class Outside:
    """The program outside the container that disturbs the cluster; cues and replies go by pipes.

    Attributes:
        spans: Start of each cue and end of its fault; monotonic times.
    """

    def __init__(self, narrator: ConsoleOutput) -> None:
        self.spans: dict[str, tuple[float, float]] = {}
        self._narrator = narrator
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def pace(self) -> float:
        """Return the number of feed lines to play per second now."""
        return LINES_PER_SECOND_THEN if self._waiting else LINES_PER_SECOND

    async def happen(self, cue: str) -> None:
        """Request a fault, and return when it is over.

        Raises:
            OutsideError: The fault could not be triggered.
        """
        self._waiting[cue] = asyncio.get_running_loop().create_future()
        began_at = monotonic()
        sys.stdout.write(f"{CUE}{cue}\n")
        sys.stdout.flush()
        try:
            await self._waiting[cue]
        finally:
            del self._waiting[cue]
        self.spans[cue] = began_at, monotonic()

    @asynccontextmanager
    async def heard(self) -> AsyncIterator[None]:
        """Read reports from outside during the block."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        hearing = asyncio.create_task(self._hear(reader))
        try:
            yield
        finally:
            await end_task(hearing)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        if sentence := said.get("tell"):
            self._narrator.tell(sentence)
        if cue := said.get("done"):
            self._waiting[cue].set_result(None)
        if cue := said.get("failed"):
            self._waiting[cue].set_exception(OutsideError(f"{cue}: {said['why']}"))


def playable(steps: tuple[Step, ...], accounts: list[Account]) -> tuple[Step, ...]:
    """Return the feed without publications for accounts that this installation lacks."""
    return tuple(
        step
        for step in steps
        if not isinstance(step, Publication)
        or step.subject is None
        or tuple(step.subject.split(".")[-3:-1]) in accounts
    )


async def run() -> int:
    """Play, judge, and return the exit code: 0 only when every guarantee held."""
    cancel_on_stop_signals()
    narrator = ConsoleOutput(Console(width=110))
    log_to(REPORT.with_name("adapters.log"))
    settings = load_settings()
    steps = playable(read_feed(SCENARIO_FILE), accounts_of(settings))
    performance = ScenarioRun(narrator, steps)
    outside = Outside(narrator)
    async with _open_stage(settings) as stage, outside.heard():
        history = await performance.play(
            stage, outside.happen, pace=outside.pace, patience=_PATIENCE
        )
        silence = performance.score.silence
        for cue, span in outside.spans.items():
            performance.seconds[f"longest gap while: {cue}"] = silence.longest(*span).seconds
        performance.seconds["total"] = narrator.seconds
        verdict = performance.judged(stage, history)
    performance.show(history, verdict, REPORT)
    return 0 if verdict.is_good else 1


@asynccontextmanager
async def _open_stage(settings: Settings) -> AsyncIterator[Stage]:
    """Connect as every adapter, and as the observer of the outcome."""
    async with AsyncExitStack() as stack:

        async def connected(principal: str) -> Client:
            connection = open_connection(
                settings.nats.url.split(","),
                name=f"feed as {principal}",
                principal=principal,
                nkey_seed_file=str(SEEDS / f"{principal}.nk"),
                tls=create_default_context(cafile=settings.nats.tls_ca_file),
            )
            return await stack.enter_async_context(connection)

        observer = Observer(settings.postgres.dsn.get_secret_value())
        stack.push_async_callback(observer.close)
        clients = {
            (platform, account): await connected(f"{platform}-{account}")
            for platform, account in accounts_of(settings)
        }
        # The log belongs to the routers; no other user may read it.
        readers = await connected("router"), await connected("operator")
        yield Stage(settings, observer, clients, *readers)


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
