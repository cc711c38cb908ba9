"""What each role may do in the database: runs `grants.sql`, and compares it with what is so.

The roles are groups that nobody logs in as: who logs in is a member of one. The owner is whoever
runs the migrations; it needs no rights, for the tables are its own.
"""

import re
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
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
        """Return what the role of a `Right` is called."""
        return str(getattr(self, role))


_ROLES: Final = tuple(its.name for its in fields(Roles))
# Granted by name of the schema and of the database, which the file asks the server for.
_WAYS_TO_THE_TABLES: Final = (("DATABASE", "CONNECT"), ("SCHEMA", "USAGE"))
_GRANT: Final = re.compile(
    r'^GRANT (?P<verbs>.+) ON (?P<object>(?:[A-Z]+ )?\w+) TO "(?P<role>\w+)";$', re.MULTILINE
)
_VERB: Final = re.compile(r"(?P<verb>[A-Z]+)(?: \((?P<columns>[\w, ]+)\))?")


def rights() -> list[Right]:
    """Return what the reviewed file grants."""
    by_name = {name: role for role, name in zip(_ROLES, Roles().names(), strict=True)}
    granted = [
        Right(by_name[grant["role"]], grant["object"], verb["verb"], _columns(verb["columns"]))
        for grant in _GRANT.finditer(_text())
        for verb in _VERB.finditer(grant["verbs"])
    ]
    return [*granted, *(Right(role, *way) for role in _ROLES for way in _WAYS_TO_THE_TABLES)]


def _columns(listed: str | None) -> tuple[str, ...]:
    return tuple(listed.split(", ")) if listed else ()


def script(roles: Roles) -> str:
    """Return the statements for somebody to run by hand, in one transaction."""
    return f"BEGIN;\n\n{statements(roles)}\nCOMMIT;\n"


def statements(roles: Roles) -> str:
    """Return `grants.sql` with the names of these roles."""
    names = {
        f"{quote}{usual}{quote}": (quote, its) for usual, its in _renamed(roles) for quote in "'\""
    }
    either = re.compile("|".join(names))
    return either.sub(lambda found: _quoted(*names[found[0]]), _text())


def _renamed(roles: Roles) -> list[tuple[str, str]]:
    return list(zip(Roles().names(), roles.names(), strict=True))


def _text() -> str:
    return (files("chatlane.postgres") / "grants.sql").read_text("utf-8")


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
    """Return how the rights of the roles, and of everybody, differ from `grants.sql`."""
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


def _quoted(quote: str, name: str) -> str:
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"
