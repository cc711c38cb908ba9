"""What the worker of the language-model example answers when its turn is stopped, on a real endpoint."""

import asyncio
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from chatlane_client import NoReply, Reply
from chatlane_client.control import Signals
from chatlane_devkit.model_endpoint import open_model_endpoint
from chatlane_schemas import Role
from chatlane_schemas.turns import CancelReason
from tests.support.turns import turn_of

EXAMPLE: Final = Path(__file__).parents[4] / "examples" / "llm_worker.py"


def example() -> Any:  # noqa: ANN401 - a module that is no package
    spec = importlib.util.spec_from_file_location("llm_worker", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("words", ["Let me look.", ""])
async def test_a_turn_that_is_stopped_while_a_tool_runs_has_its_text_once(words: str) -> None:
    begun, signals, worker = asyncio.Event(), Signals(), example()

    async def look() -> str:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    worker.TOOLS["look"] = (look, "Looks.", {})
    turn = replace(turn_of(f"{words}\ncall look {{}}"), signals=signals)
    async with open_model_endpoint() as model, httpx.AsyncClient(base_url=model.url) as http:
        answering = asyncio.ensure_future(signals.obeyed_by(worker.Model(http).answer(turn)))
        await begun.wait()
        signals.tell(CancelReason.STOPPED, steer=False)
        answer = await answering
    assert isinstance(answer, Reply if words else NoReply)
    assert [(row.role, row.content) for row in answer.transcript] == [
        (Role.ASSISTANT, words or None)
    ]
    assert answer.transcript[0].tool_calls


async def test_an_unknown_model_is_left_out() -> None:
    worker = example()
    worker.MODELS[:] = ["unknown", "known"]
    async with open_model_endpoint() as model, httpx.AsyncClient(base_url=model.url) as http:
        model.refusals.append((404, {}))
        answer = await worker.Model(http).answer(turn_of("hello"))
    assert isinstance(answer, Reply)
    assert (answer.parts, [request["model"] for request in model.requests]) == (
        ["You said: hello (after 0 messages)"],
        ["unknown", "known"],
    )
