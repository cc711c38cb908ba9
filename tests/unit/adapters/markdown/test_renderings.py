import pytest

from chatlane_adapters.kit.markdown import (
    DISCORD,
    SLACK,
    WHATSAPP,
    Dialect,
    Entity,
    EntityKind,
    as_html,
    in_dialect,
    literal,
    parse,
    with_entities,
)


def shown(text: str) -> list[tuple[EntityKind, str, str | None]]:
    """Return kind, text and address or language of each entity."""
    rendered = with_entities(parse(text))
    encoded = rendered.text.encode("utf-16-le")
    return [
        (
            it.kind,
            encoded[2 * it.offset : 2 * (it.offset + it.length)].decode("utf-16-le"),
            it.url or it.language,
        )
        for it in rendered.entities
    ]


class TestEntities:
    def test_offsets_count_in_the_unit_of_the_platform(self) -> None:
        in_utf16 = Entity(offset=3, length=1, kind=EntityKind.BOLD)
        assert (in_utf16,) == with_entities(parse("😀 **a**")).entities
        in_points = Entity(offset=2, length=1, kind=EntityKind.BOLD)
        assert (in_points,) == with_entities(parse("😀 **a**"), "code_points").entities

    def test_looks_nest(self) -> None:
        expected = [
            (EntityKind.BOLD, "a b", None),
            (EntityKind.ITALIC, "b", None),
            (EntityKind.ITALIC, "c", None),
        ]
        assert expected == shown("**a *b***_c_")[:3]

    def test_code_and_quotes_are_whole_entities(self) -> None:
        text = "> say\n>\n> ```py\n> x\n> ```\n\n`y` [z](https://u.v)"
        expected = [
            (EntityKind.QUOTE, "say\n\nx", None),
            (EntityKind.CODE_BLOCK, "x", "py"),
            (EntityKind.CODE, "y", None),
            (EntityKind.LINK, "z", "https://u.v"),
        ]
        assert expected == shown(text)

    def test_structure_is_seen_in_the_text(self) -> None:
        text = "# Title\n1. one\n   - sub\n2. two\n\n---\n> a\n> > b"
        expected = "Title\n1. one\n   ◦ sub\n2. two\n\n———\n\na\n\n> b"
        assert expected == with_entities(parse(text)).text

    def test_a_table_is_aligned_code(self) -> None:
        text = "| a | long |\n|--:|---|\n| 1 | x |\n| 漢字 | [u](http://v) |"
        expected = "   a  long\n────  ────────────\n   1  x\n漢字  u (http://v)"
        assert [(EntityKind.CODE_BLOCK, expected, None)] == shown(text)


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        (DISCORD, "**b** *i* ~~s~~ `c` [l](http://u)", "**b** *i* ~~s~~ `c` [l](http://u)"),
        (SLACK, "**b** *i* ~~s~~ `c` [l](http://u)", "*b* _i_ ~s~ `c` <http://u|l>"),
        (WHATSAPP, "**b** *i* ~~s~~ `c` [l](http://u)", "*b* _i_ ~s~ `c` l (http://u)"),
        (DISCORD, "## h\n- a\n  - b", "## h\n- a\n  - b"),
        (DISCORD, "#### h", "**h**"),
        (SLACK, "# h\n- a\n  - b", "*h*\n• a\n   ◦ b"),
        (DISCORD, "```py\nx\n```", "```py\nx\n```"),
        (SLACK, "```py\nx\n```", "```\nx\n```"),
        (DISCORD, "> a\n>\n> b", "> a\n> \n> b"),
        (SLACK, "a & <b>", "a &amp; &lt;b&gt;"),
        (SLACK, "un**bel**ievable", "unbelievable"),
        (DISCORD, "un**bel**ievable", "un**bel**ievable"),
        (SLACK, "**a\nb**", "*a*\n*b*"),
        (DISCORD, r"1\. a_b \*c\* <@5>", r"1\. a\_b \*c\* \<@5\>"),
        (DISCORD, "http://u/a_b_c", "http://u/a_b_c"),
        (DISCORD, "[x](http://u/a_(b))", "[x](http://u/a_%28b%29)"),
        (DISCORD, "<http://u>", "http://u"),
        (DISCORD, "``a`b``", r"a\`b"),
        (DISCORD, "````\n```\n````", "```\n``\u200b`\n```"),
    ],
)
def test_a_dialect_has_its_marks(dialect: Dialect, text: str, expected: str) -> None:
    assert expected == in_dialect(parse(text), dialect)


def test_plain_text_shows_the_marks_that_it_has() -> None:
    assert in_dialect(literal("*a*"), DISCORD) == r"\*a\*"
    assert with_entities(literal("*a*")).text == "*a*"
    assert as_html(literal("*a*\n<b>")) == "<p>*a*<br>&lt;b&gt;</p>"


def test_html_has_the_tags_of_the_structure() -> None:
    text = '# h\n**a *b***\n> q\n\n3. x\n   - y\n\n```py\n<c>\n```\n| t |\n|---|\n| "d" |\n\n---\n'
    expected = (
        "<h1>h</h1><p><strong>a <em>b</em></strong></p><blockquote><p>q</p></blockquote>"
        '<ol start="3"><li>x<ul><li>y</li></ul></li></ol>'
        '<pre><code class="language-py">&lt;c&gt;\n</code></pre>'
        '<table><thead><tr><th>t</th></tr></thead><tbody><tr><td>"d"</td></tr></tbody></table><hr>'
    )
    assert expected == as_html(parse(text))


def test_html_runs_no_script() -> None:
    text = '[a](javascript:alert(1)) <script>x</script> [b](http://u/"onclick=)\n```a"b\nc\n```'
    html = as_html(parse(text))
    assert "<script" not in html
    assert 'href="javascript' not in html
    assert 'class="language-a&quot;b"' in html
