"""Dialogues beside another run: an adapter, two workers, and the people who talk through them.

For a NATS server without users.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from chatlane_client import open_connection
from chatlane_devkit.dialogue import adapter, worker
from chatlane_devkit.dialogue.dialogue_config import ACCOUNT, ADAPTER_USER, PLATFORM, WORKER_USER
from chatlane_devkit.dialogue.people import DialoguePeople
from chatlane_devkit.dialogue.record import Records, dialogue_of, parted
from chatlane_devkit.judge.dialogue_checks import ADAPTER
from chatlane_devkit.judge.event_log import EventLog, read_event_log
from chatlane_devkit.judge.history import History
from chatlane_servers.programs import Program

PEOPLE: Final = 4

# What people write, and how often.
_KINDS: Final[Mapping[str, int]] = {
    "choose": 4,
    "free": 1,
    "default": 1,
    "draft": 4,
    "long": 4,
    "say": 2,
    "buttons": 2,
    "reply": 1,
}
_WORKERS: Final = ("helper-1", "helper-2")


class DialogueRun:
    """The processes of dialogues, what they note, and their people.

    Args:
        nats_url: The server of the run.
        directory: For logs.
        tell: Prints a line.
    """

    def __init__(self, nats_url: str, directory: Path, tell: Callable[[str], None]) -> None:
        self._nats_url = nats_url
        self._tell = tell
        self._event_log = directory / "dialogues.jsonl"
        self._platform_log = directory / "platform.jsonl"
        self._log = EventLog(self._event_log, "demo")
        # The file exists also where no call is noted.
        self._platform_log.touch()
        scripts = {
            ADAPTER: (adapter.__file__, [str(self._platform_log)], ADAPTER_USER),
            **{
                name: (worker.__file__, [str(self._event_log), name], WORKER_USER)
                for name in _WORKERS
            },
        }
        self._programs = {
            name: Program(
                name,
                [script, *arguments],
                directory,
                {"NATS_URL": nats_url, "PRINCIPAL": principal},
            )
            for name, (script, arguments, principal) in scripts.items()
        }
        self._chats: Mapping[str, str] = {}

    @asynccontextmanager
    async def talking(self) -> AsyncIterator[None]:
        """Let people talk during the block; what is not answered in time is left to the judge."""
        for program in self._programs.values():
            program.start()
        try:
            async with (
                open_connection(
                    self._nats_url, name="dialogue people", principal=ADAPTER_USER
                ) as people,
                open_connection(
                    self._nats_url, name="dialogue timer", principal=WORKER_USER
                ) as timer,
            ):
                talkers = DialoguePeople(
                    people,
                    timer,
                    platform_log=self._platform_log,
                    log=EventLog(self._event_log, "people"),
                    count=PEOPLE,
                    kinds=_KINDS,
                )
                self._chats = talkers.chats
                try:
                    async with talkers.talking():
                        yield
                except TimeoutError as error:
                    self._tell(f"a dialogue did not go on: {error}")
        finally:
            await asyncio.gather(*(program.stop() for program in self._programs.values()))

    async def kill_processes(self) -> None:
        """Kill the adapter and one worker, and start them again."""
        names = (ADAPTER, _WORKERS[0])
        for name in names:
            await self._programs[name].kill()
            self._log.note("killed", name)
        self._tell("killed the adapter and one worker of the dialogues with SIGKILL")
        for name in names:
            self._programs[name].start()

    async def separated(self, history: History, records: Records) -> History:
        """Return a history in which the dialogues are by themselves, in `dialogue`.

        Args:
            history: Of the whole run.
            records: The database and the streams.
        """
        whole = replace(
            history,
            turns=await records.turns(),
            results=await records.results(),
            outbound=await records.outbound(),
            late=await records.late(),
            spells=read_event_log(self._event_log).spells,
        )
        others, of_dialogues = parted(whole)
        dialogue = await dialogue_of(
            records,
            of_dialogues,
            self._chats,
            event_log=self._event_log,
            platform_log=self._platform_log,
        )
        return replace(
            history,
            log=[it for it in history.log if not it.chat.startswith(f"{PLATFORM}.{ACCOUNT}.")],
            receipts=others.receipts,
            sessions=others.sessions,
            rows=others.rows,
            dialogue=dialogue,
        )
