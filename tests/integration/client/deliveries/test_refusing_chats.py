"""C73: a chat that refuses costs no other chat anything, and its own messages stay in order."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from nats.aio.client import Client

from chatlane_client import AdapterClient, ChatGone, RateBudget, RetryAfter, Undeliverable
from chatlane_schemas import InboundEvent, OutboundMessage, Sender, decode
from chatlane_schemas.deliveries import DeliveryFailure, DeliveryState
from chatlane_schemas.topology.streams import StreamName, outbound_durable
from tests.integration.client.routing import ACCOUNT, PLATFORM, Chats, Speaker, running, said
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

LONG = timedelta(seconds=40)


class Platform(Chats):
    """A platform on which a test says what each chat refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: dict[str, Exception] = {}
        self.calls: Counter[str] = Counter()

    async def send(self, message: OutboundMessage) -> str:
        chat = (message.target.chat and message.target.chat.id) or ""
        self.calls[chat] += 1
        if (refusal := self.refusals.get(chat)) is not None:
            raise refusal
        await self.deliver(message)
        return f"{chat}-{len(self.messages)}"


@pytest.fixture
def speaker(client: Client) -> Speaker:
    return Speaker(client)


@pytest.fixture
async def platform(client: Client) -> AsyncIterator[Platform]:
    """A platform whose adapter runs as long as the test."""
    platform = Platform()
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    async with running(adapter.deliver(platform.send)):
        yield platform


async def receipts(client: Client) -> list[InboundEvent]:
    """Return what the adapters reported, in order."""
    jetstream = client.jetstream()
    state = (await jetstream.stream_info(StreamName.INBOUND)).state
    raw = [
        await jetstream.get_msg(StreamName.INBOUND, sequence)
        for sequence in range(state.first_seq, state.last_seq + 1)
    ]
    events = [decode(InboundEvent, message.data or b"") for message in raw]
    return [event for event in events if event.receipt is not None]


async def states_of(client: Client, message: OutboundMessage) -> list[Any]:
    found = [event for event in await receipts(client) if event.delivered == message.id]
    return [event.receipt and event.receipt.state for event in found]


async def unacknowledged(client: Client) -> int:
    info = await client.jetstream().consumer_info(
        StreamName.OUTBOUND, outbound_durable(PLATFORM, ACCOUNT)
    )
    return info.num_ack_pending or 0


@pytest.mark.parametrize(
    "refusal",
    [RuntimeError("an error"), RetryAfter(3600), RetryAfter(3), TimeoutError("no answer")],
    ids=["error", "an hour", "seconds", "timeout"],
)
async def test_c73_much_that_waits_for_one_chat_holds_up_no_other(
    speaker: Speaker, platform: Platform, refusal: Exception
) -> None:
    platform.refusals["bad"] = refusal
    for number in range(1, 301):
        await speaker.say(number, chat="bad")
    await eventually(lambda: platform.calls["bad"] > 0)
    for number in range(1, 4):
        await speaker.say(number, chat="good")
        await platform.until_said(str(number), chat="good")
    assert platform.texts("bad") == []


async def test_c73_many_chats_that_refuse_hold_up_no_other(
    speaker: Speaker, platform: Platform
) -> None:
    for chat in range(300):
        platform.refusals[f"bad-{chat}"] = RuntimeError("an error")
        await speaker.say(1, chat=f"bad-{chat}")
    await eventually(lambda: len(platform.calls) == 300, LONG)
    await speaker.say(1, chat="good")
    await platform.until_said("1", chat="good")


async def test_c73_a_chat_that_accepts_again_gets_everything_once_and_in_order(
    client: Client, speaker: Speaker, platform: Platform
) -> None:
    platform.refusals["bad"] = RetryAfter(3)
    for number in range(1, 301):
        await speaker.say(number, chat="bad")
    await eventually(lambda: platform.calls["bad"] > 0)
    del platform.refusals["bad"]
    await eventually(lambda: platform.texts("bad")[-1:] == ["300"], LONG)
    assert platform.texts("bad") == [str(number) for number in range(1, 301)]
    await eventually(lambda: _is_done(client), LONG)


async def _is_done(client: Client) -> bool:
    return await unacknowledged(client) == 0


async def test_c73_what_waits_for_a_chat_survives_the_adapter(
    client: Client, speaker: Speaker
) -> None:
    refusing = Platform()
    refusing.refusals["bad"] = RetryAfter(3600)
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    async with running(adapter.deliver(refusing.send)):
        for number in range(1, 101):
            await speaker.say(number, chat="bad")
        await eventually(lambda: refusing.calls["bad"] > 0)
        await eventually(lambda: _all_handed(client, 100))
    platform = Platform()
    following = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    async with running(following.deliver(platform.send)):
        await eventually(lambda: platform.texts("bad")[-1:] == ["100"], LONG)
    assert platform.texts("bad") == [str(number) for number in range(1, 101)]


async def _all_handed(client: Client, count: int) -> bool:
    return await unacknowledged(client) == count


@pytest.mark.parametrize(
    ("refusal", "failure"),
    [
        (ChatGone("kicked"), DeliveryFailure.GONE),
        (ChatGone("blocked", failure=DeliveryFailure.BLOCKED), DeliveryFailure.BLOCKED),
    ],
    ids=["gone", "blocked"],
)
async def test_c73_all_that_waits_for_a_chat_that_is_gone_is_given_up(
    client: Client, speaker: Speaker, platform: Platform, refusal: Exception, failure: str
) -> None:
    platform.refusals["bad"] = RetryAfter(2.5)
    said = [await speaker.say(number, chat="bad") for number in range(1, 41)]
    await eventually(lambda: platform.calls["bad"] > 0)
    await eventually(lambda: _all_handed(client, 40))
    platform.refusals["bad"] = refusal
    await eventually(lambda: _is_done(client), LONG)
    assert platform.calls["bad"] == 2
    told = [event for event in await receipts(client) if _is_final(event)]
    assert [event.delivered for event in told] == [message.id for message in said]
    assert {event.receipt and event.receipt.failure for event in told} == {failure}
    del platform.refusals["bad"]
    await speaker.say(41, chat="bad")
    await platform.until_said("41", chat="bad")


