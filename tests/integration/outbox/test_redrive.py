"""Dead letters that a person lets come again, or drops."""

import asyncio
import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.effects import DeadRow, Publication
from chatlane.maintenance import TableMaintenance
from chatlane.outbox.redrive import NotRetriedError, Retrying
from chatlane.store import dead_letters
from chatlane_schemas.topology import subjects
from tests.support.eventually import eventually
from tests.support.worlds.kernel import DAY, Fields, Kernel, catalog, event, open_kernel, texts

pytestmark = pytest.mark.integration

ANN: Fields = {"chat": "42", "user": "42"}
BEN: Fields = {"chat": "43", "user": "43"}
SECOND = timedelta(seconds=1)
CHAT = subjects.chat_token("42")
LOGGED = f"chat.v1.log.3.telegram.bot.{CHAT}"


class Log:
    """What was published on the logs."""

    def __init__(self) -> None:
        self.rows: list[Publication] = []
        self.is_away = False

    async def publish(self, row: Publication) -> None:
        if self.is_away:
            raise NotRetriedError("away")
        self.rows.append(row)


@pytest.fixture
def log() -> Log:
    return Log()


async def refuse(kernel: Kernel, *bodies: bytes, subject: str = LOGGED) -> list[UUID]:
    """Let bodies arrive that nobody can read; returns their letters in order."""
    for number, body in enumerate(bodies):
        stored_at = DAY + number * SECOND
        await kernel.decide([kernel.raw("inbound", 3, subject, body, stored_at)])
    return [row[0] for row in await kernel.fetch("SELECT id FROM dead_letters ORDER BY stored_at")]


async def audited(kernel: Kernel) -> list[tuple[str, str]]:
    rows = await kernel.fetch("SELECT action, detail ->> 'id' FROM audit ORDER BY id")
    return [tuple(row.values()) for row in rows]


async def test_a_message_comes_again_on_its_log_and_its_letter_goes(
    kernel: Kernel, log: Log
) -> None:
    (letter,) = await refuse(kernel, b"not json")

    await Retrying(kernel.store, log.publish).retry(letter)

    (row,) = log.rows
    assert (row.stream, row.subject) == ("INBOUND", f"chat.v1.inbound.telegram.bot.{CHAT}")
    assert (row.message_id, row.payload) == (f"retry:{letter}", b"not json")
    assert await kernel.dead() == []
    assert await audited(kernel) == [("dead_letter_retried", str(letter))]


async def test_the_older_one_of_a_chat_goes_first(kernel: Kernel, log: Log) -> None:
    first, second = await refuse(kernel, b"first", b"second")
    retrying = Retrying(kernel.store, log.publish)

    with pytest.raises(NotRetriedError, match=f"{first} is older"):
        await retrying.retry(second)
    await retrying.retry(first)
    await retrying.retry(second)

    assert [row.payload for row in log.rows] == [b"first", b"second"]


async def test_the_older_one_goes_first_however_its_log_was_divided(
    kernel: Kernel, log: Log
) -> None:
    (first,) = await refuse(kernel, b"first")
    now = f"chat.v1.log.9.telegram.bot.{CHAT}"
    await kernel.decide([kernel.raw("inbound", 9, now, b"second", DAY + SECOND)])
    second = await kernel.value("SELECT id FROM dead_letters WHERE subject = $1", now)

    with pytest.raises(NotRetriedError, match=f"{first} is older"):
        await Retrying(kernel.store, log.publish).retry(second)


async def test_a_person_may_decide_otherwise(kernel: Kernel, log: Log) -> None:
    first, second = await refuse(kernel, b"first", b"second")

    await Retrying(kernel.store, log.publish).retry(second, out_of_order=True)

    assert [row[0] for row in await kernel.fetch("SELECT id FROM dead_letters")] == [first]


async def test_a_letter_that_no_log_took_stays(kernel: Kernel, log: Log) -> None:
    (letter,) = await refuse(kernel, b"not json")
    retrying = Retrying(kernel.store, log.publish)
    log.is_away = True

    with pytest.raises(NotRetriedError, match="away"):
        await retrying.retry(letter)

    assert len(await kernel.dead()) == 1
    assert await audited(kernel) == []


async def test_a_letter_that_is_settled_is_not_tried_again(kernel: Kernel, log: Log) -> None:
    (letter,) = await refuse(kernel, b"not json")
    retrying = Retrying(kernel.store, log.publish)
    await retrying.retry(letter)

    with pytest.raises(NotRetriedError, match="there is no dead letter"):
        await retrying.retry(letter)

    assert len(log.rows) == 1


async def test_a_dropped_letter_leaves_its_digest_and_no_body(kernel: Kernel, log: Log) -> None:
    (letter,) = await refuse(kernel, b"what Ann wrote")

    await Retrying(kernel.store, log.publish).drop(letter)

    assert await kernel.dead() == []
    assert await audited(kernel) == [("dead_letter_dropped", str(letter))]
    assert "Ann" not in json.dumps(await kernel.value("SELECT detail::text FROM audit"))


