"""Hold the declarations of `chatlane.toml`: platforms, accounts, profiles, agents and policies.

A catalog is validated when the settings are read and never changes while a router runs. So every
look-up here is a dictionary access, and none of them can fail in the middle of a batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from chatlane.domain.commands.command_words import CommandRules
from chatlane.domain.notices import ENGLISH
from chatlane_schemas.dead import DeadReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from re import Pattern

    from chatlane.domain.notices import Notices
    from chatlane.domain.policy import KeyRules, ResetPolicy
    from chatlane.domain.prompts.context import Prompts

Delivery = Literal["turns", "stream"]
# Where an agent may send on its own: its session and the chat of it, home channels, other chats.
Destination = Literal["origin", "home", "chat"]
DESTINATIONS: Final[frozenset[Destination]] = frozenset({"origin", "home"})


class Limit(NamedTuple):
    """A number of messages per span of time."""

    messages: int
    per: timedelta


class Limits(NamedTuple):
    """Limits of one platform; None means no limit."""

    per_chat: Limit | None = None
    per_sender: Limit | None = None

    def __bool__(self) -> bool:
        return self != (None, None)


BusyMode = Literal["collect", "queue", "interrupt", "steer"]

# The messages that another bot may write in one chat before it is ignored.
BOT_BUDGET: Final = Limit(5, timedelta(minutes=1))
MAIN_PROFILE: Final = "main"
_MAIN_SPELLINGS: Final = frozenset({"", "default", MAIN_PROFILE})


def canonical_profile(profile: str | None) -> str:
    """Return the name of a profile in session keys: none, `""` and `default` are `main`."""
    if profile is None or profile in _MAIN_SPELLINGS:
        return MAIN_PROFILE
    return profile


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """The policy for messages that arrive while a turn of their session runs.

    Attributes:
        busy: `collect` makes the waiting messages the next turn, `queue` makes a turn of each
            message, `interrupt` ends the running turn, `steer` adds the message to it.
        note: Notice to the chat when a message waits, sent now and then; `""` sends none.
        debounce: How long a message waits for others of its burst.
        debounce_cap: How long a burst may delay its first message.
        album_wait: How long a message of an album waits for the others.
        files_wait: How long a message waits for its files.
    """

    busy: BusyMode = "collect"
    note: str = ""
    debounce: timedelta = timedelta(0)
    debounce_cap: timedelta = timedelta(seconds=1)
    album_wait: timedelta = timedelta(seconds=1)
    files_wait: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Agent:
    """A group of workers and its delivery settings.

    `prompts` writes the prompt contexts of its sessions; None if it wants none. `retry_pause` is the
    pause after the first failed attempt, and grows with each further one. `max_wait` is how long a
    turn waits for an agent that is unavailable.
    `reaction_turns` says that a reaction or a vote starts a turn, and `reasoning` that the history
    which its workers get has the reasoning that they returned.
    """

    name: str
    delivery: Delivery = "turns"
    busy: BusyMode = "collect"
    lease: timedelta = timedelta(seconds=30)
    ack_wait: timedelta = timedelta(minutes=2)
    max_attempts: int = 3
    busy_note: str = ""
    prompts: Prompts | None = field(default=None, repr=False, compare=False)
    debounce: timedelta = timedelta(0)
    debounce_cap: timedelta = timedelta(seconds=1)
    retry_pause: timedelta = timedelta(seconds=5)
    max_wait: timedelta = timedelta(hours=1)
    send_to: frozenset[Destination] = DESTINATIONS
    reaction_turns: bool = False
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """A persona as named in session keys, with the agent that serves it."""

    name: str
    agent: Agent


@dataclass(frozen=True, slots=True)
class HomeChannel:
    """The default chat of an account for messages without a request, such as results of a timer.

    `kind` counts only until the first message arrives there.
    """

    chat_id: str
    name: str = ""
    thread_id: str | None = None
    kind: str = "group"


@dataclass(frozen=True, slots=True)
class Account:
    """One bot account on a platform.

    `profiles` holds the names as written in session keys (`main`, never `default`). `own_ids` are
    the sender ids of the bot's messages, which are never processed. `bot_name` is the name by which
    commands address this bot. `staff_ids` are the sender ids of people who write in the name of the
    account; the agent then waits for `staff_pause`. `bots_allowed` overrides that of the platform. Front ends of the account
    may name people of the accounts in `people_of`, too, as (platform, account). `shows_rooms` says
    that the members of a room may read its shared sessions. `mention` matches a mention of the bot at the start of a text.
    """

    name: str
    profiles: frozenset[str] = frozenset({MAIN_PROFILE})
    own_ids: frozenset[str] = frozenset()
    bot_name: str | None = None
    home: HomeChannel | None = None
    bots_allowed: bool | None = None
    staff_ids: frozenset[str] = frozenset()
    staff_pause: timedelta = timedelta(0)
    people_of: frozenset[tuple[str, str]] = frozenset()
    shows_rooms: bool = False
    mention: Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile the pattern that every message is matched with."""
        object.__setattr__(self, "mention", own_mention(self.bot_name, self.own_ids))


