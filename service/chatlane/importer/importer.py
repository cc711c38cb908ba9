"""Import conversations of an old gateway, one transaction per session; a repeat adds only new rows.

Every id is derived from the old id, so the importer recognises sessions and rows that it imported
before. Routers may run during the import: a lane that they have opened keeps its session, and the
imported session becomes history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_core import from_json

from chatlane.domain.addressing.alias_rows import lookups
from chatlane.domain.addressing.keys import MAX_KEY_BYTES, NoConversation, session_key
from chatlane.domain.effects import MessageRow, without_nulls
from chatlane.domain.ids import derived_id
from chatlane.errors import TransientError
from chatlane.importer import import_sql
from chatlane.importer.import_sql import AdoptedSession
from chatlane.importer.lanes import OLD_RULES, Placed, Unplaceable, holders, link_of, place
from chatlane.importer.patience import patiently
from chatlane.store.addressing import aliases, lanes
from chatlane.store.conversations import sessions
from chatlane.store.history import messages
from chatlane_schemas.events import EndReason
from chatlane_schemas.results import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.addressing.sources import Address
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.states import Session
    from chatlane.importer.hermes_files import Home
    from chatlane.importer.records import OldEntry, OldMessage, OldSession, Report
    from chatlane.postgres.pool import Store

_ROWS_AT_ONCE: Final = 500
_SAME_REASONS: Final = frozenset({EndReason.IDLE, EndReason.DAILY})


class _Lane(NamedTuple):
    """An old key and the address it leads to."""

    old_key: str
    address: Address


class _Plan(NamedTuple):
    """One session, its destination, and the lanes that lead to it."""

    session: OldSession
    id: UUID
    placed: Placed
    parent_id: UUID | None
    link_kind: str | None
    lanes: tuple[_Lane, ...]
    is_open: bool
    active_at: datetime | None


class Adoption:
    """One import.

    Args:
        accounts: The account name of the old gateway, by platform.
        profile: The profile to import into; None uses the profile in the old keys.
    """

    def __init__(
        self,
        home: Home,
        store: Store,
        catalog: Catalog,
        report: Report,
        *,
        accounts: Mapping[str, str],
        profile: str | None = None,
    ) -> None:
        self._home = home
        self._store = store
        self._catalog = catalog
        self._accounts = accounts
        self._profile = profile
        self._report = report

    async def run(self, progress: Callable[[int, int], None]) -> None:
        """Import all sessions; calls `progress` with the number of finished sessions and the total.

        Raises:
            StoreUnavailableError: Postgres became unavailable; sessions imported before stay.
        """
        plans = self._plans()
        for number, plan in enumerate(plans):
            progress(number, len(plans))
            await self._adopt_patiently(plan)
        progress(len(plans), len(plans))

    def _plans(self) -> list[_Plan]:
        entries = self._home.entries()
        old = {session.id: session for session in self._home.sessions(entries.values())}
        keys_of: dict[str, list[str]] = {}
        held = {key: entry.session_id for key, entry in entries.items()}
        for key, holder in holders(old, held).items():
            keys_of.setdefault(holder, []).append(key)
        placed = {session.id: self._placed(session) for session in old.values()}
        ids = {
            session.id: _session_id(session, where)
            for session in old.values()
            if (where := placed[session.id])
        }
        plans = []
        for session in old.values():
            where = placed[session.id]
            if where is None:
                continue
            parent = old.get(session.parent_id) if session.parent_id else None
            link = link_of(session, parent) if parent and parent.id in ids else None
            keys = keys_of.get(session.id, [])
            session_entries = [entries[key] for key in keys if key in entries]
            plans.append(
                _Plan(
                    session=session,
                    id=ids[session.id],
                    placed=where,
                    parent_id=ids[parent.id] if parent and link else None,
                    link_kind=link,
                    lanes=tuple(self._lanes(session, keys, entries)),
                    is_open=session.ended_at is None
                    and not any(entry.is_suspended for entry in session_entries),
                    active_at=max((entry.updated_at for entry in session_entries), default=None),
                )
            )
        # If a chat has two old keys, the key that was used last keeps the lane.
        plans.sort(key=lambda plan: plan.active_at or plan.session.started_at, reverse=True)
        return plans

    def _placed(self, session: OldSession) -> Placed | None:
        where = place(session, self._catalog, self._accounts, self._profile)
        if isinstance(where, Unplaceable):
            self._report.omitted.add("session", where.reason, session.id)
            return None
        return where

    def _lanes(
        self, session: OldSession, keys: Sequence[str], entries: Mapping[str, OldEntry]
    ) -> Iterator[_Lane]:
        for key in keys:
            entry = entries.get(key)
            origin = (entry and entry.origin) or session.origin
            held = session._replace(key=key, origin=origin)
            where = place(held, self._catalog, self._accounts, self._profile)
            if isinstance(where, Placed) and where.address is not None:
                yield _Lane(key, where.address)
            else:
                reason = where.reason if isinstance(where, Unplaceable) else where.why_no_lane
                self._report.omitted.add("lane", str(reason), session.id)

    async def _adopt_patiently(self, plan: _Plan) -> None:
        rows = self._home.messages(plan.session)
        try:
            done = await patiently(lambda: self._adopt(plan, rows))
        except TransientError:
            raise
        except Exception as error:  # noqa: BLE001 - one bad session must not cost the others
            reason = f"the database refuses it ({type(error).__name__})"
            self._report.omitted.add("session", reason, plan.session.id)
        else:
            self._count(plan, done)

    def _count(self, plan: _Plan, done: _Done) -> None:
        counts = self._report.done
        counts[done.session] += 1
        counts["messages"] += done.rows
        counts["lanes"] += done.binds
        counts["old keys"] += done.keeps
        for what, reason in done.omitted:
            self._report.omitted.add(what, reason, plan.session.id)

    async def _adopt(self, plan: _Plan, old_rows: Sequence[OldMessage]) -> _Done:
        done = _Done()
        async with self._store.transaction() as connection:
            key = await self._bind(connection, plan, done)
            rows = [_row(plan, old) for old in old_rows]
            locked = await sessions.lock(connection, [plan.id])
            if plan.id in locked:
                await self._grow(connection, locked[plan.id], rows, done)
            else:
                session = _adopted(plan, key, rows, is_open=done.holds_lane and plan.is_open)
                await import_sql.insert(connection, session)
                await _insert(connection, rows, first_seq=1)
                done.session, done.rows = "new sessions", len(rows)
        return done

    async def _bind(self, connection: PoolConnectionProxy, plan: _Plan, done: _Done) -> str | None:
        """Bind the lanes of a session; returns its session key, or None for a session without a lane."""
        first: str | None = None
        for lane in plan.lanes:
            key = await self._key(connection, plan, lane.address, done, is_known=True)
            if key is None:
                continue
            first = first or key
            done.binds += await import_sql.bind(connection, key, plan.id)
            if (await lanes.find(connection, [key]))[key].session_id == plan.id:
                done.holds_lane = True
            else:
                done.omitted.append(("lane", "its chat goes on in another session"))
            await _keep_old_key(connection, lane.old_key, key, done)
        address = plan.placed.address
        if first is None and address is not None:
            return await self._key(connection, plan, address, done, is_known=False)
        return first

    async def _key(
        self,
        connection: PoolConnectionProxy,
        plan: _Plan,
        address: Address,
        done: _Done,
        *,
        is_known: bool,
    ) -> str | None:
        """Return the session key of an address; if it is a lane's, also store the aliases it implies."""
        persons = self._catalog.platforms[address.platform].person_aliases
        wanted = lookups(address, persons=persons)
        book = await aliases.read_book(connection, wanted, [address])
        if is_known:
            book.learn(address, plan.session.started_at, persons=persons)
            await aliases.write(connection, book.changes())
        resolved = book.resolve(address, persons=persons, at=plan.session.started_at)
        key = session_key(resolved.address, OLD_RULES)
        if isinstance(key, NoConversation):
            done.omitted.append(("lane", key.detail))
            return None
        return key

    async def _grow(
        self,
        connection: PoolConnectionProxy,
        session: Session,
        rows: Sequence[MessageRow],
        done: _Done,
    ) -> None:
        """Append rows added to the old transcript since the last import.

        Appends nothing if the session has continued here since, because the two transcripts
        differ.
        """
        known: set[UUID] = set()
        ids = [row.id for row in rows if row.id is not None]
        for part in import_sql.chunks(ids, _ROWS_AT_ONCE):
            known |= await import_sql.known_messages(connection, ids[part])
        missing = [row for row in rows if row.id not in known]
        done.session = "unchanged sessions"
        if not missing:
            return
        if session.next_seq - 1 != len(known):
            done.omitted.append(("newer messages of a session", "it has gone on here since"))
            return
        await _insert(connection, missing, first_seq=session.next_seq)
        people = [row for row in missing if _is_of_person(row)]
        active_at = max((row.created_at for row in people), default=None)
        next_seq = session.next_seq + len(missing)
        await import_sql.grow(
            connection, session.id, next_seq, len(people), active_at, _last_message_at(missing)
        )
        done.session, done.rows = "continued sessions", len(missing)


