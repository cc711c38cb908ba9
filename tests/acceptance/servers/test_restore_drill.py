"""The recipe of docs/operations.md: backups taken while people write, restored to other moments.

What was acknowledged and is in one of the stores is neither lost nor done twice; what cannot come
back is what only the lost part of both had, and that is counted to the message.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from chatlane_devkit.judge.history import History, LogEntry, Sent
from chatlane_devkit.judge.verdict import Run, judge
from tests.acceptance.conftest import ReportLine
from tests.support.backups.restore_drill import PATIENCE, Drill, open_drill
from tests.support.eventually import eventually
from tests.support.service.load_users import Person, people
from tests.support.service.person_world import ANN, MORE, World

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.timeout(240),
    pytest.mark.slow,
]

PER_SECOND: Final = 25
# Of each agent, before and after a backup.
ANSWERS: Final = 25
# What people write while no router runs.
UNREAD: Final = 30


@pytest.fixture
async def drill(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Drill]:
    keeps_log = getattr(request, "param", "dump") == "base backup and log"
    async with open_drill(tmp_path, people(12), keeps_log=keeps_log) as its:
        yield its


@pytest.mark.parametrize(
    "drill", ["dump", pytest.param("base backup and log", marks=pytest.mark.long)], indirect=True
)
async def test_a_database_older_than_the_streams_decides_again_what_they_have(
    drill: Drill, report_line: ReportLine
) -> None:
    await drill.start()
    async with drill.users.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
        await drill.back_up_database()
        at_backup = len(drill.users.sent)
        await drill.scene.until_answers_flow(ANSWERS)
        await drill.stop()
        since = len(drill.users.sent)
        await eventually(lambda: len(drill.users.sent) >= since + UNREAD, PATIENCE)
    await drill.restore_database()
    await drill.widen_window()
    answered = await _answers(drill)
    async with drill.users.talking(PER_SECOND):
        await drill.catch_up()
        await drill.scene.until_answers_flow(ANSWERS)
    history = await drill.history()
    found = _found(history)
    assert not found, "\n".join(found)
    assert await drill.scene.recorder.records.late() == frozenset()
    # What had been answered was not asked again: whoever answered it then is in the database now.
    kept = {row[0] for row in await drill.scene.recorder.fetch("SELECT result_id FROM turns")}
    assert answered <= kept
    recalled = len(drill.scene.process("router 1").events("claim_recalled"))
    assert recalled > 0
    report_line(
        f"{since - at_backup} of {len(drill.users.sent)} messages decided twice, "
        f"{recalled} forgotten claims recalled, nothing lost or repeated"
    )


async def test_streams_older_than_the_database_lose_what_nobody_had_decided(
    drill: Drill, report_line: ReportLine
) -> None:
    await _begin(drill, drill.back_up_streams)
    decided = len(drill.users.sent)
    await drill.stop()
    async with drill.users.talking(PER_SECOND):
        await eventually(lambda: len(drill.users.sent) >= decided + UNREAD, PATIENCE)
    lost = drill.users.forget(decided)
    await drill.restore_streams()
    await drill.widen_window()
    await drill.catch_up()
    async with drill.users.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
    await drill.scene.process("router 1").until_logged("log_replaced")
    history = await drill.history()
    # The end of each stream went; what had been decided before is known all the same.
    gone = {its.envelope_id for its in drill.users.sent} - set(history.stored_ids)
    assert gone <= {its.envelope_id for its in drill.users.sent[:decided]}
    found = _found(_whole(history, drill.users.sent, gone))
    assert not found, "\n".join(found)
    assert not _messages(history) & {its.message_id for its in lost}
    report_line(
        f"{len(gone)} messages gone from the log and known, {len(lost)} that only its lost part "
        f"had, of {len(drill.users.sent) + len(lost)}"
    )


async def test_both_older_at_different_moments_lose_what_neither_has(
    drill: Drill, report_line: ReportLine
) -> None:
    await _begin(drill, drill.back_up_database)
    await drill.back_up_streams()
    kept = len(drill.users.sent)
    answered = await _answers(drill)
    async with drill.users.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
    await drill.settle()
    await drill.stop()
    lost = drill.users.forget(kept)
    await drill.restore_database()
    await drill.restore_streams()
    await drill.widen_window()
    # Whoever remembers numbers of the lost part would take new answers for repeats.
    drill.users.stop_adapter()
    drill.users.restart_adapter()
    async with drill.users.listening():
        await drill.catch_up()
        async with drill.users.talking(PER_SECOND):
            await drill.scene.until_answers_flow(ANSWERS)
        history = await drill.history()
    texts = {its.text for its in lost}
    remembered = [its for its in history.received if not texts & set(its.heard)]
    found = _found(replace(history, received=remembered))
    assert not found, "\n".join(found)
    assert not _messages(history) & {its.message_id for its in lost}
    results = {row[0] for row in await drill.scene.recorder.fetch("SELECT result_id FROM turns")}
    assert answered <= results
    report_line(
        f"{len(lost)} of {len(drill.users.sent) + len(lost)} messages were in neither backup"
    )


@pytest.mark.long
async def test_who_was_erased_since_the_backup_stays_erased(
    tmp_path: Path, report_line: ReportLine
) -> None:
    ann = Person(ANN)
    async with open_drill(tmp_path, [ann, *people(12)], more=MORE) as drill:
        await drill.start()
        async with drill.users.talking(PER_SECOND):
            await drill.scene.until_answers_flow(ANSWERS)
            await drill.back_up_database()
            await drill.scene.until_answers_flow(ANSWERS)
        await drill.settle()
        connection = await asyncpg.connect(drill.scene.service.dsn)
        world = World(drill.scene.service, drill.scene.client, connection)
        listed = tmp_path / "erasures.jsonl"
        await world.erase(ANN)
        assert (await world.run("people", "erasure-list", "-o", str(listed)))[0] == 0
        await connection.close()
        drill.users.release(ann)
        await drill.stop()
        await drill.restore_database()
        assert (await world.found(ANN)).keys() == {"database"}
        code, _, said = await world.run("people", "replay-erasures", str(listed))
        assert code == 0, said
        assert "found and erased 1 people of the list" in said
        assert await world.found(ANN) == {}
        await drill.widen_window()
        async with drill.users.talking(PER_SECOND):
            await drill.catch_up()
            await drill.scene.until_answers_flow(ANSWERS)
        history = await drill.history()
        found = _found(history)
        assert not found, "\n".join(found)
        assert await world.found(ANN) == {}
        # What is missing in the logs is known to have been erased.
        router = drill.scene.process("router 1")
        assert [
            name for name in ("log_truncated", "log_messages_deleted") if router.events(name)
        ] == []
        report_line(
            f"nothing of one person is back, of {len(drill.users.sent)} messages of others all is"
        )


async def _begin(drill: Drill, back_up: Callable[[], Awaitable[None]]) -> None:
    """Take a backup while people write, and let everything from before and after it be answered."""
    await drill.start()
    async with drill.users.talking(PER_SECOND):
        await drill.scene.until_answers_flow(ANSWERS)
        await back_up()
        await drill.scene.until_answers_flow(ANSWERS)
    await drill.settle()


def _whole(history: History, sent: Iterable[Sent], gone: Collection[str]) -> History:
    """Return a history with the ends of the streams that were lost after they had done their work."""
    there = {*history.stored_ids, *gone}
    # As they were acknowledged, which is their order within each chat.
    whole = [its.envelope_id for its in sent if its.envelope_id in there]
    return replace(
        history, log=list(map(LogEntry, whole)), routed=(), outbound=(), results=(), started=()
    )


def _found(history: History) -> list[str]:
    """Return what is wrong, with the messages to stream agents under the numbers they have now.

    In which places answers stand among what was written meanwhile is decided anew with a restored
    database. What was routed keeps its id and its order, and may have been sent with another number.
    """
    numbers = {row.id: row.seq for row in history.rows if row.role == "user"}
    routed = [replace(it, number=numbers.get(it.id, it.number)) for it in history.routed]
    found = judge(Run(replace(history, routed=routed))).problems
    # Where a stream lost its end, what was on it is not asked of it.
    return [line for line in found if history.routed or "was never published" not in line]


def _messages(history: History) -> set[str]:
    return {row.message_id for row in history.rows}


async def _answers(drill: Drill) -> set[str]:
    """Return the ids of the results of turns in their log."""
    history = await drill.scene.recorder.history(drill.users)
    return {its.id for its in history.results}
