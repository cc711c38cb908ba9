"""What an adapter does with repeats, gaps, failures, crashes and limits."""

import asyncio
import contextlib
from datetime import timedelta
from functools import partial
from uuid import uuid4

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, ConsumerInfo

from chatlane_client import (
    AdapterClient,
    ConnectionClosedError,
    ForeignEventError,
    OversizedMessageError,
    RefusedPublishError,
    UnconfirmedPublishError,
    UndeclaredAccountError,
    UndeliverableError,
    open_connection,
)
from chatlane_client.transport.wire import publish_stored
from chatlane_schemas import (
    Chat,
    InboundEvent,
    Kind,
    OutboundMessage,
    Sender,
    Source,
    decode,
    encode,
    new_envelope_id,
)
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, outbound_durable
from tests.integration.client.routing import (
    ACCOUNT,
    OUTBOUND_ACK_WAIT,
    PLATFORM,
    Chats,
    Speaker,
    apply_topology,
    delivering,
    running,
    said,
)
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer
from tests.support.servers.lossy_link import LossyLink

pytestmark = pytest.mark.integration

SHORT = timedelta(milliseconds=300)
NEVER = timedelta(hours=1)
FEW = 3


@pytest.fixture
def speaker(client: Client) -> Speaker:
    return Speaker(client)


async def state_of(client: Client) -> ConsumerInfo:
    info: ConsumerInfo = await client.jetstream().consumer_info(
        StreamName.OUTBOUND, outbound_durable(PLATFORM, ACCOUNT)
    )
    return info


async def all_acknowledged(client: Client) -> bool:
    stream = await client.jetstream().stream_info(StreamName.OUTBOUND)
    floor = (await state_of(client)).ack_floor
    assert floor
    assert floor.stream_seq == stream.state.last_seq
    return True


async def stored_events(client: Client) -> list[InboundEvent]:
    """Return the inbound log."""
    jetstream = client.jetstream()
    state = (await jetstream.stream_info(StreamName.INBOUND)).state
    raw = [
        await jetstream.get_msg(StreamName.INBOUND, sequence)
        for sequence in range(1, state.last_seq + 1)
    ]
    return [decode(InboundEvent, message.data or b"") for message in raw]


def adapter_of(client: Client) -> AdapterClient:
    return AdapterClient(client, platform=PLATFORM, account=ACCOUNT)


# Publishing.


async def test_a_misspelt_account_is_refused_before_anything_is_stored(client: Client) -> None:
    adapter = AdapterClient(client, platform=PLATFORM, account="mispelt")
    event = said("a").model_copy(update={"account": "mispelt"})
    for _ in range(2):
        with pytest.raises(UndeclaredAccountError, match="account 'mispelt' of platform"):
            await adapter.publish(event)
    assert await stored_events(client) == []


async def test_an_account_is_looked_for_again_until_it_is_declared(client: Client) -> None:
    adapter = AdapterClient(client, platform=PLATFORM, account="later")
    event = said("a").model_copy(update={"account": "later"})
    with pytest.raises(UndeclaredAccountError):
        await adapter.publish(event)
    durable = outbound_durable(PLATFORM, "later")
    await client.jetstream().add_consumer(StreamName.OUTBOUND, ConsumerConfig(durable_name=durable))
    await adapter.publish(event)
    assert [stored.id for stored in await stored_events(client)] == [event.id]


async def test_events_of_a_chat_are_stored_in_the_order_of_the_calls(client: Client) -> None:
    adapter = adapter_of(client)
    events = [said(str(number), chat=str(number % 3)) for number in range(60)]

    await asyncio.gather(*(adapter.publish(event) for event in events))

    stored = await stored_events(client)
    for chat in range(3):
        in_chat = [it.text for it in stored if it.chat and it.chat.id == str(chat)]
        assert in_chat == [str(number) for number in range(chat, 60, 3)]


