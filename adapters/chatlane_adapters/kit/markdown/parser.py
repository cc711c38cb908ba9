"""Read Markdown as models write it: CommonMark with tables and strikethrough.

No text is an error, and no word of it is lost: HTML stays text, and so do reference definitions,
which would vanish without their links.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

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
    Span,
    Spans,
    Style,
    Table,
    joined,
    plain_text,
    spans_text,
)
from chatlane_schemas.content.visible_text import is_blank

# The parser drops blocks that are nested deeper, and a tree of spans would be too deep as well.
_MAX_NESTING: Final = 40
_PARSER: Final = (
    MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING})
    .enable(["table", "strikethrough"])
    .disable(["reference", "html_block", "html_inline"])
)
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_STYLES: Final = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKETHROUGH}


def parse(text: str) -> Document:
    """Return the document that a Markdown text describes."""
    tokens = _PARSER.parse(text)
    if any(it.level >= _MAX_NESTING - 1 for it in _with_inline(tokens)):
        return literal(text)
    # Tables are read again from these lines.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    blocks = tuple(_blocks(SyntaxTreeNode(tokens).children, lines))
    # Marks around nothing, such as those of an empty heading.
    return literal(text) if is_blank(plain_text(blocks)) else blocks


def _with_inline(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def literal(text: str) -> Document:
    """Return a document that shows a text as it is."""
    return (Paragraph((Span(text),)),) if text else ()


def _blocks(nodes: Sequence[SyntaxTreeNode], lines: Sequence[str]) -> Iterator[Block]:
    for node in nodes:
        match node.type:
            case "paragraph":
                yield Paragraph(_inline(node))
            case "heading":
                yield Heading(_inline(node), int(node.tag[1:]))
            case "fence" | "code_block":
                yield _code_block(node)
            case "blockquote":
                yield Quote(tuple(_blocks(node.children, lines)))
            case "bullet_list" | "ordered_list":
                yield _list(node, lines)
            case "table":
                yield _table(node, lines)
            case "hr":
                yield Rule()
            case other:
                raise AssertionError(f"the parser has no block {other}")


def _code_block(node: SyntaxTreeNode) -> CodeBlock:
    language, _, more = node.info.strip().partition(" ")
    text = node.content.removesuffix("\n")
    if is_blank(text):
        return CodeBlock(node.info.strip())
    # Words behind the language belong to no platform's code blocks.
    return CodeBlock("\n".join(filter(None, (more.strip(), text))), language)


def _list(node: SyntaxTreeNode, lines: Sequence[str]) -> ItemList:
    first = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
    return ItemList(
        tuple(
            ListItem(tuple(_blocks(item.children, lines)), None if first is None else first + place)
            for place, item in enumerate(node.children)
        )
    )


def _table(node: SyntaxTreeNode, lines: Sequence[str]) -> Table:
    header, *rows = [row for part in node.children for row in part.children]
    alignments = tuple(
        str(cell.attrs.get("style", "text-align:left")).removeprefix("text-align:")
        for cell in header.children
    )
    return Table(_row(header), tuple(_row(row, lines) for row in rows), alignments)


def _row(node: SyntaxTreeNode, lines: Sequence[str] = ()) -> Row:
    """Return the cells of a row, also those that the header has no column for."""
    cells = [_inline(cell) for cell in node.children]
    if lines and node.map is not None:
        line = lines[node.map[0]].strip().lstrip("> ")
        written = escapedSplit(line.removeprefix("|").removesuffix("|"))
        cells += [(Span(more.strip()),) for more in written[len(cells) :] if more.strip()]
    return tuple(cells)


def _inline(node: SyntaxTreeNode) -> Spans:
    spans = (it for child in node.children for it in _spans(child, frozenset(), None))
    return tuple(joined([span for span in spans if span.text]))


def _spans(node: SyntaxTreeNode, styles: frozenset[Style], url: str | None) -> Iterator[Span]:
    match node.type:
        case "inline":
            for child in node.children:
                yield from _spans(child, styles, url)
        case "text" | "text_special":
            yield Span(node.content, styles, url)
        case "softbreak" | "hardbreak":
            yield Span("\n", styles, url)
        case "code_inline":
            # No platform gives code a further look.
            yield Span(node.content, frozenset({Style.CODE}), url)
        case "strong" | "em" | "s":
            for child in node.children:
                yield from _spans(child, styles | {_STYLES[node.type]}, url)
        case "link":
            yield from _link(node, styles)
        case "image":
            yield from _image(node, styles, url)
        case other:
            raise AssertionError(f"the parser has no span {other}")


def _link(node: SyntaxTreeNode, styles: frozenset[Style]) -> Iterator[Span]:
    address = str(node.attrs.get("href", ""))
    url = address if _WEB.match(address) else None
    spans = [it for child in node.children for it in _spans(child, styles, url) if it.text]
    yield from spans or [Span(address, styles, url)]
    if title := _titled(node, ""):
        yield Span(f" {title}", styles, url)
    # Platforms refuse or drop a link that does not lead into the web.
    if spans and url is None and address.removeprefix("mailto:") != spans_text(spans):
        yield Span(f" ({address})", styles)


def _image(node: SyntaxTreeNode, styles: frozenset[Style], url: str | None) -> Iterator[Span]:
    """Yield an image as a link to it; the address of a link around it stands behind."""
    source = str(node.attrs.get("src", ""))
    text = _titled(node, node.content)
    if _WEB.match(source):
        yield Span(text or source, styles, source)
    else:
        yield Span(" ".join(filter(None, (text, source and f"({source})"))), styles)
    if url is not None:
        yield Span(" ", styles)
        yield Span(url, styles, url)


def _titled(node: SyntaxTreeNode, text: str) -> str:
    """Return a text with the title that a link or an image has."""
    title = str(node.attrs.get("title", "")).strip()
    return " ".join(filter(None, (text, f"({title})" if title else "")))
