"""Split text into searchable words, and parse search queries.

Words are runs of letters and digits, without case and accents. Scripts that write no spaces
between words (Chinese, Japanese, Thai, ...) and Korean, whose words change with attached
particles, are cut into overlapping pairs of characters: a search then finds any part of a
sentence, and only exactly that part, because the pairs must follow each other. This module
decides all of it instead of the database, whose definition of a letter depends on its locale.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.prompts.sanitize import between

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from uuid import UUID

# Searchable characters of one row. The limit is far above what users write, and low enough that
# no text exceeds the maximum size of a `tsvector`.
MAX_CHARACTERS: Final = 32_768
# As text, since every word of every row needs its own.
_POSITIONS: Final = tuple(map(str, range(1, 16_001)))
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
# Blanks in place of everything between the words of an ASCII text.
_ASCII_WORDS: Final = {code: chr(code) if chr(code).isalnum() else " " for code in range(128)}
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
# A part of a query: a quoted phrase or the text between spaces, optionally negated with `-`.
_PIECE: Final = re.compile(r'(?P<no>-)?(?:"(?P<phrase>[^"]*)"?|(?P<plain>[^\s"]+))')


class _Word(NamedTuple):
    """A searchable word, its position among the words of its text, and its place in the text."""

    text: str
    position: int
    start: int
    end: int
    is_end: bool = False


def _folded(text: str) -> str:
    """Return a word without case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", plain))
    return unicodedata.normalize("NFKC", bare)


def _words(text: str) -> Iterator[_Word]:
    """Yield the words of a text in order; a run of pairs yields each pair, then its last character."""
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
    """Return the texts of `_words`; every row that is written passes through here."""
    if text.isascii():
        return [word[:_MAX_WORD] for word in text.lower().translate(_ASCII_WORDS).split()]
    return (word.text for word in _words(unicodedata.normalize("NFC", text)))


def document(text: str, marks: Iterable[str] = ()) -> str | None:
    """Return the searchable words of a text as a `tsvector` literal, or None if it has none.

    Args:
        text: Text of the row.
        marks: Additional terms to index it with; see `owner_mark`, `session_mark`, `agent_mark`.
    """
    places: defaultdict[str, list[str]] = defaultdict(list)
    for word, position in zip(_texts_of_words(text[:MAX_CHARACTERS]), _POSITIONS, strict=False):
        places[word].append(position)
    if not places:
        return None
    words = [
        f"{_quoted(word)}:{','.join(found[:_MAX_POSITIONS_OF_WORD])}"
        for word, found in places.items()
    ]
    return " ".join([*words, *map(_quoted, marks)])


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


# No word begins with an equals sign, so a search for words never finds a mark.
def owner_mark(owner: str) -> str:
    """Return the mark of all rows of an owner's sessions."""
    return f"=o:{sha256(owner.encode()).hexdigest()[:32]}"


def session_mark(session_id: UUID) -> str:
    """Return the mark of all rows of a session."""
    return f"=s:{session_id.hex}"


def agent_mark(agent: str) -> str:
    """Return the mark of all rows of an agent's sessions."""
    return f"=a:{agent}"


def marks_of(session_id: UUID, agent: str, owner: str | None) -> tuple[str, ...]:
    """Return the marks of all rows of a session."""
    marks = (session_mark(session_id), agent_mark(agent))
    return marks if owner is None else (*marks, owner_mark(owner))


def any_mark(marks: Iterable[str]) -> str:
    """Return a `tsquery` that matches rows with one of these marks; there must be at least one."""
    return "(" + " | ".join(map(_quoted, sorted(marks))) + ")"


class _Term(NamedTuple):
    """Words that must follow each other; `goes_on` means that the last word is a prefix."""

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
        # A single character of a run matches the start of a pair, or the end of a run.
        return word.is_end or (self.goes_on and word is self.words[-1])


class Search(NamedTuple):
    """A parsed search query.

    Attributes:
        terms: Terms that must all occur.
        unwanted: Terms that must not occur.
    """

    terms: tuple[_Term, ...]
    unwanted: tuple[_Term, ...] = ()

    def tsquery(self, *scopes: str) -> str:
        """Return the query as a `tsquery`, restricted to scopes that are `tsquery` texts."""
        wanted = [term.tsquery() for term in self.terms]
        return " & ".join([*scopes, *wanted, *(f"!{term.tsquery()}" for term in self.unwanted)])


def search_of(query: str) -> Search | None:
    """Parse a query; returns None if it has no word that must occur.

    Every word must occur. `"Several words"` in quotes must follow each other, and so must the
    parts of `a-b.c`; a word ending in `*` is a prefix; `-word` must not occur.
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
    # The last character of a run marks its end. A query need not match the end, unless the run
    # has only this character.
    kept = [
        word
        for place, word in enumerate(words)
        if not (word.is_end and place and words[place - 1].end == word.end)
    ]
    return _Term(tuple(kept), goes_on=text.endswith("*")) if kept else None


_BEFORE: Final = 60
SNIPPET_CHARACTERS: Final = 240


def snippet(text: str, search: Search) -> str:
    """Return an excerpt of a text around the first matching word, on one line."""
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
