"""The declarations of `chatlane.toml` as settings: keys, resets, platforms, profiles, agents."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from chatlane.config.setting_values import known_zone, plainly_written
from chatlane.domain.addressing.people import person_form
from chatlane.domain.catalog import (
    BOT_BUDGET,
    DESTINATIONS,
    Account,
    Agent,
    BusyMode,
    Delivery,
    Destination,
    HomeChannel,
    Limit,
    Limits,
    Platform,
    canonical_profile,
)
from chatlane.domain.commands.command_words import CommandName, CommandRules
from chatlane.domain.lanes import MAX_STAFF_PAUSE
from chatlane.domain.policy import AnonymousDm, KeyRules, ResetMode, ResetPolicy
from chatlane.domain.prompts.capabilities import CAPABILITIES
from chatlane.domain.prompts.context import PRIVATE_IDS
from chatlane.domain.turns.claims import LONGEST_BURST
from chatlane.durations import Duration
from chatlane_schemas.inbound import ChatKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatlane.domain.notices import Notices
    from chatlane.domain.prompts.context import Prompts

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,64}$")]
SessionClass = Literal["dm", "group"]
RoomReaders = Literal["none", "members"]
BusyNote = Annotated[str, StringConstraints(max_length=1000)]
# Numeric ids may be written without quotes.
OwnId = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
HomeId = Annotated[OwnId, Field(min_length=1, max_length=256)]

BotName = Annotated[str, StringConstraints(pattern=r"^[^\s@/]{1,64}$")]
AccessName = CommandName | Literal["default"]

# Platforms on which one person has several ids (phone and hidden id, device forms).
_ALIASING_PLATFORMS: Final = frozenset({"whatsapp", "signal"})

# Platforms on which a group can become another chat: Telegram turns groups into supergroups.
_MIGRATING_PLATFORMS: Final = frozenset({"telegram"})

# Platforms whose adapter reports the members of a room.
PLATFORMS_WITH_MEMBERS: Final = frozenset(
    name for name, capabilities in CAPABILITIES.items() if capabilities.has_member_list
)

# Platforms without a human reader.
_PROGRAMS: Final = frozenset({"api_server", "webhook"})


class ClosedModel(BaseModel):
    """A declaration of the operator: closed, frozen, and silent about its input in errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True
    )


class Group(ClosedModel):
    """A group of settings; each value must be written in its own type."""

    @field_validator("*", mode="before")
    @classmethod
    def _plainly_written(cls, value: object, info: ValidationInfo) -> object:
        field = cls.model_fields[info.field_name or ""]
        return plainly_written(field.annotation, value)


class KeySettings(Group):
    """The users who share a conversation; a change opens new lanes and keeps the old ones."""

    group_sessions_per_user: bool | None = Field(
        default=None, description="In a group each person has a conversation of their own (true)."
    )
    thread_sessions_per_user: bool | None = Field(
        default=None, description="The same inside a thread (false)."
    )
    anonymous_dm: AnonymousDm | None = Field(
        default=None,
        description='A DM without chat and sender: "refuse" (dead letter) or one "shared" '
        "conversation per account.",
    )
    dm_threads: bool | None = Field(
        default=None,
        description="Threads of DMs are conversations of their own (true), where the event does "
        "not say so with `is_forum`. Set it to false where each message has a thread.",
    )
    group_threads: bool | None = Field(default=None, description="The same for groups (true).")


