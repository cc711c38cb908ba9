"""What `chatlane.toml` declares: platforms, accounts, profiles, agents and their policies.

A catalog is checked when the settings are read and never changes while a router runs, so
every look-up here is a dictionary access and none of them can fail half-way through a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from chatlane.domain.commands import CommandRules
from chatlane_schemas.dead import DeadReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatlane.domain.admission import Limits
    from chatlane.domain.policy import KeyRules, ResetPolicy

Delivery = Literal["turns", "stream"]
BusyMode = Literal["collect", "queue"]

MAIN_PROFILE: Final = "main"
_MAIN_SPELLINGS: Final = frozenset({"", "default", MAIN_PROFILE})


def canonical_profile(profile: str | None) -> str:
    """Return the name a profile has in session keys: none, `""` and `default` are `main`."""
    if profile is None or profile in _MAIN_SPELLINGS:
        return MAIN_PROFILE
    return profile


@dataclass(frozen=True, slots=True)
class Agent:
    """A group of workers and how it is served."""

    name: str
    delivery: Delivery = "turns"
    busy: BusyMode = "collect"
    lease: timedelta = timedelta(seconds=30)
    ack_wait: timedelta = timedelta(minutes=2)
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class Profile:
    """A persona as it stands in session keys, with the agent that serves it."""

    name: str
    agent: Agent


@dataclass(frozen=True, slots=True)
class Account:
    """One identity of ours on a platform.

    `profiles` holds the names as they stand in session keys (`main`, never `default`);
    `own_ids` are the sender ids of our own messages, which never run. `bot_name` is how commands
    are addressed to us among other bots.
    """

    name: str
    profiles: frozenset[str] = frozenset({MAIN_PROFILE})
    own_ids: frozenset[str] = frozenset()
    bot_name: str | None = None


@dataclass(frozen=True, slots=True)
class Platform:
    """A chat network with its rules for keys, resets, people, bots and commands."""

    name: str
    keys: KeyRules
    reset: ResetPolicy | None = None
    class_reset: Mapping[str, ResetPolicy] = field(default_factory=lambda: MappingProxyType({}))
    accounts: Mapping[str, Account] = field(default_factory=lambda: MappingProxyType({}))
    person_aliases: bool = False
    bots_allowed: bool = False
    limits: Limits | None = None
    commands: CommandRules = field(default_factory=CommandRules)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything declared, with the look-ups a decision needs.

    `profiles` maps the name in the key to the name of the agent; settings make sure that
    each of these agents is in `agents`.
    """

    platforms: Mapping[str, Platform]
    profiles: Mapping[str, str]
    agents: Mapping[str, Agent]
    default_reset: ResetPolicy
    class_reset: Mapping[str, ResetPolicy] = field(default_factory=lambda: MappingProxyType({}))

    def find_account(self, platform: str, account: str) -> Account | None:
        """Return the declared account, or None when platform or account is undeclared."""
        declared = self.platforms.get(platform)
        return None if declared is None else declared.accounts.get(account)

    def agent_for(self, profile: str) -> Agent:
        """Return the agent that serves a declared profile, in any spelling of its name."""
        return self.agents[self.profiles[canonical_profile(profile)]]

    def reset_policy_for(self, platform: str, klass: str) -> ResetPolicy:
        """Return the whole policy in force: platform and class, platform, class, default."""
        declared = self.platforms.get(platform)
        if declared is not None:
            if klass in declared.class_reset:
                return declared.class_reset[klass]
            if declared.reset is not None:
                return declared.reset
        return self.class_reset.get(klass, self.default_reset)

    def resolve_profile(
        self, platform: str, account: str, profile: str | None
    ) -> Profile | DeadReason:
        """Return the profile an event addresses, or why it may not.

        An undeclared or forbidden profile never falls to the default one: another persona
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
