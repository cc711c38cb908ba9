"""Answer requests about the state of the whole service, and about its declarations."""

from __future__ import annotations

from asyncio import Semaphore, gather
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.errors import BusUnavailableError
from chatlane.reconciliation import reconciliation_sql
from chatlane.reconciliation.gauges import reader_of
from chatlane.store import dead_letters, letter_lists
from chatlane.store.dead_letters import MOST_TALLIED
from chatlane.store.logs import partitions, routers
from chatlane_schemas.dead import DeadReason, cause_of
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.operators.dead_letters import LetterFilter
from chatlane_schemas.session_api.operators.service_state import (
    MAX_LISTED,
    AccountDeclaration,
    AccountState,
    AgentDeclaration,
    AgentState,
    LetterAge,
    LimitRule,
    PartitionState,
    PlatformDeclaration,
    ResetRule,
    ServiceCatalog,
    ServiceCatalogReply,
    ServiceOverview,
    ServiceOverviewReply,
    TurnGroup,
)
from chatlane_schemas.topology.streams import StreamName, outbound_durable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from chatlane.api.endpoint import Reads
    from chatlane.domain.catalog import Agent, Catalog, Limits, Platform
    from chatlane.domain.log import PartitionId
    from chatlane.domain.policy import ResetPolicy
    from chatlane.postgres.pool import Store
    from chatlane.reconciliation.reconciliation_sql import Figures, LiveTurns
    from chatlane.reconciliation.stream_contents import Backlog
    from chatlane.store.dead_letters import Tally
    from chatlane.store.letter_lists import LetterTotals
    from chatlane.store.logs.partitions import PartitionOwner
    from chatlane_schemas.topology.streams import DurableSpec

_BACKLOGS_AT_ONCE: Final = 16
_OF_AGENTS: Final = frozenset({StreamName.TURNS, StreamName.ROUTED})


class StreamReads(NamedTuple):
    """Functions that read the logs and the durables.

    Attributes:
        find_lags: Returns the age of the oldest message after each cursor, if there is one.
        find_backlog: Returns the backlog of a durable, or None if there is no such durable.
        durables: The declared durables.
    """

    find_lags: Callable[[Mapping[PartitionId, int]], Awaitable[Mapping[PartitionId, timedelta]]]
    find_backlog: Callable[[DurableSpec], Awaitable[Backlog | None]]
    durables: Sequence[DurableSpec]


class _Rows(NamedTuple):
    """The figures that the database has."""

    router_ids: tuple[UUID, ...]
    owners: Sequence[PartitionOwner]
    figures: Figures
    tallies: Sequence[Tally]
    given_up: LetterTotals | None


class _Readers(NamedTuple):
    """The durables of an agent or an account together."""

    unread: int = 0
    age: timedelta | None = None
    listening: int = 0
    repeated: int = 0

    def with_backlog(self, backlog: Backlog) -> _Readers:
        """Return the sum with another durable."""
        ages = [self.age, backlog.age if backlog.oldest_at is not None else None]
        return _Readers(
            self.unread + backlog.unread,
            max((age for age in ages if age is not None), default=None),
            self.listening + backlog.waiting,
            self.repeated + backlog.repeated,
        )


