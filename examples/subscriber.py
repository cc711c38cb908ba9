"""The simplest worker: plain FastStream, the messages of a session one at a time and in order."""

import asyncio
from os import environ as env

from faststream import AckPolicy, FastStream
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub

from chatlane_schemas import RoutedMessage, answer_to, decode, encode
from chatlane_schemas.topology import streams, subjects
from chatlane_schemas.topology.permissions import inbox_prefix

AGENT, SLOTS = env.get("AGENT", "notes"), int(env.get("SLOTS", streams.DEFAULT_SLOTS))
# MANUAL: an unacknowledged message arrives again after the agent's ack_wait, before newer ones.
policy, url = AckPolicy.MANUAL, env["NATS_URL"].split(",")
# With users in NATS: the seed of this user. Only this principal may subscribe to its inbox.
key, inbox = env.get("NKEY_SEED_FILE"), inbox_prefix(env.get("PRINCIPAL", "subscriber"))
user = {"nkeys_seed": key, "inbox_prefix": inbox}
# Ping every 5 s; reconnect when the server misses two pings.
broker = NatsBroker(url, max_reconnect_attempts=-1, ping_interval=5, ack_policy=policy, **user)
routed_stream = JStream("ROUTED", declare=False)


async def answer(message: NatsMessage) -> None:
    """Acknowledge once the answer is stored; a repeated answer is stored once."""
    routed = decode(RoutedMessage, message.body)
    reply = answer_to(routed, f"#{routed.seq} heard: {routed.text}")
    to, headers = subjects.result(AGENT, routed.session_id), {"Nats-Msg-Id": reply.id}
    await broker.publish(encode(reply), to, headers, stream="RESULTS", timeout=5)
    await message.ack()


for slot in range(SLOTS):
    source, durable = subjects.routed_filter(AGENT, slot), streams.routed_durable(AGENT, slot)
    pull = {"pull_sub": PullSub(timeout=1), "inbox_prefix": f"{inbox}.".encode()}
    broker.subscriber(source, durable=durable, stream=routed_stream, **pull)(answer)

asyncio.run(FastStream(broker).run())
