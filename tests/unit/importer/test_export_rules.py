"""Times and texts of exports, where a message has none or several."""

from collections.abc import Iterator
from datetime import UTC, datetime

from chatlane.importer.exports.conversation import EPOCH, Conversation, ForeignRow, text_in, time_of
from chatlane.importer.exports.spool import open_spool
from chatlane.importer.records import Omissions

SEVEN = datetime.fromtimestamp(7, UTC)


def test_v9_messages_without_a_time_have_that_of_the_one_before() -> None:
    """R10.1: the newest time is that of the last message that has one; zero is a time like none."""

    def rows(_: Omissions) -> Iterator[ForeignRow]:
        yield ForeignRow("1", "user", "a", time_of(None, "7"))
        yield ForeignRow("2", "assistant", "b", time_of(None, "never"))
        yield ForeignRow("3", "tool", "c", None)

    with open_spool(Conversation("chatgpt", "c", "c", EPOCH, EPOCH, rows), Omissions()) as spool:
        assert (spool.first_at, spool.last_at) == (SEVEN, SEVEN)
        assert [row.created_at for part in spool.parts() for row in part] == [SEVEN] * 3


def test_v13_texts_of_parts_are_joined_and_a_part_without_text_is_named() -> None:
    """R6.1, R17.9: a picture between two texts stays visible as a word."""
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert text_in(parts) == "a\n[image]\nb"
    assert text_in([parts[0], parts[2]]) == "a\nb"
