"""Grant the rights of each database role with `grants.sql`, and compare them with the database.

The roles are groups without login; login users are members of one. The owner is the user that
runs the migrations. It needs no grants because it owns the tables.
"""

import re
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
    from asyncpg import Connection
    from asyncpg.pool import PoolConnectionProxy

# Postgres truncates longer names, so two roles could become one.
_MAX_NAME_BYTES: Final = 63


class Right(NamedTuple):
    """A verb that a role may use on an object, limited to `columns` if there are any.

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
    """Names of the roles in a database cluster.

    Raises:
        ValueError: A name is invalid, or two names are equal.
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
        """Return the names of all roles."""
        return [str(getattr(self, role.name)) for role in fields(self)]

    def name(self, role: str) -> str:
        """Return the name of the role of a `Right`."""
        return str(getattr(self, role))


_ROLES: Final = tuple(role.name for role in fields(Roles))
# `grants.sql` grants these by the names of schema and database, which it queries at run time.
_WAYS_TO_THE_TABLES: Final = (("DATABASE", "CONNECT"), ("SCHEMA", "USAGE"))
_GRANT: Final = re.compile(
    r'^GRANT (?P<verbs>.+) ON (?P<object>(?:[A-Z]+ )?\w+) TO "(?P<role>\w+)";$', re.MULTILINE
)
_VERB: Final = re.compile(r"(?P<verb>[A-Z]+)(?: \((?P<columns>[\w, ]+)\))?")


def rights() -> list[Right]:
    """Return the rights that `grants.sql` grants."""
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
    """Return the statements as a script of one transaction, for an operator to run by hand."""
    return f"BEGIN;\n\n{statements(roles)}\nCOMMIT;\n"


def statements(roles: Roles) -> str:
    """Return `grants.sql` with the names of these roles."""
    names = {
        f"{quote}{usual}{quote}": (quote, configured)
        for usual, configured in _renamed(roles)
        for quote in "'\""
    }
    either = re.compile("|".join(names))
    return either.sub(lambda found: _quoted(*names[found[0]]), _text())


def _renamed(roles: Roles) -> list[tuple[str, str]]:
    return list(zip(Roles().names(), roles.names(), strict=True))


def _text() -> str:
    return (files("chatlane.postgres") / "grants.sql").read_text("utf-8")


async def grant(connection: "PoolConnectionProxy", roles: Roles) -> list[str]:
    """Grant the roles their rights, as the owner of the tables.

    Returns:
        The remaining differences, a sentence each: rights that the owner may not change.
    """
    await connection.execute(statements(roles))
    return await differences(connection, roles)


HELD_SQL: Final[LiteralString] = """
-- pg_class: the rights of roles from the access lists; an empty name stands for PUBLIC
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
    """Return how the rights of the roles, and of PUBLIC, differ from `grants.sql`."""
    by_name = {roles.name(field.name): field.name for field in fields(roles)}
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
    _, object_name, verb, column = row
    return f"{verb} {object_name}" + (f" ({column})" if column else "")


def _quoted(quote: str, name: str) -> str:
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"