class ResetSettings(Group):
    """Conditions for a reset of a conversation; a policy replaces a less specific one as a whole."""

    mode: ResetMode = Field(
        default="none",
        description=f"One of {', '.join(get_args(ResetMode))}.",
    )
    at_hour: int = Field(default=4, ge=0, le=23, description="Hour of the daily boundary.")
    timezone: str = Field(default="UTC", description="IANA zone of the daily boundary.")
    idle: Duration = Field(
        default=timedelta(hours=24),
        gt=timedelta(0),
        le=timedelta(days=3650),
        description="Quiet time after which an idle reset happens; it counts from what a person last "
        "wrote, or from the end of the turn that answered it.",
    )
    quiet: Duration = Field(
        default=timedelta(minutes=30),
        ge=timedelta(0),
        le=timedelta(hours=24),
        description="How long a talk must rest before a daily reset may cut it; 0: not at all.",
    )
    resume_window: Duration = Field(
        default=timedelta(hours=1),
        ge=timedelta(days=-3650),
        le=timedelta(days=3650),
        description="For how long a conversation marked as interrupted goes on; 0 or less: for ever.",
    )
    notify: bool = Field(
        default=True,
        description="The chat is told of a reset by time, if anything was answered before.",
    )
    warning: Duration = Field(
        default=timedelta(minutes=5),
        ge=timedelta(0),
        le=timedelta(hours=24),
        description="How long before a reset by time `session.ending` announces it; 0: not at all.",
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _known_mode(cls, value: object) -> object:
        # Pydantic's message does not name the modes as an operator writes them.
        if value not in get_args(ResetMode):
            raise ValueError(f"use one of the modes {', '.join(get_args(ResetMode))}")
        return value

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str) -> str:
        return known_zone(value)

    def policy(self) -> ResetPolicy:
        """Return the policy as the domain's type."""
        return ResetPolicy(**{name: getattr(self, name) for name in ResetSettings.model_fields})


class DefaultResetSettings(ResetSettings):
    """The default policy, and one per class."""

    classes: dict[SessionClass, ResetSettings] = Field(
        default_factory=dict, description="Policies of the classes dm and group."
    )


class LimitSettings(Group):
    """A rate limit: a burst of messages, and a number of messages per time span."""

    messages: int = Field(ge=1, le=1_000_000, description="How many messages.")
    per: Duration = Field(
        default=timedelta(minutes=1),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="In which time.",
    )

    def limit(self) -> Limit:
        """Return the limit as the domain's type."""
        return Limit(self.messages, self.per)


class LimitsSettings(Group):
    """Rate limits; a message above a limit becomes a dead letter with the reason `rate_limited`."""

    per_chat: LimitSettings | None = Field(
        default=None, description="By all people of one chat together; without it, any number."
    )
    per_sender: LimitSettings | None = Field(
        default=None, description="By one person in all chats of an account together."
    )

    def limits(self) -> Limits | None:
        """Return the limits as the domain's type; None if there are none."""
        limits = Limits(
            None if self.per_chat is None else self.per_chat.limit(),
            None if self.per_sender is None else self.per_sender.limit(),
        )
        return limits or None


class NoticeSettings(Group):
    """Texts that people read in a chat, such as replies to commands."""

    file: Path | None = Field(
        default=None,
        description="TOML file with texts by id, as in examples/notices.de.toml; a missing id is "
        "English. In chatlane.toml the path is relative to the directory of chatlane.toml.",
    )


class ClassSettings(Group):
    """Settings of one class of conversations on one platform."""

    reset: ResetSettings


class CommandSettings(Group):
    """Commands in a chat, and the users who may give them."""

    prefix: str = Field(
        default="/",
        pattern=r"^[!-/:-@\[-`{-~]{1,4}$",
        description="What a command begins with: up to four signs that are no letters or digits.",
    )
    off: frozenset[CommandName] = Field(
        default=frozenset(), description="Commands that are plain text here."
    )
    access: dict[AccessName, frozenset[OwnId]] = Field(
        default_factory=dict,
        description="By command, or `default`: ids of the people who may use it; `*` allows all.",
    )
    group_access: dict[AccessName, frozenset[OwnId]] | None = Field(
        default=None, description="The same in chats of many people, in the place of access."
    )

    @field_validator("access", "group_access")
    @classmethod
    def _help_is_for_all(
        cls, value: dict[AccessName, frozenset[str]] | None
    ) -> dict[AccessName, frozenset[str]] | None:
        if value and CommandName.HELP in value:
            raise ValueError("all people may use help: take it out of access, or add it to off")
        return value

    def rules(self, platform: str) -> CommandRules:
        """Return the rules as the domain's type, with the ids of users in their normal forms."""
        groups = None if self.group_access is None else _by_name(self.group_access, platform)
        return CommandRules(self.prefix, self.off, _by_name(self.access, platform), groups)


