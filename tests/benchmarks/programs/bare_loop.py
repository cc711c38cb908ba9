"""The yardstick: reads the inbound log and publishes every message again, with no database.

Usage: `python bare_loop.py NATS_URL drain FIRST_SEQUENCE MESSAGES` or
`python bare_loop.py NATS_URL follow SECONDS`. One process fetches 256 messages, publishes them
asynchronously in a window of 256 under their own message ids, waits for the acknowledgement of
each, acknowledges the whole fetch at once, and so on. `drain` takes what is in the log already and
prints one line of JSON about how fast; `follow` takes what comes from now on.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter, process_time
from typing import Final
from uuid import uuid4

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

STREAM: Final = "BARE"
_FETCH: Final = 256
_WINDOW: Final = 256
_SUBJECT: Final = "bare.out"
_ID: Final = "Nats-Msg-Id"
_PATIENCE_SECONDS: Final = 10.0
# nats-py waits so long for a fetch to become full; a router waits as long for a batch.
_LINGER_SECONDS: Final = 0.002


@asynccontextmanager
async def _open(
    url: str, start: ConsumerConfig
) -> AsyncIterator[tuple[JetStreamContext, JetStreamContext.PullSubscription]]:
    """Make a stream to publish to and a durable to read with; remove both at the end."""
    client = await nats.connect(url)
    jetstream = client.jetstream(publish_async_max_pending=_WINDOW)
    await jetstream.add_stream(name=STREAM, subjects=[_SUBJECT])
    durable = f"bare-{uuid4().hex}"
    config = start.evolve(ack_policy=AckPolicy.ALL, max_ack_pending=2 * _FETCH)
    log = await jetstream.pull_subscribe("", durable=durable, stream="INBOUND", config=config)
    try:
        yield jetstream, log
    finally:
        await jetstream.delete_stream(STREAM)
        await jetstream.delete_consumer("INBOUND", durable)
        await client.close()


async def drain(url: str, first_sequence: int, messages: int) -> None:
    """Measure from the first tenth of the messages to the last one."""
    start = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first_sequence
    )
    async with _open(url, start) as (jetstream, log):
        done = 0
        begin, begin_cpu, begin_done = perf_counter(), process_time(), 0
        while done < messages:
            batch = await log.fetch(_FETCH, timeout=_PATIENCE_SECONDS)
            await _republish(jetstream, batch)
            done += len(batch)
            if begin_done == 0 and done * 10 >= messages:
                begin, begin_cpu, begin_done = perf_counter(), process_time(), done
        seconds, cpu = perf_counter() - begin, process_time() - begin_cpu
    counted = done - begin_done
    report = {"per_second": counted / seconds, "cpu_us": cpu / counted * 1e6}
    sys.stdout.write(f"{json.dumps(report)}\n")


async def follow(url: str, seconds: float) -> None:
    """Publish what comes within so many seconds."""
    async with _open(url, ConsumerConfig(deliver_policy=DeliverPolicy.NEW)) as (jetstream, log):
        sys.stdout.write("following\n")
        sys.stdout.flush()
        end = perf_counter() + seconds
        while perf_counter() < end:
            try:
                batch = await log.fetch(_FETCH, timeout=_LINGER_SECONDS)
            except TimeoutError:
                continue
            if batch:
                await _republish(jetstream, batch)


async def _republish(jetstream: JetStreamContext, batch: list[Msg]) -> None:
    acknowledged = [
        await jetstream.publish_async(_SUBJECT, message.data, headers=_id_of(message))
        for message in batch
    ]
    await asyncio.gather(*acknowledged)
    await batch[-1].ack()


def _id_of(message: Msg) -> dict[str, str]:
    return {_ID: (message.headers or {})[_ID]}


def main(url: str, command: str, *rest: str) -> None:
    """Run one of the two commands."""
    if command == "drain":
        first_sequence, messages = rest
        asyncio.run(drain(url, int(first_sequence), int(messages)))
    else:
        asyncio.run(follow(url, float(rest[0])))


if __name__ == "__main__":
    main(*sys.argv[1:])
