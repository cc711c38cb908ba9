"""Faults of adapters: what is changed in a copy of the example, and which check must find it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A change of `examples/chat_adapter.py`.

    Attributes:
        old: Code of the example.
        new: What takes its place.
        found_by: The check that must fail.
    """

    old: str
    new: str
    found_by: str


_PUBLISH: Final = """                await adapter.publish(event_of(adapter, update), waits_for_room=True)
                after = update["id"]
"""
_LIMITED: Final = "        raise RetryAfter(error.seconds) from error\n"
_SEND: Final = """        with refusals():
            its = {"topic": target.thread_id, **more}
            return await self.platform.send(chat_of(target), text, **its)
"""
_EDIT: Final = """    if update["kind"] == "edit":
        return edited(event, version=message["version"])
"""

FAULTS: Final[Mapping[str, PlantedFault]] = {
    "cursor before storing": PlantedFault(
        _PUBLISH,
        """                event = event_of(adapter, update)
                self.publishing = asyncio.create_task(adapter.publish(event))
                after = update["id"]
""",
        "crash-before-storing",
    ),
    "new id for each attempt": PlantedFault(
        'message_id=message["id"]',
        "message_id=f\"{message['id']}-{__import__('uuid').uuid4()}\"",
        "repeats",
    ),
    "new id after a crash": PlantedFault(
        'message_id=message["id"]',
        "message_id=f\"{message['id']}-{__import__('os').getpid()}\"",
        "crash-after-storing",
    ),
    "sleeps in all chats on 429": PlantedFault(
        _LIMITED,
        "        __import__('time').sleep(error.seconds)\n" + _LIMITED,
        "limits",
    ),
    "sleeps in a chat on 429": PlantedFault(
        _SEND,
        """        its = {"topic": target.thread_id, **more}
        while True:
            try:
                return await self.platform.send(chat_of(target), text, **its)
            except TooManyRequestsError as error:
                await asyncio.sleep(error.seconds)
""",
        "stops",
    ),
    "swallows refusals": PlantedFault(
        "        raise ChatGone(str(error), failure=DeliveryFailure.BLOCKED) from error\n",
        "        del error\n",
        "refusals",
    ),
    "drops order": PlantedFault(
        """            for update in await self.platform.updates(after):
"""
        + _PUBLISH,
        """            for update in reversed(await self.platform.updates(after)):
                await adapter.publish(event_of(adapter, update), waits_for_room=True)
                after = max(after, update["id"])
""",
        "order",
    ),
    "answers beside the thread": PlantedFault(
        '"topic": target.thread_id', '"topic": None', "threads"
    ),
    "edits as messages": PlantedFault(_EDIT, "", "edits"),
    "too long": PlantedFault('TextLimit(MAX_TEXT, "utf16")', "None", "long-answers"),
}