def _by_name(
    access: Mapping[AccessName, frozenset[str]], platform: str
) -> dict[str, frozenset[str]]:
    return {
        str(name): ids | {form for user_id in ids if (form := person_form(platform, user_id))}
        for name, ids in access.items()
    }


class HomeSettings(Group):
    """The chat that an account sends to by default; agents see it in their prompt."""

    chat_id: HomeId = Field(description="Id of the chat.")
    name: str = Field(default="Home", max_length=240, description="What people call it.")
    thread_id: HomeId | None = Field(default=None, description="Thread of the chat.")
    kind: ChatKind = Field(
        default="group",
        description="Kind of the chat, such as dm; needed until somebody writes there.",
    )

    def channel(self) -> HomeChannel:
        """Return the channel as the domain's type."""
        return HomeChannel(self.chat_id, self.name, self.thread_id, self.kind)


AccountName = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}/[a-z0-9_-]{1,64}$")]
"""An account of a platform, as `telegram/assistant`."""


def account_pair(account: str) -> tuple[str, str]:
    """Return the platform and the name of an account."""
    platform, _, name = account.partition("/")
    return platform, name


class AccountSettings(Group):
    """One of our accounts on a platform."""

    profiles: tuple[Name, ...] = Field(
        default=("default",), min_length=1, description="Profiles this account may address."
    )
    own_ids: frozenset[OwnId] = Field(
        default=frozenset(), description="Sender ids of our own messages, which never run."
    )
    staff_ids: frozenset[OwnId] = Field(
        default=frozenset(),
        description="Sender ids of our people who write to others in the name of the account.",
    )
    staff_pause: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=MAX_STAFF_PAUSE,
        description="How long the agent waits in a direct chat after one of our people has written "
        "there. Stream agents do not wait.",
    )
    bot_name: BotName | None = Field(
        default=None,
        description="Our name where commands are addressed to one of several bots (/new@our_bot).",
    )
    home: HomeSettings | None = Field(default=None, description="Its home channel.")
    bots_allowed: bool | None = Field(
        default=None, description="As the setting of the platform, and goes before it."
    )
    people_of: frozenset[AccountName] = Field(
        default=frozenset(),
        description="Other accounts, as platform/account, whose people may be the same person as one "
        "of this account; a front end of this account says who is.",
    )
    rooms: RoomReaders = Field(
        default="none",
        description='Who may read the shared conversations of a room besides operators: "none", or the '
        '"members" of the room, as long as the platform says that they are. Only on matrix.',
    )

    def account(self, name: str) -> Account:
        """Return the account as the domain's type."""
        return Account(
            name,
            frozenset(map(canonical_profile, self.profiles)),
            self.own_ids,
            self.bot_name,
            None if self.home is None else self.home.channel(),
            self.bots_allowed,
            self.staff_ids,
            self.staff_pause,
            frozenset(map(account_pair, self.people_of)),
            shows_rooms=self.rooms == "members",
        )


