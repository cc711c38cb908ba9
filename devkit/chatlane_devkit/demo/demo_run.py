"""`chatlane demo`: run the scenario on real servers, kill every part once, and judge the run."""

import asyncio
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from chatlane.cli.shared.terminal import typed_lines
from chatlane_client.transport.connection import open_connection
from chatlane_devkit.demo.answer_gaps import AnswerGaps
from chatlane_devkit.demo.bot_platform import BotOutcome, open_bot_platform
from chatlane_devkit.demo.console import ConsoleOutput
from chatlane_devkit.demo.faults import Faults
from chatlane_devkit.demo.picture import write_picture
from chatlane_devkit.demo.report import dialogue_rows, loss_rows
from chatlane_devkit.demo.sabotage import Sabotage, Saboteur
from chatlane_devkit.demo.scenario_run import ScenarioRun, Stage, accounts_of, log_to
from chatlane_devkit.demo.stack import Stack, open_stack
from chatlane_devkit.demo.stack_console import start_console
from chatlane_devkit.dialogue import dialogue_config
from chatlane_devkit.dialogue.dialogue_run import PEOPLE, DialogueRun
from chatlane_devkit.dialogue.record import Records
from chatlane_devkit.dialogue.stream_reader import stored
from chatlane_devkit.judge.history import History, Received
from chatlane_devkit.judge.verdict import Verdict
from chatlane_devkit.scenario.feed import Step, read_feed
from chatlane_devkit.scenario.scenario_generator import SCENARIO_FILE
from chatlane_servers.binaries import server_directory
from chatlane_servers.processes import ServerStartError
from chatlane_servers.programs import cancel_on_stop_signals

REPORT: Final = Path("var/demo-report.json")
LINES_PER_SECOND: Final = 110.0

_THINK: Final = timedelta(milliseconds=60)
_PATIENCE: Final = timedelta(seconds=45)
# A dialogue survives the kill of its worker in each of its attempts.
_MAX_ATTEMPTS: Final = 10
_EXIT_INTERRUPTED: Final = 130
# By cue: the part, the name of its recovery, and the end of the recovery.
_KILLS: Final = {
    "router": ("router 1", "router taken over", "router 2 owns all partitions"),
    "worker": ("worker 1", "worker's turns answered", "its turns are answered"),
    "nats": ("nats-server", "first answer after nats-server", "the first answer"),
    "postgres": ("postgres", "first answer after postgres", "the first answer"),
}


def main(
    *,
    report: Path = REPORT,
    feed: Path = SCENARIO_FILE,
    lines_per_second: float = LINES_PER_SECOND,
    is_kept: bool = False,
    picture: Path | None = None,
    sabotage: Sabotage | None = None,
    is_watched: bool = False,
) -> int:
    """Run the demo and return its exit code: 0 only when every guarantee held.

    Args:
        report: Path of the JSON report; logs of a failed run are written beside it.
        feed: The feed to publish.
        lines_per_second: Speed of publishing.
        is_kept: Keep the logs also after a successful run.
        picture: Path of an SVG of the output, if wanted.
        sabotage: A promise to break on purpose; the verdict must then be bad.
        is_watched: Start a console, and begin when a line is typed.
    """
    console = Console(record=picture is not None)
    demo = _Demo(
        ConsoleOutput(console),
        report,
        lines_per_second,
        is_kept=is_kept,
        sabotage=sabotage,
        is_watched=is_watched,
    )
    try:
        code = asyncio.run(demo.run(read_feed(feed)))
        if picture is not None:
            write_picture(console.export_text(), picture)
        return code
    except (KeyboardInterrupt, asyncio.CancelledError):
        demo.narrator.tell("interrupted; everything was stopped")
        return _EXIT_INTERRUPTED


