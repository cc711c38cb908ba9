"""The rights of the database's roles are what the statements of the service need, and no more."""

from pathlib import Path

import pytest

from chatlane.postgres.grants import Right, Roles, rights, script
from tests.support.service.previous_release import HistoryMissingError, unpack
from tests.support.statements import (
    Declared,
    Need,
    calls_with_sql,
    declared,
    needs,
    queries,
    queries_of_previous,
    queries_of_routers,
)

# What deletes because of age: routers do it, and so may a job of the retention role.
RETENTION = {
    "api_requests.PRUNE_SQL",
    "dead_letters.EXPIRE_DEAD_LETTERS_SQL",
    "dead_letters.EXPIRE_LATE_SQL",
    "migrations.APPLIED_VERSIONS_SQL",
    "edits.EXPIRE_EARLY_SQL",
    "dedupe_marks.DROP_SEEN_DAY_SQL",
}
# What `chatlane people` and `chatlane admin retain` run: whole modules, and some of others.
PEOPLE = (
    "aliases.",
    "identities.",
    "catalogue_sql.",
    "erase_sql.",
    "person_rows_sql.",
    "erasure_list_sql.",
    "erasure_requests_sql.TAKE_SQL",
    "erasure_requests_sql.FAIL_SQL",
    "erasure_requests_sql.FINISH_SQL",
    "export_sql.",
    "retention_sql.",
    "removals.REMOVE_SQL",
    "audit.",
)
RETENTION |= {
    "sessions.LOCK_SESSIONS_SQL",
    "sessions.LOCK_FREE_SESSIONS_SQL",
    "turns.LOCK_TURNS_SQL",
    "index_sql.BEGIN_SQL",
    "index_sql.WAIT_SQL",
    "index_sql.FORGET_EACH_SQL",
    "index_sql.LOCK_PROGRESS_SQL",
    "index_sql.FORGET_SESSIONS_SQL",
    *(
        name
        for name in queries()
        if name.startswith(PEOPLE) and name != "erasure_list_sql.HEED_SQL"
    ),
}

# SQL that is handed on under other names than the constants', or needs no right at all.
REVIEWED = {
    ("importer/hermes_files.py", "query"),  # of another system's file
    ("importer/hermes_files.py", "'SELECT count(*) FROM sqlite_master'"),
    ("store/dead_letters.py", "query"),  # one of two constants
    ("store/keyed_rows.py", "query"),  # one of its constants
    ("privacy/person_rows_sql.py", "edge_sql"),  # constants of a list
    ("privacy/person_rows_sql.py", "found_sql"),
    ("privacy/erasure_list_sql.py", "query"),  # one of two constants
    ("postgres/grants.py", "statements(roles)"),  # the owner's
    ("postgres/migrations.py", "\"SELECT to_regclass('schema_migrations') IS NOT NULL\""),
    ("store/logs/partitions.py", "query"),  # a constant of its caller
    ("postgres/pool.py", "self._begin"),
    ("postgres/pool.py", "'COMMIT'"),
    ("postgres/pool.py", "'ROLLBACK'"),
    ("search/search_sql.py", "'SET LOCAL max_parallel_workers_per_gather = 0'"),
}

# Columns that hold what people wrote, that name them, or that prove who somebody is.
TELLING = {
    "alias",
    "attachments",
    "author",
    "body",
    "canonical",
    "carry_over",
    "claim_id",
    "config",
    "content",
    "cwd",
    "details",
    "digest",
    "error",
    "key",
    "model_override",
    "opening_note",
    "owner",
    "partner",
    "payload",
    "platform_message_id",
    "reply",
    "result_id",
    "session_key",
    "source",
    "subject",
    "terms",
    "title",
    "title_scope",
    "token",
}


@pytest.fixture(scope="module")
def schema() -> Declared:
    return declared()


def given(role: str) -> set[Need]:
    """Return the rights of a role, but those to get to the tables at all."""
    return {
        Need(right.object, right.verb)
        for right in rights()
        if right.role == role and right.object not in {"DATABASE", "SCHEMA"}
    }


def needed(statements: dict[str, str], schema: Declared) -> set[Need]:
    return {need for sql in statements.values() for need in needs(sql, schema)}


def test_routers_have_every_right_that_their_statements_need(schema: Declared) -> None:
    statements = queries_of_routers()
    assert sorted(needed(statements, schema) - given("application")) == []


def test_routers_have_no_right_that_no_statement_needs(schema: Declared, tmp_path: Path) -> None:
    """While they are replaced, those of the release before run with the same rights."""
    statements = queries_of_routers()
    try:
        before = queries_of_previous(unpack(tmp_path / "previous").directory)
    except HistoryMissingError as missing:
        pytest.skip(str(missing))
    wanted = needed(statements, schema) | needed(before, schema)
    assert sorted(given("application") - wanted) == []