class PlatformSettings(KeySettings):
    """A chat network."""

    reset: ResetSettings | None = Field(default=None, description="Policy of this platform.")
    classes: dict[SessionClass, ClassSettings] = Field(
        default_factory=dict, description="Policies of its classes dm and group."
    )
    accounts: dict[Name, AccountSettings] = Field(
        default_factory=dict, description="Our identities on it."
    )
    person_aliases: bool | None = Field(
        default=None,
        description="One person has several ids here (true for whatsapp and signal).",
    )
    chats_migrate: bool | None = Field(
        default=None,
        description="Groups get new ids here (true for telegram): an event of kind migration is "
        "believed. Elsewhere it is set aside, as it would lead one chat to the history of another.",
    )
    bots_allowed: bool = Field(
        default=False,
        description="Messages of other bots may run; the account then needs own_ids.",
    )
    bot_budget: LimitSettings = Field(
        default=LimitSettings(messages=BOT_BUDGET.messages, per=BOT_BUDGET.per),
        description="How many messages of one bot run in one chat; one that says more is not "
        "heard until it was quiet for as long or a person speaks.",
    )
    limits: LimitsSettings | None = Field(
        default=None, description="Limits of this platform, in place of the default ones."
    )
    commands: CommandSettings = Field(
        default=CommandSettings(), description="Commands to the router."
    )
    busy: BusyMode | None = Field(
        default=None, description="As the setting of agents; for this platform it goes first."
    )
    busy_note: BusyNote | None = Field(
        default=None, description="As the setting of agents; for this platform it goes first."
    )
    redact_ids: bool | None = Field(
        default=None,
        description="Prompts show digests of ids (as prompt.redact_ids, where ids are private).",
    )
    has_tools: bool = Field(
        default=False,
        description="Agents have tools for its API; prompts show the ids that these take.",
    )
    note: str | None = Field(
        default=None,
        max_length=4000,
        description="What prompts say about it and its messages instead of what we say; "
        '"" for nothing.',
    )
    reset_notices: bool | None = Field(
        default=None,
        description="Chats are told of resets by time (false for api_server and webhook).",
    )
    notices_file: Path | None = Field(
        default=None, description="As notices.file, in place of it for this platform."
    )
    debounce: Duration | None = Field(
        default=None,
        ge=timedelta(0),
        le=LONGEST_BURST,
        description="As the setting of agents; for this platform it goes first.",
    )
    debounce_cap: Duration | None = Field(
        default=None,
        ge=timedelta(0),
        le=LONGEST_BURST,
        description="As the setting of agents; for this platform it goes first.",
    )
    album_wait: Duration = Field(
        default=timedelta(seconds=1),
        ge=timedelta(0),
        le=LONGEST_BURST,
        description="How long a message of an album waits for the others, so that they are one "
        "turn.",
    )
    files_wait: Duration = Field(
        default=timedelta(minutes=1),
        ge=timedelta(seconds=1),
        le=timedelta(hours=1),
        description="How long a message whose adapter still prepares its files waits for them.",
    )

    def has_moving_chats(self, name: str) -> bool:
        """Return whether chats of this platform may get new ids."""
        return name in _MIGRATING_PLATFORMS if self.chats_migrate is None else self.chats_migrate

    def hides_ids(self, name: str, *, default: bool) -> bool:
        """Return whether prompts show digests instead of the ids of this platform."""
        return default and name in PRIVATE_IDS if self.redact_ids is None else self.redact_ids

    def platform(
        self,
        name: str,
        defaults: KeySettings,
        limits: LimitsSettings,
        *,
        redact_ids: bool,
        notices: Notices,
    ) -> Platform:
        """Return the platform as the domain's type."""
        known_for_aliases = name in _ALIASING_PLATFORMS
        return Platform(
            name=name,
            keys=_key_rules(self, defaults),
            reset=None if self.reset is None else self.reset.policy(),
            class_reset={
                klass: class_settings.reset.policy()
                for klass, class_settings in self.classes.items()
            },
            accounts={
                account: settings.account(account) for account, settings in self.accounts.items()
            },
            person_aliases=known_for_aliases
            if self.person_aliases is None
            else self.person_aliases,
            chats_migrate=self.has_moving_chats(name),
            bots_allowed=self.bots_allowed,
            bot_budget=self.bot_budget.limit(),
            limits=(limits if self.limits is None else self.limits).limits(),
            commands=self.commands.rules(name),
            busy=self.busy,
            busy_note=self.busy_note,
            hides_ids=self.hides_ids(name, default=redact_ids),
            has_tools=self.has_tools,
            note=self.note,
            reset_notices=name not in _PROGRAMS
            if self.reset_notices is None
            else self.reset_notices,
            notices=notices,
            debounce=self.debounce,
            debounce_cap=self.debounce_cap,
            album_wait=self.album_wait,
            files_wait=self.files_wait,
        )