async def test_what_has_no_subject_of_ours_is_not_tried_again(kernel: Kernel, log: Log) -> None:
    (letter,) = await refuse(kernel, b"not json", subject="chat.v1.log.3.odd")

    with pytest.raises(NotRetriedError, match="its subject leads nowhere"):
        await Retrying(kernel.store, log.publish).retry(letter)

    assert len(await kernel.dead()) == 1


async def give_up(kernel: Kernel, session: UUID) -> tuple[UUID, UUID]:
    """Let a worker give up the turn of a session; returns the turn and its letter."""
    claimed = await kernel.claim_live(session)
    await kernel.answer(claimed, parts=[], outcome="failed", retry=False, error="broken")
    letter = await kernel.value("SELECT id FROM dead_letters ORDER BY at DESC LIMIT 1")
    return claimed.turn_id, letter


async def failed_turn(kernel: Kernel, who: Fields = ANN) -> tuple[UUID, UUID, UUID]:
    """Return session, turn and letter of a turn that its worker gave up."""
    placed = await kernel.say(event(**who, mid="1", text="hello"))
    return placed.session, *await give_up(kernel, placed.session)


async def test_a_failed_turn_is_given_to_the_workers_again(kernel: Kernel, log: Log) -> None:
    session, turn, letter = await failed_turn(kernel)
    retrying = Retrying(kernel.store, log.publish)

    handed = await retrying.retry(letter)

    assert await kernel.live_turn(session) == turn
    assert not await retrying.is_published(handed)
    await kernel.fetch("DELETE FROM outbox WHERE id <> $1", handed.outbox_id)
    notices = await kernel.published("TURNS")
    assert notices[-1]["turn_id"] == str(turn)
    claimed = await kernel.claim(turn)
    assert [one.text for one in claimed.messages or ()] == ["hello"]
    await kernel.answer(claimed, "now it works")
    assert await kernel.said(session) == ["hello", "now it works"]
    assert await kernel.live_turn(session) is None


async def test_a_failed_turn_that_fails_again_is_a_dead_letter_again(
    kernel: Kernel, log: Log
) -> None:
    session, turn, letter = await failed_turn(kernel)
    await Retrying(kernel.store, log.publish).retry(letter)
    claimed = await kernel.claim(turn)

    await kernel.answer(claimed, parts=[], outcome="failed", retry=False, error="broken")

    assert await kernel.dead() == [("turns", "turn_failed")]
    assert await kernel.live_turn(session) is None


async def test_a_failed_turn_waits_until_its_session_is_idle(kernel: Kernel, log: Log) -> None:
    session, _, letter = await failed_turn(kernel)
    await kernel.say(event(**ANN, mid="2", text="are you there?"), DAY + SECOND)

    with pytest.raises(NotRetriedError, match="in work"):
        await Retrying(kernel.store, log.publish).retry(letter)

    await kernel.answer(await kernel.claim_live(session), "yes")
    await Retrying(kernel.store, log.publish).retry(letter)
    assert await kernel.live_turn(session) is not None


async def test_the_older_failed_turn_of_a_session_goes_first(kernel: Kernel, log: Log) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="one"))).session
    claimed = await kernel.claim_live(session)
    await kernel.say(event(**ANN, mid="2", text="two"))
    await kernel.answer(claimed, parts=[], outcome="failed", retry=False, error="broken")
    first = await kernel.value("SELECT id FROM dead_letters")
    _, second = await give_up(kernel, session)
    _, _, elsewhere = await failed_turn(kernel, BEN)
    retrying = Retrying(kernel.store, log.publish)

    with pytest.raises(NotRetriedError, match=f"{first} is older"):
        await retrying.retry(second)
    await retrying.retry(elsewhere)
    await retrying.retry(first)
    with pytest.raises(NotRetriedError, match="in work"):
        await retrying.retry(second)
    await kernel.answer(await kernel.claim_live(session), "to one")
    await retrying.retry(second)
    await kernel.answer(await kernel.claim_live(session), "to two")

    assert await kernel.said(session) == ["one", "two", "to one", "to two"]
    assert await kernel.dead() == []


