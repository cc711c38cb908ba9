"""What may happen to conversations in any order, as rules; `laws.py` says what must hold.

People write, correct themselves and give commands; callers ask for changes; routers own
partitions, decide batches of any cut and publish, or die in between; workers claim, answer, come
late or die. What decides is all real, on a real Postgres. In the end one healthy router and
patient workers do what is left, and then nothing may be left.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Final, cast
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import rule
from typing_extensions import override

from chatlane.domain.log import LOGS, LogName
from chatlane.reconciliation.reconciler import Reconciler
from tests.integration.any_order.base import until_answered
from tests.integration.any_order.laws import unfinished
from tests.integration.any_order.people import Place
from tests.integration.any_order.router import Router, tried
from tests.integration.any_order.rules.api_calls import Asked
from tests.integration.any_order.rules.events import EVENTS, Event, a_few, happens, number, place
from tests.integration.any_order.rules.user_rules import Speaking
from tests.integration.any_order.rules.worker_rules import Working
from tests.integration.any_order.world import DURABLES, PARTITIONS

_MOST_ROUTERS: Final = 3
_ROUNDS: Final = 40
_END_ROUTERS: Final = """
WITH gone AS (
    UPDATE routers SET seen_until = '-infinity' WHERE id = ANY($1::uuid[])
)
UPDATE partitions SET lease_until = '-infinity' WHERE owner = ANY($1::uuid[])
"""


class ConversationMachine(Speaking, Working):
    """The rules; see the module."""

    @rule(event=st.deferred(lambda: st.one_of(EVENTS)))
    def happen(self, event: Event) -> None:
        """Let something happen."""
        getattr(self, event.name)(**event.arguments)

    @happens(6, where=place)
    def talk(self, where: Place) -> None:
        """Somebody writes and is answered, and nothing goes wrong."""
        self._hear(self.story.new(where).event)
        self._all_decide()
        self.work(0, 0, 3)
        while self.jobs:
            self.answer(0, "ok", 1, 1)
        self.subscribe(9, is_acknowledged=True, part=0)
        self._all_decide()

    def _all_decide(self) -> None:
        for number_of in range(len(self.routers)):
            self.own(number_of, PARTITIONS)
            self.decide(number_of, 100, LOGS, sends=True)

    # What routers do.

    @happens()
    def start(self) -> None:
        """A router starts."""
        if len(self.routers) < _MOST_ROUTERS:
            self.run(self._start())

    @happens(2, of=number, most=a_few)
    def own(self, of: int, most: int) -> None:
        """A router says that it is alive, and takes what is free."""
        self._step(tried(self._router(of).own(most)))

    @happens(of=number)
    def hand_back(self, of: int) -> None:
        """A router gives up what it has."""
        self._step(tried(self._router(of).hand_back()))

    @happens(of=number)
    def take_over(self, of: int) -> None:
        """The leases of a router end, though it goes on with what it believes."""
        self._step(self._end_routers([self._router(of)]))

    @happens(of=number)
    def kill(self, of: int) -> None:
        """A router is killed; soon it counts as dead."""
        if len(self.routers) > 1:
            router = self._router(of)
            self.routers.remove(router)
            self._step(self._kill(router))

    async def _kill(self, router: Router) -> None:
        await router.end()
        await self._end_routers([router])

    @happens(
        of=number, fates=st.lists(st.sampled_from(["lost", "unanswered"]), min_size=1, max_size=2)
    )
    def lose(self, of: int, fates: list[Any]) -> None:
        """The next commits of a router get lost, or their answers do."""
        self._router(of).store.fates.extend(fates)

    @happens(
        12,
        of=number,
        most=a_few,
        logs=st.sampled_from([LOGS, LOGS, ("inbound",), ("results",)]),
        sends=st.sampled_from([True, True, False]),
    )
    def decide(self, of: int, most: int, logs: tuple[LogName, ...], sends: bool) -> None:  # noqa: FBT001
        """A router decides a batch, and mostly publishes at once what comes of it."""
        router = self._router(of)
        self._step(router.decide(most, logs))
        if sends:
            self._step(self._let_go(router, 10_000, "stored"))

    @happens(2, of=number, most=a_few)
    def decide_together(self, of: int, most: int) -> None:
        """All routers decide a batch at once, in whatever order the database lets them."""
        routers = self.routers[of % len(self.routers) :]
        self._step(self._together([one.decide(most) for one in routers]), is_ordered=False)

    async def _together(self, works: list[Awaitable[None]]) -> None:
        await asyncio.gather(*works)

    @happens(4, of=number, count=st.integers(1, 20))
    def publish(self, of: int, count: int) -> None:
        """Some of what a router has sent reaches the streams, and it hears of that."""
        self._step(self._let_go(self._router(of), count, "stored"))

    @happens(of=number, count=a_few, fate=st.sampled_from(["unanswered", "lost", "full"]))
    def lose_publishes(self, of: int, count: int, fate: str) -> None:
        """Some of what a router has sent is stored unheard of, or gets lost, or is refused."""
        self._step(self._let_go(self._router(of), count, fate))

    async def _let_go(self, router: Router, count: int, fate: str) -> None:
        await router.settle()
        await self.world.release(router.publisher, count, fate)
        router.relay.retry_now()
        await router.settle()

    @happens(2, of=number)
    def sweep(self, of: int) -> None:
        """A router takes up what dead ones left, and deletes what is published."""
        self._step(self._sweep(self._router(of)))

    async def _sweep(self, router: Router) -> None:
        await tried(router.relay.adopt_orphans())
        await router.relay.clear()

    @happens(of=number)
    def sweep_turns(self, of: int) -> None:
        """A router looks for turns whose time has come."""
        self._step(tried(self._router(of).deadlines.sweep()), may_expire=True)

    @happens(of=number)
    def sweep_ends(self, of: int) -> None:
        """A router looks for conversations whose time is over."""
        self._step(self._sweep_ends(self._router(of)))

    async def _sweep_ends(self, router: Router) -> None:
        await tried(router.ends.arm())
        await tried(router.ends.sweep())

    # What callers ask for.

    @happens(
        5,
        of=number,
        kind=st.sampled_from(
            [
                "reset",
                "stop",
                "end",
                "reopen",
                "suspend",
                "submit",
                "fork",
                "branch",
                "switch",
                "cancel",
                "retry",
                "compact",
                "compact",
                "continue",
                "remove",
            ]
        ),
        session=number,
        other=number,
    )
    def ask(self, of: int, kind: str, session: int, other: int) -> None:
        """Somebody asks for a change."""
        asked = self.asking.new(kind, self.now, session, other)
        if asked is not None:
            self._ask(self._router(of), asked)

    @happens(of=number, request=number)
    def ask_again(self, of: int, request: int) -> None:
        """Somebody who heard no answer asks again, perhaps another router."""
        if self.asking.asked:
            self._ask(self._router(of), self.asking.asked[request % len(self.asking.asked)])

    def _ask(self, router: Router, asked: Asked) -> None:
        is_new = asked.reply is None
        asking = until_answered(lambda: self.asking.ask(router, asked))
        self._step(asking, asked=asked if is_new else None)

    # What time does.

    @happens(span=st.sampled_from([1, 59, 61, 90]), of=number, freezes=st.booleans())
    def pass_time(self, span: int, of: int, freezes: bool) -> None:  # noqa: FBT001 - drawn
        """Minutes pass; if they are many, a router may have been frozen for as long."""
        if span > 1:
            frozen = self._router(of) if freezes and len(self.routers) > 1 else None
            self._step(self._long_pause(timedelta(minutes=span), frozen))
        else:
            self.world.pass_time(timedelta(minutes=span))

    async def _long_pause(self, span: timedelta, frozen: Router | None) -> None:
        """Let everybody who is awake finish what takes seconds, before streams forget ids."""
        awake = [router for router in self.routers if router is not frozen]
        if frozen is not None:
            await self._end_routers([frozen])
        # What one of them publishes may be what another one waits for.
        for router in (*awake, *awake):
            router.store.fates.clear()
            await self._sweep(router)
            await self._let_go(router, 10_000, "stored")
            await self._sweep(router)
        self.world.forget_ids()
        self.world.pass_time(span)
        if frozen is not None:
            await self._let_go(frozen, 10_000, "lost")

    async def _end_routers(self, routers: list[Router]) -> None:
        await self._execute(_END_ROUTERS, [one.id for one in routers])

    # The end.

    @override
    def teardown(self) -> None:
        """Let one healthy router and patient workers do what is left, and look what is left."""
        try:
            self._drain()
            found = unfinished(self.now, self.story)
            assert not found, "\n".join(found)
            self._compare()
        finally:
            for router in self.routers:
                self.run(router.end())
            self.patches.close()
            self.run(self.world.close())

    def _drain(self) -> None:
        for router in list(self.routers):
            self.routers.remove(router)
            self._step(self._kill(router))
        self.run(self._start())
        router = self.routers[0]
        for _ in range(_ROUNDS):
            if self._is_done():
                return
            self._round(router)
        raise AssertionError(
            "there is no end to it:\n" + "\n".join(unfinished(self.now, self.story))
        )

    def _round(self, router: Router) -> None:
        self._step(router.own(PARTITIONS))
        for job in self.jobs:
            self._answer(job)
        self.jobs.clear()
        self._step(router.decide(1000))
        self._step(self._sweep(router))
        self._step(self._let_go(router, 10_000, "stored"))
        self._step(self._sweep(router))
        self.subscribe(10_000, is_acknowledged=True, part=0)
        for notice in self.now.stored["TURNS"][self.told_to :]:
            self._claim(router, UUID(notice.body["turn_id"]), notice.body["agent"], "w9")
        self.told_to = len(self.now.stored["TURNS"])
        if not self.jobs:
            live = [one.id for one in self.now.turns.values() if one.is_live]
            self._step(self._end_waits())
            self._step(self._end_leases(live))
            self._step(router.deadlines.sweep(), may_expire=True)

    def _is_done(self) -> bool:
        unread = self.run(self._unread())
        return not (
            unread
            or self.jobs
            or any(self.now.unsent.values())
            or any(one.is_live for one in self.now.turns.values())
            or self.routed_to < len(self.now.stored["ROUTED"])
        )

    async def _unread(self) -> int:
        return sum(
            [
                len(await self.world.read(its, cursor, 1))
                for its, (cursor, _) in self.now.cursors.items()
            ]
        )

    def _compare(self) -> None:
        """Require that a comparison of database and streams finds nothing."""
        router, world = self.routers[0], cast("Any", self.world)
        reconciler = Reconciler(
            world,
            self.world.store.transaction,
            router.writer,
            router.metrics,
            contents=world,
            lost_messages=world,
            declared_durables=DURABLES,
            patience=timedelta(0),
            every=timedelta(0),
        )
        self.run(reconciler.run())
        assert reconciler.found == {}
