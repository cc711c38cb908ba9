"""Who may do what in a real database: each role, each object, each verb, tried."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg
import pytest

from chatlane.postgres.grants import Right, Roles, differences, rights, script
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import login_of, open_database, with_login
from tests.support.statements import declared, needs, queries_of_routers

pytestmark = pytest.mark.integration

ROLES = Roles()
ROLE_NAMES = ("application", "retention", "reader")
# Somebody who may log in, and is a member of nothing.
NOBODY = "chatlane_nobody"
NOBODY_LOGIN = "chatlane_nobody_login"

TABLE_VERBS = (
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "REFERENCES",
    "TRIGGER",
    "MAINTAIN",
)
COLUMN_VERBS = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
SEQUENCE_VERBS = ("SELECT", "USAGE", "UPDATE")
SCHEMA_VERBS = ("USAGE", "CREATE")
DATABASE_VERBS = ("CONNECT", "CREATE", "TEMPORARY")

Allowed = set[tuple[str, str, str]]


@dataclass(frozen=True)
class Objects:
    """What there is in the database.

    Attributes:
        tables: With their columns; the days of `seen` are among them.
        functions: By name, as Postgres writes them with their arguments.
        generated: Columns that nobody can write.
    """

    tables: dict[str, list[str]] = field(default_factory=dict)
    sequences: list[str] = field(default_factory=list)
    functions: dict[str, str] = field(default_factory=dict)
    generated: set[tuple[str, str]] = field(default_factory=set)


@pytest.fixture(scope="module")
async def database(postgres_server: RunningPostgres, template_database: str) -> AsyncIterator[str]:
    """Where a database is whose owner has given all rights."""
    async with open_database(postgres_server.url, template_database) as name:
        dsn = postgres_server.dsn(name)
        for role in (*ROLES.names(), NOBODY):
            await login_of(dsn, role)
        async with connected(dsn) as owner:
            await owner.execute("SELECT create_seen_days(current_date, current_date + 1)")
            await owner.execute(script(ROLES))
        yield dsn


@pytest.fixture(scope="module")
async def owner(database: str) -> AsyncIterator[asyncpg.Connection]:
    async with connected(database) as connection:
        yield connection


@pytest.fixture(scope="module")
async def objects(owner: asyncpg.Connection) -> Objects:
    found = Objects()
    for name, kind in await owner.fetch(
        "SELECT relname, relkind::text FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')"
        " AND relnamespace = 'public'::regnamespace"
    ):
        if kind == "S":
            found.sequences.append(name)
        else:
            found.tables[name] = []
    for table, column, generated in await owner.fetch(
        "SELECT table_name, column_name, identity_generation = 'ALWAYS'"
        " FROM information_schema.columns WHERE table_schema = 'public'"
    ):
        found.tables[table].append(column)
        if generated:
            found.generated.add((table, column))
    for name, signature in await owner.fetch(
        "SELECT proname, oid::regprocedure::text FROM pg_proc"
        " WHERE pronamespace = 'public'::regnamespace"
    ):
        found.functions[name] = signature
    return found


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def wanted(role: str, objects: Objects) -> Allowed:
    """Return what the reviewed file allows, a column each where it names tables."""
    return {one for right in rights() if right.role == role for one in spread(right, objects)}


def spread(right: Right, objects: Objects) -> Iterator[tuple[str, str, str]]:
    columns = right.columns or objects.tables.get(right.object, ())
    if right.verb in COLUMN_VERBS and columns:
        for column in columns:
            yield right.object, right.verb, column
    if not right.columns:
        yield right.object, right.verb, ""


def everything(objects: Objects) -> Allowed:
    """Return all that can be done with all there is."""
    return {
        *((table, verb, "") for table in objects.tables for verb in TABLE_VERBS),
        *(
            (table, verb, column)
            for table, columns in objects.tables.items()
            for column in columns
            for verb in COLUMN_VERBS
        ),
        *((f"SEQUENCE {name}", verb, "") for name in objects.sequences for verb in SEQUENCE_VERBS),
        *((f"FUNCTION {name}", "EXECUTE", "") for name in objects.functions),
        *(("SCHEMA", verb, "") for verb in SCHEMA_VERBS),
        *(("DATABASE", verb, "") for verb in DATABASE_VERBS),
    }


ASKED = """
SELECT object, verb, detail FROM unnest($2::text[], $3::text[], $4::text[]) AS its (object, verb, detail)
WHERE CASE
    WHEN object = 'DATABASE' THEN has_database_privilege($1, current_database(), verb)
    WHEN object = 'SCHEMA' THEN has_schema_privilege($1, 'public', verb)
    WHEN object LIKE 'SEQUENCE %' THEN has_sequence_privilege($1, split_part(object, ' ', 2), verb)
    WHEN object LIKE 'FUNCTION %' THEN has_function_privilege($1, detail, verb)
    WHEN detail <> '' THEN has_column_privilege($1, object, detail, verb)
    ELSE has_table_privilege($1, object, verb)