@dataclass(frozen=True, slots=True)
class Platform:
    """A chat network with its rules for keys, resets, people, bots, commands and prompts.

    `chats_migrate` says that its chats may get new ids, so that a `migration` is accepted.
    In prompts, `hides_ids` shows ids as digests; `has_tools` says that agents have tools for
    its API, which need the real ids; `note` replaces the built-in platform note. `notices` has the
    texts for people in its language.
    """

    name: str
    keys: KeyRules
    reset: ResetPolicy | None = None
    class_reset: Mapping[str, ResetPolicy] = field(default_factory=lambda: MappingProxyType({}))
    accounts: Mapping[str, Account] = field(default_factory=lambda: MappingProxyType({}))
    person_aliases: bool = False
    chats_migrate: bool = True
    bots_allowed: bool = False
    bot_budget: Limit = BOT_BUDGET
    limits: Limits | None = None
    commands: CommandRules = field(default_factory=CommandRules)
    busy: BusyMode | None = None
    busy_note: str | None = None
    hides_ids: bool = False
    has_tools: bool = False
    note: str | None = None
    reset_notices: bool = True
    notices: Notices = field(default=ENGLISH, repr=False, compare=False)
    debounce: timedelta | None = None
    debounce_cap: timedelta | None = None
    album_wait: timedelta = timedelta(seconds=1)
    files_wait: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All declarations, with the look-ups that decisions need.

    `profiles` maps the name in the key to the name of the agent; settings make sure that
    each of these agents is in `agents`. `notices` has the texts for platforms that are no longer
    declared.
    """

    platforms: Mapping[str, Platform]
    profiles: Mapping[str, str]
    agents: Mapping[str, Agent]
    default_reset: ResetPolicy
    class_reset: Mapping[str, ResetPolicy] = field(default_factory=lambda: MappingProxyType({}))
    notices: Notices = field(default=ENGLISH, repr=False, compare=False)
    # Needed for every message, so each is built once.
    _delivery_policies: dict[tuple[str, str], DeliveryPolicy] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def find_account(self, platform: str, account: str) -> Account | None:
        """Return the declared account, or None when platform or account is undeclared."""
        declared = self.platforms.get(platform)
        return None if declared is None else declared.accounts.get(account)

    def people_of(self, platform: str, account: str) -> frozenset[tuple[str, str]]:
        """Return the accounts whose people front ends of an account may name beside its own."""
        found = self.find_account(platform, account)
        return frozenset() if found is None else found.people_of

    @property
    def room_accounts(self) -> frozenset[tuple[str, str]]:
        """Return the (platform, account) whose rooms are shown to their members."""
        return frozenset(
            (platform.name, account.name)
            for platform in self.platforms.values()
            for account in platform.accounts.values()
            if account.shows_rooms
        )

    def agent_for(self, profile: str) -> Agent:
        """Return the agent that serves a declared profile, in any spelling of its name."""
        return self.agents[self.profiles[canonical_profile(profile)]]

    def reset_policy_for(self, platform: str, klass: str) -> ResetPolicy:
        """Return the complete policy in force: platform and class, platform, class, default."""
        declared = self.platforms.get(platform)
        if declared is not None:
            if klass in declared.class_reset:
                return declared.class_reset[klass]
            if declared.reset is not None:
                return declared.reset
        return self.class_reset.get(klass, self.default_reset)

    def notices_of(self, platform: str) -> Notices:
        """Return the texts in the language of a platform."""
        declared = self.platforms.get(platform)
        return self.notices if declared is None else declared.notices

    def manners_of(self, agent: Agent, platform: Platform) -> DeliveryPolicy:
        """Return the policy for busy sessions: the platform's settings override the agent's."""
        known = self._delivery_policies.get((agent.name, platform.name))
        if known is None:
            known = self._delivery_policies[agent.name, platform.name] = DeliveryPolicy(
                busy=agent.busy if platform.busy is None else platform.busy,
                note=agent.busy_note if platform.busy_note is None else platform.busy_note,
                debounce=agent.debounce if platform.debounce is None else platform.debounce,
                debounce_cap=agent.debounce_cap
                if platform.debounce_cap is None
                else platform.debounce_cap,
                album_wait=platform.album_wait,
                files_wait=platform.files_wait,
            )
        return known

    def resolve_profile(
        self, platform: str, account: str, profile: str | None
    ) -> Profile | DeadReason:
        """Return the profile that an event addresses, or the reason why it may not.

        An undeclared or forbidden profile never falls back to the default one: another persona
        would answer with another persona's history.
        """
        declared = self.find_account(platform, account)
        if declared is None:
            return DeadReason.UNKNOWN_ACCOUNT
        name = canonical_profile(profile)
        if name not in self.profiles:
            return DeadReason.UNKNOWN_PROFILE
        if name not in declared.profiles:
            return DeadReason.PROFILE_FORBIDDEN
        return Profile(name, self.agents[self.profiles[name]])


# Characters that end the name within an id: "@bot:example.org", "4915550:12@s.whatsapp.net".
_LOCAL_PART_END = re.compile("[@:]")
# Some platforms put a name between directional marks.
_ISOLATE = "[\N{LEFT-TO-RIGHT ISOLATE}\N{FIRST STRONG ISOLATE}]?"
_ISOLATE_END = "\N{POP DIRECTIONAL ISOLATE}?"


def own_mention(bot_name: str | None, own_ids: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern for mentions of this bot at the start of a text, with trailing white space.

    The forms are those that platforms write: `@name`, `<@id>`, `<@!id>`, `<@id|name>`,
    `<users/id>`, `<at>name</at>`, `@**name**`, and `name:`.

    Returns:
        None if neither a name nor an id of this bot is known.
    """
    names = _names(bot_name, own_ids)
    if not names:
        return None
    # The longest first: an id may begin with another one.
    own_names = "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name))))
    forms = (
        rf"<(?:@!?|users/)(?:{own_names})(?:\|[^<>]*)?>[:,]?\s*",
        rf"<at(?: [^<>]*)?>@?(?:{own_names})</at>[:,]?\s*",
        rf"@\*\*(?:{own_names})(?:\|[0-9]+)?\*\*[:,]?\s*",
        rf"@{_ISOLATE}(?:{own_names}){_ISOLATE_END}[:,]?\s+",
        rf"(?:{own_names})[:,]\s+",
    )
    return re.compile(f"(?:{'|'.join(forms)})+", re.IGNORECASE)


def _names(bot_name: str | None, own_ids: Iterable[str]) -> set[str]:
    names = {bot_name} if bot_name else set()
    for own_id in own_ids:
        name = own_id.removeprefix("@")
        names |= {name, _LOCAL_PART_END.split(name, maxsplit=1)[0]}
    return names - {""}
