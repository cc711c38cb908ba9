"""`chatlane demo`: the main job on real servers, with everything killed once, and a verdict."""

import asyncio
import logging
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from nats.aio.client import Client
from rich.console import Console

from chatlane.dev import report as reports
from chatlane.dev.binaries import server_directory
from chatlane.dev.day import DAY_FILE
from chatlane.dev.faults import Faults
from chatlane.dev.feed import Publication, Step, publications, read_feed
from chatlane.dev.history import History
from chatlane.dev.narration import Narrator, PlayProgress
from chatlane.dev.observer import read_dead_notices, read_log
from chatlane.dev.player import Player, Score
from chatlane.dev.processes import ServerStartError
from chatlane.dev.programs import cancel_when_told_to_stop
from chatlane.dev.stack import Stack, open_stack
from chatlane.dev.verdict import Verdict, judge
from chatlane_client.connection import open_connection

REPORT: Final = Path("var/demo-report.json")
LINES_PER_SECOND: Final = 110.0

_THINK: Final = timedelta(milliseconds=60)
_PATIENCE: Final = timedelta(seconds=45)
_REFRESH: Final = timedelta(milliseconds=100)
_EXIT_INTERRUPTED: Final = 130


def main(
    *,
    report: Path = REPORT,
    feed: Path = DAY_FILE,
    lines_per_second: float = LINES_PER_SECOND,
    is_kept: bool = False,
) -> int:
    """Run the demo and return its exit code: 0 only when every promise was kept.

    Args:
        report: Where the JSON report goes; logs of a run that failed go beside it.
        feed: What is published.
        lines_per_second: Its pace.
        is_kept: Keep the logs even when all is well.
    """
    demo = _Demo(Narrator(Console()), report, lines_per_second, is_kept=is_kept)
    try:
        return asyncio.run(demo.run(read_feed(feed)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        demo.narrator.tell("interrupted; everything was stopped")
        return _EXIT_INTERRUPTED


class _Demo:
    def __init__(
        self, narrator: Narrator, report: Path, lines_per_second: float, *, is_kept: bool
    ) -> None:
        self.narrator = narrator
        self._report = report
        self._lines_per_second = lines_per_second
        self._is_kept = is_kept
        self._seconds: dict[str, float] = {}

    async def run(self, steps: tuple[Step, ...]) -> int:
        cancel_when_told_to_stop()
        feed = publications(steps)
        with server_directory() as directory:
            _log_to(directory / "adapters.log")
            try:
                history, idle_after = await self._play(directory, steps)
                verdict = judge(feed, history, idle_after)
                self._show(feed, history, verdict)
            except ServerStartError as error:
                self.narrator.tell(str(error))
                verdict = None
            is_good = verdict is not None and verdict.is_good
            if self._is_kept or not is_good:
                self._keep_logs(directory)
        return 0 if is_good else 1

    async def _play(
        self, directory: Path, steps: tuple[Step, ...]
    ) -> tuple[History, dict[str, timedelta]]:
        self.narrator.headline("Two routers, two workers, one subscriber, real servers")
        async with open_stack(directory, self.narrator.tell, think=_THINK) as stack:
            self._seconds["set up"] = self.narrator.seconds
            async with open_connection(stack.nats.url, name="demo adapters") as client:
                score = await self._perform(stack, client, steps)
                self._seconds["played"] = self.narrator.seconds - self._seconds["set up"]
                history = await _history(stack, client, score)
        self._seconds["total"] = self.narrator.seconds
        return history, stack.idle_after

    async def _perform(self, stack: Stack, client: Client, steps: tuple[Step, ...]) -> Score:
        """Play the feed while things break; what is not answered in time is for the verdict."""
        feed = publications(steps)
        score = Score()
        faults = Faults(stack, self.narrator.tell, lambda: score.last_answer_at)
        player = Player(
            client,
            stack.observer,
            score,
            partitions=stack.partitions,
            lines_per_second=self._lines_per_second,
            on_cue=faults.happen,
            patience=_PATIENCE,
        )
        self.narrator.headline(f"A day of chat: {len(feed)} events")
        async with player.receiving(stack.accounts):
            with self.narrator.progress(len(feed), _accepted(feed)) as progress:
                showing = asyncio.create_task(_show_progress(progress, score))
                try:
                    await player.play(steps)
                except TimeoutError:
                    self.narrator.tell("not everything was answered in time")
                finally:
                    showing.cancel()
        self._seconds |= faults.seconds
        return score

    def _show(self, feed: tuple[Publication, ...], history: History, verdict: Verdict) -> None:
        narrator = self.narrator
        narrator.headline("One conversation")
        narrator.chat(*reports.one_conversation(feed, history))
        narrator.headline("What came of it")
        narrator.table(
            "Sessions",
            ("platform", "agent", "sessions", "ended", "messages", "answers"),
            reports.session_rows(history),
        )
        narrator.table(
            "Copies",
            ("copy", "published", "in the log", "stopped by"),
            reports.copy_rows(feed, history),
        )
        narrator.table(
            "Dead letters", ("reason", "count", "detail"), reports.dead_letter_rows(history)
        )
        narrator.headline("Verdict")
        narrator.verdict(verdict)
        reports.write(self._report, reports.as_json(verdict, feed, history, self._seconds))
        words = "every accepted message was delivered exactly once and in order"
        narrator.tell(words if verdict.is_good else "the run does not keep its promises")
        narrator.tell(f"report: {self._report}")

    def _keep_logs(self, directory: Path) -> None:
        target = self._report.parent / "demo-logs"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for log in directory.rglob("*.log"):
            shutil.copy(log, target)
        self.narrator.tell(f"logs: {target}")


async def _history(stack: Stack, client: Client, score: Score) -> History:
    observer = stack.observer
    return History(
        log=await read_log(client),
        answers=score.answers,
        sessions=await observer.sessions(),
        rows=await observer.rows(),
        dead_letters=await observer.dead_letters(),
        dead_notices=await read_dead_notices(client),
        leftovers=await observer.leftovers(),
    )


async def _show_progress(progress: PlayProgress, score: Score) -> None:
    with suppress(asyncio.CancelledError):
        while True:
            progress.show(score.published, score.heard)
            await asyncio.sleep(_REFRESH.total_seconds())


def _accepted(feed: tuple[Publication, ...]) -> int:
    return sum(its.expect == "accepted" for its in feed)


def _log_to(path: Path) -> None:
    """Send what the clients log to a file: the demo breaks things on purpose."""
    handler = logging.FileHandler(path, delay=True)
    for name in ("chatlane_client", "nats"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
