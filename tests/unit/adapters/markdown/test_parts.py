import pytest

from chatlane_adapters.kit.markdown import DISCORD, Renderer, as_html, in_dialect, with_entities
from chatlane_adapters.kit.markdown.entities import EntityText
from chatlane_client.delivery.pieces import TextLimit
from chatlane_schemas.content.buttons import TextFormat

MARKDOWN = TextFormat.MARKDOWN


def discord(size: int) -> Renderer[str]:
    return Renderer(lambda it: in_dialect(it, DISCORD), len, size)


def telegram(size: int) -> Renderer[EntityText]:
    unit = TextLimit(size, "utf16")
    return Renderer(with_entities, lambda it: unit.measure(it.text), size)


def test_a_text_that_fits_is_one_part() -> None:
    assert discord(5)("**a**", MARKDOWN) == ("**a**",)


def test_parts_fit_after_rendering() -> None:
    text = "_" * 90 + " " + "*" * 90
    parts = discord(100)(text, TextFormat.PLAIN)
    assert list(parts) == [50 * r"\_", 40 * r"\_", 50 * r"\*", 40 * r"\*"]


def test_a_cut_is_between_paragraphs() -> None:
    text = "\n\n".join(letter * 30 for letter in "abcd")
    assert discord(70)(text, MARKDOWN) == (
        "a" * 30 + "\n\n" + "b" * 30,
        "c" * 30 + "\n\n" + "d" * 30,
    )


def test_a_heading_stays_with_what_follows() -> None:
    text = f"{'a' * 30}\n\n# Title\n\n{'b' * 30}"
    assert ("a" * 30, f"# Title\n{'b' * 30}") == discord(50)(text, MARKDOWN)


def test_a_code_block_is_opened_again_with_its_language() -> None:
    lines = [f"line {number}" for number in range(6)]
    text = "```py\n" + "\n".join(lines) + "\n```"
    expected = tuple(
        "```py\n" + "\n".join(lines[begin : begin + 3]) + "\n```" for begin in range(0, 6, 3)
    )
    assert expected == discord(32)(text, MARKDOWN)


def test_a_code_block_that_fits_is_not_cut() -> None:
    code = "```py\n" + "x" * 40 + "\n```"
    assert ("Here:", code) == discord(55)(f"Here:\n\n{code}", MARKDOWN)


def test_a_look_that_is_cut_is_in_both_parts() -> None:
    text = "**" + " ".join(["word"] * 20) + "**"
    parts = discord(60)(text, MARKDOWN)
    assert len(parts) == 2
    assert all(part.startswith("**") and part.endswith("**") for part in parts)
    entities = [part.entities for part in telegram(60)(text, MARKDOWN)]
    assert [len(it) for it in entities] == [1, 1]


def test_a_link_is_not_cut() -> None:
    text = "a " * 20 + "[one two three](http://u)" + " b" * 20
    parts = discord(60)(text, MARKDOWN)
    assert any("[one two three](http://u)" in part for part in parts)


def test_a_table_repeats_its_header() -> None:
    rows = "\n".join(f"| {number} | x |" for number in range(8))
    parts = discord(40)(f"| a | b |\n|---|---|\n{rows}", MARKDOWN)
    assert len(parts) > 1
    assert all(part.startswith("```\na  b\n") for part in parts)


def test_lists_and_quotes_are_cut_between_items_and_inside_them() -> None:
    text = "> 1. " + "a " * 30 + "\n> 2. b\n> 3. c"
    parts = discord(50)(text, MARKDOWN)
    assert all(len(part) <= 50 for part in parts)
    assert all(part.startswith("> ") for part in parts)
    assert [mark for mark in ("1. ", "2. ", "3. ") if mark in "".join(parts)] == [
        "1. ",
        "2. ",
        "3. ",
    ]


@pytest.mark.parametrize("size", [1, 2, 10])
def test_a_size_that_is_too_small_for_marks_drops_them(size: int) -> None:
    parts = telegram(size)("# ab\n> > **cd** [e](http://u)\n```py\nfg\n```", MARKDOWN)
    letters = "".join(part.text for part in parts).replace("\n", "").replace(" ", "")
    assert all(letter in letters for letter in "abcdefg")


def test_html_is_split_as_well() -> None:
    renderer = Renderer(as_html, len, 200)
    parts = renderer("\n\n".join(["**word** " * 12] * 5), MARKDOWN)
    assert all(len(part) <= 200 for part in parts)
    assert "".join(parts).count("word") == 60


def test_a_draft_shows_the_first_part() -> None:
    assert discord(40).first(f"{'a' * 30}\n\n{'b' * 30}") == "a" * 30
    assert discord(40).first(" \n") is None
