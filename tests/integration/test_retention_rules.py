"""Every table has an age, or a reason for having none; and the manual says the same."""

import re
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from chatlane.domain.retention import RULES, UNBOUNDED
from chatlane.settings import DeadLetterSettings, RetentionSettings, StreamsSettings
from chatlane_schemas.streams import StreamName, declared_streams

pytestmark = pytest.mark.integration

MANUAL: Final = (Path(__file__).parents[2] / "docs/data-retention.md").read_text("utf-8")
ROW: Final = re.compile(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


async def test_every_table_of_the_schema_has_a_rule_or_a_reason(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        found = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
        )
    finally:
        await connection.close()
    tables = {row["relname"] for row in found}
    assert RULES.keys() | UNBOUNDED.keys() == tables
    assert RULES.keys() & UNBOUNDED.keys() == set()
    assert all(UNBOUNDED.values())


def test_the_manual_says_what_the_rules_say() -> None:
    assert {name: (kept, by) for name, kept, by in ROW.findall(MANUAL)} == {
        name: (rule.kept, rule.by) for name, rule in RULES.items()
    }
    unbounded = MANUAL.partition("Without an age:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", unbounded)) == UNBOUNDED.keys()


def test_every_stream_is_in_the_manual_with_its_age() -> None:
    told = MANUAL.partition("| stream | holds | kept |")[2].partition("\n\n")[0]
    for stream in declared_streams():
        (line,) = (line for line in told.splitlines() if stream.name in re.findall(r"\w+", line))
        if stream.max_age is None:
            assert "`streams.replay_window` (72 h)" in line
            continue
        hours = stream.max_age.total_seconds() / 3600
        assert f" {hours:g} h |" in line or f" {hours / 24:g} d |" in line
    assert len(told.strip().splitlines()) == len(StreamName)


def test_settings_that_rules_name_exist_with_these_defaults() -> None:
    groups = {
        "retention": RetentionSettings(),
        "dead_letters": DeadLetterSettings(),
        "streams": StreamsSettings(),
    }
    for rule in RULES.values():
        for group, name, days in re.findall(r"`(\w+)\.(\w+)`(?: \((\d+) d\))?", rule.kept):
            value = getattr(groups[group], name)
            if group != "streams":
                assert (value.days if value else None) == (int(days) if days else None)
