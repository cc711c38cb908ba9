"""An agent that does what a message asks for, so that a browser has something to show."""

import asyncio
import json
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import Final

from chatlane_client import Reply, Turn
from chatlane_schemas import Button, TranscriptRow
from chatlane_schemas.live_turns import LivePiece, PieceKind, StepState
from chatlane_schemas.results import Reasoning, Role

_CALL: Final = "call_1"


class ScriptedAgent:
    """Answers each message by its first word.

    `wait` streams a beginning and waits until the test lets it go on. `look` calls a tool. `ask`
    asks with buttons. `fail` fails for good. Everything else is repeated, as Markdown.

    Attributes:
        answered: How often each text was answered.
        go_on: Set by a test that has seen enough of a running turn.
    """

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.go_on = asyncio.Event()

    async def __call__(self, turn: Turn) -> str | Reply:
        """Answer a turn."""
        text = turn.messages[-1].text or ""
        for message in turn.messages:
            self.answered[message.text or ""] += 1
        match text.split(maxsplit=1)[0] if text.strip() else "":
            case "wait":
                return await self._wait(turn, text)
            case "look":
                return await self._look(turn)
            case "ask":
                answer = await turn.ask(
                    "Which **day** suits you?",
                    [Button(label="Monday", value="mon"), Button(label="Friday", value="fri")],
                    within=timedelta(minutes=10),
                )
                return f"You chose {answer.value}."
            case "fail":
                raise ValueError
            case _:
                return f"You said: {text}"

    async def _wait(self, turn: Turn, text: str) -> str:
        await turn.delta("So far ")
        await turn.delta("so **good**")
        while not self.go_on.is_set() and not turn.is_stopping:  # noqa: ASYNC110 - a stop sets no event
            await asyncio.sleep(0.02)
        return f"Done: {text}"

    async def _look(self, turn: Turn) -> Reply:
        await turn.show(
            LivePiece(
                kind=PieceKind.TOOL_CALL,
                tool_id=_CALL,
                tool_name="timetable",
                title="Bergen to Oslo",
                state=StepState.RUNNING,
            )
        )
        result = json.dumps({"departures": ["08:14", "12:02", "16:20"]})
        await turn.show(LivePiece(kind=PieceKind.TOOL_RESULT, tool_id=_CALL, text=result))
        answer = (
            "There are three trains:\n\n| train | leaves | arrives |\n|---|---|---|\n"
            "| R40 | 08:14 | 15:02 |\n| R42 | 12:02 | 18:47 |\n| R44 | 16:20 | 23:05 |\n\n"
            "The one at **12:02** has a dining car. [Seats](https://example.org/seats) are free."
        )
        return Reply(
            parts=[answer],
            transcript=[
                TranscriptRow(
                    role=Role.ASSISTANT,
                    tool_calls=[
                        {
                            "id": _CALL,
                            "type": "function",
                            "function": {
                                "name": "timetable",
                                "arguments": json.dumps({"from": "Bergen", "to": "Oslo"}),
                            },
                        }
                    ],
                    reasoning=Reasoning(
                        text="The person wants trains, so I look at the timetable."
                    ),
                ),
                TranscriptRow(
                    role=Role.TOOL, tool_call_id=_CALL, tool_name="timetable", content=result
                ),
                TranscriptRow(role=Role.ASSISTANT, content=answer),
            ],
            usage={"input_tokens": 1840, "output_tokens": 212},
            costs={"cost_usd": Decimal("0.0125")},
            gauges={"context_tokens": 24_600, "context_limit": 128_000},
        )
