"""Steps of a turn, against a router in memory."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf, nan
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from chatlane_client import StepError
from chatlane_client.api.steps import TurnSteps
from chatlane_client.claims import AttemptStamp, Grant
from chatlane_schemas import Envelope, new_envelope_id
from chatlane_schemas.questions import LARGEST_STEP, StepReply, TurnKeep, TurnStep

if TYPE_CHECKING:
    from chatlane_client.api.requests import Requests


@dataclass
class MemoryRouter:
    """Keeps results, and hands out attempts."""

    kept: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    attempt: int = 0

    async def ask(self, noun: str, verb: str, request: Envelope, _: type[StepReply]) -> StepReply:
        self.requests.append(f"{noun}.{verb}")
        if isinstance(request, TurnKeep):
            result: str | None = self.kept.setdefault(request.name, request.result)
        else:
            assert isinstance(request, TurnStep)
            result = self.kept.get(request.name)
        return StepReply(id=new_envelope_id(), at=datetime.now(UTC), result=result)

    def stamp(self) -> AttemptStamp:
        now, nil = datetime.now(UTC), UUID(int=0)
        return {
            "id": new_envelope_id(),
            "at": now,
            "session_id": nil,
            "turn_id": nil,
            "attempt": self.attempt,
            "token": "t",
        }

    def next_attempt(self) -> TurnSteps:
        self.attempt += 1
        # Both in one: requests and grant are used for these methods only.
        return TurnSteps(cast("Requests", self), cast("Grant", self))


@dataclass
class Tool:
    """Returns or raises something, and counts its calls."""

    result: Any = None
    error: Exception | None = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any step
        self.calls.append((*args, *kwargs.values()))
        if self.error is not None:
            raise self.error
        return self.result


@pytest.fixture
def router() -> MemoryRouter:
    return MemoryRouter()


@pytest.mark.parametrize(
    "result",
    [None, True, 0, 1.5, "", "Größe \U0001f600 \x00 \ud800", [], [1, [2]], {"a": {"b": None}}],
)
async def test_a_later_attempt_gets_the_result_without_a_call(
    router: MemoryRouter, result: object
) -> None:
    tool = Tool(result)
    assert await router.next_attempt().run("search", tool, "oslo", days=2) == result
    assert await router.next_attempt().run("search", tool, "oslo", days=2) == result
    assert tool.calls == [("oslo", 2)]
    assert router.requests == ["turn.keep", "turn.step"]
    assert router.kept["search"].isascii()


async def test_what_a_function_changes_afterwards_is_not_in_its_result(
    router: MemoryRouter,
) -> None:
    tool = Tool([1])
    result = await router.next_attempt().run("search", tool)
    tool.result.append(2)
    assert result == [1]


@pytest.mark.parametrize(
    "result", [(1, 2), {1: "a"}, {1, 2}, nan, inf, b"x", object(), datetime.now(UTC), [(1,)]]
)
async def test_a_result_that_would_come_back_otherwise_is_refused(
    router: MemoryRouter, result: object
) -> None:
    with pytest.raises(StepError, match="no JSON") as caught:
        await router.next_attempt().run("search", Tool(result))
    assert not caught.value.retry
    assert router.kept == {}


async def test_a_result_without_an_end_is_refused(router: MemoryRouter) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(StepError):
        await router.next_attempt().run("search", Tool(endless))


async def test_a_result_may_have_its_largest_size_and_no_more(router: MemoryRouter) -> None:
    steps = router.next_attempt()
    await steps.run("fits", Tool("x" * (LARGEST_STEP - 2)))
    with pytest.raises(StepError, match="more than"):
        await steps.run("large", Tool("x" * (LARGEST_STEP - 1)))
    assert router.kept.keys() == {"fits"}


async def test_two_steps_of_a_name_are_an_error_before_the_second_runs(
    router: MemoryRouter,
) -> None:
    steps, tool = router.next_attempt(), Tool(1)
    await steps.run("search", tool)
    with pytest.raises(StepError, match="same name"):
        await steps.run("search", tool)
    assert len(tool.calls) == 1


async def test_a_step_that_runs_has_its_name(router: MemoryRouter) -> None:
    steps, begun, go_on = router.next_attempt(), asyncio.Event(), asyncio.Event()

    async def wait() -> int:
        begun.set()
        await go_on.wait()
        return 1

    first = asyncio.create_task(steps.run("search", wait))
    await begun.wait()
    with pytest.raises(StepError, match="same name"):
        await steps.run("search", Tool(2))
    go_on.set()
    assert await first == 1


async def test_a_failure_is_not_kept_and_may_be_tried_again(router: MemoryRouter) -> None:
    steps, tool = router.next_attempt(), Tool(1, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await steps.run("search", tool)
    assert router.kept == {}
    tool.error = None
    assert await steps.run("search", tool) == 1


async def test_a_cancelled_step_is_not_kept(router: MemoryRouter) -> None:
    steps, begun = router.next_attempt(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(steps.run("search", wait))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert router.kept == {}
    assert await router.next_attempt().run("search", Tool(1)) == 1


@pytest.mark.parametrize("name", ["", "x" * 257])
async def test_a_name_is_not_empty_and_not_long(router: MemoryRouter, name: str) -> None:
    with pytest.raises(StepError, match="characters"):
        await router.next_attempt().run(name, Tool(1))
