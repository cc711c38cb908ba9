"""What a user of NATS reaches who names any subject for the answers it is given.

A server publishes its answers without looking at permissions. So each right of a user is used with
every reply subject that matters and with every kind of body and header that makes a server answer;
then all that could have changed is compared: streams, their settings and messages, durables, and
what was said in the account of the streams and in those of others.

A witness is a user without limits that is added to every account, to look and to listen.
"""

import json
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, Final

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import NoStreamResponseError

from chatlane.config.nats_users import account_of
from chatlane.domain.catalog import Agent
from chatlane.nats.jetstream import JetStream
from chatlane.nats.topology import apply
from chatlane_schemas.dead import Stage
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.channels import every_channel
from chatlane_schemas.topology.permissions import Permissions, inbox_prefix
from chatlane_schemas.topology.streams import (
    DurableSpec,
    StreamName,
    declared_durables,
    declared_streams,
)
from tests.support.eventually import eventually
from tests.support.servers.secured_nats import (
    SHIPPED,
    SecuredNats,
    open_secured_cluster,
    open_secured_nats,
)

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

ENVIRONMENT: Final = "production"
AGENTS: Final = (Agent("main"), Agent("notes", "stream"))
ACCOUNTS: Final = (("telegram", "assistant"), ("slack", "workbot"))
SESSION: Final = "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01"
CHAT: Final = subjects.chat_token("701")
SLOTS: Final = 2
DURABLES: Final = declared_durables(AGENTS, ACCOUNTS, SLOTS)

_WITNESS: Final = "witness"
# Of what JetStream would say otherwise: that it is asked too much.
_AT_ONCE: Final = 1500
_STORED: Final = 3
_LOOKS: Final = 5
# Of the first message for a durable, which is not acknowledged.
_FIRST: Final = (1, _STORED + 1)
_ADVISORY: Final = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
_UNKNOWN: Final = {
    "platform": "telegram",
    "account": "other",
    "chat": CHAT,
    "cursor": "place",
    "agent": "other",
    "session": SESSION,
    "audience": "shared",
    "turn": SESSION,
    "slot": "0",
    "principal": "somebody-else",
    "noun": "session",
    "verb": "started",
    "stage": Stage.INBOUND.value,
}
_OF_A_STREAM: Final = (
    *("STREAM.DELETE", "STREAM.PURGE", "STREAM.UPDATE", "STREAM.CREATE", "STREAM.MSG.DELETE"),
    *("STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.LEADER.STEPDOWN", "STREAM.PEER.REMOVE"),
)
_OF_A_DURABLE: Final = (
    *("CONSUMER.DELETE", "CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.PAUSE"),
    *("CONSUMER.RESET", "CONSUMER.UNPIN", "CONSUMER.MSG.NEXT", "CONSUMER.LEADER.STEPDOWN"),
)
_OF_THE_SYSTEM: Final = (
    *("$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING.CONNZ"),
    *("$SYS.REQ.ACCOUNT.PING.CONNZ", f"$SYS.REQ.ACCOUNT.{ENVIRONMENT}.CONNZ"),
    *(f"$SYS.ACCOUNT.{ENVIRONMENT}.CONNECT", "$JS.API.META.LEADER.STEPDOWN"),
    f"$JS.API.ACCOUNT.PURGE.{ENVIRONMENT}",
    f"{_ADVISORY}ROUTED.notes-0",
)
# What makes a server say something of its own: no message, a timeout, a heartbeat, a bad request,
# the next message, an error.
_BODIES: Final = {
    "$JS.API.CONSUMER.MSG.NEXT.": (
        b"",
        b'{"batch":1,"no_wait":true}',
        b'{"batch":1,"expires":20000000}',
        b'{"batch":1,"expires":60000000,"idle_heartbeat":20000000}',
        b'{"batch":-1}',
    ),
    "$JS.ACK.": (b"", b"+NXT", b"-NAK", b"+WPI", b"+TERM"),
    "$JS.API.": (b"", b"{}"),
    "chat.": (b"", b"{}"),
}
_HEADERS: Final = (
    "",
    "Nats-Rollup: all\r\n",
    "Nats-Schedule: @at 2000-01-01T00:00:00Z\r\nNats-Schedule-Target: {reply}\r\n",
    "Nats-Trace-Dest: {reply}\r\n",
)


