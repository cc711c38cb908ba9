"""Check and find entities of texts; offsets and lengths count UTF-16 code units."""

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Final

from typing_extensions import override

from chatlane_devkit.platforms.telegram.wire import Json, bad_request

MAX_TEXT: Final = 4096
MAX_CAPTION: Final = 1024
_TYPES: Final = frozenset(
    [
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
        "date_time",
    ]
)
_FOUND: Final = (
    ("bot_command", re.compile(r"(?<![\w/])/[A-Za-z0-9_]{1,64}(?:@\w{3,32})?")),
    ("mention", re.compile(r"(?<!\w)@\w{3,32}")),
    ("url", re.compile(r"https?://\S+")),
    ("email", re.compile(r"(?<!\S)[\w.+-]+@[\w-]+\.[\w.-]+")),
)
_TAGS: Final = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "s": "strikethrough",
    "code": "code",
    "pre": "pre",
    "a": "text_link",
    "blockquote": "blockquote",
    "tg-spoiler": "spoiler",
}


def units(text: str) -> int:
    """Return the length of a text in UTF-16 code units."""
    return len(text) + sum(character > "\uffff" for character in text)


def checked(text: str, entities: Iterable[Json], limit: int) -> tuple[str, list[Json]]:
    """Return a text as people see it, without blanks around it, and its entities.

    Raises:
        RefusalError: The text is empty or too long, or an entity does not fit.
    """
    entities = list(entities)
    _check(text, entities)
    shown = text.strip()
    if not shown:
        raise bad_request("message text is empty")
    if units(shown) > limit:
        raise bad_request(
            "message is too long" if limit == MAX_TEXT else "message caption is too long"
        )
    before = units(text[: len(text) - len(text.lstrip())])
    kept = []
    for entity in entities:
        begin = max(0, entity["offset"] - before)
        end = min(units(shown), entity["offset"] - before + entity["length"])
        if end > begin:
            kept.append({**entity, "offset": begin, "length": end - begin})
    return shown, kept


def _check(text: str, entities: list[Json]) -> None:
    bounds = {0}
    place = 0
    for character in text:
        place += units(character)
        bounds.add(place)
    for entity in entities:
        if entity.get("type") not in _TYPES:
            raise bad_request("can't parse entities: unsupported type of an entity")
        begin, length = entity["offset"], entity["length"]
        if begin < 0 or length <= 0 or begin + length > place:
            raise bad_request("can't parse entities: the range of an entity is outside of the text")
        if begin not in bounds or begin + length not in bounds:
            raise bad_request("can't parse entities: entity begins or ends in a UTF-16 symbol")
        if entity["type"] == "text_link" and not entity.get("url"):
            raise bad_request("can't parse entities: text_link needs a URL")


def found_entities(text: str) -> list[Json]:
    """Return the entities that Telegram finds by itself: commands, mentions, addresses."""
    found = [
        {
            "type": kind,
            "offset": units(text[: match.start()]),
            "length": units(match[0]),
        }
        for kind, pattern in _FOUND
        for match in pattern.finditer(text)
    ]
    return sorted(found, key=lambda entity: (entity["offset"], -entity["length"]))


def text_of(text: str, entity: Json) -> str:
    """Return the text that an entity covers."""
    encoded = text.encode("utf-16-le")
    begin = entity["offset"] * 2
    return encoded[begin : begin + entity["length"] * 2].decode("utf-16-le")


def parsed_html(text: str) -> tuple[str, list[Json]]:
    """Return a text of parse mode HTML without its tags, and their entities.

    Raises:
        RefusalError: A tag is unknown or not closed.
    """
    parser = _EntityParser()
    parser.feed(text)
    parser.close()
    if parser.open:
        raise bad_request("can't parse entities: can't find end tag")
    return parser.text, sorted(parser.entities, key=lambda entity: entity["offset"])


class _EntityParser(HTMLParser):
    """Collects text and entities."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.entities: list[Json] = []
        self.open: list[tuple[str, Json]] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS:
            raise bad_request(f'can\'t parse entities: unsupported start tag "{tag}"')
        entity: Json = {"type": _TAGS[tag], "offset": units(self.text)}
        if tag == "a":
            entity["url"] = dict(attrs).get("href")
        self.open.append((tag, entity))

    @override
    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1][0] != tag:
            raise bad_request(f'can\'t parse entities: unexpected end tag "{tag}"')
        _, entity = self.open.pop()
        entity["length"] = units(self.text) - entity["offset"]
        if entity["length"]:
            self.entities.append(entity)

    @override
    def handle_data(self, data: str) -> None:
        self.text += data


def commands(text: str, entities: Iterable[Json]) -> Iterator[str]:
    """Yield the commands in a text, with their slash."""
    return (text_of(text, it) for it in entities if it["type"] == "bot_command")
