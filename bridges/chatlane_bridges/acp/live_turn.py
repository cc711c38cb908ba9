"""The view of a turn in an editor: its live pieces, and what its stored rows add to them."""

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID, uuid4

from chatlane_bridges.acp import updates
from chatlane_bridges.acp.editor import Update
from chatlane_bridges.answers.tool_rows import tool_calls_of
from chatlane_schemas.live_turns import LivePiece, PieceKind, StepState, TurnPiece, TurnRecap
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry

_FINISHED = frozenset({StepState.DONE, StepState.FAILED})


class StreamedText:
    """A text that grows; each part of it is shown once.

    Another attempt begins the text again. Only what differs from the shown text is shown then, as
    another message, because an editor cannot take words back.
    """

    def __init__(self, show: Callable[[str, str], Update]) -> None:
        self._show = show
        self._text = ""
        self.shown = ""
        self._message_id: str | None = None

    def add(self, text: str) -> Iterator[Update]:
        """Yield an update for the new text after a part."""
        yield from self.replace(self._text + text)

    def replace(self, text: str) -> Iterator[Update]:
        """Yield an update for the new text in the whole text."""
        self._text = text
        if self.shown.startswith(text):
            return
        if not text.startswith(self.shown):
            self.shown = ""
            self.end_message()
        yield self._part(text[len(self.shown) :])
        self.shown = text

    def finish(self, rest: str) -> Iterator[Update]:
        """Yield the rest of a message that is not streamed to its end."""
        self.shown += rest
        yield self._part(rest)

    def end_message(self) -> None:
        """Let the next part begin another message."""
        self._message_id = None

    def begin_again(self) -> None:
        """Expect the text of another attempt."""
        self._text = ""

    def _part(self, text: str) -> Update:
        self._message_id = self._message_id or str(uuid4())
        return self._show(text, self._message_id)


