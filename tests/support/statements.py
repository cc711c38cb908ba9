"""Every statement of the store, and the rights it needs, read from its text by Postgres's parser."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import pglast
from pglast import ast as ast_of
from pglast.visitors import Visitor

import chatlane

_RUNS_SQL: Final = frozenset(
    {"cursor", "execute", "executemany", "fetch", "fetchmany", "fetchrow", "fetchval", "prepare"}
)

# What is done with the rights of other roles, in whole modules, and what routers run of these.
_OTHER_MODULES: Final = (
    "catalogue_sql.",
    "erase_sql.",
    "person_rows_sql.",
    "erasure_list_sql.",
    "erasure_requests_sql.",
    "export_sql.",
    "retention_sql.",
)
_NO_ROUTER: Final = frozenset({"audit.EXPIRE_SQL", "grants.HELD_SQL"})
# What a router asks the erasure list, and notes for it.
_OF_ERASURE_LIST: Final = frozenset(
    {
        "erasure_list_sql.FIND_IDS_SQL",
        "erasure_list_sql.GONE_SQL",
        "erasure_list_sql.HEED_SQL",
        "erasure_list_sql.HOLES_SQL",
        "erasure_list_sql.KEY_IDS_SQL",
        "erasure_list_sql.NOTE_MESSAGES_SQL",
        "erasure_list_sql.PENDING_SQL",
        "erasure_list_sql.PLACE_SQL",
        "erasure_list_sql.WHO_IS_LISTED_SQL",
        "erasure_requests_sql.FIND_OPEN_SQL",
        "erasure_requests_sql.FIND_SQL",
        "erasure_requests_sql.INSERT_SQL",
    }
)


class Need(NamedTuple):
    """Something that may be done with an object of the database, named as in `grants.sql`."""

    object: str
    verb: str


def sql_modules() -> Iterator[ModuleType]:
    """Import every module that may hold SQL: all of `store` and `postgres`, and `*_sql` elsewhere."""
    for found in pkgutil.walk_packages(chatlane.__path__, "chatlane."):
        package = found.name.split(".")[1]
        if not found.ispkg and (package in {"store", "postgres"} or found.name.endswith("_sql")):
            yield importlib.import_module(found.name)


def _constants(namespace: object, path: str) -> Iterator[tuple[str, str]]:
    for name, value in vars(namespace).items():
        if isinstance(value, str) and value.lstrip().startswith("-- "):
            yield f"{path}.{name}", value


def queries() -> dict[str, str]:
    """Return every statement by where it stands; they are known by their first comment."""
    found: dict[str, str] = {}
    for module in sql_modules():
        path = module.__name__.rpartition(".")[2]
        found.update(_constants(module, path))
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == module.__name__:
                found.update(_constants(value, f"{path}.{name}"))
    return found


def queries_of_routers() -> dict[str, str]:
    """Return the statements that routers run, or commands with the rights of one."""
    return {
        name: sql
        for name, sql in queries().items()
        if name not in _NO_ROUTER
        and (not name.startswith(_OTHER_MODULES) or name in _OF_ERASURE_LIST)
    }


def queries_of_previous(directory: Path) -> dict[str, str]:
    """Return the statements of another release by where they stand, without importing it."""
    return {
        f"{path.stem}:{node.lineno}": node.value
        for path in sorted((directory / "service/chatlane/store").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.lstrip().startswith("-- ")
    }


def calls_with_sql() -> Iterator[tuple[str, str]]:
    """Yield where the service hands SQL to a connection, and what stands there as the SQL.

    Development servers have a database of their own and are left out.
    """
    root = Path(chatlane.__path__[0])
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] == "dev":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _RUNS_SQL
                and node.args
            ):
                yield path.relative_to(root).as_posix(), ast.unparse(node.args[0])


@dataclass
class Declared:
    """What the migrations make."""

    tables: set[str] = field(default_factory=set)
    sequences: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)


def declared() -> Declared:
    """Return the objects of the schema, as the migrations write them."""
    found = Declared(tables={"schema_migrations"})
    migrations = files("chatlane.store") / "migrations"
    for path in sorted(migrations.iterdir(), key=lambda entry: entry.name):
        for parsed in pglast.parse_sql(path.read_text("utf-8")):
            made: Any = parsed.stmt
            if isinstance(parsed.stmt, ast_of.CreateStmt):
                found.tables.add(made.relation.relname)
            elif isinstance(parsed.stmt, ast_of.CreateSeqStmt):
                found.sequences.add(made.sequence.relname)
            elif isinstance(parsed.stmt, ast_of.CreateFunctionStmt):
                found.functions.add(made.funcname[-1].sval)
    return found


class _Needs(Visitor):
    """Collects what a statement does to objects of the schema."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.found: set[Need] = set()
        self._targets: set[int] = set()

    def _add(self, name: str, verb: str) -> None:
        if name in self.declared.tables:
            self.found.add(Need(name, verb))
        elif name in self.declared.sequences:
            self.found.add(Need(f"SEQUENCE {name}", verb))

    def visit_RangeVar(self, _: object, node: Any) -> None:  # noqa: ANN401, N802 # as pglast has it
        if id(node) not in self._targets:
            self._add(node.relname, "SELECT")

    def visit_SelectStmt(self, _: object, node: Any) -> None:  # noqa: ANN401, N802
        # Whoever locks a row must be allowed to change it.
        for clause in node.lockingClause or ():
            named = {its.relname for its in clause.lockedRels or ()}
            for its in _ranges(node.fromClause or ()):
                known_as = its.alias.aliasname if its.alias else its.relname
                if not named or known_as in named:
                    self._add(its.relname, "UPDATE")

    def visit_InsertStmt(self, _: object, node: Any) -> None:  # noqa: ANN401, N802
        self._target(node, "INSERT", reads=bool(node.returningClause))
        if (conflict := node.onConflictClause) is not None:
            if conflict.infer is not None:
                self._add(node.relation.relname, "SELECT")
            if conflict.targetList:
                self._add(node.relation.relname, "UPDATE")

    def visit_UpdateStmt(self, _: object, node: Any) -> None:  # noqa: ANN401, N802
        self._target(node, "UPDATE", reads=bool(node.whereClause or node.returningClause))

    def visit_DeleteStmt(self, _: object, node: Any) -> None:  # noqa: ANN401, N802
        self._target(node, "DELETE", reads=bool(node.whereClause or node.returningClause))

    def _target(self, node: Any, verb: str, *, reads: bool) -> None:  # noqa: ANN401
        self._targets.add(id(node.relation))
        self._add(node.relation.relname, verb)
        if reads:
            self._add(node.relation.relname, "SELECT")

    def visit_FuncCall(self, _: object, node: Any) -> None:  # noqa: ANN401, N802
        name = node.funcname[-1].sval
        if name in self.declared.functions:
            self.found.add(Need(f"FUNCTION {name}", "EXECUTE"))
        if name in {"nextval", "currval"}:
            self._add(node.args[0].val.sval, "USAGE")

    def visit_CommonTableExpr(self, _: object, node: Any) -> None:  # noqa: ANN401, N802
        assert node.ctename not in self.declared.tables, f"{node.ctename} has the name of a table"


def _ranges(items: Any) -> Iterator[Any]:  # noqa: ANN401
    for item in items:
        if isinstance(item, ast_of.RangeVar):
            yield item
        elif isinstance(item, ast_of.JoinExpr):
            yield from _ranges((item.larg, item.rarg))


# Whoever runs a statement of another kind says here what it needs.
_KNOWN: Final = {"SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt"}


def needs(sql: str, schema: Declared) -> set[Need]:
    """Return the rights without which a statement is refused."""
    visitor = _Needs(schema)
    for statement in pglast.parse_sql(sql):
        kind = type(statement.stmt).__name__
        assert kind in _KNOWN, f"{kind}: what right does it need?"
        visitor(statement)
    return visitor.found
