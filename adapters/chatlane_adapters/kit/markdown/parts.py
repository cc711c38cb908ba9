"""Split a document into documents that each fit into a message after rendering.

The same document, rendering and size give the same parts, so that a delivery goes on behind the
parts that an earlier process has sent.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

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
    cut_spans,
    plain_text,
    spans_text,
)
from chatlane_adapters.kit.markdown.tables import drawn
from chatlane_client.delivery.text_cuts import place_to_cut
from chatlane_schemas.content.visible_text import is_blank

Measure: TypeAlias = Callable[[Document], int]
"""Returns the length of a rendered document in the unit of the platform."""

Cut: TypeAlias = tuple[Block, Block | None]
"""What fits of a block, and the rest of it."""

_ADDRESS: Final = re.compile(r"https?://\S+")
# A part that is filled so far ends before a block that would have to be cut.
_FILLED: Final = 0.5


def split(blocks: Document, measure: Measure, size: int) -> Iterator[Document]:
    """Yield a document in parts of at most a size, without parts that show nothing.

    It is cut between blocks, else between items, lines or rows, else in a text as `place_to_cut`
    does. A code block that is cut is one in both parts, of the same language; a table repeats its
    header; a look, a link and a quote are in both parts.

    Args:
        blocks: The document.
        measure: Returns the rendered length of a part.
        size: The longest length; longer is only a single character that does not fit.
    """
    splitter = _Splitter(measure, size)
    while blocks:
        part, blocks = splitter.first_part(blocks)
        if not is_blank(plain_text(part)):
            yield part


def _most(total: int, fits: Callable[[int], bool]) -> int:
    """Return how many of some things fit, of which not all do."""
    fitting, too_many = 0, 1
    while too_many < total and fits(too_many):
        fitting, too_many = too_many, 2 * too_many
    too_many = min(too_many, total)
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if fits(middle):
            fitting = middle
        else:
            too_many = middle
    return fitting


def _without_heading(blocks: Document, count: int) -> int:
    """Return how many blocks to keep together, so that none is the heading of what follows."""
    while count > 1 and isinstance(blocks[count - 1], Heading):
        count -= 1
    return count


@dataclass(frozen=True, slots=True)
class _Splitter:
    measure: Measure
    size: int

    def first_part(self, blocks: Document) -> tuple[Document, Document]:
        """Return the first part, and what remains."""
        if self._fits(blocks):
            return blocks, ()
        count = _most(len(blocks), lambda it: self._fits(blocks[:it]))
        head, block, behind = blocks[:count], blocks[count], blocks[count + 1 :]
        cut = None
        if not head or not self._stays_whole(block, head):
            cut = self._cut(block, lambda part: self._fits((*head, part)))
        if cut is None and head:
            count = _without_heading(blocks, count)
            return blocks[:count], blocks[count:]
        part, rest = cut or self._forced(block)
        return (*head, part), behind if rest is None else (rest, *behind)

    def _fits(self, blocks: Document) -> bool:
        return self.measure(blocks) <= self.size

    def _stays_whole(self, block: Block, head: Document) -> bool:
        """Return whether a block goes to the next part as a whole."""
        if self.measure(head) >= self.size * _FILLED:
            return True
        return isinstance(block, CodeBlock | Table) and self._fits((block,))

    def _cut(self, block: Block, fits: Callable[[Block], bool]) -> Cut | None:
        """Cut a block that does not fit; return the part that fits and the rest, or None if no part fits."""
        match block:
            case Paragraph(spans) | Heading(spans):
                return self._cut_text(block, spans, fits)
            case CodeBlock():
                return self._cut_code(block, fits)
            case Quote(blocks):
                parts = self._cut_content(blocks, lambda part: fits(Quote(part)))
                return None if parts is None else (Quote(parts[0]), Quote(parts[1]))
            case ItemList(items):
                return self._cut_list(items, fits)
            case Table():
                return self._cut_table(block, fits)
            case Rule():
                return None
            case _:
                assert_never(block)

    def _cut_content(
        self, blocks: Document, fits: Callable[[Document], bool]
    ) -> tuple[Document, Document] | None:
        """Cut the blocks in a block; return the part that fits and the rest."""
        if not blocks:
            return None
        if count := _most(len(blocks), lambda it: fits(blocks[:it])):
            count = _without_heading(blocks, count)
            return blocks[:count], blocks[count:]
        cut = self._cut(blocks[0], lambda part: fits((part,)))
        if cut is None:
            return None
        part, rest = cut
        return (part,), blocks[1:] if rest is None else (rest, *blocks[1:])

    def _cut_list(self, items: tuple[ListItem, ...], fits: Callable[[Block], bool]) -> Cut | None:
        if count := _most(len(items), lambda it: fits(ItemList(items[:it]))):
            return ItemList(items[:count]), ItemList(items[count:])
        item, *more = items
        parts = self._cut_content(
            item.blocks, lambda part: fits(ItemList((replace(item, blocks=part),)))
        )
        if parts is None:
            return None
        head = replace(item, blocks=parts[0])
        rest = [replace(item, blocks=parts[1], continues=True)] if parts[1] else []
        return ItemList((head,)), ItemList((*rest, *more)) if rest or more else None

    def _cut_table(self, table: Table, fits: Callable[[Block], bool]) -> Cut | None:
        rows = table.rows
        if count := _most(len(rows), lambda it: fits(replace(table, rows=rows[:it]))):
            return replace(table, rows=rows[:count]), replace(table, rows=rows[count:])
        # Not even a row fits below the header.
        return self._cut_code(CodeBlock(drawn(table)), fits)

    def _cut_code(self, block: CodeBlock, fits: Callable[[Block], bool]) -> Cut | None:
        lines = block.text.split("\n")
        if count := _most(len(lines), lambda it: fits(_code(block, lines[:it]))):
            return _code(block, lines[:count]), _code(block, lines[count:])
        # A single line is too long.
        line, *more = lines
        place = _most(len(line), lambda it: fits(_code(block, [line[:it]])))
        if not place:
            return None
        place = place_to_cut(line, place)
        rest = [line[place:], *more] if line[place:] else more
        return _code(block, [line[:place]]), _code(block, rest) if rest else None

    def _cut_text(
        self, block: Paragraph | Heading, spans: Spans, fits: Callable[[Block], bool]
    ) -> Cut | None:
        text = spans_text(spans)

        def head(end: int) -> Paragraph | Heading:
            return replace(block, spans=cut_spans(spans, end)[0])

        place = _most(len(text), lambda it: fits(head(it)))
        whole = list(_whole_parts(spans, text))
        while place > 0:
            place = place_to_cut(text, place, whole)
            end = len(text[:place].rstrip())
            if end and fits(head(end)):
                if text[place - 1] == "\n":
                    place = len(text) - len(text[place:].lstrip("\n"))
                rest = cut_spans(spans, place)[1]
                return head(end), replace(block, spans=rest) if rest else None
            place -= 1
        return None

    def _forced(self, block: Block) -> Cut:
        """Return the begin of a block of which nothing fits, without its structure and looks."""
        text = plain_text((block,))
        place = max(1, _most(len(text), lambda it: self._fits((_unstyled(text[:it]),))))
        return _unstyled(text[:place]), _unstyled(text[place:]) if text[place:] else None


def _whole_parts(spans: Spans, text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of what a cut would break: links, code and addresses."""
    for found in _ADDRESS.finditer(text):
        yield found.span()
    begin = 0
    for span in spans:
        end = begin + len(span.text)
        if span.url is not None or Style.CODE in span.styles:
            yield begin, end
        begin = end


def _code(block: CodeBlock, lines: Sequence[str]) -> CodeBlock:
    return replace(block, text="\n".join(lines))


def _unstyled(text: str) -> Paragraph:
    return Paragraph((Span(text),))
