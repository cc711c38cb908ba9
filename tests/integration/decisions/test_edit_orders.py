"""Edits, deletes, originals and repeats in any order and in any batches end as the rule says."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.worlds.edit_model import EVENTS, Rule, Said
from tests.support.worlds.kernel import Kernel, at

pytestmark = pytest.mark.integration

CLAIM = "claim"
# Batches, with turns that are run in between.
STORIES = st.lists(
    st.one_of(st.just(CLAIM), st.lists(EVENTS, min_size=1, max_size=5)), min_size=1, max_size=6
)


async def forget(kernel: Kernel) -> None:
    for statement in (
        "DELETE FROM sessions",
        "DELETE FROM lanes",
        "DELETE FROM waiting",
        "DELETE FROM messages",
        "DELETE FROM message_revisions",
        "DELETE FROM turns",
        "DELETE FROM seen",
        "DELETE FROM early_edits",
    ):
        await kernel.fetch(statement)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(story=STORIES)
async def test_the_end_is_that_of_the_rule(kernel: Kernel, story: list[str | list[Said]]) -> None:
    await forget(kernel)
    rule = Rule()
    for chapter in story:
        if isinstance(chapter, str):
            await kernel.run_all()
            rule.claim()
            continue
        await kernel.decide_in_the_end(
            [kernel.logged(said.event(), at("09:00")) for said in chapter]
        )
        for said in chapter:
            rule.hear(said)
    written = await kernel.fetch(
        "SELECT content FROM messages WHERE role = 'user' ORDER BY session_id, seq"
    )
    waiting = await kernel.fetch("SELECT content FROM waiting ORDER BY arrival")
    revisions = await kernel.fetch("SELECT content FROM message_revisions ORDER BY content")
    assert [row[0] for row in written] == rule.standing(written=True)
    assert [row[0] for row in waiting] == rule.standing(written=False)
    assert [row[0] for row in revisions] == rule.revisions
    assert await kernel.dead() == []
    assert await kernel.value("SELECT count(*) FROM sessions") == bool(rule.order)
