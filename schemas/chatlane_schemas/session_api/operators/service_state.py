"""Requests by which operators and observers look at the state and the declarations of the service."""

from typing import Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.dead import Cause
from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import BigNumber, Flag, Instant, Number, Text
from chatlane_schemas.session_api.people import OperatorRequest
from chatlane_schemas.session_api.sessions import ApiReply

MAX_LISTED: Final = 500
"""Most agents and most accounts of an overview."""


class ServiceOverview(OperatorRequest):
    """Asks for the state of the whole service: what waits where, and for how long."""


class PartitionState(Record):
    """A partition of a log, its owner and its lag."""

    log: Text = Field(description="Log: inbound or results.")
    number: Number = Field(description="Number of the partition in its log.")
    owner: UUID | None = Field(
        default=None, description="Router that reads it; none if its lease has ended."
    )
    cursor: BigNumber = Field(description="Committed position in the log.")
    oldest_unread_at: Instant | None = Field(
        default=None,
        description="When the log stored the oldest message after the cursor; none if there is none.",
    )


class TurnGroup(Record):
    """The live turns of an agent in one state."""

    state: Text = Field(
        description="`ready` waits for a worker, `claimed` runs, the lease of `overdue` has ended, "
        "`resting` and `parked` are not offered to workers yet; others may come."
    )
    turns: BigNumber = Field(description="Number of turns.")
    oldest_at: Instant = Field(description="When the oldest of them was opened.")


class AgentState(Record):
    """An agent, its live turns and its workers."""

    agent: Text = Field(description="Name of the agent.")
    is_declared: Flag = Field(
        default=True, description="Whether the settings declare it; others may still have turns."
    )
    delivery: Text | None = Field(
        default=None, description="How its workers get messages: turns or stream."
    )
    turns: tuple[TurnGroup, ...] = Field(default=(), description="Live turns by state.")
    unread: BigNumber = Field(
        default=0, description="Messages or notices that its workers have not acknowledged."
    )
    oldest_unread_at: Instant | None = Field(
        default=None, description="When NATS stored the oldest of them."
    )
    listening: BigNumber = Field(
        default=0,
        description="Open requests for work. A worker that can take more has at least one.",
    )
    working: BigNumber = Field(
        default=0, description="Names of workers that hold a turn under a valid lease."
    )


class AccountState(Record):
    """Deliveries to the chats of an account."""

    platform: Text = Field(description="Declared name of the platform.")
    account: Text = Field(description="Declared name of the account.")
    waiting: BigNumber = Field(
        default=0, description="Messages that its adapter has not acknowledged."
    )
    oldest_waiting_at: Instant | None = Field(
        default=None, description="When the oldest of them was stored."
    )
    repeated: BigNumber = Field(
        default=0,
        description="How many of them were handed to the adapter more than once: they failed, or "
        "their chat had to wait.",
    )
    listening: BigNumber = Field(
        default=0, description="Open requests of adapters for messages; 0 if none listens."
    )
    given_up: BigNumber = Field(
        default=0, description="Dead letters of messages that no chat has received."
    )
    last_given_up_at: Instant | None = Field(
        default=None, description="When the newest of them was set aside."
    )


class LetterAge(Record):
    """The dead letters with one reason."""

    reason: Text = Field(description="Why they were rejected.")
    cause: Cause = Field(description="Who has to act.")
    letters: BigNumber = Field(description="How many there are.")
    oldest_at: Instant = Field(description="When the oldest was set aside.")
    newest_at: Instant = Field(description="When the newest was set aside.")


