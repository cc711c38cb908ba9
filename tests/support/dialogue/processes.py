"""The processes of dialogues: one adapter, two workers; and the people who talk to them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from chatlane_client import open_connection
from chatlane_devkit.dialogue import adapter, worker
from chatlane_devkit.dialogue.dialogue_config import ADAPTER_USER, WORKER_USER
from chatlane_devkit.dialogue.people import DialoguePeople
from chatlane_devkit.judge.event_log import EventLog
from tests.support.service.processes import Service

# The judge asks when this process ended.
ADAPTER: Final = "adapter"


def platform_log_of(service: Service) -> Path:
    """Return the file in which the adapter notes the calls of its platform."""
    return service.directory / "platform.jsonl"


def start_dialogues(service: Service) -> None:
    """Start the adapter and the workers."""
    platform_log = str(platform_log_of(service))
    service.program(ADAPTER, Path(adapter.__file__), platform_log, user=ADAPTER_USER)
    for number in (1, 2):
        name = f"worker-talk-{number}"
        event_log = str(service.event_log)
        service.program(name, Path(worker.__file__), event_log, name, user=WORKER_USER)


@asynccontextmanager
async def open_dialogue_people(
    service: Service, count: int, kinds: Mapping[str, int]
) -> AsyncIterator[DialoguePeople | None]:
    """Connect people to the service; None if there are to be none."""
    if not count:
        yield None
        return
    assert service.keys is not None
    assert service.event_log is not None
    async with (
        open_connection(
            service.nats_url,
            name="people",
            principal=ADAPTER_USER,
            nkey_seed_file=str(service.keys.seed_file(ADAPTER_USER)),
        ) as people,
        open_connection(
            service.nats_url,
            name="timer",
            principal=WORKER_USER,
            nkey_seed_file=str(service.keys.seed_file(WORKER_USER)),
        ) as timer,
    ):
        yield DialoguePeople(
            people,
            timer,
            platform_log=platform_log_of(service),
            log=EventLog(service.event_log, "talkers"),
            count=count,
            kinds=kinds,
        )
