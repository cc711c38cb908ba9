"""Render a document as the subset of HTML that Matrix and mail clients show."""

from html import escape
from typing import Final, assert_never

from chatlane_adapters.kit.markdown.document import (
    Block,
    CodeBlock,
    Document,
    Heading,
    ItemList,
    ListItem,
    Paragraph,
    Quote,
    Row,
    Rule,
    Spans,
    Style,
    Table,
)
from chatlane_adapters.kit.markdown.marks import Close, Link, Mark, Open, nested

_TAGS: Final = {
    Style.BOLD: "strong",
    Style.ITALIC: "em",
    Style.STRIKETHROUGH: "del",
    Style.CODE: "code",
}


def as_html(blocks: Document) -> str:
    """Return a document as HTML without scripts, styles and raw HTML of the author."""
    return "".join(map(_block, blocks))


def _block(block: Block) -> str:
    match block:
        case Paragraph(spans):
            html = f"<p>{_spans(spans)}</p>"
        case Heading(spans, level):
            html = f"<h{level}>{_spans(spans)}</h{level}>"
        case CodeBlock(text, language):
            of_language = f' class="language-{escape(language)}"' if language else ""
            html = f"<pre><code{of_language}>{escape(text, quote=False)}\n</code></pre>"
        case Quote(blocks):
            html = f"<blockquote>{as_html(blocks)}</blockquote>"
        case ItemList(items):
            html = _list(items)
        case Table():
            html = _table(block)
        case Rule():
            html = "<hr>"
        case _:
            assert_never(block)
    return html


def _list(items: tuple[ListItem, ...]) -> str:
    rest = "".join(as_html(item.blocks) for item in items if item.continues)
    whole = [item for item in items if not item.continues]
    if not whole:
        return rest
    number = whole[0].number
    begin = "<ul>" if number is None else "<ol>" if number == 1 else f'<ol start="{number}">'
    shown = "".join(f"<li>{_item(item)}</li>" for item in whole)
    return f"{rest}{begin}{shown}</{'ul' if number is None else 'ol'}>"


def _item(item: ListItem) -> str:
    """Return the content of a list item; its first paragraph gets no `<p>`."""
    if item.blocks and isinstance(item.blocks[0], Paragraph):
        return _spans(item.blocks[0].spans) + as_html(item.blocks[1:])
    return as_html(item.blocks)


def _table(table: Table) -> str:
    rows = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in table.rows)
    body = f"<tbody>{rows}</tbody>" if rows else ""
    return f"<table><thead><tr>{_cells(table.header, 'th')}</tr></thead>{body}</table>"


def _cells(row: Row, tag: str) -> str:
    return "".join(f"<{tag}>{_spans(cell)}</{tag}>" for cell in row)


def _spans(spans: Spans) -> str:
    parts = []
    for part in nested(spans):
        match part:
            case Open(mark):
                parts.append(_opened(mark))
            case Close(mark):
                parts.append("</a>" if isinstance(mark, Link) else f"</{_TAGS[mark]}>")
            case _:
                parts.append(escape(part.text, quote=False).replace("\n", "<br>"))
    return "".join(parts)


def _opened(mark: Mark) -> str:
    return f'<a href="{escape(mark.url)}">' if isinstance(mark, Link) else f"<{_TAGS[mark]}>"