@dataclass(frozen=True)
class Attempt:
    """Something that a user publishes.

    Attributes:
        reply: The subject it names for the answer; empty for none.
        header: Lines of a header, each with its end.
    """

    subject: str
    reply: str = ""
    body: bytes = b""
    header: str = ""

    def line(self) -> bytes:
        """Return it as the protocol has it."""
        if not self.header:
            head = f"PUB {self.subject} {self.reply} {len(self.body)}\r\n"
            return head.encode() + self.body
        header = f"NATS/1.0\r\n{self.header}\r\n".encode()
        sizes = f"{len(header)} {len(header) + len(self.body)}"
        return f"HPUB {self.subject} {self.reply} {sizes}\r\n".encode() + header + self.body


@dataclass
class State:
    """All that could have changed."""

    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    durables: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)


class Scene:
    """A server with streams that hold something, witnesses, and somebody who answers requests."""

    def __init__(self, servers: Sequence[SecuredNats], witnesses: Mapping[str, Client]) -> None:
        self._servers = servers
        self._witnesses = witnesses
        self._looking = witnesses[ENVIRONMENT]
        self._heard: dict[str, set[str]] = {account: set() for account in witnesses}
        self._listening: list[Subscription] = []
        self._jetstream = JetStream(self._looking)

    async def begin(self) -> None:
        """Make streams and durables, store something, leave some of it unacknowledged, listen."""
        # Leases stay until they are looked at.
        lasting = {StreamName.DELIVERERS: timedelta(hours=1)}
        streams = [
            replace(its, max_age=lasting.get(its.name, its.max_age)) for its in declared_streams(4)
        ]
        await apply(self._jetstream, streams, DURABLES)
        for subject in (*_stored(), subjects.event("session", "started")):
            for number in range(_STORED):
                await eventually(partial(self._store, subject, b"stored %d" % number))
        for durable in DURABLES:
            await self._leave_one(durable)
        await self._looking.subscribe("chat.v1.api.>", cb=_answer_nothing)
        for account, witness in self._witnesses.items():
            self._listening.append(await witness.subscribe(">", cb=self._hearing(account)))
            await witness.flush()

    async def _store(self, subject: str, body: bytes) -> bool:
        """Store a message; in a cluster no server may know yet that there is a stream."""
        try:
            await self._looking.jetstream().publish(subject, body)
        except NoStreamResponseError:
            return False
        return True

    async def _leave_one(self, durable: DurableSpec) -> None:
        """Have a message delivered that is not acknowledged."""
        name = f"{durable.stream}.{durable.name}"
        inbox = self._looking.new_inbox()
        arriving = await self._looking.subscribe(inbox)
        request = b'{"batch":1,"no_wait":true}'
        await self._looking.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}", request, reply=inbox)
        await arriving.next_msg(timeout=5)
        await arriving.unsubscribe()

    def _hearing(self, account: str) -> Callable[[Msg], Awaitable[None]]:
        async def hear(message: Msg) -> None:
            self._heard[account].add(message.subject)

        return hear

    async def attempt(self, user: str, attempts: list[Attempt], *, hears_all: bool) -> None:
        """Publish all of them as a user, and wait until the server is done with them.

        Of a cluster each server gets a part of each kind of them.
        """
        places = cycle(self._servers)
        for start in range(0, len(attempts), _AT_ONCE):
            some = [its.line() for its in attempts[start : start + _AT_ONCE]]
            listening = [b"SUB > 1"] if hears_all else []
            await next(places).tell(f"{ENVIRONMENT}/{user}", [*listening, *some])
            await self._looking.request("$JS.API.STREAM.NAMES", timeout=30)
        looks: list[list[int]] = []

        async def is_quiet() -> bool:
            # Those that wait without an end stay.
            looks.append(await self._waiting())
            return len(looks) >= _LOOKS and all(look == looks[-1] for look in looks[-_LOOKS:])

        await eventually(is_quiet)

    async def _waiting(self) -> list[int]:
        """Return how many requests for a message wait at each durable."""
        found: list[int] = []
        for spec in DURABLES:
            info = await self._jetstream.find(f"CONSUMER.INFO.{spec.stream}.{spec.name}")
            found.append(0 if info is None else info["num_waiting"])
        return found

    async def state(self) -> State:
        """Return how everything is when nothing changes any more."""
        before = await self._state()
        while (now := await self._state()) != before:
            before = now
        return now

    async def subjects_in(self, stream: str) -> frozenset[str]:
        """Return the subjects of what a stream keeps."""
        info = await self._jetstream.request(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})
        return frozenset(info["state"].get("subjects") or ())

    async def _state(self) -> State:
        found = State()
        told = await self._looking.request("$JS.API.STREAM.NAMES", timeout=10)
        for stream in json.loads(told.data)["streams"] or []:
            info = await self._jetstream.request(f"STREAM.INFO.{stream}", {"deleted_details": True})
            found.streams[stream] = {"config": info["config"], **_without_times(info["state"])}
            listed = await self._jetstream.request(f"CONSUMER.LIST.{stream}", {"offset": 0})
            for its in listed["consumers"] or []:
                found.durables[stream, its["name"]] = _without_times(its)
        return found

    async def stored_since(self, before: State, stream: str) -> list[str]:
        """Return the subjects of what a stream holds that it did not hold before."""
        last = before.streams[stream]["last_seq"]
        now = (await self._jetstream.request(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
        added = [
            await self._jetstream.find_message(stream, its) for its in range(last + 1, now + 1)
        ]
        return [message.subject for message in added if message is not None]

    async def heard(self) -> dict[str, set[str]]:
        """Return what was said in each account since the last time, and forget it."""
        for witness in self._witnesses.values():
            await witness.flush()
        await eventually(lambda: all(its.pending_msgs == 0 for its in self._listening))
        heard, self._heard = self._heard, {account: set() for account in self._witnesses}
        own = f"_INBOX.{_WITNESS}"
        return {
            account: {its for its in said if not its.startswith(own)}
            for account, said in heard.items()
        }


async def _answer_nothing(request: Msg) -> None:
    """Answer as a router would that says the worst: an empty body is a request to JetStream."""
    if request.reply:
        await request.respond(b"")


@asynccontextmanager
async def open_scene(
    *, walls_only: bool = False, together: bool = False, clustered: bool = False
) -> AsyncIterator[Scene]:
    """Run a server as shipped, with witnesses.

    Args:
        clustered: Run three of one cluster in its place.
        walls_only: Without the permissions of users: only their accounts hold them.
        together: As before accounts of their own: all users in the account of the streams.
    """

    def changed(config: str) -> str:
        if walls_only:
            config = re.sub(r"permissions: \{.*?\n        \}", "", config, flags=re.DOTALL)
        if together:
            config = in_one_account(config)
        return _with_witnesses(config)

    async with AsyncExitStack() as stack:
        if clustered:
            servers = await stack.enter_async_context(open_secured_cluster(changed))
        else:
            servers = [await stack.enter_async_context(open_secured_nats(changed))]
        accounts = [ENVIRONMENT]
        if not together:
            accounts += [own_account(name) for name in hostile_users()]
        witnesses: dict[str, Client] = {}
        try:
            for account in accounts:
                witnesses[account] = await nats.connect(
                    servers[0].url,
                    user=f"{_WITNESS}-{account}",
                    password=_WITNESS,
                    tls=servers[0].tls,
                    inbox_prefix=f"_INBOX.{_WITNESS}",
                    no_echo=True,
                )
            scene = Scene(servers, witnesses)
            await scene.begin()
            await scene.heard()
            yield scene
        finally:
            for witness in witnesses.values():
                await witness.close()


def _with_witnesses(config: str) -> str:
    """Add a witness to every account."""
    account = ""
    lines: list[str] = []
    for line in config.splitlines():
        if found := re.fullmatch(r'  "(\S+)": \{', line):
            account = found[1]
        lines.append(line)
        if line == "    users: [":
            lines.append(f'{{ user: "{_WITNESS}-{account}", password: "{_WITNESS}" }}')
    return "\n".join(lines)


def in_one_account(config: str) -> str:
    """Put all users of each environment into one account, without imports and exports."""
    users: dict[str, list[str]] = {}
    for account, body in re.findall(
        r'^  "(\S+)": \{\n(.*?)^  \}$', config, re.DOTALL | re.MULTILINE
    ):
        [its] = re.findall(r"^    users: \[\n(.*?)^    \]$", body, re.DOTALL | re.MULTILINE)
        users.setdefault(account.split("/")[0], []).append(its)
    head = config[: config.index("accounts {")]
    accounts = [
        f'  "{name}": {{\n'
        + ("" if name == "SYS" else "    jetstream: enabled\n")
        + "    users: [\n"
        + "".join(its)
        + "    ]\n  }"
        for name, its in users.items()
    ]
    return "\n".join([head, "accounts {", *accounts, "}", ""])


def hostile_users() -> list[str]:
    """Return the users with accounts of their own."""
    return [
        name
        for name, user in SHIPPED.environments[ENVIRONMENT].users.items()
        if not user.is_trusted and user.until is None
    ]


def own_account(user: str) -> str:
    """Return the account of a user."""
    return account_of(ENVIRONMENT, user, SHIPPED.environments[ENVIRONMENT].users[user])


def allowed(user: str) -> Permissions:
    """Return what a user may do."""
    return SHIPPED.environments[ENVIRONMENT].users[user].permissions(user)


def _stored() -> Iterator[str]:
    """Yield where something is stored, for everybody's durables."""
    for platform, account in ACCOUNTS:
        yield subjects.inbound(platform, account, CHAT)
        yield subjects.outbound(platform, account, CHAT)
    for agent in AGENTS:
        yield subjects.filled(subjects.RESULT, agent=agent.name, session=SESSION)
    yield subjects.turn("main")
    for slot in range(SLOTS):
        yield subjects.filled(subjects.ROUTED, agent="notes", slot=str(slot), session=SESSION)
    yield subjects.dead(Stage.INBOUND)
    yield f"{_ADVISORY}ROUTED.notes-0"


def reply_subjects(user: str) -> list[str]:
    """Return the subjects that a user would like an answer to be published on."""
    found = [""]
    for stream in StreamName:
        found += [f"$JS.API.{verb}.{stream}" for verb in _OF_A_STREAM]
    for its in DURABLES:
        found += [f"$JS.API.{verb}.{its.stream}.{its.name}" for verb in _OF_A_DURABLE]
        for sequence in _FIRST:
            delivery = f"{its.stream}.{its.name}.1.{sequence}.1.1.0"
            found += [f"$JS.ACK.{delivery}", f"$JS.ACK._.hash.{delivery}"]
    for channel in every_channel():
        address = channel.address
        if address.startswith(f"{subjects.ROOT}.api."):
            found.append(subjects.filled(address, **_known()))
            found.append(subjects.filled(address, **{**_known(), "principal": user}))
        else:
            found.append(subjects.filled(address, **_UNKNOWN))
            found.append(subjects.filled(address, **_known()))
    found += [f"{inbox_prefix(name)}.x7Gq" for name in hostile_users() if name != user]
    found += [f"{inbox_prefix('router')}.x7Gq", "_INBOX.x7Gq", "_R_.x7Gq.x7Gq"]
    found += _OF_THE_SYSTEM
    return list(dict.fromkeys(found))


def _known() -> dict[str, str]:
    """Return what makes subjects of somebody: of the account and agent that are not the first."""
    return {
        **_UNKNOWN,
        "platform": "slack",
        "account": "workbot",
        "agent": "notes",
        "principal": "operator",
    }


def rights(user: str) -> list[str]:
    """Return subjects that a user may publish on, one for each pattern."""
    found: list[str] = []
    for pattern in allowed(user).publish:
        slot = re.search(r"\.notes-(\d+)", pattern)
        if slot is not None and int(slot[1]) >= SLOTS:
            continue
        found.append(_one_of(pattern))
    return list(dict.fromkeys(found))


def _one_of(pattern: str) -> str:
    """Return a subject that a pattern matches, of which there is one where that is of matter."""
    if pattern.startswith("$JS.ACK."):
        return pattern.replace("*.*.*.*.*", "1.1.1.1.0").replace("*.*", "_.hash")
    if pattern.startswith("$JS.API.CONSUMER.INFO."):
        stream = pattern.split(".")[4]
        of_stream = [its.name for its in DURABLES if its.stream == stream]
        return pattern.replace("*", of_stream[0] if of_stream else "none")
    tokens = pattern.split(".")
    if tokens[2] == "inbound":
        return pattern.replace("*.*.*", f"slack.workbot.{CHAT}").replace("*", CHAT)
    if tokens[2] == "result":
        return pattern.replace("*.*", f"main.{SESSION}").replace("*", SESSION)
    return pattern.replace("*", SESSION).replace(">", "x")


def attempts(user: str, subjects_used: Iterable[str] | None = None) -> list[Attempt]:
    """Return all that a user tries: each right, with each reply subject, body and header."""
    found: list[Attempt] = []
    used = rights(user) if subjects_used is None else subjects_used
    for subject, reply in product(used, reply_subjects(user)):
        bodies = next((its for head, its in _BODIES.items() if subject.startswith(head)), (b"",))
        found += [Attempt(subject, reply, body) for body in bodies]
    for subject, reply in product(used, ["", *_worst()]):
        for header in _HEADERS[1:]:
            found.append(Attempt(subject, reply, b"", header.format(reply=reply or "x")))
    if subjects_used is None:
        found += _crossed_acknowledgements(user)
    return found


def _crossed_acknowledgements(user: str) -> Iterator[Attempt]:
    """Yield acknowledgements of other durables that also read as some of an own one.

    There are two forms, and names of a durable can stand where one of them has numbers, or a domain
    and a hash.
    """
    own = [its for its in DURABLES if _next_of(its.stream, its.name) in allowed(user).publish]
    others = [its for its in DURABLES if its not in own]
    for mine, other in product(own, others):
        for first, second in ((other, mine), (mine, other)):
            durables = f"{first.stream}.{first.name}.{second.stream}.{second.name}"
            for count, body in product((0, 1, 3, 5, 6), _BODIES["$JS.ACK."]):
                tail = ".1" * count
                yield Attempt(f"$JS.ACK.{durables}{tail}", f"{inbox_prefix(user)}.x7Gq", body)


def direct_attempts(user: str) -> list[Attempt]:
    """Return what a user publishes by itself on all that it would like an answer to be on."""
    inbox = f"{inbox_prefix(user)}.x7Gq"
    return [Attempt(subject, inbox) for subject in reply_subjects(user) if subject]


def _worst() -> list[str]:
    """Return the reply subjects whose publication would do the most."""
    worst = ["$JS.API.STREAM.DELETE.EVENTS", "$JS.API.STREAM.PURGE.INBOUND"]
    return [*worst, subjects.filled(subjects.RESULT, **_known()), f"{inbox_prefix('operator')}.x"]


async def effects_by_right(user: str, *, walls_only: bool) -> dict[str, list[str]]:
    """Return what each right of a user changes by itself, where it changes something."""
    found: dict[str, list[str]] = {}
    for right in rights(user):
        async with open_scene(walls_only=walls_only) as scene:
            tried = attempts(user, [right])
            if its := await effects(scene, user, tried, walls_only=walls_only):
                found[right] = its
    return found


async def effects(scene: Scene, user: str, tried: list[Attempt], *, walls_only: bool) -> list[str]:
    """Have a user try something; return all that changed and that it may not change."""
    before = await scene.state()
    await scene.heard()
    await scene.attempt(user, tried, hears_all=walls_only)
    heard = await scene.heard()
    after = await scene.state()
    may = allowed(user)
    found = [
        f"said in {account}: {subject}"
        for account, said in heard.items()
        for subject in sorted(said)
        if account != own_account(user) and not _may_be_heard(subject, account, may)
    ]
    found += [f"durable {its} changed" for its in _changed_durables(before, after, may)]
    found += [f"durable {its} appeared" for its in after.durables.keys() - before.durables.keys()]
    found += [f"stream {its} appeared" for its in after.streams.keys() - before.streams.keys()]
    for stream, was in before.streams.items():
        now = after.streams.get(stream)
        if now is None:
            found.append(f"stream {stream} is gone")
        elif stream in {StreamName.DELIVERERS, StreamName.CURSORS}:
            # A message takes the place of the one before it, and a lease ends by itself.
            kept = await scene.subjects_in(stream)
            wrong = {its for its in kept if not _may_be_stored(its, may)}
            found += [f"stored in {stream}: {its}" for its in sorted(wrong)]
            if now["config"] != was["config"]:
                found.append(f"stream {stream} changed")
        elif any(now[key] != was[key] for key in ("config", "first_seq", "deleted", "num_deleted")):
            found.append(f"stream {stream} changed")
        else:
            added = await scene.stored_since(before, stream)
            wrong = {its for its in added if not _may_be_stored(its, may)}
            found += [f"stored in {stream}: {its}" for its in sorted(wrong)]
            if now["messages"] - was["messages"] != len(added):
                found.append(f"stream {stream} lost messages")
    return found


def _may_be_heard(subject: str, account: str, may: Permissions) -> bool:
    """Return whether something said in an account is what a user may say, or the server's own.

    Replies to it are said there, and the server tells of requests to JetStream.
    """
    if account != ENVIRONMENT:
        # Users talk about live turns to each other, as far as both may.
        other = allowed(account.removeprefix(f"{ENVIRONMENT}/"))
        common = other.imported_from(may)
        return any(subject_matches(pattern, subject) for pattern in common)
    if subject.startswith(("_R_.", "$JS.EVENT.")):
        return True
    # A message on its way to a reply subject is heard there under the subject it is stored under.
    read = [its.filter_subject for its in DURABLES if _next_of(its.stream, its.name) in may.publish]
    return any(subject_matches(one, subject) for one in (*may.publish, *read))


def _may_be_stored(subject: str, may: Permissions) -> bool:
    """Return whether a user may have stored something under a subject, which a log has changed."""
    head = f"{subjects.ROOT}."
    spoken = re.sub(rf"^{re.escape(head)}log\.\d+\.", f"{head}inbound.", subject)
    spoken = re.sub(rf"^{re.escape(head)}rlog\.\d+\.", f"{head}result.", spoken)
    if subject.startswith(_ADVISORY):
        # It may leave a message of its own unacknowledged until the server gives up.
        return _next_of(*subject.split(".")[-2:]) in may.publish
    return any(subject_matches(one, spoken) for one in may.publish)


def _next_of(stream: str, durable: str) -> str:
    return f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"


def _changed_durables(before: State, after: State, may: Permissions) -> Iterator[str]:
    for (stream, name), was in before.durables.items():
        is_own = _next_of(stream, name) in may.publish
        now = after.durables.get((stream, name))
        if now is None:
            yield f"{stream} {name}"
            continue
        ignored = {"num_pending"} if not is_own else set(was) - {"config", "name"}
        if any(now.get(key) != was[key] for key in set(was) - ignored):
            yield f"{stream} {name}"


def _without_times(info: dict[str, Any]) -> dict[str, Any]:
    """Return what a server tells without what changes by itself."""
    left = {
        key: value
        for key, value in info.items()
        if key not in {"ts", "last_ts", "first_ts", "num_redelivered", "cluster", "num_waiting"}
    }
    for position in ("delivered", "ack_floor"):
        if position in left:
            seqs = ("consumer_seq", "stream_seq")
            left[position] = {its: left[position][its] for its in seqs}
    left.setdefault("deleted", None)
    left.setdefault("num_deleted", 0)
    return left


def subject_matches(pattern: str, subject: str) -> bool:
    """Return whether a subject is one of a pattern."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, given = wanted[:-1], given[: len(wanted) - 1] if len(given) >= len(wanted) else []
        return len(given) == len(wanted) and all(
            one in {"*", its} for one, its in zip(wanted, given, strict=True)
        )
    return len(wanted) == len(given) and all(
        one in {"*", its} for one, its in zip(wanted, given, strict=True)
    )
