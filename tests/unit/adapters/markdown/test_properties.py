"""Whatever a model writes is shown, fits, and keeps its words."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlane_adapters.kit.markdown import (
    DISCORD,
    SLACK,
    WHATSAPP,
    Document,
    as_html,
    in_dialect,
    parse,
    split,
    with_entities,
)
from chatlane_adapters.kit.markdown.document import plain_text

MARKS = [
    *("*", "**", "_", "~~", "`", "``", "```", "~~~", "# ", "> ", "- ", "1. ", "2) ", "| ", "|---|"),
    *(
        "|-|-|\n",
        "\n",
        "\n\n",
        "    ",
        "\t",
        "[",
        "](http://u.v/w)",
        "](x)",
        "![",
        "<b>",
        "---",
        "\\",
    ),
    *(
        "<http://u.v>",
        ' "t")',
        "]: ",
        "😀",
        "👩‍👩‍👧",
        "é",
        "漢字",
        "\u200b",
        "\r\n",
        "\x00",
        "&lt;",
        "&#0;",
    ),
]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(MARKS), st.text(alphabet="abcdefgh ", max_size=8), st.text(max_size=5)
    ),
    max_size=40,
).map("".join)
LANGUAGES = re.compile(r"(?:```|~~~).*")
WORDS = re.compile(r"[a-h]{2,}")


def with_all(blocks: Document) -> str:
    """Return text, addresses and languages of a rendering with entities."""
    rendered = with_entities(blocks)
    more = (f" {it.url or ''} {it.language or ''}" for it in rendered.entities)
    return rendered.text + "".join(more)


@pytest.mark.parametrize(
    "render",
    [
        with_all,
        as_html,
        plain_text,
        lambda it: in_dialect(it, DISCORD),
        lambda it: in_dialect(it, SLACK),
        lambda it: in_dialect(it, WHATSAPP),
    ],
)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_no_word_is_lost(render: Callable[[Document], str], text: str) -> None:
    # Not every platform shows the language of code.
    shown = render(parse(text)) + "".join(LANGUAGES.findall(text))
    missing = [word for word in WORDS.findall(text) if word not in shown]
    assert missing == []


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, size=st.integers(30, 120))
def test_parts_fit_and_keep_every_letter(text: str, size: int) -> None:
    def measure(part: Document) -> int:
        return len(in_dialect(part, DISCORD).encode("utf-16-le")) // 2

    blocks = parse(text)
    parts = list(split(blocks, measure, size))
    assert all(measure(part) <= size for part in parts)
    assert parts == list(split(blocks, measure, size))
    whole, shown = plain_text(blocks), "".join(map(plain_text, parts))
    assert [letter for letter in "abcdefgh" if shown.count(letter) < whole.count(letter)] == []
    assert all(plain_text(part).strip() for part in parts)
