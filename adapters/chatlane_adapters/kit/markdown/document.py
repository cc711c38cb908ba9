"""A text with its structure, independent of any platform: blocks, and spans of styled text.

A document is a tuple of blocks. All of it is immutable, so that a cut shares what it keeps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias


class Style(StrEnum):
    """How a span of text looks."""

    BOLD = "bold"
    ITALIC = "italic"
    STRIKETHROUGH = "strikethrough"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Span:
    """Text of one look; a line break is a newline in it.

    Attributes:
        text: Never empty.
        url: Where a link leads.
    """

    text: str
    styles: frozenset[Style] = frozenset()
    url: str | None = None


Spans: TypeAlias = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    spans: Spans


@dataclass(frozen=True, slots=True)
class Heading:
    """A title; level 1 is the highest, 6 the lowest."""

    spans: Spans
    level: int


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Lines of code, without the last line break; the language may be empty."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Quote:
    """A quotation."""

    blocks: "Document"


@dataclass(frozen=True, slots=True)
class ListItem:
    """A list item.

    Attributes:
        number: Its number in an ordered list.
        continues: Whether it is the rest of an item that was cut, which has no mark of its own.
    """

    blocks: "Document"
    number: int | None = None
    continues: bool = False


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list."""

    items: tuple[ListItem, ...]


Row: TypeAlias = tuple[Spans, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; rows may have more or fewer cells than the header.

    Attributes:
        alignments: `left`, `center` or `right` for each column of the header.
    """

    header: Row
    rows: tuple[Row, ...]
    alignments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the text."""


Block: TypeAlias = Paragraph | Heading | CodeBlock | Quote | ItemList | Table | Rule
Document: TypeAlias = tuple[Block, ...]


def spans_text(spans: Sequence[Span]) -> str:
    """Return the text of spans without their look."""
    return "".join(span.text for span in spans)


def with_addresses(spans: Sequence[Span]) -> str:
    """Return the text of spans with the address of each link behind it."""
    return "".join(
        span.text if span.url in {None, span.text} else f"{span.text} ({span.url})"
        for span in joined(spans, of_link=True)
    )


def cut_spans(spans: Spans, place: int) -> tuple[Spans, Spans]:
    """Return the spans before and behind a number of characters; a span that is cut is in both."""
    head: list[Span] = []
    for number, span in enumerate(spans):
        if place < len(span.text):
            if place:
                head.append(replace(span, text=span.text[:place]))
            rest = replace(span, text=span.text[place:])
            return tuple(head), (rest, *spans[number + 1 :])
        head.append(span)
        place -= len(span.text)
    return tuple(head), ()


def joined(spans: Sequence[Span], *, of_link: bool = False) -> Iterator[Span]:
    """Yield spans; neighbours that look the same are one.

    Args:
        spans: The spans.
        of_link: Whether to join all spans of a link, which then lose their looks.
    """
    before: Span | None = None
    for span in spans:
        styles = frozenset[Style]() if of_link else span.styles
        if before is not None and (before.styles, before.url) == (styles, span.url):
            before = Span(before.text + span.text, styles, span.url)
            continue
        if before is not None:
            yield before
        before = Span(span.text, styles, span.url)
    if before is not None:
        yield before


def plain_text(blocks: Document) -> str:
    """Return all words of a document, line by line, with the addresses of its links."""
    return "\n".join(line for block in blocks for line in _lines(block))


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(spans) | Heading(spans):
            yield with_addresses(spans)
        case CodeBlock(text, language):
            yield from (language, text) if language else (text,)
        case Quote(blocks):
            yield plain_text(blocks)
        case ItemList(items):
            for item in items:
                number = "" if item.number is None or item.continues else f"{item.number}. "
                yield number + plain_text(item.blocks)
        case Table(header, rows):
            for row in (header, *rows):
                yield " | ".join(map(with_addresses, row))
        case Rule():
            yield "———"