class _Demo:
    def __init__(
        self,
        narrator: ConsoleOutput,
        report: Path,
        lines_per_second: float,
        *,
        is_kept: bool,
        sabotage: Sabotage | None,
        is_watched: bool,
    ) -> None:
        self.narrator = narrator
        self._report = report
        self._lines_per_second = lines_per_second
        self._is_kept = is_kept
        self._sabotage = sabotage
        self._is_watched = is_watched

    async def run(self, steps: tuple[Step, ...]) -> int:
        cancel_on_stop_signals()
        with server_directory() as directory:
            log_to(directory / "adapters.log")
            try:
                verdict = await self._play(directory, steps)
            except ServerStartError as error:
                self.narrator.tell(str(error))
                verdict = None
            is_good = verdict is not None and verdict.is_good
            if self._is_kept or not is_good:
                self._keep_logs(directory)
        return 0 if is_good else 1

    async def _play(self, directory: Path, steps: tuple[Step, ...]) -> Verdict:
        """Play the feed while faults happen, show the outcome, and return the verdict."""
        self.narrator.headline("Two routers, two workers, one subscriber, real servers")
        performance = ScenarioRun(self.narrator, steps)
        async with (
            open_stack(
                directory,
                self.narrator.tell,
                think=_THINK,
                more_config=dialogue_config.config(_MAX_ATTEMPTS),
            ) as stack,
            open_bot_platform(directory, _THINK) as platform,
        ):
            if self._is_watched:
                await self._wait_for_watcher(stack)
            score = performance.score
            dialogues = DialogueRun(stack.nats.url, directory, self.narrator.tell)
            faults = Faults(stack, self.narrator.tell, lambda: score.last_answer_at)
            async with open_connection(stack.nats.url, name="demo adapters") as client:
                accounts = set(accounts_of(stack.settings)) - {
                    (dialogue_config.PLATFORM, dialogue_config.ACCOUNT)
                }
                clients = dict.fromkeys(accounts, client)
                stage = Stage(stack.settings, stack.observer, clients, client, client)

                async def happen(cue: str) -> None:
                    happening = [faults.happen(cue), platform.kill_bot()]
                    if cue == "worker":
                        happening.append(dialogues.kill_processes())
                    await asyncio.gather(*happening)

                history = await performance.play(
                    stage,
                    happen,
                    pace=lambda: self._lines_per_second,
                    patience=_PATIENCE,
                    deliver=self._deliver(),
                    also=platform.write,
                    beside=dialogues.talking(),
                )
                records = Records(stack.observer.fetch, partial(stored, client))
                history = await dialogues.separated(history, records)
            with suppress(TimeoutError):
                await platform.until_quiet()
        performance.seconds |= faults.seconds | {"total": self.narrator.seconds}
        verdict = performance.judged(stage, history)
        self._show_kills(faults, score.silence)
        self._show_bot(verdict, history, platform.outcome())
        self._show_dialogues(history)
        performance.show(history, verdict, self._report)
        self.narrator.tell(f"report: {self._report}")
        return verdict

    async def _wait_for_watcher(self, stack: Stack) -> None:
        console = await start_console(stack)
        self.narrator.tell(f"watch it in a browser, and press Enter to begin: {console.link}")
        async for _ in typed_lines(sys.stdin):
            break

    def _deliver(self) -> Callable[[Received], list[Received]]:
        if self._sabotage is None:
            return lambda answer: [answer]
        return Saboteur(self._sabotage, self.narrator.tell).deliver

    def _show_kills(self, faults: Faults, silence: AnswerGaps) -> None:
        """Show for each kill when its part recovered, and how long no chat got an answer."""
        rows = [
            (
                _KILLS[cue][0],
                f"{faults.seconds[_KILLS[cue][1]]:.1f}",
                _KILLS[cue][2],
                f"{silence.longest(*span).seconds:.1f} s",
            )
            for cue, span in faults.spans.items()
        ]
        self.narrator.headline("What the kills cost")
        columns = ("killed", "seconds", "until", "longest gap")
        title = "Gap: people waited and no chat got an answer"
        self.narrator.table(title, columns, rows)

    def _show_bot(self, verdict: Verdict, history: History, bot: BotOutcome) -> None:
        self.narrator.headline(f"A naive bot beside it, killed {bot.kills} times as well")
        columns = ("what people noticed", "chatlane", "naive bot")
        self.narrator.table(
            "One process that polls, with its sessions in memory",
            columns,
            loss_rows(verdict, history, bot),
        )

    def _show_dialogues(self, history: History) -> None:
        if history.dialogue is not None:
            self.narrator.headline("Dialogues beside it, under the same kills")
            columns = ("what people see", "promised", "seen", "wrong")
            title = f"{PEOPLE} chats over an adapter process that is killed as well"
            self.narrator.table(title, columns, dialogue_rows(history.dialogue))

    def _keep_logs(self, directory: Path) -> None:
        target = self._report.parent / "demo-logs"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for log in directory.rglob("*.log"):
            shutil.copy(log, target)
        self.narrator.tell(f"logs: {target}")