@pytest.mark.parametrize("number", [2, 3, 5])
async def test_c92_one_call_retries_the_failed_turns_of_a_session_in_order(
    kernel: Kernel, log: Log, number: int
) -> None:
    words = [str(place) for place in range(number)]
    session, _, _ = await failed_turn(kernel)
    words.insert(0, "hello")
    for place, text in enumerate(words[1:], 2):
        await kernel.say(event(**ANN, mid=str(place), text=text), DAY + place * SECOND)
        await give_up(kernel, session)
    async with kernel.store.transaction() as connection:
        letters = await dead_letters.list_failed_turns(connection, session, 10)
    retrying = Retrying(kernel.store, log.publish)

    async def retry_all() -> None:
        for letter in letters:
            await retrying.retry_when_idle(letter.id, timedelta(seconds=60))

    retrying_all = asyncio.create_task(retry_all())
    for text in words:
        await eventually(lambda: kernel.live_turn(session))
        claimed = await kernel.claim_live(session)
        assert texts(claimed) == [text]
        await kernel.answer(claimed, f"to {text}")
    await retrying_all
    assert await kernel.said(session) == [*words, *(f"to {text}" for text in words)]
    assert await kernel.dead() == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE sessions SET ended_at = now(), end_reason = 'requested'", "has ended"),
        ("UPDATE sessions SET agent = 'other'", "served by other now"),
        ("DELETE FROM turns", "its turn is gone"),
    ],
)
async def test_a_failed_turn_stays_where_its_session_has_no_use_for_it(
    kernel: Kernel, log: Log, change: str, why: str
) -> None:
    session, _, letter = await failed_turn(kernel)
    await kernel.fetch(change)

    with pytest.raises(NotRetriedError, match=why):
        await Retrying(kernel.store, log.publish).retry(letter)

    assert await kernel.live_turn(session) is None
    assert await kernel.dead() == [("turns", "turn_failed")]


STREAM = catalog(agents=[Agent("main", delivery="stream")])


async def undeliverable(kernel: Kernel) -> tuple[UUID, UUID]:
    """Return session and letter of a routed message that no worker took."""
    session = (await kernel.say(event(**ANN, mid="1", text="hello"))).session
    (routed,) = await kernel.fetch("SELECT subject, payload FROM outbox WHERE stream = 'ROUTED'")
    letter = DeadRow(
        id=uuid4(),
        stage="routed",
        reason="undeliverable",
        log=None,
        partition=None,
        sequence=1,
        stored_at=DAY,
        subject=routed["subject"],
        session_id=session,
        digest=bytes(32),
        size_bytes=len(routed["payload"]),
        detail=None,
        body=routed["payload"],
    )
    await kernel.fetch("DELETE FROM outbox")
    async with kernel.store.transaction() as connection:
        await dead_letters.insert(connection, [letter])
    return session, letter.id


async def test_a_routed_message_goes_out_once_more(database_url: str, log: Log) -> None:
    async with open_kernel(database_url, STREAM) as kernel:
        session, letter = await undeliverable(kernel)

        await Retrying(kernel.store, log.publish).retry(letter)

        (row,) = await kernel.fetch("SELECT session_id, stream, message_id, router FROM outbox")
        assert tuple(row.values()) == (session, "ROUTED", f"retry:{letter}", None)
        (told,) = await kernel.published("ROUTED")
        assert told["text"] == "hello"
        assert (await kernel.dead(), log.rows) == ([], [])


async def test_a_routed_message_goes_to_the_slot_that_its_session_has_now(
    database_url: str, log: Log
) -> None:
    async with open_kernel(database_url, STREAM) as kernel:
        session, letter = await undeliverable(kernel)

        await Retrying(kernel.store, log.publish, slots=1).retry(letter)

        subject = await kernel.value("SELECT subject FROM outbox")
        assert subject == f"chat.v1.routed.main.0.{session}"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("DELETE FROM sessions", "its conversation is removed"),
        ("UPDATE sessions SET agent = 'other'", "served by other now"),
    ],
)
async def test_a_routed_message_stays_where_nobody_is_to_have_it_any_more(
    database_url: str, log: Log, change: str, why: str
) -> None:
    async with open_kernel(database_url, STREAM) as kernel:
        _, letter = await undeliverable(kernel)
        await kernel.fetch(change)

        with pytest.raises(NotRetriedError, match=why):
            await Retrying(kernel.store, log.publish).retry(letter)

        assert await kernel.published("ROUTED") == []
        assert await kernel.dead() == [("routed", "undeliverable")]


async def test_what_was_kept_long_enough_is_deleted(kernel: Kernel) -> None:
    old, young = await refuse(kernel, b"old", b"young")
    await kernel.fetch("UPDATE dead_letters SET at = at - interval '31 days' WHERE id = $1", old)
    for age in ("31 days", "1 day"):
        await kernel.fetch(
            "INSERT INTO late_results (id, at, session_id, body)"
            " VALUES ($1, clock_timestamp() - $2::text::interval, $3, 'x')",
            age,
            age,
            uuid4(),
        )

    assert await TableMaintenance(kernel.store.transaction).expire_dead_letters() == 2

    assert [row[0] for row in await kernel.fetch("SELECT id FROM dead_letters")] == [young]
    assert [row[0] for row in await kernel.fetch("SELECT id FROM late_results")] == ["1 day"]


async def test_letters_are_counted_by_reason_with_their_age(kernel: Kernel) -> None:
    await refuse(kernel, b"one", b"two")
    await kernel.fetch("UPDATE dead_letters SET at = at - interval '2 h' WHERE body = 'one'")

    async with kernel.store.transaction() as connection:
        (tally,) = await dead_letters.tally(connection)
        (bounded,) = await dead_letters.tally(connection, most=1)

    assert (tally.reason, tally.number, bounded.number) == ("not_json", 2, 1)
    assert 7200 <= tally.oldest_seconds < 7300
