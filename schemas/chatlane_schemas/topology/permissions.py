"""Define the least NATS permissions for each role.

Every connection has a principal: a name that its permissions pin in the subjects of its requests
and of its replies. Only the provisioner may create or change a stream or a durable, and only the
restorer may delete a stream. Only routers may purge the two logs, because only they know up to
which position the logs are processed.

Knowing a subject grants nothing: a worker cannot forge a router's messages, an adapter cannot
publish for another account, and no client reads the replies of another.

`chatlane admin nats-config` generates a nats-server configuration from these permissions, and
`schemas/permissions.csv` lists all that each of its users may do.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from chatlane_schemas.session_api.operators.service_state import ServiceOverview
from chatlane_schemas.session_api.transcripts import TranscriptLoad
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.channels import (
    REQUESTS,
    Channel,
    requests_for_account,
    requests_of_adapter,
)
from chatlane_schemas.topology.streams import (
    ADVISORIES_DURABLE,
    COMPARING_CONSUMER,
    DEFAULT_SLOTS,
    ERASING_CONSUMER,
    SHARES_CONSUMER,
    STREAMS_OF_PEOPLE,
    DurableAgent,
    StreamName,
    outbound_durable,
    routed_durable,
)
from chatlane_schemas.topology.subjects import LiveTurnPath

REPLY_PREFIX: Final = "_R_"
"""Prefix of the reply subjects that the server generates for requests from other accounts.

No client may choose one.
"""

_API: Final = "$JS.API"
# Delivery count, sequence in stream and durable, timestamp, and pending count.
_DELIVERY: Final = "*.*.*.*.*"
_LOGS: Final = (StreamName.INBOUND, StreamName.RESULTS)
_SAID_AGAIN: Final = (subjects.INBOUND, subjects.RESULT)
_WITH_READERS: Final = (
    StreamName.ROUTED,
    StreamName.TURNS,
    StreamName.OUTBOUND,
    StreamName.ADVISORIES,
)
_SAID_BY_ROUTERS: Final = (
    subjects.ROUTED,
    subjects.TURN,
    subjects.OUTBOUND,
    subjects.EVENT,
    subjects.TURN_EVENT,
    subjects.DEAD,
    subjects.CONTROL,
)
# Streams whose content operators and observers may read: they hold no text from a chat.
_OPEN_TO_PEOPLE: Final = (StreamName.EVENTS, StreamName.DEAD, StreamName.DELIVERERS)
_EVENTS: Final = (subjects.wildcards(subjects.EVENT), subjects.wildcards(subjects.TURN_EVENT))
_HEARD_BY_PEOPLE: Final = (*_EVENTS, subjects.wildcards(subjects.DEAD))
# Workers and readers of live turns talk to each other without a router. The server passes no message
# from one account to another through a third, so each account exports these to the others.
_BETWEEN_USERS: Final = tuple(
    address[: address.index("{")] for address in (subjects.PIECE, subjects.RECAP, subjects.FOLLOW)
)
_ANY_TURN: Final = LiveTurnPath()
# Requests that a worker makes about the sessions of its agent, besides those about turns: read and
# extend transcripts, hold a session, leave a note, mark an interruption, note a worktree, send
# messages.
_REQUESTS_OF_WORKERS: Final = (
    ("session", "get"),
    ("session", "hold"),
    ("session", "release"),
    ("session", "mark"),
    ("session", "unmark"),
    ("session", "note"),
    ("session", "tree"),
    ("session", "title"),
    ("transcript", "load"),
    ("transcript", "append"),
    ("transcript", "compact"),
    ("delivery", "get"),
    ("outbox", "send"),
)


@dataclass(frozen=True, slots=True)
class Permissions:
    """The subjects that a connection may publish and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    @property
    def services(self) -> tuple[str, ...]:
        """Return the services that an account imports from the account of the streams."""
        return tuple(subject for subject in self.publish if _is_imported(subject))

    @property
    def streams(self) -> tuple[str, ...]:
        """Return the streams that an account imports from the account of the streams."""
        return tuple(subject for subject in self.subscribe if _is_imported(subject))

    @property
    def exported_to_users(self) -> tuple[str, ...]:
        """Return the exports of an account to the accounts of other users."""
        return tuple(subject for subject in self.publish if _is_between_users(subject))

    def imported_from(self, other: "Permissions") -> tuple[str, ...]:
        """Return the imports of an account from the account of another user."""
        pairs = (
            (exported, imported)
            for exported in other.exported_to_users
            for imported in self.subscribe
            if _is_between_users(imported)
        )
        common = (subjects.common_pattern(exported, imported) for exported, imported in pairs)
        return tuple(pattern for pattern in common if pattern is not None)


