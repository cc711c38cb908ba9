"""Render a document in the markup of a chat platform, by a table of its marks."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from chatlane_adapters.kit.markdown.document import (
    Document,
    Span,
    Spans,
    Style,
    cut_spans,
    spans_text,
)
from chatlane_adapters.kit.markdown.lines import CodeLines, Line, Look, lines_of
from chatlane_adapters.kit.markdown.marks import Open, nested

_ADDRESS: Final = re.compile(r"https?://\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The markup of a platform.

    Attributes:
        marks: Mark before and behind a look; a look without a mark is not shown.
        link: A link, with the fields `text` and `url`; without, the address stands behind the text.
        quote: Mark before each line of a quote.
        escaped: Characters that a backslash makes literal.
        replaced: Characters that have another form in a text.
        escaped_at_begin: Pattern of what has a meaning at the begin of a line and before a space; a
            backslash comes before its last character.
        has_languages: Whether a code block names its language.
        ends_at_words: Whether a mark counts only at the begin and the end of words.
        look: What it has for structure.
    """

    marks: Mapping[Style, str]
    link: str | None = None
    quote: str = "> "
    escaped: str = ""
    replaced: Mapping[str, str] = field(default_factory=dict)
    escaped_at_begin: str = ""
    has_languages: bool = True
    ends_at_words: bool = False
    look: Look = field(default_factory=Look)


DISCORD: Final = Dialect(
    marks={
        Style.BOLD: "**",
        Style.ITALIC: "*",
        Style.STRIKETHROUGH: "~~",
        Style.CODE: "`",
    },
    link="[{text}]({url})",
    escaped="\\*_~`|[]<>",
    escaped_at_begin=r"#|-|\d+\.",
    look=Look(bullets=("- ",), headings=("# ", "## ", "### "), indent="  "),
)
SLACK: Final = Dialect(
    marks={Style.BOLD: "*", Style.ITALIC: "_", Style.STRIKETHROUGH: "~", Style.CODE: "`"},
    link="<{url}|{text}>",
    replaced={"&": "&amp;", "<": "&lt;", ">": "&gt;"},
    has_languages=False,
    ends_at_words=True,
)
WHATSAPP: Final = Dialect(
    marks={Style.BOLD: "*", Style.ITALIC: "_", Style.STRIKETHROUGH: "~", Style.CODE: "`"},
    has_languages=False,
    ends_at_words=True,
    look=Look(bullets=("- ",)),
)


def in_dialect(blocks: Document, dialect: Dialect) -> str:
    """Return a document in the markup of a platform; tables are aligned code blocks."""
    return "\n".join(_written(line, dialect) for line in lines_of(blocks, dialect.look))


def _written(line: Line, dialect: Dialect) -> str:
    quote = dialect.quote * line.quotes
    if isinstance(line, CodeLines):
        # A code block cannot hold its own fence: an invisible space breaks it.
        text = _replaced(line.text, dialect).replace("```", "``\u200b`")
        language = line.language if dialect.has_languages else ""
        return "\n".join(quote + it for it in (f"```{language}", *text.split("\n"), "```"))
    text = _of_spans(line.spans, dialect)
    if dialect.escaped_at_begin:
        text = re.sub(
            rf"^\s*(?:{dialect.escaped_at_begin})(?=\s|$)",
            lambda found: f"{found[0][:-1]}\\{found[0][-1]}",
            text,
        )
    return quote + line.prefix + text


def _of_spans(spans: Spans, dialect: Dialect) -> str:
    for style in (Style.BOLD, Style.ITALIC, Style.STRIKETHROUGH):
        spans = tuple(_with_tight_marks(spans, style, dialect))
    text = ""
    link_begins: list[int] = []
    for part in nested(spans):
        if isinstance(part, Span):
            text += _shown(part, dialect)
        elif isinstance(part.mark, Style):
            # Code has its mark in `_shown`, where its text is known.
            text += "" if part.mark is Style.CODE else dialect.marks.get(part.mark, "")
        elif isinstance(part, Open):
            link_begins.append(len(text))
        else:
            begin = link_begins.pop()
            text = text[:begin] + _linked(text[begin:], part.mark.url, dialect)
    return text


def _with_tight_marks(spans: Spans, style: Style, dialect: Dialect) -> Iterator[Span]:
    """Yield the spans so that no space is next to a mark of a style, inside of it."""
    before = ""
    runs = [(has, tuple(run)) for has, run in groupby(spans, lambda it: style in it.styles)]
    for place, (has_style, run) in enumerate(runs):
        text = spans_text(run)
        behind = spans_text(runs[place + 1][1]) if place + 1 < len(runs) else ""
        words = (before[-1:].isalnum(), behind[:1].isalnum())
        before = text
        if not has_style:
            yield from run
            continue
        if dialect.ends_at_words and any(words):
            yield from _without(run, style)
            continue
        head, rest = cut_spans(run, len(text) - len(text.lstrip()))
        middle, tail = cut_spans(rest, len(text.strip()))
        yield from (*_without(head, style), *middle, *_without(tail, style))


def _without(spans: Spans, style: Style) -> Iterator[Span]:
    return (replace(span, styles=span.styles - {style}) for span in spans)


def _linked(text: str, url: str, dialect: Dialect) -> str:
    address = url.replace("(", "%28").replace(")", "%29")
    if text in {url, address}:
        return address
    shown = _replaced(address, dialect)
    if dialect.link is None:
        return f"{text} ({shown})"
    return dialect.link.format(text=text, url=shown)


def _shown(span: Span, dialect: Dialect) -> str:
    text = _replaced(span.text, dialect)
    mark = dialect.marks.get(Style.CODE, "")
    # A mark in the code would end it.
    if Style.CODE in span.styles and mark and mark not in text and text.strip():
        return f"{mark}{text}{mark}"
    return _escaped(text, dialect)


def _replaced(text: str, dialect: Dialect) -> str:
    return "".join(dialect.replaced.get(it, it) for it in text) if dialect.replaced else text


def _escaped(text: str, dialect: Dialect) -> str:
    """Return a text with backslashes; addresses stay as they are, or they would lead elsewhere."""
    if not dialect.escaped:
        return text
    parts, end = [], 0
    for found in _ADDRESS.finditer(text):
        parts += [_with_backslashes(text[end : found.start()], dialect), found[0]]
        end = found.end()
    return "".join([*parts, _with_backslashes(text[end:], dialect)])


def _with_backslashes(text: str, dialect: Dialect) -> str:
    return re.sub(f"([{re.escape(dialect.escaped)}])", r"\\\1", text)