@dataclass(slots=True)
class _Done:
    """Result of one transaction, reported only after its commit."""

    session: str = ""
    rows: int = 0
    binds: int = 0
    keeps: int = 0
    holds_lane: bool = False
    omitted: list[tuple[str, str]] = field(default_factory=list)


async def _keep_old_key(
    connection: PoolConnectionProxy, old_key: str, key: str, done: _Done
) -> None:
    if old_key == key:
        return
    if len(old_key.encode()) > MAX_KEY_BYTES:
        done.omitted.append(("old key", f"above {MAX_KEY_BYTES} bytes"))
        return
    kept = await import_sql.keep_alias(connection, old_key, key)
    if kept is import_sql.Kept.ELSEWHERE:
        done.omitted.append(("old key", "leads to another lane already"))
    done.keeps += kept is import_sql.Kept.NEW


def _session_id(session: OldSession, placed: Placed) -> UUID:
    trigger = f"{placed.platform}\0{placed.account}\0{session.id}"
    return derived_id(session.started_at, trigger.encode(), "imported session")


def _row(plan: _Plan, old: OldMessage) -> MessageRow:
    return MessageRow(
        session_id=plan.id,
        seq=0,
        role=old.role,
        content=old.content,
        created_at=old.created_at,
        id=derived_id(old.created_at, plan.id.bytes, "imported message", old.place),
        details=_details(old, plan.placed.agent.name),
        author=plan.placed.author if old.role == "user" else None,
        platform_message_id=old.platform_message_id,
    )