END
"""


async def told(owner: asyncpg.Connection, user: str, objects: Objects) -> Allowed:
    """Return what Postgres says a user may do."""
    asked = [
        (name, verb, objects.functions.get(name.removeprefix("FUNCTION "), detail))
        for name, verb, detail in sorted(everything(objects))
    ]
    rows = await owner.fetch(ASKED, user, *(list(column) for column in zip(*asked, strict=True)))
    return {
        (name, verb, "" if name.startswith("FUNCTION") else detail) for name, verb, detail in rows
    }


@pytest.mark.parametrize("role", ROLE_NAMES)
async def test_a_role_may_do_what_the_file_says_and_nothing_else(
    owner: asyncpg.Connection, objects: Objects, role: str
) -> None:
    user = f"{ROLES.name(role)}_login"
    assert sorted(await told(owner, user, objects) ^ wanted(role, objects)) == []


async def test_who_has_no_role_may_do_nothing(owner: asyncpg.Connection, objects: Objects) -> None:
    assert await told(owner, NOBODY_LOGIN, objects) == set()


async def test_the_owner_may_do_everything(owner: asyncpg.Connection, objects: Objects) -> None:
    user = await owner.fetchval("SELECT current_user")
    assert await told(owner, user, objects) == everything(objects)


async def test_who_has_no_role_cannot_even_connect(database: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await asyncpg.connect(with_login(database, NOBODY_LOGIN, NOBODY_LOGIN))


def attempts(objects: Objects) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield what is tried, and a statement that does it, on empty tables."""
    for table, columns in objects.tables.items():
        yield (table, "INSERT", ""), f"INSERT INTO {table} DEFAULT VALUES"
        yield (table, "DELETE", ""), f"DELETE FROM {table}"  # noqa: S608 # as Postgres names them
        yield (table, "TRUNCATE", ""), f"TRUNCATE {table}"
        yield (table, "MAINTAIN", ""), f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT"
        for column in columns:
            yield (table, "SELECT", column), f'SELECT "{column}" FROM {table} LIMIT 0'  # noqa: S608 # as Postgres names them
            if (table, column) not in objects.generated:
                yield (table, "UPDATE", column), f'UPDATE {table} SET "{column}" = DEFAULT'  # noqa: S608 # as Postgres names them
    for name in objects.sequences:
        yield (f"SEQUENCE {name}", "SELECT", ""), f"SELECT last_value FROM {name}"  # noqa: S608 # as Postgres names them
        yield (f"SEQUENCE {name}", "USAGE", ""), f"SELECT nextval('{name}')"
        yield (f"SEQUENCE {name}", "UPDATE", ""), f"SELECT setval('{name}', 1)"
    yield (
        ("FUNCTION create_seen_days", "EXECUTE", ""),
        "SELECT create_seen_days(current_date + 5, current_date + 5)",
    )
    yield ("FUNCTION drop_seen_day", "EXECUTE", ""), "SELECT drop_seen_day(current_date - 9)"
    yield ("FUNCTION sender_of", "EXECUTE", ""), "SELECT sender_of('{}')"
    yield ("FUNCTION keep_identity_spans", "EXECUTE", ""), "SELECT keep_identity_spans()"
    yield ("FUNCTION leave_room", "EXECUTE", ""), "SELECT leave_room()"
    yield ("SCHEMA", "CREATE", ""), "CREATE TABLE public.mine ()"
    yield ("DATABASE", "CREATE", ""), "CREATE SCHEMA mine"
    yield ("DATABASE", "TEMPORARY", ""), "CREATE TEMPORARY TABLE seen ()"


