"""Play the feed once on a running stack, record its history, and show the outcome.

Faults are the task of the caller: a cue is passed to it by name.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from nats.aio.client import Client

from chatlane.config.settings import Settings
from chatlane_devkit.demo import report as reports
from chatlane_devkit.demo.console import ConsoleOutput, PlayProgress
from chatlane_devkit.demo.observer import Observer, read_dead_notices, read_log
from chatlane_devkit.demo.player import Player, Score
from chatlane_devkit.judge.history import History, Received
from chatlane_devkit.judge.verdict import Run, Verdict, judge
from chatlane_devkit.scenario.feed import Publication, Step, publications
from chatlane_servers.conditions import until

_REFRESH: Final = timedelta(milliseconds=100)
# After a change of the primary, the last rows are published by the sweep of another router.
_PUBLISH_TIMEOUT: Final = timedelta(seconds=20)

Account = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Stage:
    """The stack that the feed is played on.

    Attributes:
        settings: Settings of all its processes.
        observer: Reads its database.
        clients: By platform and account, the connection of its adapter.
        log_reader: A connection that may read INBOUND.
        dead_reader: A connection that may read DEAD.
    """

    settings: Settings
    observer: Observer
    clients: Mapping[Account, Client]
    log_reader: Client
    dead_reader: Client


def accounts_of(settings: Settings) -> list[Account]:
    """Return every declared platform and account."""
    return [
        (platform, account)
        for platform, declared in settings.platforms.items()
        for account in declared.accounts
    ]


def idle_after(settings: Settings) -> dict[str, timedelta]:
    """Return by platform the silence after which a session ends."""
    return {
        name: platform.reset.idle
        for name, platform in settings.platforms.items()
        if platform.reset and platform.reset.mode == "idle"
    }


class ScenarioRun:
    """One run of a feed.

    Attributes:
        score: Progress of the run.
        seconds: Duration of its parts; the code that triggers faults adds their durations.
    """

    def __init__(self, narrator: ConsoleOutput, steps: tuple[Step, ...]) -> None:
        self.score = Score()
        self.seconds: dict[str, float] = {}
        self._narrator = narrator
        self._steps = steps
        self._feed = publications(steps)

    async def play(
        self,
        stage: Stage,
        on_cue: Callable[[str], Awaitable[None]],
        *,
        pace: Callable[[], float],
        patience: timedelta,
        deliver: Callable[[Received], list[Received]] = lambda answer: [answer],
        also: Callable[[Publication], None] = lambda _: None,
        beside: AbstractAsyncContextManager[None] | None = None,
    ) -> History:
        """Play the whole feed and return its history.

        The verdict reports messages that were not answered in time.

        Args:
            on_cue: Triggers a fault; the run continues meanwhile.
            pace: Returns the lines of the feed per second; called before each line.
            patience: Longest wait for the answers to published messages.
            deliver: Returns what a chat receives in place of an answer.
            also: Called with each publication when its turn comes.
            beside: What happens meanwhile; it is over when the history is read.
        """
        begin = self._narrator.seconds
        self.seconds["set up"] = begin
        player = Player(
            stage.clients,
            stage.observer,
            self.score,
            partitions=stage.settings.router.partitions,
            pace=pace,
            on_cue=on_cue,
            patience=patience,
            deliver=deliver,
            also=also,
        )
        self._narrator.headline(f"A day of chat: {len(self._feed)} events")
        async with player.receiving(), beside or nullcontext():
            with self._narrator.progress(len(self._feed), _accepted(self._feed)) as progress:
                showing = asyncio.create_task(_show_progress(progress, self.score))
                try:
                    await player.play(self._steps)
                except TimeoutError:
                    self._narrator.tell("not everything was answered in time")
                finally:
                    showing.cancel()
        self.seconds["played"] = self._narrator.seconds - begin
        self.seconds["longest gap"] = self.score.silence.longest().seconds
        return await _history(stage, self.score)

    def judged(self, stage: Stage, history: History) -> Verdict:
        """Return the verdict."""
        return judge(Run(history, self._feed, idle_after(stage.settings)))

    def show(self, history: History, verdict: Verdict, report: Path) -> None:
        """Show the outcome and write the report."""
        narrator = self._narrator
        narrator.headline("One conversation")
        narrator.chat(*reports.one_conversation(self._feed, history))
        narrator.headline("What came of it")
        narrator.table(
            "Events: published, and what became of them",
            ("events", "count", "outcome"),
            reports.event_rows(self._feed, history),
        )
        narrator.table(
            "Sessions: every accepted message is in one",
            ("platform", "agent", "sessions", "ended", "messages", "answers"),
            reports.session_rows(history),
        )
        narrator.table(
            "Repeats: none became a second message",
            ("repeat", "published", "in the log", "stopped by"),
            reports.copy_rows(self._feed, history),
        )
        narrator.table(
            "Dead letters: one for each broken event",
            ("reason", "count", "detail"),
            reports.dead_letter_rows(history),
        )
        narrator.headline("Verdict")
        narrator.verdict(verdict)
        reports.write(report, reports.as_json(verdict, self._feed, history, self.seconds))
        gap = self.seconds["longest gap"]
        narrator.tell(f"longest gap without an answer: {gap:.1f} s")
        words = "every accepted message was delivered exactly once and in order"
        narrator.tell(words if verdict.is_good else "the run does not keep its promises")


async def _history(stage: Stage, score: Score) -> History:
    observer = stage.observer
    log, receipts = await read_log(stage.log_reader)
    return History(
        log=log,
        receipts=receipts,
        received=score.answers,
        sessions=await observer.sessions(),
        rows=await observer.rows(),
        dead_letters=await observer.dead_letters(),
        dead_notices=await read_dead_notices(stage.dead_reader),
        left_over=await _left_over(observer),
    )


async def _left_over(observer: Observer) -> dict[str, int]:
    """Return the work that remains after routers had time to publish the last outbox rows."""

    async def is_done() -> bool:
        return not any((await observer.left_over()).values())

    with suppress(TimeoutError):
        await until(is_done, _PUBLISH_TIMEOUT)
    return await observer.left_over()


async def _show_progress(progress: PlayProgress, score: Score) -> None:
    with suppress(asyncio.CancelledError):
        while True:
            progress.show(score.published, score.answered)
            await asyncio.sleep(_REFRESH.total_seconds())


def _accepted(feed: Sequence[Publication]) -> int:
    return sum(publication.expect == "accepted" for publication in feed)


def log_to(path: Path) -> None:
    """Send the logs of the clients to a file: faults are expected to fill them."""
    handler = logging.FileHandler(path, delay=True)
    for name in ("chatlane_client", "nats"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