class ServiceQueries:
    """Answers requests about the whole service; the replies hold numbers and declared names only.

    An overview runs the queries of the gauges, and asks NATS once for each durable and for each
    partition with messages after its cursor.
    """

    def __init__(self, store: Store, catalog: Catalog, streams: StreamReads) -> None:
        self._store = store
        self._catalog = catalog
        self._streams = streams

    def table(self) -> Reads:
        """Return the model of each request and the method that answers it."""
        return {
            "service.overview": (ServiceOverview, self._overview),
            "service.catalog": (ServiceCatalog, self._declarations),
        }

    async def _overview(self, _: ServiceOverview) -> ServiceOverviewReply:
        rows = await self._read_rows()
        cursors = {owner.partition: owner.cursor for owner in rows.owners}
        try:
            lags = await self._streams.find_lags(cursors)
            has_lags = True
        except BusUnavailableError:
            # An overview without lags says more than none.
            lags, has_lags = {}, False
        agents, accounts = self._agent_names(rows.figures), self._account_names()
        durables = await self._read_durables(accounts[:MAX_LISTED])
        at = datetime.now(UTC)
        oldest_outbox = rows.figures.outbox_oldest_seconds
        return ServiceOverviewReply(
            id=new_envelope_id(),
            at=at,
            routers=rows.router_ids,
            partitions=tuple(
                PartitionState(
                    log=owner.partition.log,
                    number=owner.partition.number,
                    owner=owner.owner if (owner.lease_seconds or 0) > 0 else None,
                    cursor=owner.cursor,
                    oldest_unread_at=_ago(at, lags.get(owner.partition)),
                )
                for owner in rows.owners
            ),
            agents=tuple(
                self._agent(name, rows.figures, durables, at) for name in agents[:MAX_LISTED]
            ),
            accounts=tuple(_accounts(accounts[:MAX_LISTED], rows.given_up, durables, at)),
            letters=tuple(_letters(rows.tallies, at)),
            has_lags=has_lags,
            outbox_oldest_at=_ago(at, timedelta(seconds=oldest_outbox)) if oldest_outbox else None,
            is_complete=len(agents) <= MAX_LISTED
            and len(accounts) <= MAX_LISTED
            and all(tally.number < MOST_TALLIED for tally in rows.tallies)
            and (rows.given_up is None or _has_all_groups(rows.given_up)),
        )

    async def _read_rows(self) -> _Rows:
        async with self._store.transaction() as connection:
            live = await routers.live(connection)
            owners = await partitions.holdings(connection)
            figures = await reconciliation_sql.sample(connection)
            tallies = await dead_letters.tally(connection)
            given_up = None
            # Their accounts need a look at many rows, and usually there are none.
            if any(tally.reason == DeadReason.DELIVERY_FAILED for tally in tallies):
                wanted = LetterFilter(
                    id=new_envelope_id(), at=datetime.now(UTC), reason=DeadReason.DELIVERY_FAILED
                )
                given_up = await letter_lists.count(connection, wanted)
        return _Rows(
            router_ids=tuple(router.id for router in live),
            # A log that is still read as a whole has a row of its own.
            owners=[owner for owner in owners if owner.partition.number >= 0],
            figures=figures,
            tallies=tallies,
            given_up=given_up,
        )

    async def _read_durables(self, accounts: Sequence[tuple[str, str]]) -> Mapping[str, _Readers]:
        """Return the readers of each agent by its name and of each account by its durable."""
        listed = {outbound_durable(*account) for account in accounts}
        chosen = [
            durable
            for durable in self._streams.durables
            if durable.stream in _OF_AGENTS or durable.name in listed
        ]
        at_once = Semaphore(_BACKLOGS_AT_ONCE)

        async def read(durable: DurableSpec) -> Backlog | None:
            async with at_once:
                return await self._streams.find_backlog(durable)

        backlogs = await gather(*map(read, chosen))
        found: dict[str, _Readers] = defaultdict(_Readers)
        for durable, backlog in zip(chosen, backlogs, strict=True):
            if backlog is not None:
                name = reader_of(durable)
                found[name] = found[name].with_backlog(backlog)
        return found

    def _agent_names(self, figures: Figures) -> list[str]:
        return sorted({*self._catalog.agents, *(turns.agent for turns in figures.turns)})

    def _account_names(self) -> list[tuple[str, str]]:
        return sorted(
            (platform.name, account)
            for platform in self._catalog.platforms.values()
            for account in platform.accounts
        )

    def _agent(
        self, name: str, figures: Figures, durables: Mapping[str, _Readers], at: datetime
    ) -> AgentState:
        declared = self._catalog.agents.get(name)
        readers = durables.get(name, _Readers())
        live = [turns for turns in figures.turns if turns.agent == name]
        return AgentState(
            agent=name,
            is_declared=declared is not None,
            delivery=None if declared is None else declared.delivery,
            turns=tuple(_turn_group(turns, at) for turns in live),
            unread=readers.unread,
            oldest_unread_at=_ago(at, readers.age),
            listening=readers.listening,
            working=sum(turns.workers for turns in live if turns.state == "claimed"),
        )

    async def _declarations(self, _: ServiceCatalog) -> ServiceCatalogReply:
        catalog = self._catalog
        return ServiceCatalogReply(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            platforms=tuple(
                _platform(catalog.platforms[name]) for name in sorted(catalog.platforms)
            ),
            agents=tuple(
                _agent_declaration(catalog.agents[name], catalog) for name in sorted(catalog.agents)
            ),
            resets=tuple(_resets(catalog.default_reset, catalog.class_reset)),
        )


