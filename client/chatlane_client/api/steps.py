"""Run steps of a turn whose results later attempts at the turn get back."""

import json
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, TypeVar, cast

from chatlane_client.api.requests import Requests
from chatlane_client.claims import Grant
from chatlane_client.errors import ConflictingRequestError, RefusedRequestError, StepError
from chatlane_client.turn_voice import QuestionAnswer
from chatlane_schemas.questions import (
    ANSWER_PREFIX,
    LARGEST_STEP,
    LONGEST_STEP_NAME,
    StepReply,
    TurnKeep,
    TurnStep,
)

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

_FIRST_ATTEMPT: Final = 1


class TurnSteps:
    """Runs the steps of one attempt at a turn, each name once."""

    def __init__(self, requests: Requests, grant: Grant) -> None:
        self._requests = requests
        self._grant = grant
        self._names: set[str] = set()

    async def run(
        self,
        name: str,
        function: Callable[_Params, Awaitable[_Result]],
        *args: _Params.args,
        **kwargs: _Params.kwargs,
    ) -> _Result:
        """Return the result of a step that an earlier attempt has kept, or run and keep it.

        Raises:
            StepError: The name is taken, or the result cannot be kept.
            ConflictingRequestError: This attempt does not run any more.
        """
        self._take(name)
        try:
            kept = await self._find(name)
            if kept is None:
                kept = await self._keep(name, _as_json(await function(*args, **kwargs)))
        except BaseException:
            # The handler may try a step again that has failed.
            self._names.discard(name)
            raise
        return cast("_Result", json.loads(kept))

    async def answer(self, name: str) -> QuestionAnswer | None:
        """Return the answer to a question that parked the turn; None without one.

        Raises:
            ConflictingRequestError: This attempt does not run any more.
        """
        kept = await self._find(ANSWER_PREFIX + name)
        if kept is None:
            return None
        answer = json.loads(kept)
        return QuestionAnswer(answer.get("value"), answer["is_default"], answer.get("values"))

    def _take(self, name: str) -> None:
        if not 0 < len(name) <= LONGEST_STEP_NAME:
            raise StepError(f"the name of a step has 1 to {LONGEST_STEP_NAME} characters")
        if name.startswith(ANSWER_PREFIX):
            raise StepError(f"the name of a step does not begin with {ANSWER_PREFIX}")
        if name in self._names:
            raise StepError("two steps of the turn have the same name")
        self._names.add(name)

    async def _find(self, name: str) -> str | None:
        # Nothing was kept before the first attempt, which most turns have only.
        if self._grant.attempt == _FIRST_ATTEMPT:
            return None
        request = TurnStep(**self._grant.stamp(), name=name)
        return (await self._requests.ask("turn", "step", request, StepReply)).result

    async def _keep(self, name: str, result: str) -> str:
        request = TurnKeep(**self._grant.stamp(), name=name, result=result)
        try:
            reply = await self._requests.ask("turn", "keep", request, StepReply)
        except ConflictingRequestError:
            raise
        except RefusedRequestError as exc:
            raise StepError(exc.message) from exc
        # A turn that is to end keeps nothing.
        return result if reply.result is None else reply.result


def _as_json(result: object) -> str:
    """Return a result as JSON text of ASCII characters.

    Raises:
        StepError: It would come back as something else, or it is too large.
    """
    try:
        text = json.dumps(result, allow_nan=False)
        is_same = json.loads(text) == result
    except (TypeError, ValueError, RecursionError) as exc:
        raise StepError(f"the result of a step is no JSON: {type(exc).__name__}") from exc
    if not is_same:
        raise StepError("the result of a step is no JSON: it would come back as something else")
    if len(text) > LARGEST_STEP:
        raise StepError(f"the result of a step has more than {LARGEST_STEP} bytes of JSON")
    return text
