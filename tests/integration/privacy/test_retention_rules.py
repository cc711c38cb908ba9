"""Every table and column is classified, and the manual says the same of the ages of tables."""

import re
from pathlib import Path
from typing import Final, get_args

import asyncpg
import pytest

from chatlane.config.setting_groups import DeadLetterSettings, RetentionSettings, StreamsSettings
from chatlane.privacy import export_records
from chatlane_schemas.topology.streams import StreamName, declared_streams
from tests.support.data_classification import TABLES, Erasure

pytestmark = pytest.mark.integration

MANUAL: Final = (Path(__file__).parents[3] / "docs/data-retention.md").read_text("utf-8")
ROW: Final = re.compile(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


COLUMNS_SQL: Final = """
SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
  AND attnum > 0 AND NOT attisdropped
"""


async def test_every_column_of_the_schema_is_classified(own_database_url: str) -> None:
    connection = await asyncpg.connect(own_database_url)
    try:
        found = {tuple(row) for row in await connection.fetch(COLUMNS_SQL)}
    finally:
        await connection.close()
    classified = [
        (name, column)
        for name, table in TABLES.items()
        for column in (*table.personal, *table.technical)
    ]
    assert found - set(classified) == set(), "classify these in tests.support.data_classification"
    assert set(classified) - found == set(), "these columns do not exist"
    assert len(classified) == len(set(classified))


def test_what_is_kept_or_not_exported_has_a_reason() -> None:
    for table in TABLES.values():
        assert table.kept
        for column in table.personal.values():
            is_kept = column.erasure is Erasure.KEPT
            assert bool(column.reason) == (is_kept or not column.exported)


def test_every_export_field_that_a_column_names_exists() -> None:
    records = {
        record.model_fields["record"].default: record.model_fields.keys()
        for record in get_args(export_records.ExportRecord)
    }
    named = {its.exported for table in TABLES.values() for its in table.personal.values()} - {""}
    assert [
        one for one in named if one.partition(".")[2] not in records[one.partition(".")[0]]
    ] == []


def test_the_manual_says_what_the_rules_say() -> None:
    assert {name: (kept, by) for name, kept, by in ROW.findall(MANUAL)} == {
        name: (table.kept, table.by) for name, table in TABLES.items() if table.by
    }
    unbounded = MANUAL.partition("Without an age:")[2].partition("\n\n")[0]
    without = {name for name, table in TABLES.items() if not table.by}
    assert set(re.findall(r"`(\w+)`", unbounded)) == without


def test_every_stream_is_in_the_manual_with_its_age() -> None:
    told = MANUAL.partition("| stream | holds | kept |")[2].partition("\n\n")[0]
    for stream in declared_streams():
        (line,) = (line for line in told.splitlines() if stream.name in re.findall(r"\w+", line))
        if stream.is_read_by_subject:
            assert "until the adapter saves the next one" in line
            continue
        if stream.max_age is None:
            assert "`streams.replay_window` (72 h)" in line
            continue
        seconds = stream.max_age.total_seconds()
        spans = (f"{seconds:g} s", f"{seconds / 3600:g} h", f"{seconds / 86400:g} d")
        assert any(f" {span} |" in line for span in spans)
    assert len(told.strip().splitlines()) == len(StreamName)


def test_settings_that_rules_name_exist_with_these_defaults() -> None:
    groups = {
        "retention": RetentionSettings(),
        "dead_letters": DeadLetterSettings(),
        "streams": StreamsSettings(),
    }
    for table in TABLES.values():
        for group, name, days in re.findall(r"`(\w+)\.(\w+)`(?: \((\d+) d\))?", table.kept):
            value = getattr(groups[group], name)
            if group != "streams":
                assert (value.days if value else None) == (int(days) if days else None)
