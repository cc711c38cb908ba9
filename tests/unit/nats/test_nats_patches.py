"""What nats-py does with the bytes of a stranger; pinned, because its inside is mended."""

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from chatlane.nats.nats_patches import DirectDelivery, harden, publish_with_id


async def parsed(wire: bytes) -> Msg:
    """Return the one message that a client makes of what comes over the wire."""
    harden()
    client = Client()
    subscription = Subscription(client, 1)
    client._subs[1] = subscription
    await client._ps.parse(wire)
    assert subscription._pending_queue.qsize() == 1
    message: Msg = subscription._pending_queue.get_nowait()
    return message


def with_headers(headers: bytes) -> bytes:
    return b"HMSG a 1 %d %d\r\n%sx\r\n" % (len(headers), len(headers) + 1, headers)


@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        (b"a.\xff\xfe", "a.\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (b"a.\x0b\x0c\x1c\0b", "a.\x0b\x0c\x1c\0b"),
        (b"a.b", "a.b"),
    ],
)
async def test_any_subject_and_reply_are_taken(subject: bytes, shown: str) -> None:
    message = await parsed(b"MSG %s 1 %s 2\r\nhi\r\n" % (subject, subject))
    assert (message.subject, message.reply, message.data) == (shown, shown, b"hi")
    message = await parsed(
        b"HMSG %s 1 %s 18 20\r\nNATS/1.0\r\nk: v\r\n\r\nhi\r\n" % (subject, subject)
    )
    assert (message.subject, message.reply, message.headers) == (shown, shown, {"k": "v"})


async def test_a_message_needs_no_reply() -> None:
    assert (await parsed(b"MSG a 1 2\r\nhi\r\n")).reply == ""
    assert (await parsed(with_headers(b"NATS/1.0\r\nk: v\r\n\r\n"))).reply == ""


async def test_an_empty_reply_leaves_two_blanks() -> None:
    """So the server writes some answers of JetStream."""
    message = await parsed(b"MSG a 1  2\r\nhi\r\n")
    assert (message.reply, message.data) == ("", b"hi")
    message = await parsed(b"HMSG a 1  18 20\r\nNATS/1.0\r\nk: v\r\n\r\nhi\r\n")
    assert (message.reply, message.headers, message.data) == ("", {"k": "v"}, b"hi")


@pytest.mark.parametrize(
    "headers", [b"abc", b"NATS/1.0", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"NATS/1.0 409 \xff\r\n\r\n"]
)
async def test_headers_that_cannot_be_read_are_none(headers: bytes) -> None:
    message = await parsed(with_headers(headers))
    assert (message.headers, message.data) == (None, b"x")


async def test_a_status_is_still_a_status() -> None:
    message = await parsed(with_headers(b"NATS/1.0 503\r\n\r\n"))
    assert message.headers == {"Status": "503"}


@pytest.mark.parametrize("message_id", ["a-1", "x:y", "{}", "~"])
async def test_the_one_header_of_most_messages_is_read_as_among_others(message_id: str) -> None:
    only = f"NATS/1.0\r\nNats-Msg-Id: {message_id}\r\n"
    headers = {"Nats-Msg-Id": message_id}
    assert (await parsed(with_headers(f"{only}\r\n".encode()))).headers == headers
    more = (await parsed(with_headers(f"{only}k: v\r\n\r\n".encode()))).headers
    assert more == {**headers, "k": "v"}


@pytest.mark.parametrize("reply", ["", "_INBOX.abc.1"])
@pytest.mark.parametrize("payload", [b"", "text: ä\r\n".encode()])
async def test_a_publish_with_an_id_is_that_of_the_client(reply: str, payload: bytes) -> None:
    ours, theirs = Client(), Client()
    await publish_with_id(ours, "a.b", payload, "turn.ended:1", reply)
    await theirs._send_publish(
        "a.b", reply, payload, len(payload), headers={"Nats-Msg-Id": "turn.ended:1"}
    )
    assert theirs._pending == ours._pending
    assert theirs._pending_data_size == ours._pending_data_size
    assert theirs.stats == ours.stats


async def test_each_message_of_a_subscription_is_delivered_where_it_is_read() -> None:
    taken = []

    def take(message: Msg) -> None:
        if message.data == b"no":
            raise ValueError
        taken.append(message.data)

    client = Client()
    client._subs[1] = Subscription(client, 1, future=DirectDelivery(take))  # type: ignore[arg-type]
    await client._ps.parse(b"MSG a 1 2\r\nhi\r\nMSG a 1 2\r\nno\r\nMSG a 1 2\r\nho\r\n")
    assert taken == [b"hi", b"ho"]
