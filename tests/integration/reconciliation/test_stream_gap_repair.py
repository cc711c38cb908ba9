"""What ROUTED and OUTBOUND lost is noticed, and routed messages nobody dealt with come again."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.effects import ErasedRow
from chatlane.nats.connection import Bus, BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.nats.topology import apply
from chatlane.privacy import erasure_list_sql
from chatlane.reconciliation import stream_gap_repair
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.reconciliation.stream_gap_repair import LostMessages
from chatlane_schemas.topology.streams import StreamName, declared_durables, declared_streams
from tests.support.worlds.kernel import SLOTS, Kernel, catalog, event, open_kernel

pytestmark = pytest.mark.integration

STREAMS: Final = declared_streams(
    2, max_bytes=dict.fromkeys((its.name for its in declared_streams()), 2**24)
)
DESK: Final = Agent("desk", delivery="stream")
DURABLES: Final = declared_durables([Agent("main"), DESK], [("telegram", "bot")], SLOTS)
DECLARED: Final = catalog(agents=[DESK], profiles={"desk": "desk"})


@dataclass
class World:
    """A kernel whose rows are published for real, and deleted from the outbox after that."""

    bus: Bus
    kernel: Kernel
    published: int = 0
    search: LostMessages = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, patience: timedelta = timedelta(0)) -> None:
        self.search = LostMessages(
            StreamContents(self.bus.client),
            self.kernel.store.transaction,
            self.kernel.writer,
            self.kernel.metrics,
            agents=self.kernel.catalog.agents,
            slots=SLOTS,
            patience=patience,
        )

    async def ask(self, *texts: str, chat: str = "1", profile: str | None = "desk") -> UUID:
        """Let somebody write, and return the session."""
        every = [
            event(chat=chat, user=chat, mid=uuid4().hex, text=text, profile=profile)
            for text in texts
        ]
        placed = [await self.kernel.say(its, datetime.now(UTC)) for its in every]
        await self.publish()
        return placed[0].session

    async def publish(self) -> None:
        """Publish what was committed since the last time."""
        for row in self.kernel.relay.rows[self.published :]:
            headers = {"Nats-Msg-Id": row.message_id}
            await self.bus.client.jetstream().publish(row.subject, row.payload, headers=headers)
        self.published = len(self.kernel.relay.rows)
        await self.kernel.fetch("DELETE FROM outbox")

    async def answer(self, session_id: UUID, *places: int) -> None:
        """Answer routed messages by their places."""
        for routed in self.kernel.relay.bodies("ROUTED"):
            if routed["session_id"] == str(session_id) and routed["seq"] in places:
                await self.kernel.decide([self.kernel.stream_answer(routed)])
        await self.publish()

    async def compare(self) -> dict[str, int]:
        """Compare, publish what came of it, and return what was found."""
        found = +await self.search.compare()
        await self.publish()
        return dict(found)

    async def holds(self, stream: StreamName = StreamName.ROUTED) -> list[tuple[int, str]]:
        """Return place and text of all that a stream holds, in its order."""
        contents, found = StreamContents(self.bus.client), []
        look = await contents.look(stream)
        assert look is not None
        for sequence in range(look.mark.first_seq, look.mark.last_seq + 1):
            if message := await contents.find(stream, sequence):
                body = json.loads(message.body)
                found.append((body["seq"], body["text"]))
        return found

    async def lose(self, sequence: int, stream: StreamName = StreamName.ROUTED) -> None:
        await self.request(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})

    async def request(self, verb: str, body: dict[str, Any] | None = None) -> None:
        await JetStream(self.bus.client).request(verb, body)

    async def erase(self, *sequences: int, stream: StreamName = StreamName.ROUTED) -> None:
        """Delete messages as who forgets a person does: noted first."""
        jetstream = JetStream(self.bus.client)
        generation = (await jetstream.get_stream(stream)).generation
        for sequence in sequences:
            message = await jetstream.find_message(stream, sequence)
            assert message is not None
            rows = [ErasedRow(stream, sequence, message.stored_at)]
            async with self.kernel.store.transaction() as connection:
                await erasure_list_sql.note_messages(connection, rows)
                await erasure_list_sql.place_messages(connection, rows, generation)
            await self.lose(sequence, stream)
            async with self.kernel.store.transaction() as connection:
                await erasure_list_sql.messages_gone(connection, rows)

    def losses(self, kind: str, stream: StreamName = StreamName.ROUTED) -> float | None:
        labels = {"stream": stream, "kind": kind}
        return self.kernel.metrics.registry.get_sample_value("chatlane_stream_losses_total", labels)


@pytest.fixture
async def world(nats_url: str, database_url: str) -> AsyncIterator[World]:
    async with (
        open_bus(BusOptions(url=nats_url)) as bus,
        open_kernel(database_url, DECLARED) as kernel,
    ):
        await apply(JetStream(bus.client), STREAMS, DURABLES)
        yield World(bus, kernel)


async def test_where_nothing_is_lost_nothing_is_found(world: World) -> None:
    await world.ask("one", "two")
    for _ in range(3):
        assert await world.compare() == {}
        await world.ask("more")
    assert world.losses("holes") == 0
    assert len(await world.holds()) == 5


async def test_a_message_that_rotted_away_comes_again_with_its_id_and_place(world: World) -> None:
    await world.ask("one", "two", "three")
    assert await world.compare() == {}
    before = {body["text"]: body for body in world.kernel.relay.bodies("ROUTED")}
    await world.lose(2)

    assert await world.compare() == {"routed_lost": 1}

    assert world.losses("holes") == 1
    assert await world.holds() == [(1, "one"), (3, "three"), (2, "two")]
    again = world.kernel.relay.bodies("ROUTED")[-1]
    assert again == before["two"] | {"at": again["at"], "stored_at": again["stored_at"]}
    assert await world.compare() == {}


async def test_a_stream_that_was_made_anew_gets_what_is_not_answered(world: World) -> None:
    session_id = await world.ask("answered", "passed over")
    await world.ask("of another chat", chat="2")
    third = await world.kernel.say(
        event(chat="1", user="1", mid="x", text="answered, too", profile="desk"), datetime.now(UTC)
    )
    await world.publish()
    await world.answer(session_id, 1, 3)
    assert third.session == session_id
    await world.ask("not answered")
    assert await world.compare() == {}
    await world.request("STREAM.DELETE.ROUTED")
    await apply(JetStream(world.bus.client), STREAMS, DURABLES)

    assert await world.compare() == {"routed_lost": 2}

    assert world.losses("replaced") == 1
    assert sorted(text for _, text in await world.holds()) == ["not answered", "of another chat"]
    assert await world.compare() == {}


async def test_what_was_erased_is_no_loss_and_what_is_lost_beside_it_is(world: World) -> None:
    await world.ask("one", "two", "three", "four", "five")
    assert await world.compare() == {}
    await world.erase(3)
    assert await world.compare() == {}
    # The oldest ones go before their time.
    await world.erase(1, 2)
    assert await world.compare() == {}
    assert (world.losses("holes"), world.losses("cut_off")) == (0, 0)
    assert [text for _, text in await world.holds()] == ["four", "five"]
    await world.ask("six")
    assert await world.compare() == {}
    await world.lose(5)
    await world.compare()
    assert world.losses("holes") == 1


async def test_what_was_cut_off_is_reported_only(world: World) -> None:
    await world.ask("one", "two")
    assert await world.compare() == {}
    await world.request("STREAM.PURGE.ROUTED")
    assert await world.compare() == {}
    assert world.losses("cut_off") == 1
    assert await world.holds() == []
    assert await world.compare() == {}
    assert world.losses("cut_off") == 1


async def test_after_a_restart_the_end_of_the_stream_is_searched(world: World) -> None:
    """As when a power cut took what came since the mark, and more has come after it."""
    await world.ask("one")
    assert await world.compare() == {}
    await world.ask("two")
    await world.request("STREAM.DELETE.ROUTED")
    await apply(JetStream(world.bus.client), STREAMS, DURABLES)
    await world.ask("three")
    look = await StreamContents(world.bus.client).look(StreamName.ROUTED)
    assert look is not None
    await world.kernel.fetch(
        "UPDATE stream_marks SET generation = $1, last_seq = 0, first_seq = 1, host = 'before'"
        " WHERE stream = 'ROUTED'",
        look.mark.generation,
    )
    assert await world.compare() == {"routed_lost": 2}
    assert sorted(await world.holds()) == [(1, "one"), (2, "two"), (3, "three")]
    assert await world.compare() == {}


async def test_a_stream_that_was_always_empty_is_compared_after_a_restart(world: World) -> None:
    assert await world.compare() == {}
    await world.kernel.fetch("UPDATE stream_marks SET host = 'before' WHERE stream = 'ROUTED'")
    assert await world.compare() == {}
    await world.ask("one")
    assert await world.compare() == {}


async def test_what_may_be_on_its_way_is_left_for_later(world: World) -> None:
    await world.ask("one")
    assert await world.compare() == {}
    await world.lose(1)
    world.restart(patience=timedelta(hours=1))
    assert await world.compare() == {}
    assert world.losses("holes") == 0, "one message before it was deleted: nothing is left"
    world.restart()
    await world.ask("two", "three")
    assert await world.compare() == {}


async def test_what_waits_in_the_outbox_is_not_lost(world: World) -> None:
    await world.ask("one", "two", "three")
    assert await world.compare() == {}
    await world.lose(2)
    its = event(chat="1", user="1", mid="x", text="four", profile="desk")
    await world.kernel.say(its, datetime.now(UTC))
    assert (+await world.search.compare())["routed_lost"] == 2
    await world.publish()
    assert sorted(text for _, text in await world.holds()) == ["four", "one", "three", "two"]


async def test_what_was_set_aside_is_for_a_person_to_decide(world: World) -> None:
    await world.ask("one", "two", "three")
    assert await world.compare() == {}
    await world.lose(2)
    subject = world.kernel.relay.rows[0].subject
    await world.kernel.fetch(
        "INSERT INTO dead_letters (id, stage, reason, digest, size_bytes, subject)"
        " VALUES (gen_random_uuid(), 'outbox', 'oversized_outbound', 'x', 1, $1)",
        subject if ".routed." in subject else world.kernel.relay.rows[1].subject,
    )
    assert await world.compare() == {"routed_lost": 1}
    assert [text for _, text in await world.holds()] == ["one", "three"]


async def test_imported_rows_copies_and_turns_are_never_routed_again(world: World) -> None:
    await world.ask("of a turn", chat="7", profile=None)
    session_id = await world.ask("one", "two")
    for columns, values in (
        ("source, turn_id", "'{}', gen_random_uuid()"),
        ("source, role", "NULL, 'user'"),
        ("source, role", "'{}', 'system'"),
        ("source, state", "'{}', 'deleted'"),
    ):
        role = "" if "role" in columns else ", role"
        is_user = "" if "role" in columns else ", 'user'"
        await world.kernel.fetch(
            f"INSERT INTO messages (session_id, seq, id, created_at, {columns}{role})"  # noqa: S608
            f" SELECT $1, max(seq) + 1, $2, now(), {values}{is_user}"
            " FROM messages WHERE session_id = $1",
            session_id,
            UUID(int=(int(datetime.now(UTC).timestamp() * 1000) << 80) + uuid4().int % 2**62),
        )
    assert await world.compare() == {}
    await world.request("STREAM.DELETE.ROUTED")
    await apply(JetStream(world.bus.client), STREAMS, DURABLES)
    assert await world.compare() == {"routed_lost": 2}
    assert [text for _, text in await world.holds()] == ["one", "two"]


async def test_a_search_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_gap_repair, "_ROWS_AT_ONCE", 2)
    monkeypatch.setattr(stream_gap_repair, "_PIECES_AT_ONCE", 1)
    monkeypatch.setattr(stream_gap_repair, "_SESSIONS_AT_ONCE", 1)
    for chat in "12345":
        await world.ask(f"in {chat}", chat=chat)
    assert await world.compare() == {}
    await world.request("STREAM.DELETE.ROUTED")
    await apply(JetStream(world.bus.client), STREAMS, DURABLES)
    lost = [(await world.compare()).get("routed_lost", 0) for _ in range(7)]
    assert sum(lost) == 5
    assert max(lost) == 1
    assert sorted(text for _, text in await world.holds()) == [f"in {chat}" for chat in "12345"]
    assert await world.compare() == {}


async def test_a_stream_that_knows_more_than_the_database_is_reported(world: World) -> None:
    """As after the database was restored from a backup, or a standby that was behind."""
    session_id = await world.ask("one")
    assert await world.compare() == {}
    await world.ask("two")
    await world.kernel.fetch("DELETE FROM messages WHERE seq = 2")
    assert await world.compare() == {"stream_ahead": 1}
    await world.kernel.fetch(
        "INSERT INTO audit (action, session_id, detail) VALUES ('session_removed', $1, '{}')",
        session_id,
    )
    await world.ask("three")
    await world.kernel.fetch("DELETE FROM messages WHERE seq = 3")
    assert await world.compare() == {}


async def test_answers_that_no_decision_gave_are_reported(world: World) -> None:
    session_id = await world.ask("one")
    assert await world.compare() == {}
    await world.answer(session_id, 1)
    await world.kernel.fetch("UPDATE sessions SET next_out_seq = 1")
    assert await world.compare() == {"stream_ahead": 1}


async def test_answers_that_were_lost_are_noticed(world: World) -> None:
    session_id = await world.ask("one", "two", "three")
    await world.answer(session_id, 1, 2, 3)
    assert await world.compare() == {}
    await world.lose(2, StreamName.OUTBOUND)
    assert await world.compare() == {}
    assert world.losses("holes", StreamName.OUTBOUND) == 1