def _ago(at: datetime, age: timedelta | None) -> datetime | None:
    return None if age is None else at - age


def _has_all_groups(totals: LetterTotals) -> bool:
    return totals.is_complete and totals.letters == sum(group.letters for group in totals.groups)


def _turn_group(turns: LiveTurns, at: datetime) -> TurnGroup:
    return TurnGroup(
        state=turns.state,
        turns=turns.number,
        oldest_at=at - timedelta(seconds=max(0.0, turns.oldest_seconds)),
    )


def _accounts(
    names: Iterable[tuple[str, str]],
    given_up: LetterTotals | None,
    durables: Mapping[str, _Readers],
    at: datetime,
) -> Iterable[AccountState]:
    groups = {
        (group.platform, group.account): group
        for group in (() if given_up is None else given_up.groups)
    }
    for platform, account in names:
        readers = durables.get(outbound_durable(platform, account), _Readers())
        letters = groups.get((platform, account))
        yield AccountState(
            platform=platform,
            account=account,
            waiting=readers.unread,
            oldest_waiting_at=_ago(at, readers.age),
            repeated=readers.repeated,
            listening=readers.listening,
            given_up=0 if letters is None else letters.letters,
            last_given_up_at=None if letters is None else letters.newest_at,
        )


def _letters(tallies: Iterable[Tally], at: datetime) -> Iterable[LetterAge]:
    for tally in sorted(tallies, key=lambda tally: tally.newest_seconds):
        yield LetterAge(
            reason=tally.reason,
            cause=cause_of(tally.reason),
            letters=tally.number,
            oldest_at=at - timedelta(seconds=tally.oldest_seconds),
            newest_at=at - timedelta(seconds=tally.newest_seconds),
        )


def _platform(platform: Platform) -> PlatformDeclaration:
    return PlatformDeclaration(
        platform=platform.name,
        accounts=tuple(
            AccountDeclaration(
                account=account.name,
                profiles=tuple(sorted(account.profiles)),
                has_home=account.home is not None,
                shows_rooms=account.shows_rooms,
                people_of=tuple("/".join(pair) for pair in sorted(account.people_of)),
            )
            for _, account in sorted(platform.accounts.items())
        ),
        busy=platform.busy,
        resets=tuple(_resets(platform.reset, platform.class_reset)),
        limits=tuple(_limits(platform.limits)),
        bots_allowed=platform.bots_allowed,
        command_prefix=platform.commands.prefix,
    )


def _agent_declaration(agent: Agent, catalog: Catalog) -> AgentDeclaration:
    return AgentDeclaration(
        agent=agent.name,
        profiles=tuple(
            sorted(name for name, served_by in catalog.profiles.items() if served_by == agent.name)
        ),
        delivery=agent.delivery,
        busy=agent.busy,
        lease_seconds=_seconds(agent.lease),
        max_attempts=agent.max_attempts,
        max_wait_seconds=_seconds(agent.max_wait),
        send_to=tuple(sorted(agent.send_to)),
    )


def _resets(policy: ResetPolicy | None, by_class: Mapping[str, ResetPolicy]) -> Iterable[ResetRule]:
    policies = [(None, policy), *sorted(by_class.items())]
    for klass, rule in policies:
        if rule is not None:
            yield ResetRule(
                session_class=klass,
                mode=rule.mode,
                at_hour=rule.at_hour,
                timezone=rule.timezone,
                idle_seconds=_seconds(rule.idle),
            )


def _limits(limits: Limits | None) -> Iterable[LimitRule]:
    if limits is None:
        return
    for scope, limit in (("chat", limits.per_chat), ("sender", limits.per_sender)):
        if limit is not None:
            yield LimitRule(scope=scope, messages=limit.messages, seconds=_seconds(limit.per))


def _seconds(span: timedelta) -> int:
    return max(0, span // timedelta(seconds=1))