def _is_of_person(row: MessageRow) -> bool:
    return row.role == "user" and not from_json(row.details or "{}").get("observed")


def _last_message_at(rows: Sequence[MessageRow]) -> datetime | None:
    """Return when the newest row was written that is not of a tool."""
    return max((row.created_at for row in rows if row.role != Role.TOOL), default=None)


def _details(old: OldMessage, agent: str) -> str | None:
    if old.reasoning is None:
        return old.details
    reasoning = {**old.reasoning, "agent": agent}
    return without_nulls({**from_json(old.details or "{}"), "reasoning": reasoning})


async def _insert(
    connection: PoolConnectionProxy, rows: Sequence[MessageRow], first_seq: int
) -> None:
    numbered = [row._replace(seq=seq) for seq, row in enumerate(rows, start=first_seq)]
    for part in import_sql.chunks(numbered, _ROWS_AT_ONCE):
        await messages.insert(connection, numbered[part])


def _adopted(
    plan: _Plan, key: str | None, rows: Sequence[MessageRow], *, is_open: bool
) -> AdoptedSession:
    session = plan.session
    people = [row.created_at for row in rows if _is_of_person(row)]
    active_at = max(filter(None, (plan.active_at, *people)), default=None)
    ended_at, end_reason = None, None
    if not is_open:
        ended_at = session.ended_at or active_at or session.started_at
        reason = session.end_reason
        end_reason = reason if reason in _SAME_REASONS else EndReason.IMPORTED
    return AdoptedSession(
        id=plan.id,
        session_key=key or plan.placed.history_key(session.id),
        agent=plan.placed.agent.name,
        platform=plan.placed.platform,
        parent_id=plan.parent_id,
        link_kind=plan.link_kind,
        started_at=session.started_at,
        ended_at=ended_at,
        end_reason=end_reason,
        last_activity_at=active_at,
        last_message_at=_last_message_at(rows),
        next_seq=len(rows) + 1,
        user_messages=len(people),
        title=session.title,
        origin=plan.placed.origin,
        archived_at=(ended_at or active_at or session.started_at) if session.is_archived else None,
        **session.use._asdict(),
    )
