"""Lay a document out in lines, for platforms whose messages are text and not a tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from chatlane_adapters.kit.markdown.document import (
    Block,
    CodeBlock,
    Document,
    Heading,
    ItemList,
    ListItem,
    Paragraph,
    Quote,
    Rule,
    Span,
    Spans,
    Style,
    Table,
    joined,
)
from chatlane_adapters.kit.markdown.tables import drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The markers that a platform's text uses for blocks.

    Attributes:
        bullets: Marks of lists, by how deep the list is nested; the last one also for deeper ones.
        headings: Marks of headings by level; a heading of a level without a mark is bold.
        indent: What indents a list in an item of another.
        rule: A line across the text.
    """

    bullets: tuple[str, ...] = ("• ", "◦ ", "▪ ")
    headings: tuple[str, ...] = ()
    indent: str = "   "
    rule: str = "———"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLine:
    """A line of styled text.

    Attributes:
        prefix: Marks before the text, such as that of a list item.
        spans: The text, without line breaks; empty for a blank line.
        quotes: In how many quotes it is.
    """

    prefix: str = ""
    spans: Spans = ()
    quotes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLines:
    """A whole block of code."""

    text: str
    language: str = ""
    quotes: int = 0


Line: TypeAlias = TextLine | CodeLines


def lines_of(blocks: Document, look: Look) -> list[Line]:
    """Return the lines of a document; a blank line is between two blocks."""
    return list(_separated(blocks, look))


def _separated(blocks: Document, look: Look) -> Iterator[Line]:
    for place, block in enumerate(blocks):
        if place and not isinstance(blocks[place - 1], Heading):
            yield TextLine()
        yield from _lines(block, look, depth=0)


def _lines(block: Block, look: Look, *, depth: int) -> Iterator[Line]:
    match block:
        case Paragraph(spans):
            yield from (TextLine(spans=line) for line in lines_of_spans(spans))
        case Heading(spans, level):
            yield from _heading(spans, level, look)
        case CodeBlock(text, language):
            yield CodeLines(text=text, language=language)
        case Table():
            yield CodeLines(text=drawn(block))
        case Quote(quoted):
            yield from (replace(it, quotes=it.quotes + 1) for it in _separated(quoted, look))
        case ItemList(items):
            yield from (line for item in items for line in _item(item, look, depth=depth))
        case Rule():
            yield TextLine(prefix=look.rule)
        case _:
            assert_never(block)


def _heading(spans: Spans, level: int, look: Look) -> Iterator[Line]:
    if level <= len(look.headings):
        text = tuple(replace(span, text=span.text.replace("\n", " ")) for span in spans)
        yield TextLine(prefix=look.headings[level - 1], spans=text)
        return
    for line in lines_of_spans(spans):
        bold = (replace(span, styles=span.styles | {Style.BOLD}) for span in line)
        yield TextLine(spans=tuple(joined(list(bold))))


def _item(item: ListItem, look: Look, *, depth: int) -> Iterator[Line]:
    mark = look.bullets[min(depth, len(look.bullets) - 1)]
    if item.number is not None:
        mark = f"{item.number}. "
    margin = look.indent * depth
    is_first = not item.continues
    for block in item.blocks:
        for line in _lines(block, look, depth=depth + 1):
            if isinstance(line, TextLine) and not isinstance(block, ItemList):
                first, further = margin + mark, margin + " " * len(mark)
                yield replace(line, prefix=(first if is_first else further) + line.prefix)
            elif is_first:
                yield TextLine(prefix=(margin + mark).rstrip())
                yield line
            else:
                yield line
            is_first = False
    if is_first:
        yield TextLine(prefix=(margin + mark).rstrip())


def lines_of_spans(spans: Sequence[Span]) -> Iterator[Spans]:
    """Yield the spans of each line of a text."""
    line: list[Span] = []
    for span in spans:
        first, *more = span.text.split("\n")
        line.append(replace(span, text=first))
        for text in more:
            yield tuple(it for it in line if it.text)
            line = [replace(span, text=text)]
    yield tuple(it for it in line if it.text)
