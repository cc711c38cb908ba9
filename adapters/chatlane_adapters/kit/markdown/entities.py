"""Render a document as plain text with entities, as Telegram takes it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from chatlane_adapters.kit.markdown.document import Document, Span
from chatlane_adapters.kit.markdown.lines import CodeLines, Line, Look, TextLine, lines_of
from chatlane_adapters.kit.markdown.marks import Close, Link, Mark, Open, nested
from chatlane_client.delivery.pieces import TextLimit, Unit

_LOOK: Final = Look()


class EntityKind(StrEnum):
    """The style of an entity."""

    BOLD = "bold"
    ITALIC = "italic"
    STRIKETHROUGH = "strikethrough"
    CODE = "code"
    LINK = "link"
    CODE_BLOCK = "code_block"
    QUOTE = "quote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A look of a part of a text.

    Attributes:
        offset: Where it begins, in the unit of the platform.
        length: How long it is, in the same unit.
        url: Of a link.
        language: Of a code block; may be missing.
    """

    offset: int
    length: int
    kind: EntityKind
    url: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class EntityText:
    """A text and its entities, outer ones first; two of them nest or do not touch."""

    text: str
    entities: tuple[Entity, ...] = ()


def with_entities(blocks: Document, unit: Unit = "utf16") -> EntityText:
    """Return a document as text with entities.

    Tables are aligned code blocks. A quote in a quote has a mark in the text, because entities of
    quotes cannot be nested. Code and code blocks have no other entity but a quote around them.

    Args:
        blocks: The document.
        unit: In what the platform counts offsets and lengths.
    """
    writer = _Writer(unit)
    for line in lines_of(blocks, _LOOK):
        writer.add(line)
    return writer.finish()


class _Writer:
    def __init__(self, unit: Unit) -> None:
        self._measure = TextLimit(0, unit).measure
        self._texts: list[str] = []
        self._length = 0
        self._entities: list[Entity] = []
        self._quote: int | None = None

    def add(self, line: Line) -> None:
        """Add a line; the lines of one quote are one entity."""
        if bool(line.quotes) != (self._quote is not None):
            self._turn_quote(is_on=bool(line.quotes))
        elif self._texts:
            self._write("\n")
        if isinstance(line, CodeLines):
            begin = self._length
            self._write(line.text)
            self._end(begin, EntityKind.CODE_BLOCK, language=line.language or None)
        else:
            self._add_text(line)

    def finish(self) -> EntityText:
        if self._quote is not None:
            self._end(self._quote, EntityKind.QUOTE)
        entities = sorted(self._entities, key=lambda it: (it.offset, -it.length))
        return EntityText("".join(self._texts), tuple(entities))

    def _add_text(self, line: TextLine) -> None:
        self._write("> " * (line.quotes - 1) + line.prefix)
        begins: list[int] = []
        for part in nested(line.spans):
            match part:
                case Open():
                    begins.append(self._length)
                case Close():
                    self._close(begins.pop(), part.mark)
                case Span():
                    self._write(part.text)

    def _close(self, begin: int, mark: Mark) -> None:
        if isinstance(mark, Link):
            self._end(begin, EntityKind.LINK, url=mark.url)
        else:
            self._end(begin, EntityKind(mark.value))

    def _turn_quote(self, *, is_on: bool) -> None:
        if self._quote is not None:
            self._end(self._quote, EntityKind.QUOTE)
        if self._texts:
            self._write("\n")
        self._quote = self._length if is_on else None

    def _write(self, text: str) -> None:
        self._texts.append(text)
        self._length += self._measure(text)

    def _end(
        self, begin: int, kind: EntityKind, *, url: str | None = None, language: str | None = None
    ) -> None:
        if length := self._length - begin:
            self._entities.append(
                Entity(offset=begin, length=length, kind=kind, url=url, language=language)
            )
