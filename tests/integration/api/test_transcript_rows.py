"""What a row of a transcript says about its author and about a turn that failed."""

import pytest

from chatlane.domain.catalog import Agent
from chatlane.store.history import messages
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from tests.support.worlds.kernel import Kernel, Placed, catalog, event, open_kernel

pytestmark = pytest.mark.integration


async def rows_of(kernel: Kernel, placed: Placed) -> list[TranscriptEntry]:
    reads = TranscriptReads(kernel.store, kernel.catalog)
    found = await reads.rows(placed.session, below_seq=MAX_INT64, limit=10, max_bytes=100_000)
    return list(found.rows[::-1])


@pytest.mark.parametrize("name", ["Ann", "[Boss] yes", "Zoë 🍕"])
async def test_a_row_has_the_name_of_its_author(kernel: Kernel, name: str) -> None:
    sender = {"id": "701", "name": name}
    placed = await kernel.say(event(chat="701", sender=sender, mid="1", text="hi"))
    await kernel.run_turn(placed.session)
    assert [row.author_name for row in await rows_of(kernel, placed)] == [name, None]


@pytest.mark.parametrize("error", ["the model refused", "quota", "ValueError"])
async def test_a_message_says_why_its_turn_failed_for_good(kernel: Kernel, error: str) -> None:
    """R10.3, V15: the row of the person has the reason."""
    placed = await kernel.say(event(chat="701", user="701", mid="1", text="hi"))
    claimed = await kernel.claim_live(placed.session)
    await kernel.answer(claimed, outcome="failed", retry=True, error="try again")
    assert [row.error for row in await rows_of(kernel, placed)] == [None]
    again = await kernel.claim_live(placed.session)
    await kernel.answer(again, outcome="failed", error=error)
    assert [row.error for row in await rows_of(kernel, placed)] == [error]


async def test_a_routed_message_says_that_no_worker_answered_it(database_url: str) -> None:
    stream = catalog(agents=[Agent("desk", delivery="stream")], profiles={"main": "desk"})
    async with open_kernel(database_url, stream) as kernel:
        placed = await kernel.say(event(chat="701", user="701", mid="1", text="hi"))
        [routed] = await rows_of(kernel, placed)
        assert (routed.error, routed.unanswered) == (None, None)
        assert routed.message_id is not None
        async with kernel.store.transaction() as connection:
            await messages.give_up(connection, [routed.message_id])
        [given_up] = await rows_of(kernel, placed)
        assert (given_up.error, given_up.unanswered) == ("no worker answered it", "failed")