async def test_order_and_number_survive_a_killed_server(mortal_bus: RunningServer) -> None:
    async with open_connection(mortal_bus.url, name="test") as client:
        adapter = adapter_of(client)
        events = [said(str(number), chat=str(number % 3)) for number in range(300)]
        publishing = asyncio.gather(*(adapter.publish(event) for event in events))
        await eventually(lambda: client.stats["out_msgs"] > 100)
        await mortal_bus.kill()
        await mortal_bus.start()
        await publishing

        stored = await stored_events(client)
    assert len(stored) == len(events)
    for chat in range(3):
        in_chat = [it.text for it in stored if it.chat and it.chat.id == str(chat)]
        assert in_chat == [str(number) for number in range(chat, 300, 3)]


async def test_publishing_gives_up_when_told_to(mortal_bus: RunningServer) -> None:
    async with open_connection(mortal_bus.url, name="test") as client:
        await client.jetstream().delete_stream(StreamName.INBOUND)
        event = said("hello")
        with pytest.raises(UnconfirmedPublishError) as caught:
            await adapter_of(client).publish(event, give_up_after=SHORT)
        assert caught.value.message_id == event.id

        publishing = asyncio.create_task(adapter_of(client).publish(event))
        await apply_topology(mortal_bus.url)
        assert not (await publishing).is_repeat


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"text": "another"}, id="words"),
        pytest.param({"message_id": "2"}, id="message"),
        pytest.param({"chat": Chat(id="other")}, id="chat"),
        pytest.param({"kind": Kind.EDIT}, id="kind"),
        pytest.param({"event_id": "press-2"}, id="event"),
        pytest.param({"sender": Sender(id="ben")}, id="sender"),
        pytest.param({"thread_id": "7"}, id="thread"),
    ],
)
async def test_c14_an_envelope_id_of_another_message_loses_nothing(
    client: Client, changes: dict[str, object]
) -> None:
    """Such as an id that an adapter has made from the number of a message."""
    adapter = adapter_of(client)
    first = said("hello").model_copy(update={"id": "telegram-1", "message_id": "1"})
    other = first.model_copy(update=changes)
    assert not (await adapter.publish(first)).is_repeat
    assert not (await adapter.publish(other)).is_repeat
    # What an adapter builds again after a restart has another time, and nothing else.
    later = first.model_copy(update={"at": first.at + timedelta(seconds=9)})
    assert [(await adapter.publish(it)).is_repeat for it in (first, later, other)] == [True] * 3
    assert await stored_events(client) == [first, other]


async def test_what_is_too_large_is_refused_before_the_wire(client: Client) -> None:
    adapter = adapter_of(client)
    with pytest.raises(OversizedMessageError) as caught:
        await adapter.publish(said("x" * 262_144))
    assert caught.value.limit_bytes == 262_144

    await adapter.publish(said("x" * 200_000))
    assert client.stats["reconnects"] == 0


async def test_the_limit_of_the_server_counts_headers_too(backends: object) -> None:
    from chatlane_servers.binaries import server_directory  # noqa: PLC0415
    from chatlane_servers.embedded import open_nats  # noqa: PLC0415

    del backends
    with server_directory() as directory:
        async with (
            open_nats(directory / "nats", max_payload_bytes=4096) as server,
            open_connection(server.url, name="test") as client,
        ):
            await apply_topology(server.url)
            adapter = adapter_of(client)
            body_bytes = len(encode(said("")))
            # The body alone fits.
            with pytest.raises(OversizedMessageError) as caught:
                await adapter.publish(said("x" * (4096 - body_bytes)))
            assert caught.value.size_bytes > 4096

            await adapter.publish(said("x" * (4096 - body_bytes - 100)))
            assert client.is_connected
            assert client.stats["reconnects"] == 0


async def test_an_event_of_another_account_is_refused(client: Client) -> None:
    adapter = AdapterClient(client, platform=PLATFORM, account="other")
    with pytest.raises(ForeignEventError):
        await adapter.publish(said("hello"))


