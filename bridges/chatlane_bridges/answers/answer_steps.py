"""The thoughts and tool calls of an answer while it comes; each is given once."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from chatlane_bridges.answers.answer_text import AnswerText
from chatlane_bridges.answers.tool_rows import tool_calls_of
from chatlane_schemas.live_turns import LivePiece, PieceKind, StepState, TurnPiece, TurnRecap
from chatlane_schemas.session_api.transcripts import TranscriptEntry

_FAILED = "failed"


class Thought(NamedTuple):
    """More of what the agent thinks."""

    text: str


class ToolCall(NamedTuple):
    """A call of a tool; a call that is shown live has no arguments."""

    id: str
    name: str
    arguments: object | None = None


class ToolResult(NamedTuple):
    """The result of a call, whose `ToolCall` came before."""

    id: str
    text: str


class NewState(NamedTuple):
    """A new state for the front end, which the agent offers until it is confirmed."""

    question_id: UUID
    values: Mapping[str, Any]


Step: TypeAlias = Thought | ToolCall | ToolResult | NewState


class AnswerSteps:
    """Joins live pieces over attempts and recaps, and adds the calls that only stored rows have."""

    def __init__(self) -> None:
        self._thoughts = AnswerText(PieceKind.THOUGHT)
        self._calls: set[str] = set()
        self._results: set[str] = set()
        self._attempt = 0

    def note_shown(self, thoughts: str, calls: Iterable[str]) -> None:
        """Note the steps of the turn that the client has from an earlier request."""
        self._thoughts.note_shown(thoughts)
        self._calls.update(calls)
        self._results.update(self._calls)

    def take(self, piece: TurnPiece) -> Iterator[Step]:
        """Yield the steps that a piece adds; a piece of an earlier attempt adds none."""
        yield from self._think(self._thoughts.take(piece))
        yield from self._use(piece.attempt, (piece.piece,))

    def take_recap(self, recap: TurnRecap) -> Iterator[Step]:
        """Yield the steps that a recap adds."""
        yield from self._think(self._thoughts.take_recap(recap))
        yield from self._use(recap.attempt, recap.pieces)

    def settle(self, rows: Iterable[TranscriptEntry]) -> Iterator[Step]:
        """Yield the calls and results of stored rows of the turn that are not given yet."""
        for row in rows:
            for tool_id, name, arguments in tool_calls_of(row):
                yield from self._call(ToolCall(tool_id, name, arguments))
            if row.tool_call_id and not row.is_placeholder:
                yield from self._call(ToolCall(row.tool_call_id, row.tool_name or ""))
                yield from self._return(ToolResult(row.tool_call_id, row.content or ""))

    def _think(self, text: str) -> Iterator[Step]:
        if text:
            yield Thought(text)

    def _use(self, attempt: int, pieces: Iterable[LivePiece]) -> Iterator[Step]:
        if attempt < self._attempt:
            return
        self._attempt = attempt
        for piece in pieces:
            if piece.kind not in {PieceKind.TOOL_CALL, PieceKind.TOOL_RESULT} or not piece.tool_id:
                continue
            yield from self._call(ToolCall(piece.tool_id, piece.tool_name or piece.title or ""))
            if piece.kind is PieceKind.TOOL_RESULT:
                text = piece.text or (_FAILED if piece.state is StepState.FAILED else "")
                yield from self._return(ToolResult(piece.tool_id, text))

    def _call(self, call: ToolCall) -> Iterator[Step]:
        if call.id not in self._calls:
            self._calls.add(call.id)
            yield call

    def _return(self, result: ToolResult) -> Iterator[Step]:
        if result.id not in self._results:
            self._results.add(result.id)
            yield result