TRUSTED_ROLES: Final = frozenset({"router", "provisioner", "eraser", "backup", "restorer"})
"""Roles whose users share the account of the streams, where permissions do not contain them.

Each of these roles may make a request whose body names a subject of that account to which the
server then publishes: a consumer's deliver subject, a snapshot's, a stream's republish. Every other
role has a separate account.
"""


def answers_several_times(service: str) -> bool:
    """Return whether a request to a service can have more than one answer."""
    return service.startswith(f"{_API}.CONSUMER.MSG.NEXT.")


def inbox_prefix(principal: str) -> str:
    """Return the prefix of the reply subjects of a principal; configure its client with it."""
    return f"_INBOX.{subjects.declared_name(principal)}"


def router(principal: str) -> Permissions:
    """Return the permissions of a router: read the logs, publish decisions, answer requests."""
    return Permissions(
        publish=(
            *(subjects.wildcards(address) for address in _SAID_BY_ROUTERS),
            # Replies to requests from other accounts, whose reply subjects the server maps to this
            # prefix, and to its own requests. Not `allow_responses`, which would let any requester
            # choose a subject for the router to publish on.
            f"{REPLY_PREFIX}.>",
            _inbox(principal),
            *_look_at_all_streams(),
            *(subject for log in _LOGS for subject in _reading_a_log(log)),
            # Reads the body of an undelivered message and the age of an unread message.
            *(f"{_API}.STREAM.MSG.GET.{stream}" for stream in _WITH_READERS),
            # Lists the messages of ROUTED, to find those that it lost.
            *_reading_by_oneself(StreamName.ROUTED, COMPARING_CONSUMER),
            # Counts the messages of an account or agent, and purges its oldest when a stream is
            # filling. Messages in TURNS are counted without a consumer.
            *(
                subject
                for stream in (StreamName.OUTBOUND, StreamName.ROUTED)
                for subject in _reading_by_oneself(stream, SHARES_CONSUMER)
            ),
            *(
                f"{_API}.STREAM.PURGE.{stream}"
                for stream in (StreamName.OUTBOUND, StreamName.ROUTED, StreamName.TURNS)
            ),
            # Deletes messages that were deleted or edited before they reached a worker.
            f"{_API}.STREAM.MSG.DELETE.{StreamName.ROUTED}",
            f"{_API}.CONSUMER.PAUSE.{StreamName.ROUTED}.*",
            *_reading(StreamName.ADVISORIES, ADVISORIES_DURABLE),
        ),
        subscribe=(
            _inbox(principal),
            subjects.wildcards(subjects.API),
            subjects.wildcards(subjects.API_OF_AGENT),
            subjects.wildcards(subjects.API_FOR_ACCOUNT),
        ),
    )


