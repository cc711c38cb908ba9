"""C84: a long answer is cut where a reader does not notice, in the unit of the platform."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane_client.delivery.pieces import TextLimit, Unit, pieces_of, split_text
from chatlane_schemas import Attachment, OutboundMessage, Source, new_envelope_id

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


@pytest.mark.parametrize("whole", [FAMILY, FLAG, THUMB, "e\u0301", "1\ufe0f\u20e3"])
def test_c84_what_is_seen_as_one_character_stays_whole(whole: str) -> None:
    limit = TextLimit(50, "utf16")
    pieces = list(split_text(whole * 60, limit))
    assert len(pieces) > 1
    assert all(piece.replace(whole, "") == "" for piece in pieces)


@pytest.mark.parametrize("mark", ["```", "~~~", "`````"])
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
    st.integers(min_value=20, max_value=80),
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
