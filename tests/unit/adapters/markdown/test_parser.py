from chatlane_adapters.kit.markdown.document import (
    CodeBlock,
    Heading,
    ItemList,
    ListItem,
    Paragraph,
    Quote,
    Rule,
    Span,
    Style,
    Table,
    plain_text,
)
from chatlane_adapters.kit.markdown.parser import parse


def words(text: str) -> Paragraph:
    return Paragraph((Span(text),))


def test_a_text_becomes_blocks() -> None:
    text = "# Title\n\nHello\n\n> quoted\n\n```py\nx = 1\n```\n\n---\n\n3. three\n4. four\n   - sub"
    expected = (
        Heading((Span("Title"),), 1),
        words("Hello"),
        Quote((words("quoted"),)),
        CodeBlock("x = 1", "py"),
        Rule(),
        ItemList(
            (
                ListItem((words("three"),), 3),
                ListItem((words("four"), ItemList((ListItem((words("sub"),)),))), 4),
            )
        ),
    )
    assert expected == parse(text)


def test_spans_carry_their_looks() -> None:
    expected = Paragraph(
        (
            Span("a "),
            Span("b ", frozenset({Style.BOLD})),
            Span("c", frozenset({Style.BOLD, Style.ITALIC})),
            Span("d", frozenset({Style.CODE})),
            Span("e", frozenset({Style.STRIKETHROUGH})),
            Span("f", url="https://g.h"),
        )
    )
    assert (expected,) == parse("a **b *c***`d`~~e~~[f](https://g.h)")


def test_a_line_break_of_the_source_is_seen() -> None:
    assert (words("a\nb\nc"),) == parse("a\nb  \nc")


def test_a_table_keeps_cells_without_a_column() -> None:
    table = Table(
        header=((Span("a"),), (Span("b"),)),
        rows=(((Span("1"),), (Span("2"),), (Span("three"),)), ((Span("4"),), ())),
        alignments=("left", "right"),
    )
    assert (table,) == parse("| a | b |\n|---|--:|\n| 1 | 2 | three |\n| 4 |")


def test_what_is_no_markdown_stays_text() -> None:
    assert (words("<b>x</b> & [ref]: http://x"),) == parse("<b>x</b> &amp; [ref]: http://x")
    assert (words("[text][ref]\n\n[ref]: http://x"),) != parse("[text][ref]\n\n[ref]: http://x")
    assert "[ref]: http://x" in plain_text(parse("[text][ref]\n\n[ref]: http://x"))


def test_a_link_that_no_platform_follows_shows_its_address() -> None:
    assert (words("file (docs/a.md)"),) == parse("[file](docs/a.md)")
    assert (words("ann@x.de"),) == parse("<ann@x.de>")


def test_an_image_is_a_link() -> None:
    assert (Paragraph((Span("alt (t)", url="http://i/p.png"),)),) == parse(
        '![alt](http://i/p.png "t")'
    )
    assert (Paragraph((Span("http://i", url="http://i"),)),) == parse("![](http://i)")


def test_marks_around_nothing_are_shown() -> None:
    for text in ("#", "> ", "```\n```", "[](", "-"):
        assert (words(text),) == parse(text)


def test_words_that_are_nested_too_deep_are_text() -> None:
    assert (words(">" * 200 + " deep"),) == parse(">" * 200 + " deep")
    assert "deep" in plain_text(parse("- " * 200 + "deep"))
    assert "deep" in plain_text(parse("*" * 5000 + "deep" + "*" * 5000))
