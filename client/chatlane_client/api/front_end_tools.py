"""Call tools that run in the front end of the person of a turn, and share a state with it."""

import json
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

from pydantic import ValidationError

from chatlane_client.errors import FrontEndCallError
from chatlane_client.turn import Turn
from chatlane_schemas.content.front_end import FrontEndCall, FrontEndTool

_WITHIN: Final = timedelta(minutes=5)
_STATE_WITHIN: Final = timedelta(seconds=30)
_STATE: Final = "state"


class FrontEndTools:
    """The tools and the state of the front end of a turn; calls are made one after the other.

    A call is known by its tool, its arguments, and how many calls of the attempt before it had the
    same. Another attempt at the turn that makes the same call gets the result that is there.

    The front end wrote names, descriptions, schemas and state. They are as trustworthy as its person.

    Attributes:
        declared: The tools, by name.
        state: The state that the front end shares, as it last was here. Change it by `set_state`.
        has_state: Whether the front end shares a state.
    """

    def __init__(self, turn: Turn, *, within: timedelta = _WITHIN) -> None:
        """Create it.

        Args:
            turn: The turn.
            within: Time for the result of a call.
        """
        self._turn = turn
        self._within = within
        front_end = turn.front_end
        tools = () if front_end is None else front_end.tools
        self.declared: Mapping[str, FrontEndTool] = {tool.name: tool for tool in tools}
        self.has_state = front_end is not None and front_end.state is not None
        self.state: Mapping[str, Any] = {} if front_end is None else front_end.shared_state()

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
            call = self._call(name, json.dumps(arguments or {}, sort_keys=True, allow_nan=False))
        except (TypeError, ValueError, RecursionError, ValidationError) as exc:
            raise FrontEndCallError("the arguments are no JSON, or too large") from exc
        answer = await self._turn.call_front_end(call, within=self._within)
        if answer.value is None:
            raise FrontEndCallError("the front end has not answered in time")
        return answer.value

    async def set_state(
        self, values: Mapping[str, Any], *, within: timedelta = _STATE_WITHIN
    ) -> bool:
        """Replace the state of the front end.

        Another attempt at the turn that sets a state sends it again.

        Args:
            values: The whole state, which has to be JSON of at most 32 KiB.
            within: How long to wait for a front end that follows the turn.

        Returns:
            Whether the front end has got it. It has not if it shares no state, or if the person has
            left it.

        Raises:
            FrontEndCallError: The state cannot be sent.
            ConflictingRequestError: The turn has an open question, is to end, or has ended.
            QuestionWithdrawnError: A person changed a message of the turn meanwhile.
        """
        try:
            # As short as the front end may send it back.
            text = json.dumps(values, sort_keys=True, allow_nan=False, ensure_ascii=False)
            call = FrontEndCall(id=uuid4().hex, name=_STATE, arguments=text, is_state=True)
        except (TypeError, ValueError, RecursionError, ValidationError) as exc:
            raise FrontEndCallError("the state is no JSON object, or too large") from exc
        if not self.has_state:
            return False
        answer = await self._turn.call_front_end(call, within=within)
        if answer.value is None:
            return False
        self.state = json.loads(text)
        return True

    def _call(self, name: str, arguments: str) -> FrontEndCall:
        """Return a call with the id that it has in every attempt.

        Raises:
            ValidationError: The arguments are too large.
        """
        digest = sha256(f"{name}\0{arguments}".encode()).hexdigest()
        calls = self._turn.signals.calls
        calls[digest] += 1
        call_id = sha256(f"{digest} {calls[digest]}".encode()).hexdigest()[:32]
        return FrontEndCall(id=call_id, name=name, arguments=arguments)
