"""The processes of dialogues: one adapter, two workers; and the people who talk to them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from chatlane_client import open_connection
from tests.support.dialogue.people import DialoguePeople
from tests.support.dialogue.setting import ADAPTER_USER, WORKER_USER
from tests.support.service.event_log import EventLog
from tests.support.service.processes import Service

# The judge asks when this process ended.
ADAPTER: Final = "adapter"
_HERE: Final = Path(__file__).parent


def platform_log_of(service: Service) -> Path:
    """Return the file in which the adapter notes the calls of its platform."""
    return service.directory / "platform.jsonl"


def start_dialogues(service: Service) -> None:
    """Start the adapter and the workers."""
    platform_log = str(platform_log_of(service))
    service.program(ADAPTER, _HERE / "adapter.py", platform_log, user=ADAPTER_USER)
    for number in (1, 2):
        name = f"worker-talk-{number}"
        event_log = str(service.event_log)
        service.program(name, _HERE / "worker.py", event_log, name, user=WORKER_USER)


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
        ) as adapter,
        open_connection(
            service.nats_url,
            name="timer",
            principal=WORKER_USER,
            nkey_seed_file=str(service.keys.seed_file(WORKER_USER)),
        ) as worker,
    ):
        yield DialoguePeople(
            adapter,
            worker,
            platform_log=platform_log_of(service),
            log=EventLog(service.event_log, "talkers"),
            count=count,
            kinds=kinds,
        )