class LiveTurn:
    """The updates of one turn, each shown once over attempts, recaps and the stored rows."""

    def __init__(self, turn_id: UUID) -> None:
        self.turn_id = turn_id
        self._attempt = 0
        # Whether the text of this attempt is not known from its beginning.
        self._is_cut = False
        self._text = StreamedText(updates.agent_text)
        self._thought = StreamedText(updates.agent_thought)
        self._tools: dict[str, StepState] = {}
        self._shown_rows: set[int] = set()
        self._questions: set[str] = set()
        # Characters of the streamed text that stored rows have.
        self._stored = 0

    def asks(self, *texts: str | None) -> None:
        """Note the texts of a question, whose rows are not shown as words of the agent."""
        self._questions.update(text for text in texts if text)

    def begin(self, attempt: int) -> Iterator[Update]:
        """Yield the changes of another attempt: calls that did not end have failed."""
        if attempt <= self._attempt:
            return
        if self._attempt:
            yield from self._fail_open_calls()
            self._text.begin_again()
            self._thought.begin_again()
        self._attempt = attempt
        self._is_cut = False

    def take(self, piece: TurnPiece) -> Iterator[Update]:
        """Yield a piece."""
        yield from self.begin(piece.attempt)
        if piece.attempt == self._attempt:
            yield from self._show(piece.piece)

    def take_recap(self, recap: TurnRecap) -> Iterator[Update]:
        """Yield the additions of a recap; the text of a shortened one comes with the stored answer."""
        yield from self.begin(recap.attempt)
        if recap.attempt != self._attempt:
            return
        texts = {PieceKind.TEXT: "", PieceKind.THOUGHT: ""}
        for piece in recap.pieces:
            if piece.kind in texts:
                texts[piece.kind] += piece.text or ""
            else:
                yield from self._show(piece)
        self._is_cut = recap.is_shortened
        if not self._is_cut:
            yield from self._thought.replace(texts[PieceKind.THOUGHT])
            yield from self._text.replace(texts[PieceKind.TEXT])

    def settle(self, rows: Iterable[TranscriptEntry], *, is_over: bool) -> Iterator[Update]:
        """Yield the parts of the stored rows that the editor does not show yet.

        Args:
            rows: Rows of the turn, in order.
            is_over: Whether the turn has ended; before, its rows are what it said or asked.
        """
        for row in rows:
            if row.seq in self._shown_rows:
                continue
            if not is_over and self._is_streaming(row):
                break
            self._shown_rows.add(row.seq)
            if row.role is Role.ASSISTANT:
                yield from self._settle_words(row, is_over=is_over)
                for stored_id, name, arguments in tool_calls_of(row):
                    tool_id = updates.tool_key(row.turn_id, stored_id)
                    if tool_id not in self._tools:
                        self._text.end_message()
                        self._tools[tool_id] = StepState.RUNNING
                        yield updates.tool_start(tool_id, name, StepState.RUNNING, arguments)
            elif row.role is Role.TOOL:
                yield from self._settle_result(row)
        if is_over:
            yield from self._fail_open_calls()

    def _is_streaming(self, row: TranscriptEntry) -> bool:
        """Return whether the editor shows a beginning of the row, so that its pieces still come."""
        unread = self._text.shown[self._stored :].lstrip()
        words = row.content or ""
        return row.role is Role.ASSISTANT and "" < unread != words and words.startswith(unread)

    def _settle_words(self, row: TranscriptEntry, *, is_over: bool) -> Iterator[Update]:
        if row.reasoning is not None and row.reasoning.text and not self._thought.shown:
            yield updates.agent_thought(row.reasoning.text, updates.message_key(row))
        words = row.content
        # The field of a form may have a hint below it.
        if not words or not self._questions.isdisjoint({words, words.partition("\n")[0]}):
            return
        rest = self._text.shown[self._stored :]
        unread = rest.lstrip()
        if unread.startswith(words):
            self._stored += len(rest) - len(unread) + len(words)
        elif is_over and unread and words.startswith(unread):
            yield from self._text.finish(words[len(unread) :])
            self._stored = len(self._text.shown)
        else:
            yield updates.agent_text(words, updates.message_key(row))

    def _settle_result(self, row: TranscriptEntry) -> Iterator[Update]:
        tool_id = updates.tool_key(self.turn_id, row.tool_call_id or "")
        if row.is_placeholder or self._tools.get(tool_id) in _FINISHED:
            return
        if tool_id not in self._tools:
            yield updates.tool_start(tool_id, row.tool_name)
        self._tools[tool_id] = StepState.DONE
        yield updates.tool_change(tool_id, state=StepState.DONE, result=row.content or "")

    def _show(self, piece: LivePiece) -> Iterator[Update]:
        match piece.kind:
            case PieceKind.TEXT | PieceKind.THOUGHT:
                text = self._text if piece.kind is PieceKind.TEXT else self._thought
                if not self._is_cut:
                    yield from text.add(piece.text or "")
            case PieceKind.TOOL_CALL | PieceKind.TOOL_RESULT:
                yield from self._show_tool(piece)
            case PieceKind.PLAN:
                yield updates.plan(piece.plan or ())
            case PieceKind.USAGE:
                yield from updates.context_use(piece.usage or {})
            case _:
                # Editors have no place for a note on what happens now.
                pass

    def _show_tool(self, piece: LivePiece) -> Iterator[Update]:
        tool_id = updates.tool_key(self.turn_id, piece.tool_id or "")
        is_result = piece.kind is PieceKind.TOOL_RESULT
        known = self._tools.get(tool_id)
        state = piece.state or known or StepState.PENDING
        if is_result and state is not StepState.FAILED:
            state = StepState.DONE
        self._tools[tool_id] = state
        if known is None:
            self._text.end_message()
            self._thought.end_message()
            yield updates.tool_start(tool_id, piece.title or piece.tool_name, state)
            if not is_result:
                return
        result = piece.text if is_result else None
        yield updates.tool_change(tool_id, title=piece.title, state=state, result=result)

    def _fail_open_calls(self) -> Iterator[Update]:
        for tool_id, state in self._tools.items():
            if state not in _FINISHED:
                self._tools[tool_id] = StepState.FAILED
                yield updates.tool_change(tool_id, state=StepState.FAILED)