def adapter(principal: str, accounts: Iterable[tuple[str, str]]) -> Permissions:
    """Return the permissions of an adapter: publish and deliver for its accounts.

    Args:
        principal: Its name.
        accounts: Its (platform, account), as declared.
    """
    publish: list[str] = []
    subscribe = [_inbox(principal)]
    for platform, account in accounts:
        names = {
            "platform": subjects.declared_name(platform),
            "account": subjects.declared_name(account),
        }
        publish.append(subjects.wildcards(subjects.INBOUND, **names))
        publish += _reading(StreamName.OUTBOUND, outbound_durable(platform, account))
        publish.append(subjects.wildcards(subjects.DELIVERER, **names))
        cursors = subjects.wildcards(subjects.CURSOR, **names)
        publish += (cursors, f"{_API}.DIRECT.GET.{StreamName.CURSORS}.{cursors}")
        # What an earlier process of the adapter has delivered.
        publish += (_of(principal, channel, **names) for channel in requests_of_adapter())
        turns = LiveTurnPath(platform, account)
        publish.append(turns.of(subjects.FOLLOW))
        subscribe += _hearing_turns(turns)
    return Permissions(tuple(publish), tuple(subscribe))


def worker(principal: str, agent: DurableAgent, slots: int = DEFAULT_SLOTS) -> Permissions:
    """Return the permissions of a worker: claim the turns of its agent and publish results."""
    name = subjects.declared_name(agent.name)
    publish = [
        subjects.wildcards(subjects.RESULT, agent=name),
        *(subjects.api(principal, noun, verb, name) for noun, verb in _REQUESTS_OF_WORKERS),
    ]
    # A worker that writes a note for the next session needs the announcement of the end, and one
    # that answers by another way needs that of a failed delivery.
    subscribe = [_inbox(principal), subjects.ending(name), subjects.undelivered(name)]
    if agent.delivery == "turns":
        subscribe += [subjects.control_filter(name), _ANY_TURN.of(subjects.FOLLOW, agent=name)]
        publish += [
            subjects.wildcards(subjects.DELTA, agent=name),
            _ANY_TURN.of(subjects.PIECE, agent=name),
            _ANY_TURN.of(subjects.RECAP, agent=name),
            subjects.api(principal, "turn", "claim", name),
            subjects.api(principal, "turn", "renew", name),
            *(
                subjects.api(principal, "turn", verb, name)
                for verb in ("take", "say", "ask", "answer", "step", "keep")
            ),
            *_reading(StreamName.TURNS, name),
        ]
    else:
        for slot in range(slots):
            publish += _reading(StreamName.ROUTED, routed_durable(name, slot))
    return Permissions(tuple(publish), tuple(subscribe))


def front_end(principal: str, accounts: Collection[tuple[str, str]]) -> Permissions:
    """Return the permissions of a front end, which shows people their sessions and changes them.

    The front end authenticates its users. Every request names a person who talks to its accounts
    and reaches only the sessions of that person.

    Args:
        principal: Its name.
        accounts: The (platform, account), as declared, whose users it acts for.
    """
    publish: list[str] = []
    subscribe = [_inbox(principal)]
    for platform, account in accounts:
        names = {
            "platform": subjects.declared_name(platform),
            "account": subjects.declared_name(account),
        }
        publish += (_of(principal, channel, **names) for channel in requests_for_account())
    # A session without a chat is of its origin and of the front end that opened it. Requests of a
    # front end do not reach sessions in which several people talk, nor does it hear their turns.
    paths = [LiveTurnPath(None, principal, "person")]
    paths += (LiveTurnPath(*pair, "person") for pair in accounts if pair[1] != principal)
    for turns in paths:
        publish.append(turns.of(subjects.FOLLOW))
        subscribe += _hearing_turns(turns)
    return Permissions(tuple(publish), tuple(subscribe))


