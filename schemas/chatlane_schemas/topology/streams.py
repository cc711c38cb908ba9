"""Streams and durables as data; the admin job applies them, every process verifies them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal, Protocol, TypeAlias

from chatlane_schemas.topology import subjects

DEFAULT_PARTITIONS: Final = 32
DEFAULT_SLOTS: Final = 32
DEFAULT_DUPLICATE_WINDOW: Final = timedelta(minutes=10)
ROUTED_MAX_DELIVER: Final = 5
UNLIMITED: Final = -1
MAX_UNDELIVERED: Final = 100_000
"""Messages of one account that may wait for chats that refuse, before other chats wait, too."""

Delivery: TypeAlias = Literal["turns", "stream"]

_MIB: Final = 1024 * 1024


class StreamName(StrEnum):
    """The streams."""

    INBOUND = "INBOUND"
    ROUTED = "ROUTED"
    TURNS = "TURNS"
    RESULTS = "RESULTS"
    OUTBOUND = "OUTBOUND"
    EVENTS = "EVENTS"
    DEAD = "DEAD"
    ADVISORIES = "ADVISORIES"
    DELIVERERS = "DELIVERERS"
    CURSORS = "CURSORS"


DELIVERER_LEASE: Final = timedelta(seconds=5)
"""How long the lease of a process that delivers for an account lasts without a renewal."""

MAX_CURSOR_BYTES: Final = 128 * 1024
"""The longest message with a cursor that the server takes."""

_IMPERSONAL: Final = (StreamName.ADVISORIES, StreamName.DELIVERERS, StreamName.CURSORS)
STREAMS_OF_PEOPLE: Final = tuple(name for name in StreamName if name not in _IMPERSONAL)
"""Streams that may hold personal data; the others hold positions and names of processes."""

DEFAULT_MAX_BYTES: Final[Mapping[StreamName, int]] = {
    StreamName.INBOUND: 2048 * _MIB,
    StreamName.ROUTED: 1024 * _MIB,
    StreamName.TURNS: 128 * _MIB,
    StreamName.RESULTS: 2048 * _MIB,
    StreamName.OUTBOUND: 1024 * _MIB,
    StreamName.EVENTS: 256 * _MIB,
    StreamName.DEAD: 256 * _MIB,
    StreamName.ADVISORIES: 64 * _MIB,
    StreamName.DELIVERERS: 4 * _MIB,
    StreamName.CURSORS: 64 * _MIB,
}


UNDELIVERABLE_ADVISORIES: Final = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ROUTED.*"
"""Advisory that the server publishes once when a routed message exceeds its deliveries."""

TURN_EVENTS: Final = subjects.wildcards(subjects.TURN_EVENT)
"""Subjects of the events about turns, which EVENTS did not store in its first release."""

OUTBOUND_MAX_AGE: Final = timedelta(hours=72)
"""How long OUTBOUND keeps a message, whether or not an adapter has acknowledged it."""

ROUTED_MAX_AGE: Final = timedelta(days=7)
"""How long ROUTED keeps a message, whether or not a worker has acknowledged it."""

# The logs have no maximum age: routers purge them below the positions that all have committed.
_ADDRESSES_AND_AGES: Final[Mapping[StreamName, tuple[tuple[str, ...], timedelta | None]]] = {
    StreamName.INBOUND: ((subjects.INBOUND,), None),
    StreamName.ROUTED: ((subjects.ROUTED,), ROUTED_MAX_AGE),
    StreamName.TURNS: ((subjects.TURN,), timedelta(hours=24)),
    StreamName.RESULTS: ((subjects.RESULT,), None),
    StreamName.OUTBOUND: ((subjects.OUTBOUND,), OUTBOUND_MAX_AGE),
    StreamName.EVENTS: ((subjects.EVENT, subjects.TURN_EVENT), timedelta(hours=72)),
    StreamName.DEAD: ((subjects.DEAD,), timedelta(days=30)),
    StreamName.ADVISORIES: ((UNDELIVERABLE_ADVISORIES,), timedelta(days=7)),
    StreamName.DELIVERERS: ((subjects.DELIVERER,), DELIVERER_LEASE),
    StreamName.CURSORS: ((subjects.CURSOR,), None),
}
# Adapters alone use them. They keep the newest message of a subject.
_OF_ADAPTERS: Final = (StreamName.DELIVERERS, StreamName.CURSORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectTransform:
    """How the server rewrites a subject before it stores the message."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """One stream with file storage and `limits` retention.

    Attributes:
        max_age: How long messages are kept; None without a limit of age.
        discard: What a full stream does: reject new messages or drop old ones.
        is_of_adapters: Whether only adapters use it; it keeps the newest message of a subject.
        has_expiring_messages: Whether a message may say how long it is kept.
        is_read_by_subject: Whether the newest message of a subject can be had by a request that
            names the subject, so that permissions can name it as well.
        max_message_bytes: The longest message; None for that of the server.
    """

    name: StreamName
    subjects: tuple[str, ...]
    max_age: timedelta | None
    max_bytes: int
    duplicate_window: timedelta
    replicas: int = 1
    discard: Literal["new", "old"] = "new"
    subject_transform: SubjectTransform | None = None
    is_of_adapters: bool = False
    has_expiring_messages: bool = False
    is_read_by_subject: bool = False
    max_message_bytes: int | None = None
    retention: Literal["limits"] = "limits"
    storage: Literal["file"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableSpec:
    """One durable pull consumer: explicit acks, from the first message.

    Attributes:
        max_deliver: Deliveries of one message; -1 without a limit.
        max_ack_pending: Unacknowledged deliveries over all its readers.
    """

    stream: StreamName
    name: str
    filter_subject: str
    ack_wait: timedelta
    max_deliver: int
    max_ack_pending: int
    ack_policy: Literal["explicit"] = "explicit"
    deliver_policy: Literal["all"] = "all"


class DurableAgent(Protocol):
    """The fields of an agent that its durables depend on; any agent declaration satisfies it."""

    @property
    def name(self) -> str:
        """Declared name of the agent."""

    @property
    def delivery(self) -> Delivery:
        """How the agent receives its work."""

    @property
    def ack_wait(self) -> timedelta:
        """Time in which a stream worker of the agent must answer a message."""


def declared_streams(
    partitions: int = DEFAULT_PARTITIONS,
    duplicate_window: timedelta = DEFAULT_DUPLICATE_WINDOW,
    *,
    replicas: int = 1,
    max_bytes: Mapping[StreamName, int] = DEFAULT_MAX_BYTES,
) -> tuple[StreamSpec, ...]:
    """Return all streams; sizes that are not given have their defaults."""
    transforms = _transforms(partitions)
    return tuple(
        StreamSpec(
            name=name,
            subjects=tuple(map(subjects.wildcards, addresses)),
            max_age=max_age,
            max_bytes=max_bytes.get(name, DEFAULT_MAX_BYTES[name]),
            duplicate_window=min(duplicate_window, max_age or duplicate_window),
            replicas=replicas,
            is_of_adapters=name in _OF_ADAPTERS,
            has_expiring_messages=name is StreamName.DELIVERERS,
            is_read_by_subject=name is StreamName.CURSORS,
            max_message_bytes=MAX_CURSOR_BYTES if name is StreamName.CURSORS else None,
            discard="old" if name is StreamName.EVENTS else "new",
            subject_transform=transforms.get(name),
        )
        for name, (addresses, max_age) in _ADDRESSES_AND_AGES.items()
    )


def _transforms(partitions: int) -> dict[StreamName, SubjectTransform]:
    """Return the transforms that partition the two logs: by chat, and by session."""
    return {
        StreamName.INBOUND: SubjectTransform(
            source=subjects.wildcards(subjects.INBOUND),
            destination=subjects.wildcards(
                subjects.LOG,
                partition=f"{{{{partition({partitions},1,2,3)}}}}",
                platform="{{wildcard(1)}}",
                account="{{wildcard(2)}}",
                chat="{{wildcard(3)}}",
            ),
        ),
        StreamName.RESULTS: SubjectTransform(
            source=subjects.wildcards(subjects.RESULT),
            destination=subjects.wildcards(
                subjects.RLOG,
                partition=f"{{{{partition({partitions},2)}}}}",
                agent="{{wildcard(1)}}",
                session="{{wildcard(2)}}",
            ),
        ),
    }


def routed_durable(agent: str, slot: int) -> str:
    """Return the name of the durable of one slot; the part after the last `-` is the slot."""
    return f"{agent}-{slot}"


def outbound_durable(platform: str, account: str) -> str:
    """Return the name of the durable of an account.

    A declared name cannot contain `=`, so no two accounts share a durable. With `-`, the account
    `b-c` on `a` and the account `c` on `a-b` would share one.
    """
    return f"{platform}={account}"


ADVISORIES_DURABLE: Final = "routers"
COMPARING_CONSUMER: Final = "comparing"
"""Consumer with which a router reads ROUTED to compare it with the database.