async def test_a_stream_that_refuses_for_good_is_not_asked_again(client: Client) -> None:
    jetstream = client.jetstream()
    info = await jetstream.stream_info(StreamName.INBOUND)
    info.config.max_msg_size = 100
    await jetstream.update_stream(info.config)
    with pytest.raises(RefusedPublishError):
        await adapter_of(client).publish(said("x" * 200))


async def test_a_closed_connection_is_an_error_of_its_own(bus_url: str) -> None:
    async with open_connection(bus_url, name="test") as client:
        await client.close()
        with pytest.raises(ConnectionClosedError):
            await adapter_of(client).publish(said("hello"))


# Delivering.


async def test_repeats_are_dropped_and_acknowledged(client: Client, speaker: Speaker) -> None:
    chats = Chats()
    async with delivering(client, chats.deliver):
        first = await speaker.say(1)
        await speaker.say_again(first, name="again")
        await speaker.say(2)
        await speaker.say_again(first, name="and-again")

        await eventually(lambda: all_acknowledged(client))
    assert chats.texts() == ["1", "2"]


async def test_another_message_with_a_number_that_was_used_is_delivered(
    client: Client, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    """As after the database of the routers went back: numbers are given out a second time."""
    chats = Chats()
    async with delivering(client, chats.deliver):
        for number in range(1, 5):
            await speaker.say(number)
        await chats.until_said("4")
        three = await speaker.say(3, text="another three")
        again = await speaker.say(4, text="another four")
        await speaker.say_again(three, name="again")
        # What was delivered under one number is decided again under another one.
        await speaker.say_again(again.model_copy(update={"out_seq": 5}), name="renumbered")
        await speaker.say(6)
        await chats.until_said("6")
        await eventually(lambda: all_acknowledged(client))
    assert chats.texts() == ["1", "2", "3", "4", "another three", "another four", "6"]
    assert caplog.messages.count("outbound_number_reused") == 2
    assert "outbound_gap_passed" not in caplog.messages


async def test_an_adapter_is_warned_of_a_reader_without_the_lease(
    client: Client, bus_url: str, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    """As an adapter of an earlier release is, or one with its own client."""

    def warned() -> set[str]:
        return {
            str(vars(record).get("account"))
            for record in caplog.records
            if record.getMessage() == "outbound_read_by_another"
        }

    chats = Chats()
    async with delivering(client, chats.deliver):
        for number in range(1, 21):
            await speaker.say(number)
        await chats.until_said("20")
        assert not warned(), "one alone"
        async with open_connection(bus_url, name="second") as second:
            durable = outbound_durable(PLATFORM, ACCOUNT)
            others = await second.jetstream().pull_subscribe_bind(
                durable, stream=StreamName.OUTBOUND
            )
            spoken = 0

            async def is_warned() -> bool:
                nonlocal spoken
                asking = asyncio.create_task(others.fetch(1, timeout=1))
                for _ in range(5):
                    spoken += 1
                    await speaker.say(1, chat=f"chat {spoken}")
                with contextlib.suppress(nats.errors.TimeoutError):
                    for message in await asking:
                        await message.ack()
                return warned() == {ACCOUNT}

            await eventually(is_warned)


@pytest.mark.slow
async def test_a_reconnect_is_no_other_adapter(
    mortal_bus: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    chats = Chats()
    async with (
        open_connection(mortal_bus.url, name="speaker") as speaking,
        open_connection(mortal_bus.url, name="adapter") as client,
        delivering(client, chats.deliver),
    ):
        speaker = Speaker(speaking)
        for number in (1, 2):
            await speaker.say(number)
        await chats.until_said("2")
        await mortal_bus.kill()
        await mortal_bus.start()
        for number in (3, 4):
            await speaker.say(number)
        await chats.until_said("4")
    assert "outbound_read_by_another" not in caplog.messages


async def test_a_gap_is_waited_for(client: Client, speaker: Speaker) -> None:
    chats = Chats()
    async with delivering(client, chats.deliver, gap_patience=NEVER):
        await speaker.say(1)
        await speaker.say(3)
        await speaker.say(1, chat="2")
        await chats.until_said("1", chat="2")
        assert chats.texts() == ["1"]

        await speaker.say(2)
        await eventually(lambda: all_acknowledged(client))
    assert chats.texts() == ["1", "2", "3"]


async def test_a_gap_that_stays_is_passed_with_a_warning(
    client: Client, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    chats = Chats()
    async with delivering(client, chats.deliver, gap_patience=SHORT):
        await speaker.say(1)
        await speaker.say(4)
        await chats.until_said("4")

        await speaker.say(3)
        await eventually(lambda: all_acknowledged(client))
    assert chats.texts() == ["1", "4", "3"]
    events = [record.message for record in caplog.records]
    assert "outbound_gap_passed" in events
    assert "outbound_late" in events


async def test_a_session_may_begin_with_any_number(client: Client, speaker: Speaker) -> None:
    chats = Chats()
    async with delivering(client, chats.deliver, gap_patience=NEVER):
        await speaker.say(17)
        await speaker.say(18)

        await chats.until_said("18")
    assert chats.texts() == ["17", "18"]


async def test_a_chat_that_fails_is_retried_in_place_while_others_go_on(
    client: Client, speaker: Speaker
) -> None:
    chats = Chats()
    is_down = True

    async def deliver(message: OutboundMessage) -> None:
        if is_down and message.target.chat == Chat(id="1"):
            raise ConnectionError("platform is down")
        await chats.deliver(message)

    async with delivering(client, deliver):
        for number in (1, 2, 3):
            await speaker.say(number, chat="1")
            await speaker.say(number, chat="2")
        await chats.until_said("3", chat="2")
        assert chats.texts("1") == []

        is_down = False
        await eventually(lambda: all_acknowledged(client))
    assert chats.texts("1") == ["1", "2", "3"]


async def test_what_is_held_is_not_given_twice(client: Client, speaker: Speaker) -> None:
    """A delivery that takes longer than the acknowledgement may is given again by the server."""
    chats = Chats()
    may_go = asyncio.Event()

    async def deliver(message: OutboundMessage) -> None:
        await may_go.wait()
        await chats.deliver(message)

    async with delivering(client, deliver):
        await speaker.say(1)
        await speaker.say(2)

        async def was_redelivered() -> bool:
            return (await state_of(client)).num_redelivered == 2

        await eventually(was_redelivered, timeout=OUTBOUND_ACK_WAIT * 3)
        may_go.set()
        await eventually(lambda: all_acknowledged(client))
    assert chats.texts() == ["1", "2"]


async def test_an_undeliverable_message_is_dropped(
    client: Client, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    chats = Chats()

    async def deliver(message: OutboundMessage) -> None:
        if message.out_seq == 1:
            raise UndeliverableError("the chat was deleted")
        await chats.deliver(message)

    async with delivering(client, deliver):
        await speaker.say(1)
        await speaker.say(2)
        await eventually(lambda: all_acknowledged(client))
    assert chats.texts() == ["2"]
    assert any(record.message.startswith("outbound_dropped: ") for record in caplog.records)


async def test_what_a_dead_process_held_comes_before_what_is_newer(
    client: Client, speaker: Speaker
) -> None:
    """Its messages come again later than newer ones, which wait for them."""
    chats = Chats()

    async def hang(_: OutboundMessage) -> None:
        await asyncio.Event().wait()

    for number in (1, 2):
        await speaker.say(number)
    async with delivering(client, hang):

        async def both_are_out() -> bool:
            return (await state_of(client)).num_ack_pending == 2

        await eventually(both_are_out)
    await speaker.say(3)
    await speaker.say(3, chat="2")
    async with delivering(client, chats.deliver):
        await eventually(lambda: all_acknowledged(client), timeout=OUTBOUND_ACK_WAIT * 3)
    assert chats.texts() == ["1", "2", "3"]
    assert chats.texts("2") == ["3"]


class OtherRequest:
    """A request for one message, over a connection whose process is gone or is another's."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.taken: list[Msg] = []

    async def send(self) -> None:
        inbox = self._client.new_inbox()
        await self._client.subscribe(inbox, cb=self._take)
        next_message = f"$JS.API.CONSUMER.MSG.NEXT.OUTBOUND.{outbound_durable(PLATFORM, ACCOUNT)}"
        request = b'{"batch":1,"expires":30000000000}'
        await self._client.publish(next_message, request, reply=inbox)
        await self._client.flush()

    async def _take(self, message: Msg) -> None:
        self.taken.append(message)


async def test_what_two_dead_processes_held_comes_in_order(
    client: Client, speaker: Speaker
) -> None:
    """What was given to both comes again later than what only the first of them was given."""
    chats = Chats()
    first, second, third = (OtherRequest(client) for _ in range(3))
    for number, reader in ((1, first), (2, second)):
        await reader.send()
        await speaker.say(number)
        await eventually(lambda: reader.taken)  # noqa: B023 - awaited here
    # The second process dies when the message has waited for half of its time.
    await asyncio.sleep(OUTBOUND_ACK_WAIT.total_seconds() / 2)
    await third.send()
    await first.taken[0].nak()
    await eventually(lambda: third.taken)
    async with delivering(client, chats.deliver):
        await eventually(lambda: all_acknowledged(client), timeout=OUTBOUND_ACK_WAIT * 4)
    assert chats.texts() == ["1", "2"]


async def test_what_a_dead_process_gave_back_comes_in_order(
    client: Client, speaker: Speaker
) -> None:
    """The server delivers again in the order of its own queue, not in that of the stream."""
    chats = Chats()
    dead = OtherRequest(client)
    for number in range(1, 4):
        await dead.send()
        await speaker.say(number)
        await eventually(lambda: len(dead.taken) == number)  # noqa: B023 - awaited here
    for message in reversed(dead.taken):
        await message.nak()
        await client.flush()
    async with delivering(client, chats.deliver):
        await eventually(lambda: all_acknowledged(client), timeout=OUTBOUND_ACK_WAIT * 4)
    assert chats.texts() == ["1", "2", "3"]


async def say_until_taken(speaker: Speaker, chats: Chats, other: OtherRequest) -> str:
    """Begin chats until the other request gets the first message of one; return that chat."""

    def is_out(chat: str) -> bool:
        return bool(other.taken or chats.texts(chat))

    while True:
        chat = str(uuid4())
        await speaker.say(1, chat=chat)
        await eventually(partial(is_out, chat))
        if other.taken:
            return chat


async def test_what_a_lost_request_was_given_is_waited_for(
    client: Client, speaker: Speaker
) -> None:
    """As in a cluster, whose servers may keep a request of a connection that is gone."""
    chats = Chats()
    other = OtherRequest(client)

    def are_out(count: int) -> bool:
        return len(other.taken) + len(chats.texts()) == count

    async with delivering(client, chats.deliver, gap_patience=SHORT):
        await speaker.say(1)
        await chats.until_said("1")
        await other.send()
        number = 1
        while not other.taken:
            number += 1
            await speaker.say(number)
            await eventually(partial(are_out, number))
        await speaker.say(number + 1)
        await eventually(lambda: all_acknowledged(client), timeout=OUTBOUND_ACK_WAIT * 3)
    assert chats.texts() == [str(its) for its in range(1, number + 2)]


async def test_the_first_message_of_a_session_that_a_lost_request_was_given_comes_first(
    client: Client, bus_url: str, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    """The adapter never saw the session, so only the numbers of deliveries tell of it."""
    chats = Chats()
    async with delivering(client, chats.deliver, gap_patience=SHORT):
        await speaker.say(1)
        await chats.until_said("1")
        async with open_connection(bus_url, name="lost") as lost:
            other = OtherRequest(lost)
            await other.send()
            chat = await say_until_taken(speaker, chats, other)
        await speaker.say(2, chat=chat)
        await speaker.say(3, chat=chat)
        await speaker.say(2)
        await chats.until_said("2")
        assert chats.texts(chat) == [], "other chats do not wait"
        await eventually(lambda: all_acknowledged(client), timeout=OUTBOUND_ACK_WAIT * 3)
    assert chats.texts(chat) == ["1", "2", "3"]
    assert "outbound_gap_passed" not in caplog.messages
    assert "outbound_late" not in caplog.messages


async def test_what_another_process_acknowledged_is_not_waited_for(
    client: Client, bus_url: str, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    chats = Chats()
    async with (
        delivering(client, chats.deliver, gap_patience=NEVER),
        open_connection(bus_url, name="another") as another,
    ):
        await speaker.say(1)
        await chats.until_said("1")
        other = OtherRequest(another)
        await other.send()
        chat = await say_until_taken(speaker, chats, other)
        await other.taken[0].ack_sync()
        await speaker.say(2, chat=chat)
        await chats.until_said("2", chat=chat)
    assert chats.texts(chat) == ["2"]
    assert "outbound_orphans_expected" not in caplog.messages


async def test_a_gap_is_passed_although_other_requests_always_hold_something(
    client: Client, speaker: Speaker
) -> None:
    """As while two processes read for one account."""
    chats = Chats()
    async with delivering(client, chats.deliver, gap_patience=SHORT):
        await speaker.say(1)
        await chats.until_said("1")
        await speaker.say(3)

        async def has_third() -> bool:
            state = await state_of(client)
            return state.num_ack_pending == 1 and state.num_pending == 0

        # Else the first of the other requests gets it.
        await eventually(has_third)
        held: list[Msg] = []

        async def was_passed() -> bool:
            other = OtherRequest(client)
            await other.send()
            chat = await say_until_taken(speaker, chats, other)
            await speaker.say(2, chat=chat)
            held.append(other.taken[0])
            # The wait grows with the number of held messages, so there are always few.
            if len(held) > FEW:
                await held.pop(0).ack()
            assert chats.texts() == ["1", "3"]
            return True

        await eventually(was_passed)


async def test_a_session_that_begins_in_the_middle_costs_no_request(
    client: Client, speaker: Speaker
) -> None:
    chats = Chats()
    requests: list[str] = []

    async def note(message: Msg) -> None:
        requests.append(message.subject)

    async with delivering(client, chats.deliver, gap_patience=NEVER):
        await speaker.say(17)
        await chats.until_said("17")
        await client.subscribe("$JS.API.CONSUMER.INFO.OUTBOUND.>", cb=note)
        for number in range(20):
            await speaker.say(5 + number, chat=f"new {number}")
        for number in range(20):
            await chats.until_said(str(5 + number), chat=f"new {number}")
        await client.flush()
        assert requests == []
        await state_of(client)
        await eventually(lambda: len(requests) == 1)


async def test_a_stopped_adapter_gives_back_what_it_holds(client: Client, speaker: Speaker) -> None:
    chats = Chats()
    started, may_return = asyncio.Event(), asyncio.Event()

    async def deliver_slowly(message: OutboundMessage) -> None:
        started.set()
        await may_return.wait()
        await chats.deliver(message)

    adapter = adapter_of(client)
    async with running(adapter.deliver(deliver_slowly)) as run:
        for number in (1, 2, 3):
            await speaker.say(number)
        await started.wait()
        adapter.stop()
        may_return.set()
        await run
    assert chats.texts() == ["1"]

    async with delivering(client, chats.deliver):
        await eventually(lambda: all_acknowledged(client))
    assert chats.texts() == ["1", "2", "3"]


async def test_what_is_not_understood_is_kept(client: Client, speaker: Speaker) -> None:
    chats = Chats()
    subject = subjects.outbound(PLATFORM, ACCOUNT, subjects.chat_token("1"))
    async with delivering(client, chats.deliver):
        await client.jetstream().publish(subject, b'{"v": 2}')
        await speaker.say(1)
        await chats.until_said("1")

        async def one_is_out() -> bool:
            return (await state_of(client)).num_ack_pending == 1

        await eventually(one_is_out)
    assert await one_is_out()


@pytest.mark.slow
async def test_what_is_not_understood_is_no_message_of_a_lost_reader(
    mortal_bus: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    chats = Chats()
    subject = subjects.outbound(PLATFORM, ACCOUNT, subjects.chat_token("other"))
    async with (
        open_connection(mortal_bus.url, name="speaker") as speaking,
        open_connection(mortal_bus.url, name="adapter") as client,
        delivering(client, chats.deliver),
    ):
        speaker = Speaker(speaking)
        await speaking.jetstream().publish(subject, b'{"v": 2}')
        await eventually(lambda: "outbound_not_understood" in caplog.messages)
        await mortal_bus.kill()
        await mortal_bus.start()
        await speaker.say(1)
        await chats.until_said("1")
    assert "outbound_orphans_expected" not in caplog.messages


async def test_what_is_for_another_account_is_not_delivered(
    client: Client, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reads for another account can have JetStream store it where we read."""
    chats = Chats()
    subject = subjects.outbound(PLATFORM, ACCOUNT, subjects.chat_token("1"))
    target = Source(platform=PLATFORM, account="another", chat=Chat(id="1"))
    async with delivering(client, chats.deliver):
        message = await speaker.say(1)
        foreign = message.model_copy(
            update={"id": new_envelope_id(), "target": target, "out_seq": 2, "text": "foreign"}
        )
        await publish_stored(client, subject, foreign)
        await speaker.say(2)
        await eventually(lambda: all_acknowledged(client))
    assert chats.texts() == ["1", "2"]
    assert "outbound_foreign" in [record.message for record in caplog.records]


async def test_an_answer_lost_with_its_connection_keeps_its_place(
    client: Client, speaker: Speaker, bus_url: str
) -> None:
    """The server gave it to a connection that was dead already; newer ones wait for it."""
    chats = Chats()
    async with (
        LossyLink(bus_url).open() as link,
        open_connection(link.url, name="adapter") as connection,
        delivering(connection, chats.deliver, gap_patience=SHORT),
    ):
        await speaker.say(1)
        await chats.until_said("1")
        await eventually(lambda: all_acknowledged(client))
        link.swallow()
        await speaker.say(2)
        await speaker.say(1, chat="2")

        async def is_out() -> bool:
            return (await state_of(client)).num_ack_pending == 1 and link.lost_bytes > 0

        await eventually(is_out)
        link.cut()
        await speaker.say(3)
        await chats.until_said("1", chat="2")
        assert chats.texts() == ["1"]

        await eventually(lambda: all_acknowledged(client), timeout=OUTBOUND_ACK_WAIT * 3)
    assert chats.texts() == ["1", "2", "3"]


@pytest.mark.slow
async def test_a_killed_server_costs_no_answer_its_place(
    mortal_bus: RunningServer,
) -> None:
    """Nothing twice, nothing out of order."""
    chats = Chats()
    wanted = [str(number) for number in range(1, 301)]
    async with (
        open_connection(mortal_bus.url, name="speaker") as speaking,
        open_connection(mortal_bus.url, name="adapter") as client,
        delivering(client, chats.deliver),
    ):
        speaker = Speaker(speaking)

        async def say_all() -> None:
            for number in range(1, 301):
                await speaker.say(number)

        async with running(say_all()) as saying:
            for count in (50, 150):
                await chats.until_said(str(count))
                await mortal_bus.kill()
                await mortal_bus.start()
            await saying
        await eventually(lambda: len(chats.messages) >= len(wanted), timeout=OUTBOUND_ACK_WAIT * 4)
    assert chats.texts() == wanted