@pytest.mark.parametrize("role", ROLE_NAMES)
async def test_what_a_role_tries_is_done_or_refused_as_the_file_says(
    database: str, objects: Objects, role: str
) -> None:
    tried = dict(attempts(objects))
    assert {"FUNCTION " + name for name in objects.functions} < {what[0] for what in tried}
    async with connected(await login_of(database, ROLES.name(role))) as connection:
        done = {what for what, sql in tried.items() if await is_allowed(connection, sql)}
    expected = wanted(role, objects) & tried.keys()
    # Whoever may delete or change rows may keep others from doing so, too.
    for table in objects.tables:
        if {(table, verb, "") for verb in ("UPDATE", "DELETE")} & wanted(role, objects):
            expected.add((table, "MAINTAIN", ""))
    assert sorted(done ^ expected) == []


async def is_allowed(connection: asyncpg.Connection, sql: str) -> bool:
    """Try something and take it back; what fails for other reasons was allowed."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(sql)
    except asyncpg.InsufficientPrivilegeError:
        return False
    except asyncpg.PostgresError:
        return True
    finally:
        await transaction.rollback()
    return True


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE messages DISABLE TRIGGER ALL",
        "ALTER TABLE messages ADD COLUMN mine text",
        "CREATE INDEX mine ON messages (role)",
        "DROP TABLE messages",
        "ALTER FUNCTION drop_seen_day(date) SECURITY INVOKER",
        "CREATE OR REPLACE FUNCTION drop_seen_day(date) RETURNS boolean LANGUAGE sql AS 'SELECT 1=1'",
        "CREATE ROLE mine",
        "COPY audit TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
        "SET session_replication_role = replica",
    ],
)
@pytest.mark.parametrize("role", ROLE_NAMES)
async def test_no_role_changes_tables_rights_or_the_server(
    database: str, role: str, sql: str
) -> None:
    async with connected(await login_of(database, ROLES.name(role))) as connection:
        assert not await is_allowed(connection, sql)


async def test_a_search_path_of_the_caller_s_own_changes_nothing_for_the_functions(
    database: str, owner: asyncpg.Connection
) -> None:
    await owner.execute("CREATE SCHEMA theirs; GRANT ALL ON SCHEMA theirs TO chatlane_application")
    async with connected(await login_of(database)) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("CREATE TABLE theirs.seen (LIKE public.seen)")
        await connection.execute("SET search_path = theirs, public")
        await connection.fetchval(
            "SELECT public.create_seen_days(current_date + 7, current_date + 7)"
        )
        made = await connection.fetchval(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.seen'::regclass"
        )
        assert made == 3
        await transaction.rollback()
    await owner.execute("DROP SCHEMA theirs")


async def test_every_statement_runs_with_the_rights_of_a_router(database: str) -> None:
    refused = []
    async with connected(await login_of(database)) as connection:
        for name, sql in queries_of_routers().items():
            if not await is_allowed(connection, explained(sql)):
                refused.append(name)
    assert refused == []


async def test_without_any_one_right_some_statement_is_refused(owner: asyncpg.Connection) -> None:
    """Which is what a superfluous right would show; those of sequences are asked for in running."""
    schema = declared()
    statements = [(needs(sql, schema), explained(sql)) for sql in queries_of_routers().values()]
    superfluous = []
    for right in rights():
        if right.role != "application" or right.verb in {"CONNECT", "USAGE"}:
            continue
        using = [sql for need, sql in statements if (right.object, right.verb) in need]
        if not await is_refused_without(owner, right, using):
            superfluous.append(right)
    assert superfluous == []


async def is_refused_without(
    owner: asyncpg.Connection, right: Right, statements: Iterable[str]
) -> bool:
    transaction = owner.transaction()
    await transaction.start()
    try:
        await owner.execute(f"REVOKE {right.verb} ON {right.object} FROM chatlane_application")
        await owner.execute("SET LOCAL ROLE chatlane_application")
        for sql in statements:
            await owner.execute(sql)
    except asyncpg.InsufficientPrivilegeError:
        return True
    finally:
        await transaction.rollback()
    return False


def explained(sql: str) -> str:
    # Rights are checked when a plan is about to run, before it does.
    return f"EXPLAIN (GENERIC_PLAN) {sql}"


async def test_what_is_different_is_told_and_put_right(
    postgres_server: RunningPostgres, template_database: str
) -> None:
    async with open_database(postgres_server.url, template_database) as name:
        dsn = postgres_server.dsn(name)
        async with connected(dsn) as owner:
            await owner.execute(script(ROLES))
            assert await differences(owner, ROLES) == []
            await owner.execute(
                "GRANT DELETE ON audit TO chatlane_application;"
                "REVOKE SELECT ON lanes FROM chatlane_application;"
                "GRANT SELECT (token) ON turns TO chatlane_reader;"
                "GRANT USAGE ON SCHEMA public TO PUBLIC;"
                "GRANT EXECUTE ON FUNCTION drop_seen_day(date) TO PUBLIC;"
                "GRANT UPDATE ON SEQUENCE searchable_id_seq TO chatlane_retention;"
            )
            assert await differences(owner, ROLES) == [
                "chatlane_application can DELETE audit",
                "chatlane_application cannot SELECT lanes",
                "chatlane_reader can SELECT turns (token)",
                "chatlane_retention can UPDATE SEQUENCE searchable_id_seq",
                "everybody can EXECUTE FUNCTION drop_seen_day",
                "everybody can USAGE SCHEMA",
            ]
            await owner.execute(script(ROLES))
            assert await differences(owner, ROLES) == []


async def test_what_the_owner_makes_later_is_nobody_else_s(
    postgres_server: RunningPostgres, template_database: str
) -> None:
    async with (
        open_database(postgres_server.url, template_database) as name,
        connected(postgres_server.dsn(name)) as owner,
    ):
        await owner.execute(script(ROLES))
        await owner.execute(
            "CREATE TABLE later (); CREATE SEQUENCE later_id_seq;"
            "CREATE FUNCTION later() RETURNS int LANGUAGE sql AS 'SELECT 1'"
        )
        assert await differences(owner, ROLES) == []


async def test_roles_may_have_other_names_and_be_given_by_an_owner_who_is_no_superuser(
    postgres_server: RunningPostgres, template_database: str
) -> None:
    roles = Roles("chatlane_test_A", 'chatlane_test "b"', "chatlane_test_c")
    made = [*roles.names(), "chatlane_test_owner"]
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in made)
    async with connected(postgres_server.url) as admin:
        await admin.execute(f"DROP ROLE IF EXISTS {quoted}")
        await admin.execute("CREATE ROLE chatlane_test_owner LOGIN CREATEROLE PASSWORD 'owner'")
        try:
            async with open_database(postgres_server.url, template_database) as name:
                dsn = postgres_server.dsn(name)
                async with connected(dsn) as superuser:
                    await superuser.execute(f"ALTER DATABASE {name} OWNER TO chatlane_test_owner")
                    await superuser.execute(
                        re.sub(r"\s+", " ", HAND_OVER).format(owner="chatlane_test_owner")
                    )
                async with connected(with_login(dsn, "chatlane_test_owner", "owner")) as owner:
                    await owner.execute(script(roles))
                    assert await differences(owner, roles) == []
        finally:
            await admin.execute(f"DROP ROLE IF EXISTS {quoted}")


HAND_OVER = """
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('ALTER %s %s OWNER TO {owner}', kind, name) FROM (
            SELECT 'TABLE', oid::regclass::text FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
            UNION ALL
            SELECT 'SEQUENCE', 'searchable_id_seq'
            UNION ALL
            SELECT 'FUNCTION', oid::regprocedure::text FROM pg_proc
            WHERE pronamespace = 'public'::regnamespace
        ) AS its (kind, name)
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$
"""