def _is_final(event: InboundEvent) -> bool:
    receipt = event.receipt
    return (
        receipt is not None and receipt.state is DeliveryState.FAILED and receipt.retry_at is None
    )


@pytest.mark.parametrize(
    ("refusal", "failure"),
    [
        (Undeliverable("no"), DeliveryFailure.REFUSED),
        (Undeliverable("long", failure=DeliveryFailure.TOO_LARGE), DeliveryFailure.TOO_LARGE),
    ],
)
async def test_c73_a_message_that_is_refused_for_good_is_reported_and_the_next_one_delivered(
    client: Client, speaker: Speaker, platform: Platform, refusal: Exception, failure: str
) -> None:
    platform.refusals["1"] = refusal
    refused = await speaker.say(1)
    await eventually(lambda: _is_done_and_called(client, platform))
    del platform.refusals["1"]
    await speaker.say(2)
    await platform.until_said("2")
    [told] = [event for event in await receipts(client) if event.delivered == refused.id]
    assert told.receipt is not None
    assert (told.receipt.state, told.receipt.failure) == (DeliveryState.FAILED, failure)
    assert told.receipt.retry_at is None


async def _is_done_and_called(client: Client, platform: Platform) -> bool:
    return bool(platform.calls) and await unacknowledged(client) == 0


async def test_c73_a_message_that_fails_for_too_long_is_given_up(
    client: Client, speaker: Speaker
) -> None:
    platform = Platform()
    platform.refusals["bad"] = RetryAfter(0.05)
    adapter = AdapterClient(
        client, platform=PLATFORM, account=ACCOUNT, give_up_after=timedelta(milliseconds=100)
    )
    async with running(adapter.deliver(platform.send)):
        given_up = await speaker.say(1, chat="bad")
        await eventually(lambda: _is_done_and_called(client, platform))
    assert platform.calls["bad"] >= 5
    states = await states_of(client, given_up)
    assert set(states) == {DeliveryState.FAILED}
    last = (await receipts(client))[-1].receipt
    assert last is not None
    assert (last.failure, last.retry_at) == (DeliveryFailure.RATE_LIMITED, None)


async def test_c73_a_refusal_of_the_whole_account_pauses_every_chat(
    speaker: Speaker, platform: Platform
) -> None:
    platform.refusals["1"] = RetryAfter(1.5, whole_account=True)
    await speaker.say(1)
    await eventually(lambda: platform.calls["1"] > 0)
    await speaker.say(1, chat="2")
    await asyncio.sleep(0)
    assert platform.texts("2") == []
    del platform.refusals["1"]
    await platform.until_said("1", chat="2")
    await platform.until_said("1")


async def test_messages_keep_to_the_rates_of_the_platform(client: Client, speaker: Speaker) -> None:
    times: dict[str, list[float]] = {}

    async def send(message: OutboundMessage) -> None:
        chat = (message.target.chat and message.target.chat.id) or ""
        times.setdefault(chat, []).append(asyncio.get_running_loop().time())

    budget = RateBudget(per_second=50, per_chat_per_second=10)
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT, budget=budget)
    for number in range(1, 6):
        for chat in ("1", "2"):
            await speaker.say(number, chat=chat)
    begun = asyncio.get_running_loop().time()
    async with running(adapter.deliver(send)):
        await eventually(lambda: [len(it) for it in times.values()] == [5, 5])
    for sent in times.values():
        # A busy machine is late with one message and in time with the next.
        assert all(at - begun > place * 0.099 for place, at in enumerate(sent))


async def test_a_receipt_names_the_platforms_ids(
    client: Client, speaker: Speaker, platform: Platform
) -> None:
    message = await speaker.say(1)
    await eventually(lambda: _is_done_and_called(client, platform))
    [told] = await receipts(client)
    assert (told.delivered, told.message_id) == (message.id, "1-1")
    assert told.receipt is not None
    assert told.receipt.message_ids == ("1-1",)
    assert (told.receipt.state, told.receipt.sent) == (DeliveryState.DELIVERED, 1)


async def test_c90_the_copy_of_a_message_is_published_behind_its_receipt(
    client: Client, speaker: Speaker
) -> None:
    """The platform shows a message to the adapter before it has returned its id."""
    is_shown, is_returned = asyncio.Event(), asyncio.Event()

    async def send(_: OutboundMessage) -> str:
        is_shown.set()
        await is_returned.wait()
        return "77"

    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    async with running(adapter.deliver(send)):
        await speaker.say(1)
        await is_shown.wait()
        copied = said("1", chat="1").model_copy(
            update={"message_id": "77", "sender": Sender(id="owner", is_staff=True)}
        )
        other = said("a question", chat="1")
        publishing = asyncio.create_task(adapter.publish(copied))
        await adapter.publish(other)
        is_returned.set()
        await publishing
    jetstream = client.jetstream()
    state = (await jetstream.stream_info(StreamName.INBOUND)).state
    stored = [
        decode(InboundEvent, (await jetstream.get_msg(StreamName.INBOUND, number)).data or b"")
        for number in range(state.first_seq, state.last_seq + 1)
    ]
    order = [event.id for event in stored]
    delivered = next(event.id for event in stored if event.message_id == "77" and event.receipt)
    assert order.index(other.id) < order.index(delivered) < order.index(copied.id)
