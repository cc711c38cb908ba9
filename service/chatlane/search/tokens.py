"""What of a text can be found, by which words, and how a search is read.

Words are runs of letters and digits, without case and accents. Scripts that write no spaces
between words (Chinese, Japanese, Thai, ...) and Korean, whose words change with what is glued to
them, are cut into overlapping pairs of characters: then any piece of a sentence is found, and
exactly that piece, because the pairs have to follow each other. All of it is decided here and
not by the database, whose idea of a letter depends on the locale it was made with.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.clusters import between

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

# What of one row can be found. Far more than people write, and little enough that a row never
# exceeds what the database takes as one document, whatever is in it.
MAX_CHARACTERS: Final = 32_768
_MAX_POSITIONS: Final = 16_000
_MAX_POSITIONS_OF_WORD: Final = 200
_MAX_WORD: Final = 64
_MAX_QUERY_WORDS: Final = 64

_PAIRED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han, kana
    "\U00020000-\U0003ffff"
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"  # Hangul
    "\uff66-\uff9f"  # half-width kana
)
_PICTURES: Final = "\u2600-\u27bf\U0001f000-\U0001faff"
_TOKEN: Final = re.compile(
    rf"(?P<paired>[{_PAIRED}]+)|(?P<word>[^\W_{_PAIRED}{_PICTURES}]+)|(?P<picture>[{_PICTURES}])"
)
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
# A piece of a query: a phrase in quotes or whatever stands between spaces, perhaps not wanted.
_PIECE: Final = re.compile(r'(?P<no>-)?(?:"(?P<phrase>[^"]*)"?|(?P<plain>[^\s"]+))')


class _Word(NamedTuple):
    """What is found, where it comes among the words of its text, and where in the text."""

    text: str
    position: int
    start: int
    end: int
    is_end: bool = False


def _folded(text: str) -> str:
    """Return a word without case, accents and forms that only look different."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", plain))
    return unicodedata.normalize("NFKC", bare)


def _words(text: str) -> Iterator[_Word]:
    """Yield the words of a text in order; of a run in pairs each pair, and its last character."""
    position = 1
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        folded = _folded(token[0])
        if token.lastgroup != "paired":
            yield _Word(folded[:_MAX_WORD], position, start, end)
            position += 1
            continue
        last = len(folded) - 1
        for place in range(last + 1):
            at = min(start + place, end - 1)
            pair = folded[place : place + 2]
            yield _Word(pair, position + place, at, min(at + 2, end), place == last)
        position += last + 1


def _texts_of_words(text: str) -> Iterable[str]:
    """Return the texts of `_words`, which every row that is written goes through."""
    if text.isascii():
        return [word[:_MAX_WORD] for word in _ASCII_WORD.findall(text.lower())]
    return (word.text for word in _words(unicodedata.normalize("NFC", text)))


def document(text: str, marks: Iterable[str] = ()) -> str | None:
    """Return what of a text can be found, in the form of a `tsvector`; None for nothing.

    Args:
        text: What was said.
        marks: What else it is found by; see `owner_mark` and its siblings.
    """
    places: dict[str, list[str]] = {}
    for position, word in enumerate(_texts_of_words(text[:MAX_CHARACTERS]), 1):
        if position > _MAX_POSITIONS:
            break
        found = places.setdefault(word, [])
        if len(found) < _MAX_POSITIONS_OF_WORD:
            found.append(str(position))
    if not places:
        return None
    words = [f"{_quoted(word)}:{','.join(found)}" for word, found in places.items()]
    return " ".join([*words, *map(_quoted, marks)])


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


# No word begins with an equals sign, so no search of people's words finds a mark.
def owner_mark(owner: str) -> str:
    """Return what all rows of an owner's sessions are found by."""
    return f"=o:{sha256(owner.encode()).hexdigest()[:32]}"


def session_mark(session_id: UUID) -> str:
    """Return what all rows of a session are found by."""
    return f"=s:{session_id.hex}"


