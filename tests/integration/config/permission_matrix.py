"""What each user of NATS may do, tried on a real server, and the reviewed file that lists it.

`schemas/permissions.csv` has a row for every subject that a user may publish on or subscribe to.
Everything else that is tried here is refused. What is tried is taken from the contract: every
channel, for accounts and agents that are a user's own and for others; and every request that
JetStream takes, for every stream and durable. Where all that was tried for one part of a subject is
allowed, the row has the name of the part in braces. `make permissions` writes the file anew.
"""

import asyncio
import csv
import io
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from chatlane.config.nats_users import account_of
from chatlane.domain.catalog import Agent
from chatlane_devkit.contract import REPOSITORY
from chatlane_schemas.dead import Stage
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.channels import every_channel
from chatlane_schemas.topology.streams import (
    COMPARING_CONSUMER,
    ERASING_CONSUMER,
    SHARES_CONSUMER,
    StreamName,
    declared_durables,
    declared_streams,
)
from tests.support.servers.secured_nats import SHIPPED, SecuredNats, open_secured_nats

REVIEWED: Final = REPOSITORY / "schemas/permissions.csv"
HEAD: Final = ("environment", "user", "account", "may", "subject")

# Own ones of adapters, one of no user, and sessions without a chat of a front end.
ACCOUNTS: Final = (
    ("telegram", "assistant"),
    ("slack", "workbot"),
    ("telegram", "other"),
    ("page", "web"),
)
SLOTS: Final = (0, 31, 32)
SAMPLES: Final = {
    "chat": subjects.chat_token("701"),
    "cursor": "place",
    "session": "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01",
    "turn": "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a02",
    "partition": "1",
    "stage": Stage.INBOUND.value,
    "reply": "x7Gq",
}
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

_OF_A_STREAM: Final = (
    *("STREAM.CREATE", "STREAM.UPDATE", "STREAM.INFO", "STREAM.DELETE", "STREAM.PURGE"),
    *("STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.MSG.GET", "STREAM.MSG.DELETE"),
    *("STREAM.PEER.REMOVE", "STREAM.LEADER.STEPDOWN", "DIRECT.GET"),
    *("CONSUMER.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST"),
)
_OF_A_CONSUMER: Final = (
    *("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE"),
    *("CONSUMER.MSG.NEXT", "CONSUMER.PAUSE", "CONSUMER.RESET", "CONSUMER.UNPIN"),
    "CONSUMER.LEADER.STEPDOWN",
)
_OF_THE_SERVER: Final = (
    *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST"),
    *("$JS.API.STREAM.TEMPLATE.NAMES", "$JS.API.META.LEADER.STEPDOWN", "$JS.API.SERVER.REMOVE"),
    *("$JS.API.ACCOUNT.PURGE.production", "$JS.API.ACCOUNT.STREAM.MOVE.production.INBOUND"),
    "$JS.API.ACCOUNT.STREAM.CANCEL_MOVE.production.INBOUND",
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ROUTED.notes-0",
    *("$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ"),
    *("$SYS.REQ.SERVER.PING.JSZ", "$SYS.ACCOUNT.production.CONNECT", "$G.anything"),
    *("anything", "chat.v1.anything", "chat.v2.inbound.telegram.assistant.{chat}"),
)
_EVERYTHING: Final = (
    *(">", "*", "chat.>", "chat.v1.>", "_INBOX.>", "_INBOX.*.>", "$JS.>", "$JS.API.>"),
    *("$JS.ACK.>", "$JS.EVENT.>", "$SYS.>", "$KV.>", "$O.>", "_R_.>"),
)


class Allowed(NamedTuple):
    """A row of the file.

    Attributes:
        account: Of NATS: that of the streams, or one of its own.
        may: publish or subscribe.
        subject: With a placeholder where any chat, session, turn or reply is meant.
    """

    environment: str
    user: str
    account: str
    may: str
    subject: str


def reviewed() -> list[Allowed]:
    """Return the rows of the file."""
    with REVIEWED.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert tuple(head) == HEAD
    return [Allowed(*row) for row in rows]


def written(rows: list[Allowed]) -> str:
    """Return the text of the file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEAD, *sorted(rows)])
    return text.getvalue()


def users() -> list[tuple[str, str]]:
    """Return environment and name of everybody who may connect to one."""
    return [
        (environment, name)
        for environment, its in SHIPPED.environments.items()
        for name, user in its.users.items()
        if user.until is None
    ]


Part: TypeAlias = tuple[str, ...]
"""Names of what varies together: a platform and its account are one thing."""


class Probe(NamedTuple):
    """A subject that is tried.

    Attributes:
        address: As in the contract, or the subject itself where it is not of the contract.
        parts: What of it was chosen; what was not is any sample.
    """

    address: str
    parts: frozenset[tuple[Part, Part]] = frozenset()

    @property
    def template(self) -> str:
        """The subject as the file has it."""
        chosen = {
            name: value
            for names, values in self.parts
            for name, value in zip(names, values, strict=True)
        }
        return subjects.filled(self.address, **chosen)

    @property
    def subject(self) -> str:
        """The subject as it is tried; `*` in a pattern stays as it is."""
        return _PLACEHOLDER.sub(lambda part: SAMPLES[part[1]], self.template)


def tried(user: str) -> dict[str, list[Probe]]:
    """Return all that a user tries to publish on, and to subscribe to."""
    others = [Probe(subject) for subject in (*_of_jetstream(), *_inboxes())]
    known = [*_of_the_contract(user), *others]
    patterns = [Probe(subjects.wildcards(channel.address)) for channel in every_channel()]
    everything = [*known, *patterns, *(Probe(subject) for subject in _EVERYTHING)]
    return {"publish": _once(known), "subscribe": _once(everything)}


def _once(probes: list[Probe]) -> list[Probe]:
    return list({probe.subject: probe for probe in probes}.values())


def _chosen(user: str) -> dict[Part, tuple[Part, ...]]:
    """Return what is tried for each variable part: what is a user's own, and others'."""
    return {
        ("slot",): tuple((str(slot),) for slot in SLOTS),
        ("platform", "account"): ACCOUNTS,
        ("agent",): (("main",), ("notes",), ("other",)),
        ("audience",): (("person",), ("shared",)),
        ("principal",): ((user,), ("somebody-else",)),
    }


def _of_the_contract(user: str) -> Iterator[Probe]:
    """Yield the subjects of every channel and of the logs, own ones and others'."""
    read_by_subject = f"$JS.API.DIRECT.GET.{StreamName.CURSORS}.{subjects.CURSOR}"
    addresses = (*(channel.address for channel in every_channel()), subjects.LOG, subjects.RLOG)
    for address in (*addresses, read_by_subject):
        has = set(subjects.placeholders(address))
        varied = [
            [(part, value) for value in values]
            for part, values in _chosen(user).items()
            if has.issuperset(part)
        ]
        yield from (Probe(address, frozenset(parts)) for parts in itertools.product(*varied))


