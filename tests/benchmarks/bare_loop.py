"""The yardstick: reads the inbound log and publishes every message again, with no database.

Usage: `python bare_loop.py NATS_URL FIRST_SEQUENCE MESSAGES`. Fetches 256 messages, publishes
them with acknowledgement, waits for all of these, acknowledges the 256, and so on; prints one
line of JSON.
"""

import asyncio
import json
import sys
from time import perf_counter, process_time
from typing import Final
from uuid import uuid4

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

_FETCH: Final = 256
_STREAM: Final = "BARE"
_SUBJECT: Final = "bare.out"
_PATIENCE_SECONDS: Final = 10.0


async def main(url: str, first_sequence: int, messages: int) -> None:
    """Measure from the first tenth of the messages to the last one."""
    client = await nats.connect(url)
    jetstream = client.jetstream(publish_async_max_pending=_FETCH)
    await jetstream.add_stream(name=_STREAM, subjects=[_SUBJECT])
    durable = f"bare-{uuid4().hex}"
    config = ConsumerConfig(
        ack_policy=AckPolicy.EXPLICIT,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=first_sequence,
        max_ack_pending=2 * _FETCH,
    )
    log = await jetstream.pull_subscribe("", durable=durable, stream="INBOUND", config=config)
    done = 0
    begin, begin_cpu, begin_done = perf_counter(), process_time(), 0
    while done < messages:
        batch = await log.fetch(_FETCH, timeout=_PATIENCE_SECONDS)
        await _republish(jetstream, batch)
        done += len(batch)
        if begin_done == 0 and done * 10 >= messages:
            begin, begin_cpu, begin_done = perf_counter(), process_time(), done
    seconds, cpu = perf_counter() - begin, process_time() - begin_cpu
    await jetstream.delete_stream(_STREAM)
    await jetstream.delete_consumer("INBOUND", durable)
    await client.close()
    counted = done - begin_done
    report = {"per_second": counted / seconds, "cpu_us": {"loop": cpu / counted * 1e6}}
    sys.stdout.write(f"{json.dumps(report)}\n")


async def _republish(jetstream: JetStreamContext, batch: list[Msg]) -> None:
    acknowledged = [await jetstream.publish_async(_SUBJECT, message.data) for message in batch]
    await asyncio.wait(acknowledged)
    for message in batch:
        await message.ack()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
