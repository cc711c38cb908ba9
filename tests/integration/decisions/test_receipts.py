"""Receipts of adapters: what becomes of each outbound message, and who is told."""

import json
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.domain.addressing.dedupe import digest_of
from chatlane.store import deliveries
from chatlane_schemas import Source
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.topology.streams import OUTBOUND_MAX_AGE
from tests.support.worlds.kernel import Fields, Kernel, at, event

pytestmark = pytest.mark.integration

Sent = dict[str, Any]


def receipt(of: Sent, /, *, account: str = "bot", **fields: Any) -> InboundEvent:  # noqa: ANN401 - fields of a receipt
    """Return the receipt that an adapter publishes for an outbound message."""
    target = of["target"]
    event_fields: Fields = {
        name: target[name] for name in ("chat", "sender", "thread_id", "scope") if name in target
    }
    body = {
        "v": 1,
        "id": uuid4().hex,
        "at": at("09:00").isoformat(),
        "kind": "receipt",
        "platform": target["platform"],
        "account": account,
        "delivered": of["id"],
        "receipt": {"session_id": of["session_id"]} | fields,
    }
    return InboundEvent.model_validate_json(json.dumps(body | event_fields))


async def answered(kernel: Kernel, text: str = "my answer", **fields: Any) -> Sent:  # noqa: ANN401 - fields of an event
    """Let a person ask and an agent answer; returns the outbound message."""
    said: Fields = {"chat": "42", "user": "42", "mid": "1", "text": "hello"}
    asked = await kernel.say(event(**(said | fields)), at("09:00"))
    await kernel.run_turn(asked.session, text)
    return (await kernel.published("OUTBOUND"))[-1]


async def delivery(kernel: Kernel, sent: Sent) -> tuple[Any, ...]:
    rows = await kernel.fetch(
        "SELECT state, failure, sent, platform_message_ids::text FROM deliveries"
        " WHERE session_id = $1 AND message_id = $2",
        UUID(sent["session_id"]),
        UUID(sent["id"]),
    )
    return tuple(rows[0].values())


async def test_an_outbound_message_waits_until_an_adapter_reports_it(kernel: Kernel) -> None:
    sent = await answered(kernel)
    assert await delivery(kernel, sent) == ("waiting", None, 0, "[]")
    await kernel.say(receipt(sent, state="handed"), at("09:01"))
    assert await delivery(kernel, sent) == ("handed", None, 0, "[]")
    await kernel.say(receipt(sent, message_ids=["2"]), at("09:02"))
    assert await delivery(kernel, sent) == ("delivered", None, 1, '["2"]')


async def test_a_repeated_receipt_changes_nothing(kernel: Kernel) -> None:
    sent = await answered(kernel)
    for _ in range(3):
        await kernel.say(receipt(sent, state="failed", failure="blocked"), at("09:01"))
    assert await delivery(kernel, sent) == ("failed", "blocked", 0, "[]")
    assert await kernel.dead() == [("outbox", "delivery_failed")]
    assert len(await kernel.published("EVENTS", "chat.v1.event.undelivered.main")) == 1


@pytest.mark.parametrize("late", ["handed", "unknown", "failed"])
async def test_what_the_platform_has_stays_delivered(kernel: Kernel, late: str) -> None:
    sent = await answered(kernel)
    await kernel.say(receipt(sent, message_ids=["2"]), at("09:01"))
    await kernel.say(receipt(sent, state=late), at("09:02"))
    assert await delivery(kernel, sent) == ("delivered", None, 1, '["2"]')
    assert await kernel.dead() == []


async def test_a_batch_decides_receipts_as_one_by_one(kernel: Kernel) -> None:
    sent = await answered(kernel)
    steps = [
        receipt(sent, state="handed", sent=1, message_ids=["2"], pieces=3),
        receipt(sent, state="unknown", sent=1, message_ids=["2"], pieces=3),
        receipt(sent, sent=3, message_ids=["2", "3", "4"], pieces=3),
    ]
    await kernel.say_together(steps, at("09:01"))
    assert await delivery(kernel, sent) == (
        "delivered",
        None,
        3,
        '["2","3","4"]'.replace(",", ", "),
    )


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
async def test_the_progress_of_pieces_never_goes_back(
    kernel: Kernel, order: tuple[int, ...]
) -> None:
    sent = await answered(kernel)
    steps = [
        receipt(sent, state="handed", message_ids=["2", "3", "4"][: number + 1], pieces=4)
        for number in range(3)
    ]
    for number, place in enumerate(order):
        await kernel.say(steps[place], at(f"09:0{number + 1}"))
    assert await delivery(kernel, sent) == ("handed", None, 3, '["2", "3", "4"]')


async def test_a_receipt_of_another_account_changes_nothing(kernel: Kernel) -> None:
    sent = await answered(kernel)
    foreign = receipt(sent, state="failed", failure="gone").model_copy(
        update={"platform": "discord"}
    )
    await kernel.say(foreign, at("09:01"))
    assert await delivery(kernel, sent) == ("waiting", None, 0, "[]")
    assert await kernel.dead() == []


