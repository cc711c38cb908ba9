"""What each role may do in the database, from `rights.csv`, as SQL and compared with what is so.

The roles are groups that nobody logs in as: who logs in is a member of one. The owner is whoever
runs the migrations; it needs no rights, for the tables are its own.
"""

import csv
from collections import defaultdict
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncpg import Connection
    from asyncpg.pool import PoolConnectionProxy

# Postgres cuts off what is longer, and two roles could become one.
_MAX_NAME_BYTES: Final = 63


class Right(NamedTuple):
    """A verb that a role may use on an object; on some of its columns only, where there are any.

    Attributes:
        role: `application`, `retention` or `reader`.
        object: A table, `SEQUENCE <name>`, `FUNCTION <name>`, `SCHEMA` or `DATABASE`.
    """

    role: str
    object: str
    verb: str
    columns: tuple[str, ...] = ()


def rights() -> list[Right]:
    """Return the reviewed file."""
    text = (files("chatlane.store") / "rights.csv").read_text("utf-8")
    return [
        Right(row["role"], row["object"], row["verb"], tuple(row["columns"].split()))
        for row in csv.DictReader(text.splitlines())
    ]


@dataclass(frozen=True, slots=True)
class Roles:
    """How the roles are called in a cluster of databases.

    Raises:
        ValueError: A name cannot be one, or two are the same.
    """

    application: str = "chatlane_application"
    retention: str = "chatlane_retention"
    reader: str = "chatlane_reader"

    def __post_init__(self) -> None:
        names = self.names()
        for name in names:
            if not name or "\0" in name or len(name.encode()) > _MAX_NAME_BYTES:
                raise ValueError(f"a role is called by 1 to {_MAX_NAME_BYTES} bytes: {name!r}")
            if name == "public" or name.startswith("pg_"):
                raise ValueError(f"{name} is a name that Postgres keeps for itself")
        if len(set(names)) < len(names):
            raise ValueError("two roles have the same name, and would have each other's rights")

    def names(self) -> list[str]:
        """Return all of them."""
        return [str(getattr(self, its.name)) for its in fields(self)]

    def name(self, role: str) -> str:
        """Return what the role of `rights.csv` is called."""
        return str(getattr(self, role))


def script(roles: Roles) -> str:
    """Return the statements for somebody to run by hand, in one transaction."""
    return f"BEGIN;\n\n{statements(roles)}\nCOMMIT;\n"


def statements(roles: Roles) -> str:
    """Return SQL that gives the roles their rights and takes all others, from everybody, too.

    Whoever runs it owns the tables. It may run at any time and more than once: other connections
    see the rights of before or those of after. Roles that are not there are made.
    """
    names = ", ".join(_quoted(name) for name in roles.names())
    return "\n".join(
        (
            "-- One at a time; two would trip over each other.",
            "SELECT pg_advisory_xact_lock(x'6772616e7473'::bigint);",
            "",
            _MAKE_ROLES.replace("<names>", ", ".join(_literal(name) for name in roles.names())),
            _TAKE_ALL.replace("<names>", names),
            "ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM PUBLIC;",
            "ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM PUBLIC;",
            "ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC;",
            "",
            *_grants(rights(), roles),
            "",
        )
    )


# Without the right to make roles it still works, if somebody has made them.
_MAKE_ROLES: Final = """\
DO $roles$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[<names>] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$roles$;
"""

# Rights on a table's columns go with those on the table. What is not ours, such as an extension,
# stays as it is.
_TAKE_ALL: Final = """\
DO $rights$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('REVOKE ALL ON %s %s FROM PUBLIC, <names>', kind, name)
        FROM (
            SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, oid::regclass::text
            FROM pg_class
            WHERE relnamespace = current_schema()::regnamespace
              AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
              AND relowner = current_user::regrole
            UNION ALL
            SELECT 'ROUTINE', oid::regprocedure::text
            FROM pg_proc
            WHERE pronamespace = current_schema()::regnamespace
              AND proowner = current_user::regrole
            UNION ALL
            SELECT 'SCHEMA', quote_ident(current_schema())
            UNION ALL
            SELECT 'DATABASE', quote_ident(current_database())
        ) AS ours (kind, name)
    LOOP
        EXECUTE statement;
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO <names>', current_schema());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO <names>', current_database());
END
$rights$;
"""


def _grants(wanted: "Iterable[Right]", roles: Roles) -> "Iterator[str]":
    """Yield one statement for each role and object; those of schema and database stand above."""
    verbs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for right in wanted:
        columns = f" ({', '.join(right.columns)})" if right.columns else ""
        verbs[right.role, right.object].append(f"{right.verb}{columns}")
    for (role, its_object), its_verbs in verbs.items():
        if its_object not in {"SCHEMA", "DATABASE"}:
            name = _quoted(roles.name(role))
            yield f"GRANT {', '.join(its_verbs)} ON {its_object} TO {name};"


async def grant(connection: "PoolConnectionProxy", roles: Roles) -> list[str]:
    """Give the roles their rights, as the owner of the tables.

    Returns:
        What is different all the same, a sentence each: what the owner may not change.
    """
    await connection.execute(statements(roles))
    return await differences(connection, roles)


HELD_SQL: Final[LiteralString] = """
-- pg_class: who may do what, by the lists that Postgres keeps; nobody's name stands for everybody
SELECT held.object, acl.privilege_type, held.column_name, coalesce(role.rolname, '') AS role
FROM (
    SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END || relname, NULL, relowner,
           coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's'::"char" ELSE 'r' END, relowner))
    FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace
      AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT relname, attname, relowner, attacl
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = current_schema()::regnamespace
    UNION ALL
    SELECT 'FUNCTION ' || proname, NULL, proowner, coalesce(proacl, acldefault('f', proowner))
    FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace
      AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
    UNION ALL
    SELECT 'SCHEMA', NULL, nspowner, coalesce(nspacl, acldefault('n', nspowner))
    FROM pg_namespace WHERE nspname = current_schema()
    UNION ALL
    SELECT 'DATABASE', NULL, datdba, coalesce(datacl, acldefault('d', datdba))
    FROM pg_database WHERE datname = current_database()
) AS held (object, column_name, owner, list),
    aclexplode(held.list) AS acl
    LEFT JOIN pg_roles AS role ON role.oid = acl.grantee
WHERE acl.grantee <> held.owner AND coalesce(role.rolname, '') = ANY($1::text[])
"""


async def differences(connection: "PoolConnectionProxy | Connection", roles: Roles) -> list[str]:
    """Return how the rights of the roles, and of everybody, differ from `rights.csv`."""
    by_name = {roles.name(its.name): its.name for its in fields(roles)}
    rows = await connection.fetch(HELD_SQL, ["", *by_name])
    held = {
        (by_name.get(row["role"], ""), row["object"], row["privilege_type"], row["column_name"])
        for row in rows
    }
    wanted = {
        (right.role, right.object, right.verb, column)
        for right in rights()
        for column in right.columns or (None,)
    }
    return sorted(
        [f"{_who(roles, row)} cannot {_what(row)}" for row in wanted - held]
        + [f"{_who(roles, row)} can {_what(row)}" for row in held - wanted]
    )


def _who(roles: Roles, row: tuple[str, str, str, str | None]) -> str:
    return roles.name(row[0]) if row[0] else "everybody"


def _what(row: tuple[str, str, str, str | None]) -> str:
    _, its_object, verb, column = row
    return f"{verb} {its_object}" + (f" ({column})" if column else "")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