def test_retention_has_the_rights_that_its_statements_need(schema: Declared) -> None:
    statements = queries()
    wanted = needed({name: statements[name] for name in RETENTION}, schema)
    assert sorted(given("retention") ^ wanted) == []


def test_all_sql_that_is_run_is_among_the_statements() -> None:
    names = {name.rpartition(".")[2] for name in queries()}
    unknown = {
        (path, argument)
        for path, argument in calls_with_sql()
        if argument.rpartition(".")[2] not in names
        or not (path.startswith(("store/", "postgres/")) or path.endswith("_sql.py"))
    }
    assert unknown == REVIEWED


def test_readers_see_no_content_nobody_s_name_and_no_secret() -> None:
    read = [right for right in rights() if right.role == "reader"]
    assert {right.verb for right in read} == {"SELECT", "CONNECT", "USAGE"}
    assert [right for right in read if set(right.columns) & TELLING] == []
    whole = {right.object for right in read if right.verb == "SELECT" and not right.columns}
    assert whole == {
        "agent_pauses",
        "dead_letter_shares",
        "log_marks",
        "log_trims",
        "partitions",
        "reconciliation",
        "routers",
        "schema_migrations",
        "stream_marks",
    }


def test_no_router_can_take_back_what_was_noted_of_operators() -> None:
    assert {need.verb for need in given("application") if need.object == "audit"} == {
        "INSERT",
        "SELECT",
    }


def test_every_role_gets_to_the_tables_and_only_there() -> None:
    ways = [right for right in rights() if right.object in {"DATABASE", "SCHEMA"}]
    assert sorted(ways) == sorted(
        Right(role, its_object, verb)
        for role in ("application", "reader", "retention")
        for its_object, verb in (("DATABASE", "CONNECT"), ("SCHEMA", "USAGE"))
    )


def test_the_file_says_nothing_twice() -> None:
    said = [right[:3] for right in rights()]
    assert len(said) == len(set(said))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1 FROM lanes", {("lanes", "SELECT")}),
        ("INSERT INTO audit (action) VALUES ($1)", {("audit", "INSERT")}),
        (
            "INSERT INTO audit (action) VALUES ($1) RETURNING id",
            {("audit", "INSERT"), ("audit", "SELECT")},
        ),
        ("INSERT INTO seen (digest) VALUES ($1) ON CONFLICT DO NOTHING", {("seen", "INSERT")}),
        (
            "INSERT INTO admission (key) VALUES ($1) ON CONFLICT (key) DO UPDATE SET key = $1",
            {("admission", "INSERT"), ("admission", "SELECT"), ("admission", "UPDATE")},
        ),
        ("UPDATE lanes SET session_id = $1", {("lanes", "UPDATE")}),
        ("DELETE FROM lanes WHERE session_id = $1", {("lanes", "DELETE"), ("lanes", "SELECT")}),
        (
            "SELECT 1 FROM lanes JOIN sessions AS its ON true FOR NO KEY UPDATE OF its",
            {("lanes", "SELECT"), ("sessions", "SELECT"), ("sessions", "UPDATE")},
        ),
        (
            "WITH gone AS (DELETE FROM waiting RETURNING 1) SELECT * FROM gone",
            {("waiting", "DELETE"), ("waiting", "SELECT")},
        ),
        ("SELECT nextval('searchable_id_seq')", {("SEQUENCE searchable_id_seq", "USAGE")}),
        ("SELECT drop_seen_day($1)", {("FUNCTION drop_seen_day", "EXECUTE")}),
    ],
)
def test_needs_are_read_from_the_text(
    schema: Declared, sql: str, expected: set[tuple[str, str]]
) -> None:
    assert needs(sql, schema) == expected


def test_a_statement_of_an_unknown_kind_is_not_passed_over(schema: Declared) -> None:
    with pytest.raises(AssertionError, match="what right does it need"):
        needs("LOCK TABLE lanes", schema)
    with pytest.raises(AssertionError, match="has the name of a table"):
        needs("WITH lanes AS (SELECT 1) SELECT * FROM lanes", schema)


def test_names_of_roles_are_quoted() -> None:
    text = script(Roles('A "b" \'c', "d", "e"))
    assert 'TO "A ""b"" \'c"' in text
    assert "ARRAY['A \"b\" ''c', 'd', 'e']" in text


@pytest.mark.parametrize("name", ["", "a" * 64, "pg_read_all_data", "public", "chatlane_reader"])
def test_names_that_cannot_be_used_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"role|name"):
        Roles(application=name)