def operator(principal: str) -> Permissions:
    """Return the permissions of an operator: read and change sessions, retry dead letters, monitor.

    Operators have a request form of their own, by which routers recognise them to audit their
    requests.
    """
    return Permissions(
        publish=(
            *(_of(principal, channel) for channel in REQUESTS),
            *_look_around(),
            # Retried dead letters. Routers lack this permission: a requester chooses the reply
            # subject that a router publishes to.
            *(subjects.wildcards(address) for address in _SAID_AGAIN),
            _ANY_TURN.of(subjects.FOLLOW),
        ),
        subscribe=(
            _inbox(principal),
            *_HEARD_BY_PEOPLE,
            _ANY_TURN.of(subjects.PIECE),
            _ANY_TURN.of(subjects.RECAP),
        ),
    )


def observer(principal: str) -> Permissions:
    """Return the permissions of an observer: monitor streams, consumers, events and dead letters.

    An observer cannot request sessions, cannot read text from chats, and changes nothing. Its only
    request is the one for the state of the service, which holds numbers and declared names.
    """
    states = (channel for channel in REQUESTS if channel.message is ServiceOverview)
    return Permissions(
        publish=(
            *_look_around(),
            *(_of(principal, channel) for channel in states),
            *(
                f"{_API}.CONSUMER.{verb}.{stream}"
                for stream in StreamName
                for verb in ("NAMES", "LIST")
            ),
        ),
        subscribe=(_inbox(principal), *_HEARD_BY_PEOPLE),
    )


def webhooks(principal: str, *, reads_text: bool = False) -> Permissions:
    """Return the permissions of a process that sends events to other systems.

    It reads events, which hold no text from a chat, and keeps how far it has come.

    Args:
        principal: Its name.
        reads_text: Whether it may also read the transcripts of all sessions; each read is audited.
    """
    cursors = subjects.wildcards(
        subjects.CURSOR,
        platform=subjects.WEBHOOK_CURSORS,
        account=subjects.declared_name(principal),
    )
    texts = (channel for channel in REQUESTS if channel.message is TranscriptLoad and reads_text)
    return Permissions(
        publish=(
            f"{_API}.STREAM.INFO.{StreamName.EVENTS}",
            f"{_API}.STREAM.MSG.GET.{StreamName.EVENTS}",
            cursors,
            f"{_API}.DIRECT.GET.{StreamName.CURSORS}.{cursors}",
            *(_of(principal, channel) for channel in texts),
        ),
        subscribe=(_inbox(principal), *_EVENTS),
    )


def provisioner(principal: str) -> Permissions:
    """Return the permissions of the provisioning job: create and change streams and durables.

    The job can neither fetch a message nor delete a stream. No permission can stop it from creating
    a consumer that pushes to its inbox, or from setting a low limit on a stream.
    """
    return Permissions(
        publish=(
            *_look_at_all_streams(),
            *(
                f"{_API}.{verb}.{stream}"
                for stream in StreamName
                for verb in ("STREAM.CREATE", "STREAM.UPDATE")
            ),
            *(f"{_API}.CONSUMER.CREATE.{stream}.>" for stream in StreamName),
        ),
        subscribe=(_inbox(principal),),
    )


def eraser(principal: str) -> Permissions:
    """Return the permissions of the erasure job: read streams with personal data, delete messages.

    It publishes no messages.
    """
    return Permissions(
        publish=(
            *_look_at_all_streams(),
            *(
                subject
                for stream in STREAMS_OF_PEOPLE
                for subject in _reading_by_oneself(stream, ERASING_CONSUMER)
            ),
            *(f"{_API}.STREAM.MSG.GET.{stream}" for stream in STREAMS_OF_PEOPLE),
            *(f"{_API}.STREAM.MSG.DELETE.{stream}" for stream in STREAMS_OF_PEOPLE),
        ),
        subscribe=(_inbox(principal),),
    )


