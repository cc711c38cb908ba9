"""Turn the looks of spans into marks that open and close in the order of a tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from chatlane_adapters.kit.markdown.document import Span, Style


@dataclass(frozen=True, slots=True)
class Link:
    """A link to an address."""

    url: str


Mark: TypeAlias = Style | Link


@dataclass(frozen=True, slots=True)
class Open:
    """A mark begins here."""

    mark: Mark


@dataclass(frozen=True, slots=True)
class Close:
    """The innermost open mark ends here."""

    mark: Mark


# From the outside to the inside.
_STYLES: Final = (Style.BOLD, Style.ITALIC, Style.STRIKETHROUGH)


def nested(spans: Sequence[Span]) -> Iterator[Open | Close | Span]:
    """Yield the spans, with their marks before and behind them."""
    open_marks: list[Mark] = []
    for span in spans:
        marks = _marks(span)
        kept = 0
        while kept < len(open_marks) and open_marks[kept] in marks:
            kept += 1
        while len(open_marks) > kept:
            yield Close(open_marks.pop())
        for mark in marks:
            if mark not in open_marks:
                open_marks.append(mark)
                yield Open(mark)
        yield span
    while open_marks:
        yield Close(open_marks.pop())


def _marks(span: Span) -> list[Mark]:
    marks: list[Mark] = [style for style in _STYLES if style in span.styles]
    if span.url is not None:
        marks.append(Link(span.url))
    return [*marks, Style.CODE] if Style.CODE in span.styles else marks
