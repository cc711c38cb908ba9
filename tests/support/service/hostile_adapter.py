"""An adapter that floods: valid, mutated, oversized, replayed and misaddressed events of one account.

Usage: `python hostile_adapter.py NATS_URL PLATFORM ACCOUNT PER_SECOND SECONDS [--seed FILE]`. It waits for no
acknowledgement and backs off from nothing. Prints how many of each kind it published as JSON.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final, NamedTuple

import nats

from chatlane_schemas.topology import subjects
from tests.support.servers.nats_users import arguments_of

MARKER: Final = "words-of-the-hostile-adapter"
"""Is in every body, so that whoever looks for leaks knows what to look for."""

_KIB: Final = 1024
_CHATS: Final = 200
# The share of each kind, in percent.
_KINDS: Final = {
    "valid": 20,
    "mutated": 38,
    "replayed": 25,
    "misaddressed": 10,
    "unpartitioned": 4,
    "oversized": 3,
}


class Hostile(NamedTuple):
    """What is published, and as what kind."""

    kind: str
    subject: str
    body: bytes
    message_id: str


def hostile_events(platform: str, account: str, seed: int = 1) -> Iterator[Hostile]:
    """Yield events without an end; the same seed gives the same ones but for their times."""
    chance = Random(seed)  # noqa: S311 # the same events in every run
    kinds = chance.choices(list(_KINDS), weights=list(_KINDS.values()), k=10_000)
    sent: list[Hostile] = []
    for number in count():
        chat = f"hostile-{chance.randrange(_CHATS)}"
        token = subjects.chat_token(chat)
        valid = Hostile(
            "valid",
            f"chat.v1.inbound.{platform}.{account}.{token}",
            _event(platform, account, chat, f"{seed}-{number}"),
            f"hostile-{seed}-{number}",
        )
        match kind := kinds[number % len(kinds)]:
            case "mutated":
                one = valid._replace(kind=kind, body=_mutated(valid.body, chance))
            case "oversized":
                size = chance.randrange(300, 900) * _KIB
                one = valid._replace(kind=kind, body=valid.body + b" " * size)
            case "replayed" if sent:
                # Half of them are told by NATS, the others only by what routers remember.
                again = chance.choice(sent)
                own_id = again.message_id if chance.random() < 0.5 else valid.message_id
                one = again._replace(kind=kind, message_id=own_id)
            case "misaddressed":
                other = subjects.chat_token(f"{chat}-other")
                one = valid._replace(kind=kind, subject=valid.subject.replace(token, other))
            case "unpartitioned":
                one = valid._replace(kind=kind, subject=valid.subject.replace(token, "*"))
            case _:
                one = valid
                sent = [*sent[-500:], valid]
        yield one


def _event(platform: str, account: str, chat: str, number: str) -> bytes:
    now = datetime.now(UTC).isoformat()
    told = {
        "v": 1,
        "id": f"e-{number}",
        "at": now,
        "platform": platform,
        "account": account,
        "message_id": number,
        "chat": {"id": chat, "kind": "dm"},
        "sender": {"id": chat, "name": MARKER},
        "text": f"{MARKER} {number}",
    }
    return json.dumps(told).encode()


def _mutated(body: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(body))
    match chance.randrange(5):
        case 0:
            return body[:place]
        case 1:
            return body[:place] + bytes([chance.randrange(256)]) + body[place + 1 :]
        case 2:
            return b"[" * chance.randrange(1, 2000) + body
        case 3:
            return body.replace(b'"v": 1', b'"v": 7')
        case _:
            return body.replace(b'"text"', b'"text": 1, "' + b"x" * chance.randrange(1, 300) + b'"')


async def attack(
    url: str,
    platform: str,
    account: str,
    *,
    per_second: int,
    seconds: float,
    seed: int = 1,
    key: Path | None = None,
) -> Counter[str]:
    """Publish for some time, as the user whose key it is; returns how many of each kind."""
    user = {} if key is None else arguments_of(key)
    client = await nats.connect(url, pending_size=64 * _KIB * _KIB, **user)
    published: Counter[str] = Counter()
    began = perf_counter()
    try:
        for number, one in enumerate(hostile_events(platform, account, seed)):
            due = began + number / per_second
            if due > began + seconds:
                break
            if (pause := due - perf_counter()) > 0:
                await asyncio.sleep(pause)
            headers = {"Nats-Msg-Id": one.message_id}
            await client.publish(one.subject, one.body, headers=headers)
            published[one.kind] += 1
        await client.flush()
    finally:
        await client.close()
    return published


async def main(arguments: list[str]) -> None:
    """Attack and say with what."""
    parser = ArgumentParser(prog="hostile_adapter.py")
    for name in ("url", "platform", "account"):
        parser.add_argument(name)
    parser.add_argument("per_second", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=Path, help="of the user who publishes")
    asked = parser.parse_args(arguments)
    published = await attack(
        asked.url,
        asked.platform,
        asked.account,
        per_second=asked.per_second,
        seconds=asked.seconds,
        key=asked.seed,
    )
    sys.stdout.write(f"{json.dumps(published)}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