def backup(principal: str) -> Permissions:
    """Return the permissions of the backup job, which reads the whole content of the streams.

    It confirms each chunk of a snapshot, because the server waits for that.
    """
    return Permissions(
        publish=(
            *(f"{_API}.{verb}" for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST")),
            *_look_at_all_streams(),
            *(f"{_API}.STREAM.SNAPSHOT.{stream}" for stream in StreamName),
            *(f"$JS.SNAPSHOT.ACK.{stream}.*" for stream in StreamName),
        ),
        subscribe=(_inbox(principal),),
    )


def restorer(principal: str) -> Permissions:
    """Return the permissions of the restorer, which replaces a stream with its backup.

    Only this role may delete a stream: use it during a restore and no longer.
    """
    return Permissions(
        publish=(
            *(f"{_API}.{verb}" for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST")),
            *_look_at_all_streams(),
            *(
                f"{_API}.STREAM.{verb}.{stream}"
                for stream in StreamName
                for verb in ("DELETE", "RESTORE")
            ),
            *(f"$JS.SNAPSHOT.RESTORE.{stream}.*" for stream in StreamName),
        ),
        subscribe=(_inbox(principal),),
    )


def _hearing_turns(turns: LiveTurnPath) -> tuple[str, ...]:
    """Return the subjects to follow live turns: events, pieces and recaps."""
    return tuple(turns.of(it) for it in (subjects.TURN_EVENT, subjects.PIECE, subjects.RECAP))


def _of(principal: str, request: Channel, **tokens: str) -> str:
    """Return the subject of a request by a principal, with `*` for parts that are not given."""
    return subjects.wildcards(
        request.address, principal=subjects.declared_name(principal), **tokens
    )


def _is_inbox(subject: str) -> bool:
    return subject.startswith("_INBOX.")


def _is_between_users(subject: str) -> bool:
    return subject.startswith(_BETWEEN_USERS)


def _is_imported(subject: str) -> bool:
    return not _is_inbox(subject) and not _is_between_users(subject)


def _inbox(principal: str) -> str:
    return f"{inbox_prefix(principal)}.>"


def _look_at_all_streams() -> Iterator[str]:
    for stream in StreamName:
        yield f"{_API}.STREAM.INFO.{stream}"
        yield f"{_API}.CONSUMER.INFO.{stream}.*"


def _look_around() -> Iterator[str]:
    """Yield the subjects that list all streams and read those that are open to operators."""
    yield from (f"{_API}.{verb}" for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST"))
    yield from _look_at_all_streams()
    yield from (f"{_API}.STREAM.MSG.GET.{stream}" for stream in _OPEN_TO_PEOPLE)


def _reading(stream: StreamName, durable: str) -> tuple[str, ...]:
    """Return the subjects to read and acknowledge through one durable.

    Servers use two formats of acknowledgement subjects; the second begins with the domain and a
    hash of the account. The number of tokens distinguishes them. With `>` at the end, the second
    pattern would match the first format of every other durable, which stays valid with a durable's
    name in the place of a number.
    """
    return (
        f"{_API}.CONSUMER.INFO.{stream}.{durable}",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.{durable}",
        f"$JS.ACK.{stream}.{durable}.{_DELIVERY}",
        f"$JS.ACK.*.*.{stream}.{durable}.{_DELIVERY}",
    )


def _reading_by_oneself(stream: StreamName, name: str) -> tuple[str, ...]:
    """Return the subjects to read a stream through consumers of that name, created on demand."""
    return (
        f"{_API}.CONSUMER.CREATE.{stream}.{'>' if name == '*' else f'{name}.>'}",
        f"{_API}.CONSUMER.DELETE.{stream}.{name}",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.{name}",
    )


def _reading_a_log(stream: StreamName) -> tuple[str, ...]:
    """Return the subjects to read a log through ad hoc consumers and to purge it."""
    return (
        *_reading_by_oneself(stream, "*"),
        f"{_API}.STREAM.MSG.GET.{stream}",
        # Purges only below the position that every router has committed; no permission can express
        # that limit.
        f"{_API}.STREAM.PURGE.{stream}",
        # Deletes messages of erased people that were published again.
        f"{_API}.STREAM.MSG.DELETE.{stream}",
    )