async def test_a_receipt_that_is_read_before_its_message_is_kept(kernel: Kernel) -> None:
    """After a restore of the database, the logs are read again independently."""
    asked = await kernel.say(event(chat="42", user="42", mid="1", text="hello"), at("09:00"))
    claimed = await kernel.claim_live(asked.session)
    result = kernel.turn_result(claimed, "my answer", at("09:01"))
    await kernel.decide([result])
    [sent] = await kernel.published("OUTBOUND")
    await kernel.fetch("DELETE FROM deliveries")
    await kernel.fetch("DELETE FROM messages WHERE role = 'assistant'")
    await kernel.say(receipt(sent, message_ids=["2"]), at("09:02"))
    await kernel.fetch("UPDATE turns SET state = 'claimed', result_id = NULL, ended_at = NULL")
    await kernel.fetch("UPDATE sessions SET active_turn = $1", claimed.turn_id)
    await kernel.fetch("DELETE FROM outbox WHERE stream = 'OUTBOUND'")
    await kernel.decide([result])
    assert await delivery(kernel, sent) == ("delivered", None, 1, '["2"]')
    assert await kernel.value("SELECT agent FROM deliveries") == "main"


@pytest.mark.parametrize(
    ("failure", "kept"),
    [
        ("blocked", "blocked"),
        ("gone", "gone"),
        ("too_large", "too_large"),
        ("refused", "refused"),
        (None, "unknown"),
    ],
)
async def test_c73_the_agent_is_told_with_its_next_turn(
    kernel: Kernel, failure: str | None, kept: str
) -> None:
    sent = await answered(kernel)
    await kernel.say(receipt(sent, state="failed", failure=failure), at("09:01"))
    assert await kernel.dead() == [("outbox", "delivery_failed")]
    [told] = await kernel.published("EVENTS", "chat.v1.event.undelivered.main")
    assert (told["message_id"], told["failure"]) == (sent["id"], kept)
    asked = await kernel.say(
        event(chat="42", user="42", mid="3", text="are you there?"), at("09:02")
    )
    claimed = await kernel.claim_live(asked.session)
    [undelivered] = claimed.undelivered
    assert (str(undelivered.message_id), undelivered.failure) == (sent["id"], kept)
    again = await kernel.claim(claimed.turn_id, claim_id=claimed.id)
    assert again.undelivered == claimed.undelivered
    await kernel.answer(claimed, "yes", at("09:03"))
    await kernel.say(event(chat="42", user="42", mid="4", text="good"), at("09:04"))
    assert (await kernel.claim_live(asked.session)).undelivered == ()


async def test_a_failure_with_another_try_is_no_dead_letter(kernel: Kernel) -> None:
    sent = await answered(kernel)
    waits = receipt(sent, state="failed", failure="rate_limited", retry_at=at("09:05").isoformat())
    await kernel.say(waits, at("09:01"))
    assert await delivery(kernel, sent) == ("failed", "rate_limited", 0, "[]")
    assert await kernel.dead() == []
    await kernel.say(receipt(sent, message_ids=["2"]), at("09:06"))
    assert await delivery(kernel, sent) == ("delivered", None, 1, '["2"]')


@pytest.mark.parametrize(
    "place",
    [
        {"chat": "42", "user": "42"},
        {"chat": "-100", "user": "7", "kind_of_chat": "group"},
        {"chat": "-100", "user": "7", "kind_of_chat": "forum", "thr": "5"},
        {"platform": "whatsapp", "chat": "4930123", "user": "4930123", "alt_user": "77@lid"},
    ],
    ids=["dm", "group", "topic", "ids"],
)
async def test_a_platform_id_leads_to_our_message(kernel: Kernel, place: Fields) -> None:
    sent = await answered(kernel, **place)
    await kernel.say(receipt(sent, sent=2, message_ids=["2", "3"], pieces=2), at("09:01"))
    source = Source.model_validate(sent["target"]).model_copy(update={"message_id": "3"})
    async with kernel.store.transaction() as connection:
        found = await deliveries.find_own_messages(connection, [digest_of(source)])
    [own] = found.values()
    assert (str(own.session_id), str(own.message_id)) == (sent["session_id"], sent["id"])
    assert (own.piece, own.agent, str(own.turn_id)) == (1, "main", sent["turn_id"])


async def test_the_copy_of_our_message_never_runs(kernel: Kernel) -> None:
    sent = await answered(kernel)
    await kernel.say(receipt(sent, sent=2, message_ids=["2", "3"]), at("09:01"))
    for mid in ("2", "3"):
        copied = await kernel.say(event(chat="42", user="999", mid=mid, text="my answer"), _soon())
        assert copied.session_id is None
    other = await kernel.say(event(chat="42", user="42", mid="4", text="thanks"), _soon())
    assert other.session_id is not None


def _soon() -> datetime:
    return at("09:02")


async def test_what_nobody_reports_is_unknown_when_the_stream_has_dropped_it(
    kernel: Kernel,
) -> None:
    sent = await answered(kernel)
    session_id, message_id = UUID(sent["session_id"]), UUID(sent["id"])
    age = "UPDATE deliveries SET created_at = clock_timestamp() - $1::interval"
    for state in ("waiting", "handed"):
        async with kernel.store.transaction() as connection:
            await connection.execute("UPDATE deliveries SET state = $1", state)
            await connection.execute(age, OUTBOUND_MAX_AGE - timedelta(minutes=1))
            [kept] = await deliveries.find(connection, session_id, message_id)
            await connection.execute(age, OUTBOUND_MAX_AGE + timedelta(minutes=1))
            [dropped] = await deliveries.find(connection, session_id, message_id)
        assert (kept.state, dropped.state) == (state, "unknown")
    await kernel.say(receipt(sent, message_ids=["2"]), at("09:02"))
    async with kernel.store.transaction() as connection:
        [late] = await deliveries.find(connection, session_id, message_id)
    assert late.state == "delivered"
