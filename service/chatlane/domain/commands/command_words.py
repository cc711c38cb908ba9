"""Which messages are commands to the router: what they ask for, and who may ask for it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chatlane.domain.addressing.sources import ChatClass


class CommandName(StrEnum):
    """What a person can tell the router; in the order in which /help shows it."""

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


# Other words for a command.
OTHER_WORDS: Final = {"reset": CommandName.NEW}
_WORDS: Final[Mapping[str, CommandName]] = MappingProxyType(
    {**{name.value: name for name in CommandName}, **OTHER_WORDS}
)

# What is said behind them is a message to the agent.
PASSED_ON: Final = frozenset({CommandName.QUEUE, CommandName.STEER})

DEFAULT_ACCESS: Final = "default"
EVERYBODY: Final = "*"

# A word, perhaps the bot that is meant, and then nothing or white space: "/etc/hosts" and
# "/README.md" go on with something else.
_CALL: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31})(?:@([^\s@/]{1,64}))?(?=\s|$)")
# As `str.splitlines` has it.
_LINE_END: Final = re.compile("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_BOT_ENDING: Final = "bot"


@dataclass(frozen=True, slots=True)
class CommandRules:
    """How commands are given on a platform.

    Attributes:
        prefix: What a command begins with.
        off: Commands that are plain text here.
        access: By command, or `default` for those not named: ids of who may use it, `*` for
            everybody. Everybody may use what is in neither.
        group_access: The same in chats of many people; None: as everywhere.
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
    """A command as it was given.

    Attributes:
        name: None where it was given to another bot.
        argument: What its line says behind the word; of `/queue` and `/steer` all that follows.
        rest: What follows its line, which is a message to the agent.
    """

    name: CommandName | None
    argument: str = ""
    rest: str = ""

    @property
    def message(self) -> str:
        """What it brings to the agent."""
        return self.argument if self.name in PASSED_ON else self.rest

    @property
    def is_for_router_only(self) -> bool:
        """Whether the agent is to see nothing of it, not even its files."""
        return self.name not in PASSED_ON and not self.rest


_TO_ANOTHER_BOT: Final = Command(None)


def parse_command(
    text: str | None,
    rules: CommandRules,
    bot_name: str | None,
    mention: re.Pattern[str] | None = None,
) -> Command | None:
    """Return the command a text gives; None for plain text, which is all that is not one.

    Args:
        text: What was written.
        rules: Of the platform.
        bot_name: Ours, as commands are addressed to it; None where we have none.
        mention: Of us, where a command may follow one; as `own_mention` returns it.
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
    """Return where a text calls a command, behind its prefix and perhaps a mention of us."""
    if text is None:
        return None
    begin = 0
    # All that plain text costs.
    if not text.startswith(prefix):
        mentioned = mention.match(text) if mention is not None else None
        if mentioned is None or not text.startswith(prefix, mentioned.end()):
            return None
        begin = mentioned.end()
    return _CALL.match(text, begin + len(prefix))


def _with_lines(name: CommandName, behind: str) -> Command:
    line_end = None if name in PASSED_ON else _LINE_END.search(behind)
    if line_end is None:
        return Command(name, behind.strip())
    return Command(name, behind[: line_end.start()].strip(), behind[line_end.end() :].strip())


def _is_bot(addressed: str, bot_name: str | None) -> bool:
    """Return whether a word no command of ours knows is still meant for another bot."""
    return bot_name is not None and addressed.lower().endswith(_BOT_ENDING)