No agent can have a durable of that name, because those end in a number.
"""

SHARES_CONSUMER: Final = "shares"
"""Consumer with which a router counts messages of an account in OUTBOUND, or of an agent in ROUTED.

No account can have a durable of that name, because those contain a `=`, and no agent in ROUTED,
because those end in a number.
"""

ERASING_CONSUMER: Final = "erasing"
"""Consumer with which the erasure job reads a stream to find messages of an erased person."""


def declared_durables(
    agents: Iterable[DurableAgent],
    accounts: Iterable[tuple[str, str]],
    slots: int = DEFAULT_SLOTS,
) -> tuple[DurableSpec, ...]:
    """Return all durables.

    Args:
        agents: All declared agents.
        accounts: All declared (platform, account).
        slots: Slots of a stream agent; the maximum number of its messages in process at once.
    """
    return (
        *(spec for agent in agents for spec in _agent_durables(agent, slots)),
        *(_outbound_spec(platform, account) for platform, account in accounts),
        DurableSpec(
            stream=StreamName.ADVISORIES,
            name=ADVISORIES_DURABLE,
            filter_subject=UNDELIVERABLE_ADVISORIES,
            ack_wait=timedelta(seconds=30),
            max_deliver=UNLIMITED,
            max_ack_pending=256,
        ),
    )


def _agent_durables(agent: DurableAgent, slots: int) -> tuple[DurableSpec, ...]:
    if agent.delivery == "stream":
        return tuple(_slot_spec(agent, slot) for slot in range(slots))
    return (
        DurableSpec(
            stream=StreamName.TURNS,
            name=agent.name,
            filter_subject=subjects.turn(agent.name),
            ack_wait=timedelta(seconds=10),
            max_deliver=UNLIMITED,
            max_ack_pending=1000,
        ),
    )


def _slot_spec(agent: DurableAgent, slot: int) -> DurableSpec:
    return DurableSpec(
        stream=StreamName.ROUTED,
        name=routed_durable(agent.name, slot),
        filter_subject=subjects.routed_filter(agent.name, slot),
        ack_wait=agent.ack_wait,
        max_deliver=ROUTED_MAX_DELIVER,
        max_ack_pending=1,
    )


def _outbound_spec(platform: str, account: str) -> DurableSpec:
    return DurableSpec(
        stream=StreamName.OUTBOUND,
        name=outbound_durable(platform, account),
        filter_subject=subjects.outbound_filter(platform, account),
        # A message in flight when a connection breaks delays its session for this long. A delivery
        # may take longer: the client recognises the redelivered copy.
        ack_wait=timedelta(seconds=5),
        max_deliver=UNLIMITED,
        # A chat that refuses keeps its messages unacknowledged. The others must not notice.
        max_ack_pending=MAX_UNDELIVERED,
    )
