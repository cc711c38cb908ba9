"""Who may say what: least permissions for each role.

Every connection has a principal: a name that its permissions pin in the
subjects of its requests and of its replies. Nobody but the provisioner may
create or change a stream or a durable, and nobody but who restores one may
delete it. Routers, which alone know how far the logs are done with, may purge
these two.

Knowing a subject is no permission: a worker cannot forge what a router says, an
adapter cannot speak for another account, nobody reads another's replies.

`chatlane admin nats-config` makes a nats-server configuration of them, and
`schemas/permissions.csv` lists all that its users may do, by themselves.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from chatlane_schemas import subjects
from chatlane_schemas.channels import REQUESTS, Channel, requests_for_account
from chatlane_schemas.streams import (
    ADVISORIES_DURABLE,
    COMPARING_CONSUMER,
    DEFAULT_SLOTS,
    ERASING_CONSUMER,
    STREAMS_OF_PEOPLE,
    DurableAgent,
    StreamName,
    outbound_durable,
    routed_durable,
)

REPLY_PREFIX: Final = "_R_"
"""Where the server takes an answer to a request of another account; no client may name it."""

_API: Final = "$JS.API"
# How often a message was delivered, its place in stream and durable, its time, and what is pending.
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
    subjects.DEAD,
    subjects.CONTROL,
)
# What people may look into: these streams hold no text that anybody wrote in a chat.
_OPEN_TO_PEOPLE: Final = (StreamName.EVENTS, StreamName.DEAD)
_HEARD_BY_PEOPLE: Final = (subjects.wildcards(subjects.EVENT), subjects.wildcards(subjects.DEAD))
# What a worker needs of the sessions of its agent, besides its turns: what was said, what keeps
# one, what it leaves to the next one, and that it could not finish.
_REQUESTS_OF_WORKERS: Final = (
    ("session", "get"),
    ("session", "hold"),
    ("session", "release"),
    ("session", "mark"),
    ("session", "unmark"),
    ("session", "note"),
    ("transcript", "load"),
    ("transcript", "append"),
    ("transcript", "compact"),
)


@dataclass(frozen=True, slots=True)
class Permissions:
    """All that a connection may do."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    @property
    def services(self) -> tuple[str, ...]:
        """Return what an account imports as services: all that may be published on but inboxes."""
        return tuple(one for one in self.publish if not _is_inbox(one))

    @property
    def streams(self) -> tuple[str, ...]:
        """Return what an account imports as streams: all that may be heard but inboxes."""
        return tuple(one for one in self.subscribe if not _is_inbox(one))


TRUSTED_ROLES: Final = frozenset({"router", "provisioner", "eraser", "backup", "restorer"})
"""Roles whose users share the account of the streams, where a permission does not hold them.

Each may name, in the body of a request that it needs, a subject of that account to which the server
publishes: a consumer's deliver subject, a snapshot's, a stream's republish. All other roles have an
account of their own.
"""


def answers_several_times(service: str) -> bool:
    """Return whether one request to a service has more than one answer."""
    return service.startswith(f"{_API}.CONSUMER.MSG.NEXT.")


def inbox_prefix(principal: str) -> str:
    """Return the prefix of the reply subjects of a principal; its client must be given it."""
    return f"_INBOX.{subjects.declared_name(principal)}"


