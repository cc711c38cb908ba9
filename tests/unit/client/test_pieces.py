"""C84: a long answer is cut where a reader does not notice, in the unit of the platform."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane_client.delivery.pieces import TextLimit, Unit, pieces_of, split_text
from chatlane_schemas import Attachment, OutboundMessage, Source, new_envelope_id
from chatlane_schemas.content.buttons import TextFormat

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f466"
FLAG = "\U0001f1e9\U0001f1ea"
THUMB = "\U0001f44d\U0001f3fd"
UNITS: tuple[Unit, ...] = ("utf16", "code_points", "bytes")


def message(text: str | None, *attachments: Attachment) -> OutboundMessage:
    return OutboundMessage(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=uuid4(),
        out_seq=1,
        agent="main",
        target=Source(platform="telegram", account="bot"),
        text=text,
        attachments=attachments,
        reply_to="7",
    )


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "text",
    [
        "word " * 4200,
        "x" * 21_000,
        f"{FAMILY} " * 2000,
        FAMILY * 2000,
        FLAG * 3000,
        THUMB * 3000,
        "e\u0301" * 9000,
        "Absatz mit Grüßen.\n\n" * 1100,
        "line\n" * 5000,
    ],
    ids=["words", "one word", "families", "only families", "flags", "thumbs", "accents", "p", "br"],
)
def test_c84_pieces_fit_and_lose_nothing(text: str, unit: Unit) -> None:
    limit = TextLimit(4096, unit)
    pieces = list(split_text(text, limit))
    assert all(limit.measure(piece) <= limit.size for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert len(pieces) <= 2 + 2 * limit.measure(text) // limit.size


@pytest.mark.parametrize(
    "whole",
    [
        *(FAMILY, FLAG, THUMB, "e\u0301", "1\ufe0f\u20e3"),
        pytest.param("\u1112\u1161\u11ab", id="decomposed Korean"),
        pytest.param("\u0e19\u0e49\u0e33", id="Thai"),
        pytest.param("\uff76\uff9e", id="narrow kana"),
        pytest.param("\u0915\u093f", id="Hindi"),
        pytest.param("\U0001f3f4\U000e0067\U000e0062\U000e007f", id="flag of tags"),
        pytest.param("\U0001f3f3\ufe0f\u200d\U0001f308", id="rainbow flag"),
    ],
)
def test_c84_what_is_seen_as_one_character_stays_whole(whole: str) -> None:
    limit = TextLimit(50, "utf16")
    pieces = list(split_text(whole * 60, limit))
    assert len(pieces) > 1
    assert all(piece.replace(whole, "") == "" for piece in pieces)


@pytest.mark.parametrize("mark", ["```", "~~~", "`````", "````", "`" * 30, "    ```", "\t~~~~"])
def test_c84_a_code_block_is_closed_and_opened_again(mark: str) -> None:
    code = "\n".join(f"    print({number})" for number in range(400))
    text = f"Before.\n\n{mark}python\n{code}\n{mark}\n\nAfter."
    pieces = list(split_text(text, TextLimit(1000)))
    assert len(pieces) > 4
    for piece in pieces:
        lines = piece.split("\n")
        assert sum(line.startswith(mark) for line in lines) % 2 == 0, piece
    told = [line for piece in pieces for line in piece.split("\n") if line.startswith("    print")]
    assert told == code.split("\n")
    assert all(piece.startswith(f"{mark}python\n") for piece in pieces[1:-1])


@pytest.mark.parametrize("line", ["```ls -la```", "```` a ``` b ````", "  ```x``` and ```y```"])
def test_c84_a_span_of_code_at_the_start_of_a_line_opens_no_block(line: str) -> None:
    text = f"{line}\n" + "word " * 400
    pieces = list(split_text(text, TextLimit(500)))
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_c84_a_shorter_fence_inside_a_block_does_not_end_it() -> None:
    inside = "```\nprint(1)\n```\n" * 100
    pieces = list(split_text(f"````md\n{inside}````\nAfter.", TextLimit(300)))
    assert all(piece.startswith("````md\n") for piece in pieces[:-1])
    assert all(piece.count("````") == 2 for piece in pieces[:-1])
    code = "".join(piece.replace("````md\n", "").replace("````", "") for piece in pieces)
    assert code.count("print(1)") == 100


def test_c84_nested_lists_keep_their_indentation() -> None:
    text = "".join(f"- a{n}\n  - b{n}\n    1. c{n}\n" for n in range(100))
    pieces = list(split_text(text, TextLimit(200)))
    lines = [line for piece in pieces for line in piece.rstrip("\n").split("\n")]
    assert lines == text.strip().split("\n")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 9, 12])
@pytest.mark.parametrize(
    "text", ["```\nab\n```", "`" * 40, f"a{FAMILY}b", "[a](http://b/c)", "```" + "x" * 50 + "\ny\n"]
)
def test_c84_a_limit_smaller_than_what_is_whole_ends(text: str, size: int, unit: Unit) -> None:
    limit = TextLimit(size, unit)
    pieces = list(split_text(text, limit))
    longest = max(map(limit.measure, text))
    assert all(limit.measure(piece) <= max(size, longest) for piece in pieces)

    def seen(said: str) -> str:
        # A joiner that is a piece by itself says nothing, and fences are repeated.
        return "".join(said.replace("`", "").replace("\u200d", "").split())

    assert seen("".join(pieces)) == seen(text)


@pytest.mark.parametrize(
    "whole",
    [
        "[the manual](https://docs.example/a/very/long/path?with=parameters)",
        "`a span of code with spaces`",
        "**bold words that belong together**",
        "https://example.org/" + "x" * 60,
    ],
)
def test_c84_a_link_is_not_cut(whole: str) -> None:
    text = f"word {whole} " * 60
    pieces = list(split_text(text, TextLimit(150)))
    assert sum(piece.count(whole) for piece in pieces) == 60


def test_c84_a_word_longer_than_a_piece_is_cut() -> None:
    pieces = list(split_text("https://example.org/" + "y" * 120, TextLimit(50)))
    assert "".join(pieces) == "https://example.org/" + "y" * 120
    assert max(map(len, pieces)) <= 50


@given(
    st.text(alphabet=st.sampled_from("ab \n`~*[]()\U0001f600\u0301\u200d"), max_size=400),
    st.integers(min_value=4, max_value=80),
    st.sampled_from(UNITS),
)
def test_c84_any_text_fits_and_keeps_its_words(text: str, size: int, unit: Unit) -> None:
    limit = TextLimit(size, unit)
    pieces = list(split_text(text, limit))
    assert all(limit.measure(piece) <= size for piece in pieces)

    def letters(said: str) -> str:
        return "".join(character for character in said if character in "ab\U0001f600")

    assert letters("".join(pieces)).startswith(letters(text)[:10])
    assert len(letters("".join(pieces))) >= len(letters(text))


def test_the_same_message_always_gives_the_same_pieces() -> None:
    sent = message("word " * 4200)
    limit = TextLimit(4096, "utf16")
    assert pieces_of(sent, limit) == pieces_of(sent, limit)


def test_only_the_first_piece_replies_and_only_the_last_has_the_files() -> None:
    picture = Attachment(url="https://files.example/1.png", media_type="image/png")
    pieces = pieces_of(message("word " * 500, picture), TextLimit(1000))
    assert [piece.reply_to for piece in pieces] == ["7", *[None] * (len(pieces) - 1)]
    assert [piece.attachments for piece in pieces] == [*[()] * (len(pieces) - 1), (picture,)]
    assert [piece.key for piece in pieces] == [
        f"{pieces[0].message.id}-{number}" for number in range(len(pieces))
    ]


@pytest.mark.parametrize("text", [None, "", "  \n ", "\u200b\u2060"])
def test_c74_a_message_that_says_nothing_has_no_pieces(text: str | None) -> None:
    assert pieces_of(message(text), TextLimit(1000)) == ()
    picture = Attachment(url="https://files.example/1.png", media_type="image/png")
    [piece] = pieces_of(message(text, picture), TextLimit(1000))
    assert (piece.text, piece.attachments) == (None, (picture,))


def test_the_files_of_an_answer_with_a_draft_are_a_piece_of_their_own() -> None:
    photo = Attachment(url="https://files.test/1.png", media_type="image/png")
    answer = message("look", photo).model_copy(update={"draft": "m1"})
    text, files = pieces_of(answer, TextLimit(100))
    assert (text.text, text.attachments) == ("look", ())
    assert (files.text, files.attachments) == (None, (photo,))


def test_a_renderer_gives_the_pieces_instead_of_the_limit() -> None:
    photo = Attachment(url="https://files.test/1.png", media_type="image/png")
    said = message("ab", photo).model_copy(update={"format": TextFormat.MARKDOWN})
    first, last = pieces_of(said, TextLimit(1), render=lambda text, form: [*text, form])[::2]
    assert (first.text, first.rendered, first.count, first.attachments) == ("ab", "a", 3, ())
    assert (last.number, last.rendered, last.attachments) == (2, TextFormat.MARKDOWN, (photo,))