class ProfileSettings(Group):
    """A persona and the agent that serves it."""

    agent: Name | None = Field(default=None, description="Agent; by default of the same name.")


class AgentSettings(Group):
    """A group of workers and its delivery settings."""

    delivery: Delivery = Field(
        default="turns",
        description="turns (claimed, leased, collected) or stream (each message once, in order).",
    )
    busy: BusyMode = Field(
        default="collect",
        description="What a message does while a turn runs: collect (all that waits is the next "
        "turn), queue (a turn each), interrupt (it ends the running turn), steer (the running "
        "turn may take it in).",
    )
    busy_note: BusyNote = Field(
        default="",
        description="What a chat is told when a message waits for a running turn, at most once "
        "in 30 s; nothing unless it is set.",
    )
    debounce: Duration = Field(
        default=timedelta(0),
        ge=timedelta(0),
        le=LONGEST_BURST,
        description="How long a message waits for further ones, so that a burst becomes one turn; "
        "0: not at all.",
    )
    debounce_cap: Duration = Field(
        default=timedelta(seconds=1),
        ge=timedelta(0),
        le=LONGEST_BURST,
        description="How long the first message of a burst is put off by others at most.",
    )
    reaction_turns: bool = Field(
        default=False,
        description="Whether a reaction to a message, or a vote, starts a turn; otherwise the "
        "agent sees it in the history of its next turn.",
    )
    reasoning: bool = Field(
        default=False,
        description="Whether the workers get what their model thought earlier with the history of a "
        "turn, if they returned it.",
    )
    lease: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(milliseconds=500),
        le=timedelta(hours=1),
        description="How long a claim holds without a renewal.",
    )
    ack_wait: Duration = Field(
        default=timedelta(minutes=2),
        ge=timedelta(milliseconds=500),
        le=timedelta(hours=12),
        description="Longest answer of a stream worker before the message is handed out again.",
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        le=20,
        description="Attempts of one turn that may fail or be lost. With 1 none begins twice.",
    )
    retry_pause: Duration = Field(
        default=timedelta(seconds=5),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="Pause before a turn whose attempt failed is tried again, times the attempts that "
        "failed.",
    )
    max_wait: Duration = Field(
        default=timedelta(hours=1),
        ge=timedelta(0),
        le=timedelta(days=7),
        description="How long a turn waits for an agent that says it is unavailable, for example because "
        "its model is away. Such attempts do not count; after this time the turn fails.",
    )
    prompt_context: bool | None = Field(
        default=None,
        description="Claims and routed messages bring the prompt context (true for turns).",
    )

    send_to: frozenset[Destination] = Field(
        default=DESTINATIONS,
        description="Where the agent may send outside a turn: origin (its session and the chat of it), "
        "home (home channels), chat (other chats with a conversation, by their ids).",
    )

    def agent(self, name: str, prompts: Prompts) -> Agent:
        """Return the agent as the domain's type."""
        has_context = self.prompt_context
        if has_context is None:
            has_context = self.delivery == "turns"
        return Agent(
            name,
            self.delivery,
            self.busy,
            self.lease,
            self.ack_wait,
            self.max_attempts,
            self.busy_note,
            prompts if has_context else None,
            self.debounce,
            self.debounce_cap,
            self.retry_pause,
            self.max_wait,
            self.send_to,
            self.reaction_turns,
            self.reasoning,
        )


def _key_rules(own: KeySettings, defaults: KeySettings) -> KeyRules:
    """Return the rules of a platform: its own settings, then defaults, then built-in ones."""
    given = {
        name: value
        for settings in (defaults, own)
        for name in KeySettings.model_fields
        if (value := getattr(settings, name)) is not None
    }
    return KeyRules(**given)