def router(principal: str) -> Permissions:
    """Return what a router may do: read the logs, decide, answer requests."""
    return Permissions(
        publish=(
            *(subjects.wildcards(address) for address in _SAID_BY_ROUTERS),
            # Replies to other accounts, whose reply subjects the server replaces by such; and to
            # itself. Not `allow_responses`, which would let any requester choose what a router
            # publishes on.
            f"{REPLY_PREFIX}.>",
            _inbox(principal),
            *_look_at_all_streams(),
            *(subject for log in _LOGS for subject in _reading_a_log(log)),
            # The body of what could not be delivered, and the age of what is not read.
            *(f"{_API}.STREAM.MSG.GET.{stream}" for stream in _WITH_READERS),
            # Which messages are in it, when it has lost some.
            *_reading_by_oneself(StreamName.ROUTED, COMPARING_CONSUMER),
            # Messages that were deleted or edited before a worker was given them.
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
    """Return what an adapter may do: speak for its accounts and deliver for them.

    Args:
        principal: Its name.
        accounts: Its (platform, account), as declared.
    """
    publish: list[str] = []
    for platform, account in accounts:
        names = {
            "platform": subjects.declared_name(platform),
            "account": subjects.declared_name(account),
        }
        publish.append(subjects.wildcards(subjects.INBOUND, **names))
        publish += _reading(StreamName.OUTBOUND, outbound_durable(platform, account))
    return Permissions(tuple(publish), (_inbox(principal),))


def worker(principal: str, agent: DurableAgent, slots: int = DEFAULT_SLOTS) -> Permissions:
    """Return what a worker may do: take the work of its agent and answer it."""
    name = subjects.declared_name(agent.name)
    publish = [
        subjects.wildcards(subjects.RESULT, agent=name),
        *(subjects.api(principal, noun, verb, name) for noun, verb in _REQUESTS_OF_WORKERS),
    ]
    # Whoever writes a note for the session that follows has to be told that one will.
    subscribe = [_inbox(principal), subjects.ending(name)]
    if agent.delivery == "turns":
        subscribe.append(subjects.control_filter(name))
        publish += [
            subjects.wildcards(subjects.DELTA, agent=name),
            subjects.api(principal, "turn", "claim", name),
            subjects.api(principal, "turn", "renew", name),
            subjects.api(principal, "turn", "take", name),
            *_reading(StreamName.TURNS, name),
        ]
    else:
        for slot in range(slots):
            publish += _reading(StreamName.ROUTED, routed_durable(name, slot))
    return Permissions(tuple(publish), tuple(subscribe))


def front_end(principal: str, accounts: Iterable[tuple[str, str]]) -> Permissions:
    """Return what a program may do that shows people their sessions and changes them.

    It vouches for who they are; every request names the person, one who talks to its accounts,
    and finds nothing but theirs.

    Args:
        principal: Its name.
        accounts: The (platform, account), as declared, whose people it acts for.
    """
    publish = tuple(
        _of(
            principal,
            channel,
            platform=subjects.declared_name(platform),
            account=subjects.declared_name(account),
        )
        for platform, account in accounts
        for channel in requests_for_account()
    )
    return Permissions(publish, (_inbox(principal),))


def operator(principal: str) -> Permissions:
    """Return what an operator may do: ask for and change sessions, let dead letters come again, look.

    It asks in one form only, by which routers know it: what it does is audited.
    """
    return Permissions(
        publish=(
            *(_of(principal, channel) for channel in REQUESTS),
            *_look_around(),
            # Dead letters that come again. Not for routers: whoever asks them something names
            # the subject of their answer.
            *(subjects.wildcards(address) for address in _SAID_AGAIN),
        ),
        subscribe=(_inbox(principal), *_HEARD_BY_PEOPLE),
    )


def observer(principal: str) -> Permissions:
    """Return what who watches may do: see how streams and their readers are, events, dead letters.

    It asks for no session, sees nothing that people wrote, and changes nothing.
    """
    return Permissions(
        publish=(
            *_look_around(),
            *(
                f"{_API}.CONSUMER.{verb}.{stream}"
                for stream in StreamName
                for verb in ("NAMES", "LIST")
            ),
        ),
        subscribe=(_inbox(principal), *_HEARD_BY_PEOPLE),
    )


def provisioner(principal: str) -> Permissions:
    """Return what the provisioning job may do: create and change streams and durables.

    It cannot ask for a message nor delete a stream. No permission keeps who creates a consumer
    from having it push to the own inbox, nor who changes a stream from setting a low limit.
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
    """Return what the job may do that forgets people: read all that is said and delete from it.

    It publishes nothing of its own.
    """
    return Permissions(
        publish=(
            *_look_at_all_streams(),
            *(
                one
                for stream in STREAMS_OF_PEOPLE
                for one in _reading_by_oneself(stream, ERASING_CONSUMER)
            ),
            *(f"{_API}.STREAM.MSG.GET.{stream}" for stream in STREAMS_OF_PEOPLE),
            *(f"{_API}.STREAM.MSG.DELETE.{stream}" for stream in STREAMS_OF_PEOPLE),
        ),
        subscribe=(_inbox(principal),),
    )


def backup(principal: str) -> Permissions:
    """Return what the job may do that backs the streams up, and so reads all that they hold.

    It says that each piece came; the server waits for that.
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
    """Return what somebody may do who puts a backup in the place of a stream.

    The only one who may delete a stream: be one while something is restored, and no longer.
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


def _of(principal: str, request: Channel, **tokens: str) -> str:
    """Return the subject of a request by a principal, with `*` for what is not given."""
    return subjects.wildcards(
        request.address, principal=subjects.declared_name(principal), **tokens
    )


def _is_inbox(subject: str) -> bool:
    return subject.startswith("_INBOX.")


def _inbox(principal: str) -> str:
    return f"{inbox_prefix(principal)}.>"


def _look_at_all_streams() -> Iterator[str]:
    for stream in StreamName:
        yield f"{_API}.STREAM.INFO.{stream}"
        yield f"{_API}.CONSUMER.INFO.{stream}.*"


def _look_around() -> Iterator[str]:
    """Yield what shows all there is, and the content of what is open to people."""
    yield from (f"{_API}.{verb}" for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST"))
    yield from _look_at_all_streams()
    yield from (f"{_API}.STREAM.MSG.GET.{stream}" for stream in _OPEN_TO_PEOPLE)


def _reading(stream: StreamName, durable: str) -> tuple[str, ...]:
    """Return what reads and acknowledges through one durable.

    Servers name acknowledgements in two ways; the second begins with the domain
    and a hash of the account. The number of tokens tells the two apart: with `>` at the end the
    second pattern would match the first form of every other durable, which a durable's name in
    the place of a number does not make invalid.
    """
    return (
        f"{_API}.CONSUMER.INFO.{stream}.{durable}",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.{durable}",
        f"$JS.ACK.{stream}.{durable}.{_DELIVERY}",
        f"$JS.ACK.*.*.{stream}.{durable}.{_DELIVERY}",
    )


def _reading_by_oneself(stream: StreamName, name: str) -> tuple[str, ...]:
    """Return what reads a stream through consumers of that name, made and ended as needed."""
    return (
        f"{_API}.CONSUMER.CREATE.{stream}.{'>' if name == '*' else f'{name}.>'}",
        f"{_API}.CONSUMER.DELETE.{stream}.{name}",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.{name}",
    )


def _reading_a_log(stream: StreamName) -> tuple[str, ...]:
    """Return what reads a log through consumers of one's own, and cuts off what is done with."""
    return (
        *_reading_by_oneself(stream, "*"),
        f"{_API}.STREAM.MSG.GET.{stream}",
        # Only below what every router has committed, which no permission can say.
        f"{_API}.STREAM.PURGE.{stream}",
        # Of people who were forgotten, and whose messages come again.
        f"{_API}.STREAM.MSG.DELETE.{stream}",
    )