def collapsed(user: str, probes: Iterable[Probe]) -> set[str]:
    """Return the rows for what is allowed: a single one where it does not matter what a part is."""
    left = set(probes)
    for part, values in _chosen(user).items():
        groups: dict[Probe, set[Probe]] = defaultdict(set)
        for probe in left:
            others = frozenset(chosen for chosen in probe.parts if chosen[0] != part)
            if others != probe.parts:
                groups[Probe(probe.address, others)].add(probe)
        for whole, members in groups.items():
            if len(members) == len(values):
                left = (left - members) | {whole}
    return {probe.template for probe in left}


def _of_jetstream() -> Iterator[str]:
    yield from _OF_THE_SERVER
    filters = {spec.name: spec.subjects[0] for spec in declared_streams()}
    for stream in (*StreamName, "OTHER"):
        yield from (f"$JS.API.{verb}.{stream}" for verb in _OF_A_STREAM)
        yield f"$JS.API.DIRECT.GET.{stream}.chat.v1.anything"
        yield from (f"$JS.SNAPSHOT.{verb}.{stream}.{{reply}}" for verb in ("ACK", "RESTORE"))
        its_filter = filters.get(StreamName(stream)) if stream != "OTHER" else None
        for consumer in (*_consumers(stream), "anything"):
            yield from (f"$JS.API.{verb}.{stream}.{consumer}" for verb in _OF_A_CONSUMER)
            yield f"$JS.API.CONSUMER.CREATE.{stream}.{consumer}.{its_filter or 'anything'}"
            yield f"$JS.ACK.{stream}.{consumer}.1.1.1.1.0"
            yield f"$JS.ACK._.hash.{stream}.{consumer}.1.1.1.1.0"
            yield f"$JS.FC.{stream}.{consumer}.reply"


def _consumers(stream: str) -> Iterator[str]:
    """Yield the durables of a stream, of which slots only a few, and what others make."""
    agents = [Agent("main"), Agent("notes", "stream"), Agent("other")]
    slots = {f"notes-{slot}" for slot in SLOTS}
    for spec in declared_durables(agents, ACCOUNTS, max(SLOTS) + 1):
        if spec.stream == stream and (stream != StreamName.ROUTED or spec.name in slots):
            yield spec.name
    if stream == StreamName.ROUTED:
        yield COMPARING_CONSUMER
    if stream in {StreamName.ROUTED, StreamName.OUTBOUND}:
        yield SHARES_CONSUMER
    yield ERASING_CONSUMER


def _inboxes() -> Iterator[str]:
    for _, name in users():
        yield f"_INBOX.{name}.{{reply}}"
    yield from ("_INBOX.{reply}", "_INBOX_router.{reply}", "_R_.{reply}")


async def allowed(nats: SecuredNats, environment: str, user: str) -> list[Allowed]:
    """Try everything as a user; return what the server let it do."""
    rows: list[Allowed] = []
    for may, probes in tried(user).items():
        kind = {"publish": "Publish", "subscribe": "Subscription"}[may]
        lines = [
            f"PUB {probe.subject} 0\r\n" if may == "publish" else f"SUB {probe.subject} {number}"
            for number, probe in enumerate(probes, 1)
        ]
        said = await nats.answers(f"{environment}/{user}", lines)
        assert "Authorization" not in said, said
        refused = set(re.findall(rf'Permissions Violation for {kind} to "(\S+)"', said))
        let = [probe for probe in probes if probe.subject not in refused]
        assert len(refused) + len(let) == len(probes)
        account = account_of(environment, user, SHIPPED.environments[environment].users[user])
        rows += [Allowed(environment, user, account, may, row) for row in collapsed(user, let)]
    return rows


async def measured() -> list[Allowed]:
    """Start the server and try everything as everybody."""
    async with open_secured_nats() as nats:
        found = [await allowed(nats, environment, user) for environment, user in users()]
    return [row for rows in found for row in rows]


def main() -> None:
    """Write the file."""
    Path(REVIEWED).write_text(written(asyncio.run(measured())), "utf-8")


if __name__ == "__main__":
    main()
