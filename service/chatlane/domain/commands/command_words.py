"""Parse router commands in messages and check who may use them. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane_schemas.content.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chatlane.domain.addressing.sources import ChatClass


class CommandName(StrEnum):
    """Commands to the router, in the order in which /help shows them."""

    NEW = "new"
    STOP = "stop"
    QUEUE = "queue"
    STEER = "steer"
    UNDO = "undo"
    RETRY = "retry"
    TITLE = "title"
    SESSIONS = "sessions"
    RESUME = "resume"
    BRANCH = "branch"
    MODEL = "model"
    STATUS = "status"
    HELP = "help"


# Aliases of commands.
OTHER_WORDS: Final = {"reset": CommandName.NEW}
_WORDS: Final[Mapping[str, CommandName]] = MappingProxyType(
    {**{name.value: name for name in CommandName}, **OTHER_WORDS}
)

# The text after these commands is a message to the agent.
PASSED_ON: Final = frozenset({CommandName.QUEUE, CommandName.STEER})

DEFAULT_ACCESS: Final = "default"
EVERYBODY: Final = "*"

# A word, optionally the addressed bot, and then nothing or white space: "/etc/hosts" and
# "/README.md" continue differently.
_CALL: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31})(?:@([^\s@/]{1,64}))?(?=\s|$)")
# Controls besides tabs and the ends of lines.
_UNSEEN: Final = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
_EMPTY_BRAILLE: Final = "\u2800"
# The line ends of `str.splitlines`.
_LINE_END: Final = re.compile("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_BOT_ENDING: Final = "bot"
_WORD: Final = re.compile(r"\S+")
# The wide form of each visible character of ASCII.
_WIDE: Final = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
# Compatibility forms that are the same letter in another width or font.
_SAME_LETTER: Final = ("<wide>", "<font>")


@dataclass(frozen=True, slots=True)
class CommandRules:
    """Rules for commands on a platform.

    Attributes:
        prefix: Starts a command.
        off: Commands that are plain text here.
        access: Ids of the people who may use a command, by command, or `default` for all other
            commands; `*` means everybody. A command without an entry is open to everybody.
        group_access: The same for chats of many people; None: `access` applies there as well.
    """

    prefix: str = "/"
    off: frozenset[CommandName] = frozenset()
    access: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    group_access: Mapping[str, frozenset[str]] | None = None

    def permits(self, name: CommandName, chat_class: ChatClass, ids: Iterable[str]) -> bool:
        """Return whether a person known under these ids may use a command."""
        if name is CommandName.HELP:
            return True
        access = self.access
        if chat_class == "group" and self.group_access is not None:
            access = self.group_access
        allowed = access.get(name, access.get(DEFAULT_ACCESS))
        return allowed is None or EVERYBODY in allowed or not allowed.isdisjoint(ids)


class Command(NamedTuple):
    """A parsed command.

    Attributes:
        name: None if the command addresses another bot.
        argument: The rest of its line after the word; for `/queue` and `/steer` the whole text.
        rest: The text after its line, which is a message to the agent.
    """

    name: CommandName | None
    argument: str = ""
    rest: str = ""

    @property
    def message(self) -> str:
        """Return the text that the agent receives."""
        return self.argument if self.name in PASSED_ON else self.rest

    @property
    def is_for_router_only(self) -> bool:
        """Return whether the agent receives nothing of it, not even its attachments."""
        return self.name not in PASSED_ON and not self.rest


_TO_ANOTHER_BOT: Final = Command(None)


def parse_command(
    text: str | None,
    rules: CommandRules,
    bot_name: str | None,
    mention: re.Pattern[str] | None = None,
) -> Command | None:
    """Return the command in a text; None if it is plain text.

    Args:
        bot_name: The name by which commands address this bot; None if it has none.
        mention: Matches a mention of this bot before a command; from `own_mention`.
    """
    call = _find_call(text, rules.prefix, mention)
    if call is None:
        return None
    name = _WORDS.get(call[1].lower())
    if call[2] is not None and call[2].lower() != (bot_name or "").lower():
        return _TO_ANOTHER_BOT if name or _is_bot(call[2], bot_name) else None
    if name is None or name in rules.off:
        return None
    return _with_lines(name, call.string[call.end() :])


def _find_call(
    text: str | None, prefix: str, mention: re.Pattern[str] | None
) -> re.Match[str] | None:
    """Find a command in a text, after its prefix and an optional mention of this bot."""
    if text is None:
        return None
    if not (text.isascii() and text.isprintable()):
        text = _as_seen(text, prefix)
    begin = 0
    # Plain text costs this check and nothing else.
    if not text.startswith(prefix):
        mentioned = mention.match(text) if mention is not None else None
        if mentioned is None or not text.startswith(prefix, mentioned.end()):
            return None
        begin = mentioned.end()
    return _CALL.match(text, begin + len(prefix))


def _plain_letter(character: str) -> str:
    """Return a character without its width and font; others, as the long s, stay what they are."""
    if unicodedata.decomposition(character).startswith(_SAME_LETTER):
        return unicodedata.normalize("NFKC", character)
    return character


def _as_seen(text: str, prefix: str) -> str:
    """Return a text with the first line as people see it, if that may be a command.

    Keyboards and copied text add invisible characters, and some keyboards write wide characters.
    """
    end = _LINE_END.search(text)
    line = text if end is None else text[: end.start()]
    if prefix not in line and prefix.translate(_WIDE) not in line:
        return text
    seen = visible(line)
    for word in _WORD.finditer(seen):
        shown = _UNSEEN.sub("", word[0]).replace(_EMPTY_BRAILLE, " ")
        narrow = "".join(map(_plain_letter, shown))
        if narrow.startswith(prefix):
            seen = seen[: word.start()] + narrow + seen[word.end() :]
            break
    return seen + text[len(line) :]


def _with_lines(name: CommandName, behind: str) -> Command:
    line_end = None if name in PASSED_ON else _LINE_END.search(behind)
    if line_end is None:
        return Command(name, behind.strip())
    return Command(name, behind[: line_end.start()].strip(), behind[line_end.end() :].strip())


def _is_bot(addressed: str, bot_name: str | None) -> bool:
    """Return whether an unknown command with an addressee is still meant for another bot."""
    return bot_name is not None and addressed.lower().endswith(_BOT_ENDING)
