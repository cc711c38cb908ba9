"""A person is forgotten while everything runs: nothing of theirs is left, and all else is."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chatlane_client import SessionApi
from chatlane_servers.embedded import NatsServer
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningPostgres, RunningServer
from tests.support.servers.databases import open_database
from tests.support.service.leftover_scan import on_disk, stored
from tests.support.service.person_world import ANN, BOB, MORE, World, open_world
from tests.support.service.processes import (
    ACCOUNT,
    PLATFORM,
    STREAM_AGENT,
    config_text,
    open_service,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]


@pytest.fixture
async def world(
    nats_server: RunningServer, database_url: str, tmp_path: Path
) -> AsyncIterator[World]:
    async with open_service(tmp_path, nats_server.url, database_url, more=MORE) as service:
        router = service.router("router-1")
        service.worker("worker-1")
        service.subscriber("subscriber-1")
        await service.until_started(router)
        async with open_world(service) as opened:
            yield opened


@pytest.mark.timeout(180)
async def test_nothing_of_a_person_is_left_and_all_of_others_is(
    world: World, nats_server: RunningServer
) -> None:
    theirs, others = [], []
    for profile in (None, STREAM_AGENT):
        for _ in range(2):
            theirs.append(await world.write(ANN, profile=profile))
            others.append(await world.write(BOB, profile=profile))
            theirs.append(await world.write(ANN, "room", profile=profile))
            await world.until_settled()
            others.append(await world.write(BOB, "room", profile=profile))
            await world.until_settled()
    # What was edited and taken back, what came too early, and what nobody may say.
    await world.write(ANN, message_id="m1")
    await world.until_settled()
    await world.write(ANN, message_id="m1", kind="edit", event_id="e1")
    await world.write(ANN, "room", message_id="m2")
    await world.until_settled()
    await world.write(ANN, "room", message_id="m2", kind="delete", event_id="e2")
    await world.write(ANN, message_id="never", kind="edit", event_id="e3")
    await world.write(ANN, profile="forbidden")
    others.append(await world.write(BOB, profile="forbidden"))
    await world.until_settled()
    api = SessionApi(world.client, principal="desk")
    session_id = await world.database.fetchval(
        "SELECT id FROM sessions WHERE owner = $1 LIMIT 1", f"{PLATFORM}:{ACCOUNT}:{ANN}"
    )
    await api.set_title(session_id, "canarytitleann")
    every = [*(one for one in world.written if one not in others), "canarytitleann"]
    names = [f"canaryname{ANN}", ANN]
    before = await world.found(*every, *names)
    assert {"database", "INBOUND", "ROUTED", "RESULTS", "OUTBOUND", "EVENTS"} <= before.keys()
    kept = await world.found(*others)

    told = await world.erase(ANN, "--overwrite")

    assert await world.found(*every, *names) == {}
    assert await world.found(*others) == kept
    if isinstance(nats_server, NatsServer):
        assert on_disk(nats_server.directory, [*every, *names]) == {}
    receipt = told["receipt"]
    assert receipt["dead_letters"]["deleted"] == 1
    assert receipt["sessions"]["deleted"] == 2
    assert receipt["messages"]["deleted"] > len(theirs)
    # What others see: rows in their places, that say nothing.
    rows = await world.database.fetch(
        "SELECT seq, role, content IS NULL AS is_blank FROM messages JOIN sessions"
        " ON sessions.id = session_id WHERE session_key LIKE '%:group:room%' ORDER BY session_id, seq"
    )
    assert any(row["is_blank"] for row in rows)
    assert any(not row["is_blank"] for row in rows)


# All of them together.
PER_SECOND = 40
PERSON = f"{PLATFORM}/{ACCOUNT}/{ANN}"
# What a router says when it takes an erasure for a loss.
ALARMS = ("log_messages_deleted", "stream_lost_messages", "log_truncated", "log_replaced")


@pytest.mark.timeout(180)
@pytest.mark.slow
async def test_who_writes_while_they_are_forgotten_begins_anew(world: World) -> None:
    places = ((ANN, None), (ANN, "room"), (BOB, None), (BOB, "room"))
    async with world.begin(PER_SECOND, *places):
        await eventually(lambda: len(world.written) > 60)
        told = await world.erase(ANN)
        count = len(world.written)
        await eventually(lambda: len(world.written) > count + 20)
    await world.until_settled()

    until = datetime.fromisoformat(told["until"])
    kept: set[str] = set()
    async for message in stored(world.service.nats_url):
        if message.stream == "INBOUND":
            body = message.data[message.data.index(b"{") :]
            kept.add(json.loads(body)["text"].removeprefix("I say "))
            assert ANN.encode() not in body or message.stored_at > until
    written = set(world.words_of(ANN))
    # Everybody else is heard as ever, and so is she: what she wrote since is in order and answered.
    assert set(world.words_of(BOB)) <= kept
    later = [word for word in world.words_of(ANN) if word in kept]
    assert 20 <= len(later) < len(written)
    found = await world.found(*(written - kept))
    assert found == {}
    texts = [
        row["content"].removeprefix("I say ")
        for row in await world.database.fetch(
            "SELECT content FROM messages WHERE role = 'user' AND content IS NOT NULL"
            " ORDER BY created_at, session_id, seq"
        )
    ]
    assert sorted(texts) == sorted([*later, *world.words_of(BOB)])
    starts = await world.database.fetch(
        "SELECT started_at FROM sessions WHERE owner = $1", f"{PLATFORM}:{ACCOUNT}:{ANN}"
    )
    assert all(row["started_at"] > until for row in starts)
    router = world.service.processes["router-1"]
    assert [name for name in ALARMS if router.events(name)] == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "stage", ["sessions of this person", "shared sessions", "outbox", "streams"]
)
@pytest.mark.slow
async def test_an_erasure_that_was_killed_goes_on(world: World, stage: str) -> None:
    for chat in (None, "room"):
        for profile in (None, STREAM_AGENT):
            await world.write(ANN, chat, profile=profile)
            await world.until_settled()
            await world.write(BOB, chat, profile=profile)
            await world.until_settled()
    theirs = world.words_of(ANN)
    kept = await world.found(*world.words_of(BOB))
    process = await world.start("people", "erase", PERSON, "--yes", "--json")
    assert process.stderr is not None
    while stage not in (await process.stderr.readline()).decode():
        assert not process.stderr.at_eof()
    process.kill()
    await process.wait()

    await world.erase(ANN)
    assert await world.found(*theirs, ANN) == {}
    assert await world.found(*world.words_of(BOB)) == kept
    unfinished = "SELECT count(*) FROM erasures WHERE finished_at IS NULL"
    assert await world.database.fetchval(unfinished) == 0


@pytest.mark.timeout(180)
@pytest.mark.slow
async def test_an_export_holds_all_that_an_erasure_would_delete(
    world: World, tmp_path: Path
) -> None:
    await world.write(ANN, message_id="m1", attachments=[{"media_type": "image/png", "key": "k1"}])
    await world.write(ANN, "room")
    await world.until_settled()
    await world.write(BOB, "room")
    await world.write(ANN, message_id="m1", kind="edit", event_id="e1")
    await world.write(ANN, profile="forbidden")
    await world.until_settled()
    path = tmp_path / "ann.jsonl"
    code, _, err = await world.run("people", "export", PERSON, "-o", str(path))
    assert (code, err) == (0, "")
    assert path.stat().st_mode & 0o077 == 0
    text = path.read_text("utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    assert records[0]["ids"] == [ANN]
    assert records[-1] == {"record": "end", "records": len(records) - 1}
    kinds = {one["record"] for one in records}
    assert kinds >= {"lane", "session", "row", "revision", "dead_letter", "event"}
    assert all(word in text for word in world.words_of(ANN))
    assert not any(word in text for word in world.words_of(BOB))
    answers = [one for one in records if one["record"] == "row" and not one["is_theirs"]]
    assert len(answers) == 2
    assert "k1" in text

    await world.erase(ANN)
    code, out, _ = await world.run("people", "export", PERSON)
    assert code == 0
    assert [json.loads(line)["record"] for line in out.splitlines()] == ["person", "end"]


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_restored_database_forgets_again_and_an_old_message_stays_away(
    world: World, postgres_server: RunningPostgres, tmp_path: Path
) -> None:
    sent_at = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    for chat in (None, "room"):
        await world.write(ANN, chat, message_id=f"old-{chat}", sent_at=sent_at)
        await world.until_settled()
        await world.write(BOB, chat)
        await world.until_settled()
    kept = (await world.found(*world.words_of(BOB)))["database"]
    await world.service.stop()
    await world.database.close()
    name = urlsplit(world.service.dsn).path.removeprefix("/")
    async with open_database(postgres_server.url, name) as backup:
        await world.erase(ANN)
        listed = tmp_path / "erasures.jsonl"
        assert (await world.run("people", "erasure-list", "-o", str(listed)))[0] == 0
        assert ANN not in listed.read_text("utf-8")

        dsn = postgres_server.dsn(backup)
        restored = tmp_path / "restored.toml"
        restored.write_text(config_text(world.service.nats_url, dsn, more=MORE), "utf-8")
        assert (await world.found(*world.words_of(ANN), dsn=dsn)).keys() == {"database"}
        code, out, err = await world.run(
            "people", "replay-erasures", str(listed), "--json", config=restored
        )
        assert code == 0, err
        assert "found and erased 1 people of the list" in err
        assert json.loads(out)["receipt"]["sessions"]["deleted"] == 1
        assert await world.found(*world.words_of(ANN), ANN, dsn=dsn) == {}
        assert (await world.found(*world.words_of(BOB), dsn=dsn))["database"] == kept

        # An adapter that was away brings the message once more, under another id.
        again = await world.write(ANN, message_id="old-None", sent_at=sent_at)
        world.service.config.write_text(restored.read_text("utf-8"), "utf-8")
        router = world.service.router("router-2")
        await world.service.until_started(router)

        async def is_gone() -> bool:
            return await world.found(again, ANN, dsn=dsn) == {}

        await eventually(is_gone, timedelta(seconds=30))
        assert [name for name in ALARMS if router.events(name)] == []


@pytest.mark.timeout(180)
@pytest.mark.slow
async def test_a_worker_that_answers_late_answers_nobody(
    nats_server: RunningServer, database_url: str, tmp_path: Path
) -> None:
    """The turn runs while its session is deleted; what it says is kept nowhere."""
    async with open_service(tmp_path, nats_server.url, database_url, more=MORE) as service:
        await service.until_started(service.router("router-1"))
        service.worker("worker-1", think=timedelta(seconds=8))
        async with open_world(service) as world:
            word = await world.write(ANN)
            claimed = "SELECT count(*) FROM turns WHERE state = 'claimed'"

            async def is_claimed() -> bool:
                return bool(await world.database.fetchval(claimed))

            await eventually(is_claimed, timedelta(seconds=30))
            await world.erase(ANN)
            others = await world.write(BOB)
            await world.until_settled()
            assert await world.found(word, ANN) == {}
            assert "OUTBOUND" in await world.found(others)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_routers_without_the_key_keep_an_erasure_waiting(
    nats_server: RunningServer, database_url: str, tmp_path: Path
) -> None:
    async with open_service(tmp_path, nats_server.url, database_url) as service:
        await service.until_started(service.router("router-1"))
        keyed = tmp_path / "keyed.toml"
        keyed.write_text(config_text(nats_server.url, database_url, more=MORE), "utf-8")
        async with open_world(service) as world:
            erase = ("people", "erase", PERSON, "--yes", "--patience", "2s")
            code, _, err = await world.run(*erase)
            assert (code, "erasure.key is missing" in err) == (1, True)
            code, _, err = await world.run(*erase, config=keyed)
            assert code == 1
            assert "1 running routers do not check the erasure list" in err
            await service.stop()

            async def is_dead() -> bool:
                alive = "SELECT count(*) FROM routers WHERE seen_until > clock_timestamp()"
                return bool(await world.database.fetchval(alive) == 0)

            await eventually(is_dead, timedelta(seconds=30))
            assert (await world.run(*erase, config=keyed))[0] == 0
            # From now on nobody may route without it.
            code, _, err = await world.run("router")
            assert code == 1
            assert "set it to the secret that was in use" in err