class ServiceOverviewReply(ApiReply):
    """Reply with the state of the service. Ages count to `at`, the time of the reply."""

    routers: tuple[UUID, ...] = Field(default=(), description="Live routers.")
    partitions: tuple[PartitionState, ...] = Field(
        default=(), description="All partitions, by log and number."
    )
    has_lags: Flag = Field(
        default=True, description="Whether the logs could be read; if not, no lag is known."
    )
    agents: tuple[AgentState, ...] = Field(
        default=(), description=f"Agents by name, at most {MAX_LISTED}."
    )
    accounts: tuple[AccountState, ...] = Field(
        default=(), description=f"Declared accounts by name, at most {MAX_LISTED}."
    )
    letters: tuple[LetterAge, ...] = Field(
        default=(), description="Dead letters by reason, the newest first."
    )
    outbox_oldest_at: Instant | None = Field(
        default=None, description="Since when the oldest message waits to be published."
    )
    is_complete: Flag = Field(
        default=True,
        description="Whether all agents and accounts are listed and all dead letters counted.",
    )


class ServiceCatalog(OperatorRequest):
    """Asks for the declared platforms, accounts, profiles and agents; the reply has no secrets."""


class ResetRule(Record):
    """A condition for the reset of conversations."""

    session_class: Text | None = Field(
        default=None, description="Only for conversations of this class: dm or group."
    )
    mode: Text = Field(description="Mode, such as `none`, `daily` or `idle`.")
    at_hour: Number = Field(description="Hour of the daily boundary.")
    timezone: Text = Field(description="IANA zone of the daily boundary.")
    idle_seconds: BigNumber = Field(description="Quiet time after which an idle reset happens.")


class LimitRule(Record):
    """A limit of messages."""

    scope: Text = Field(description="`chat` or `sender`.")
    messages: BigNumber = Field(description="How many messages.")
    seconds: BigNumber = Field(description="In which time.")


class AccountDeclaration(Record):
    """A declared account."""

    account: Text = Field(description="Declared name of the account.")
    profiles: tuple[Text, ...] = Field(default=(), description="Profiles that it may address.")
    has_home: Flag = Field(default=False, description="Whether it has a home channel.")
    shows_rooms: Flag = Field(
        default=False, description="Whether members of its rooms see the conversations there."
    )
    people_of: tuple[Text, ...] = Field(
        default=(),
        description="Accounts whose people its front ends may name, as platform/account.",
    )


class PlatformDeclaration(Record):
    """A declared platform with its rules."""

    platform: Text = Field(description="Declared name of the platform.")
    accounts: tuple[AccountDeclaration, ...] = Field(default=(), description="Its accounts.")
    busy: Text | None = Field(
        default=None, description="What a message does while a turn runs; none: as the agent says."
    )
    resets: tuple[ResetRule, ...] = Field(
        default=(), description="Its rules for resets; none: the default rules."
    )
    limits: tuple[LimitRule, ...] = Field(default=(), description="Limits of messages.")
    bots_allowed: Flag = Field(default=False, description="Whether other bots are answered.")
    command_prefix: Text = Field(description="What a command begins with.")


class AgentDeclaration(Record):
    """A declared agent with its rules."""

    agent: Text = Field(description="Declared name of the agent.")
    profiles: tuple[Text, ...] = Field(default=(), description="Profiles that it serves.")
    delivery: Text = Field(description="How its workers get messages: turns or stream.")
    busy: Text = Field(description="What a message does while a turn runs.")
    lease_seconds: BigNumber = Field(description="How long a worker may be silent.")
    max_attempts: Number = Field(description="Attempts at a turn before it fails.")
    max_wait_seconds: BigNumber = Field(
        description="How long a turn waits for an agent that is unavailable."
    )
    send_to: tuple[Text, ...] = Field(
        default=(), description="Where it may send on its own: origin, home, chat."
    )


class ServiceCatalogReply(ApiReply):
    """Reply with declarations, as the router that replies has read them."""

    platforms: tuple[PlatformDeclaration, ...] = Field(default=(), description="By name.")
    agents: tuple[AgentDeclaration, ...] = Field(default=(), description="By name.")
    resets: tuple[ResetRule, ...] = Field(default=(), description="Default rules for resets.")