def agent_mark(agent: str) -> str:
    """Return what all rows of an agent's sessions are found by."""
    return f"=a:{agent}"


def marks_of(session_id: UUID, agent: str, owner: str | None) -> tuple[str, ...]:
    """Return the marks of all rows of a session."""
    marks = (session_mark(session_id), agent_mark(agent))
    return marks if owner is None else (*marks, owner_mark(owner))


def any_mark(marks: Iterable[str]) -> str:
    """Return a `tsquery` of what has one of these marks, of which there is at least one."""
    return "(" + " | ".join(map(_quoted, sorted(marks))) + ")"


class _Term(NamedTuple):
    """Words that have to follow each other, and whether the last one may go on."""

    words: tuple[_Word, ...]
    goes_on: bool

    def tsquery(self) -> str:
        first, *others = self.words
        parts = [self._operand(first)]
        for before, word in zip(self.words, others, strict=False):
            parts.append(f"<{word.position - before.position}>")
            parts.append(self._operand(word))
        return "(" + " ".join(parts) + ")"

    def _operand(self, word: _Word) -> str:
        return _quoted(word.text) + (":*" if self.is_prefix(word) else "")

    def is_prefix(self, word: _Word) -> bool:
        # One character of a run is the beginning of a pair, or the end of a run.
        return word.is_end or (self.goes_on and word is self.words[-1])


class Search(NamedTuple):
    """A search as it was meant.

    Attributes:
        terms: What all has to be there.
        unwanted: What must not be there.
    """

    terms: tuple[_Term, ...]
    unwanted: tuple[_Term, ...] = ()

    def tsquery(self, *scopes: str) -> str:
        """Return it as a `tsquery`, within scopes that are one already."""
        wanted = [term.tsquery() for term in self.terms]
        return " & ".join([*scopes, *wanted, *(f"!{term.tsquery()}" for term in self.unwanted)])


def search_of(query: str) -> Search | None:
    """Return what a query asks for; None if no word of it says what has to be there.

    Every word has to be there. `"Several words"` in quotes have to follow each other, and so do
    the parts of `a-b.c`; a word ending in `*` may go on; `-word` must not be there.
    """
    wanted: list[_Term] = []
    unwanted: list[_Term] = []
    left = _MAX_QUERY_WORDS
    for piece in _PIECE.finditer(unicodedata.normalize("NFC", query)):
        term = _term(piece["phrase"] or piece["plain"] or "")
        if term is not None and len(term.words) <= left:
            left -= len(term.words)
            (unwanted if piece["no"] else wanted).append(term)
    return Search(tuple(wanted), tuple(unwanted)) if wanted else None


def _term(text: str) -> _Term | None:
    words = list(_words(text))
    # The last character of a run stands for its end, which a query need not reach, unless it
    # is all there is of the run.
    kept = [
        word
        for place, word in enumerate(words)
        if not (word.is_end and place and words[place - 1].end == word.end)
    ]
    return _Term(tuple(kept), goes_on=text.endswith("*")) if kept else None


_BEFORE: Final = 60
SNIPPET_CHARACTERS: Final = 240


def snippet(text: str, search: Search) -> str:
    """Return a piece of a text around the first word that was looked for, on one line."""
    shown = unicodedata.normalize("NFC", text[:MAX_CHARACTERS])
    found = next((word.start for word in _words(shown) if _is_looked_for(word, search)), 0)
    start = max(0, found - _BEFORE)
    piece = between(shown, start, start + SNIPPET_CHARACTERS)
    line = " ".join(piece.split())
    return f"{'…' if start else ''}{line}{'…' if start + len(piece) < len(text) else ''}"


def _is_looked_for(word: _Word, search: Search) -> bool:
    return any(
        word.text.startswith(wanted.text) if term.is_prefix(wanted) else word.text == wanted.text
        for term in search.terms
        for wanted in term.words[:1]
    )
