"""Keep what tools return, so that another attempt at a turn does not call them again."""

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from chatlane_client.errors import StepError
from chatlane_client.turn import Turn

_LONGEST_NAME = 200


class KeptCalls:
    """Runs the calls of tools of one attempt as steps of its turn.

    A call is known by its tool, its arguments, and how many calls before it had the same. So another
    attempt gets its result also if the model gives the call another id.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._called: Counter[str] = Counter()

    async def run(self, name: str, arguments: str, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - what a tool returns
        """Return the result of a call in an earlier attempt, or call.

        A result that is no JSON, or too large, is returned and not kept. Nothing is kept of a turn
        with a message that expires: it may be in the result.

        Args:
            name: Name of the tool.
            arguments: Its arguments as JSON.
            call: Calls the tool; what it raises is not kept.
        """
        if any(message.expires_at is not None for message in self._turn.messages):
            return await call()
        digest = hashlib.sha256(arguments.encode()).hexdigest()[:16]
        step = f"tool {name[:_LONGEST_NAME]} {digest}"
        self._called[step] += 1
        returned: list[Any] = []

        async def note() -> Any:  # noqa: ANN401 - what a tool returns
            returned.append(await call())
            return returned[0]

        try:
            return await self._turn.step(f"{step} {self._called[step]}", note)
        except StepError:
            if not returned:
                raise
            return returned[0]
