"""Call tools that run in the front end of the person of a turn."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from pydantic import ValidationError

from chatlane_client.errors import FrontEndCallError
from chatlane_client.turn import Turn
from chatlane_schemas.content.front_end import FrontEndCall, FrontEndTool

_WITHIN: Final = timedelta(minutes=5)


class FrontEndTools:
    """The tools of the front end of a turn, called one after the other; make one object for a turn.

    A call is known by its tool, its arguments, and how many calls before it had the same. Another
    attempt at the turn that makes the same call gets the result that is there.

    The front end wrote names, descriptions and schemas. They are as trustworthy as its person.

    Attributes:
        declared: The tools, by name.
    """

    def __init__(self, turn: Turn, *, within: timedelta = _WITHIN) -> None:
        """Create it.

        Args:
            turn: The turn.
            within: Time for the result of a call.
        """
        self._turn = turn
        self._within = within
        self._called: Counter[str] = Counter()
        # A turn has one open question at a time, and a model may make several calls at once.
        self._calling = asyncio.Lock()
        front_end = turn.front_end
        tools = () if front_end is None else front_end.tools
        self.declared: Mapping[str, FrontEndTool] = {tool.name: tool for tool in tools}

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Call a tool and return its result, as the front end wrote it.

        Args:
            name: The tool.
            arguments: Its arguments, which have to be JSON of at most 60 KiB.

        Raises:
            FrontEndCallError: The front end has no such tool, the arguments cannot be sent, or
                there was no result in time.
            ConflictingRequestError: The turn has an open question, is to end, or has ended.
            QuestionWithdrawnError: A person changed a message of the turn meanwhile.
        """
        if name not in self.declared:
            raise FrontEndCallError("the front end has no such tool")
        try:
            text = json.dumps(arguments or {}, sort_keys=True, allow_nan=False)
            digest = sha256(f"{name}\0{text}".encode()).hexdigest()
            self._called[digest] += 1
            key = f"{digest} {self._called[digest]}"
            call_id = sha256(key.encode()).hexdigest()[:32]
            call = FrontEndCall(id=call_id, name=name, arguments=text)
        except (TypeError, ValueError, RecursionError, ValidationError) as exc:
            raise FrontEndCallError("the arguments are no JSON, or too large") from exc
        async with self._calling:
            answer = await self._turn.call_front_end(call, within=self._within)
        if answer.value is None:
            raise FrontEndCallError("the front end has not answered in time")
        return answer.value
