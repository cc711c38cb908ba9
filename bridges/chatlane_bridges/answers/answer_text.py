"""The text of an answer while it comes: each part is given once, and nothing is taken back."""

from collections.abc import Iterable
from typing import Final

from chatlane_schemas.live_turns import PieceKind, TurnPiece, TurnRecap
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry

PARAGRAPH: Final = "\n\n"


class AnswerText:
    """Joins live pieces over attempts and recaps, and what the stored rows add to them.

    A text that differs from what was given before begins another paragraph: a client cannot take
    words back.

    Attributes:
        given: All that was given so far.
    """

    def __init__(self, kind: PieceKind = PieceKind.TEXT) -> None:
        """Create it for the pieces of a kind: texts or thoughts."""
        self.given = ""
        self._kind = kind
        # The live text of this attempt, and the part of it that was given.
        self._text = ""
        self._shown = ""
        # Characters of the given live text that stored rows have.
        self._stored = 0
        self._attempt = 0
        self._is_cut = False
        self._begins_paragraph = False
        self._rows: set[int] = set()

    def note_shown(self, text: str) -> None:
        """Note the text of the turn that the client has from an earlier request."""
        self._shown = text

    def take(self, piece: TurnPiece) -> str:
        """Return the new text after a piece."""
        self._begin(piece.attempt)
        if piece.attempt != self._attempt or piece.piece.kind is not self._kind:
            return ""
        return "" if self._is_cut else self._replace(self._text + (piece.piece.text or ""))

    def take_recap(self, recap: TurnRecap) -> str:
        """Return the text that a recap adds; that of a shortened one comes with the stored answer."""
        self._begin(recap.attempt)
        if recap.attempt != self._attempt:
            return ""
        self._is_cut = recap.is_shortened
        if self._is_cut:
            return ""
        texts = (piece.text or "" for piece in recap.pieces if piece.kind is self._kind)
        return self._replace("".join(texts))

    def settle(self, rows: Iterable[TranscriptEntry], *, is_over: bool) -> str:
        """Return the text of stored rows of the agent that the client does not have.

        Args:
            rows: Rows of the turn after the message, in order.
            is_over: Whether the turn has ended; before, its rows are what it said or asked.
        """
        new = ""
        for row in rows:
            if row.role is not Role.ASSISTANT or not row.content or row.seq in self._rows:
                continue
            unread = self._shown[self._stored :].strip()
            if not is_over and unread and row.content.startswith(unread):
                # Its pieces are still to come.
                break
            self._rows.add(row.seq)
            new += self._settle_words(row.content, is_over=is_over)
        return new

    def add(self, text: str) -> str:
        """Return a paragraph that is no part of the answer, as it is given."""
        return self._give(text, begins_paragraph=True)

    def _settle_words(self, words: str, *, is_over: bool) -> str:
        rest = self._shown[self._stored :]
        unread = rest.lstrip()
        if unread.startswith(words):
            self._stored += len(rest) - len(unread) + len(words)
            return ""
        if is_over and unread and words.startswith(unread):
            self._shown += words[len(unread) :]
            self._stored = len(self._shown)
            return self._give(words[len(unread) :], begins_paragraph=False)
        new = self._give(words, begins_paragraph=True)
        self._begins_paragraph = True
        return new

    def _begin(self, attempt: int) -> None:
        if attempt > self._attempt:
            self._attempt, self._text, self._is_cut = attempt, "", False

    def _replace(self, text: str) -> str:
        self._text = text
        if self._shown.startswith(text):
            return ""
        is_other = not text.startswith(self._shown)
        if is_other:
            self._shown, self._stored = "", 0
        new = text[len(self._shown) :]
        self._shown = text
        begins, self._begins_paragraph = self._begins_paragraph or is_other, False
        return self._give(new, begins_paragraph=begins)

    def _give(self, text: str, *, begins_paragraph: bool) -> str:
        new = f"{PARAGRAPH}{text}" if begins_paragraph and self.given else text
        self.given += new
        return new
