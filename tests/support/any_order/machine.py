"""What may happen to conversations in any order, as rules; `laws.py` says what must hold.

People write, correct themselves and give commands; callers ask for changes; routers own
partitions, decide batches of any cut and publish, or die in between; workers claim, answer, come
late or die. What decides is all real, on a real Postgres. In the end one healthy router and
patient workers do what is left, and then nothing may be left.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from typing_extensions import override

from chatlane.domain.commands import PASSED_ON
from chatlane.domain.log import LOGS, LogMessage, LogName
from chatlane.errors import TransientError
from chatlane.routing.deciding import decoded
from chatlane.routing.inbound import Prepared
from chatlane.routing.reconciling import Reconciler
from chatlane_schemas.codec import encode
from chatlane_schemas.inbound import InboundEvent, Kind
from chatlane_schemas.subjects import chat_token_of, partition_of
from chatlane_schemas.turns import ClaimReply, ClaimRequest, ClaimStatus, RenewRequest
from tests.support.any_order.asking import Asked, Asking
from tests.support.any_order.laws import Step, broken, unfinished
from tests.support.any_order.people import PLACES, Decided, Place, Said, Story
from tests.support.any_order.router import Router, tried
from tests.support.any_order.snapshot import Snapshot, look
from tests.support.any_order.world import DURABLES, PARTITIONS, World
from tests.support.kernel import message_id_of

_MOST_ROUTERS: Final = 3
_ROUNDS: Final = 40
_END_ROUTERS: Final = """
WITH gone AS (
    UPDATE routers SET seen_until = '-infinity' WHERE id = ANY($1::uuid[])
)
UPDATE partitions SET lease_until = '-infinity' WHERE owner = ANY($1::uuid[])
"""
_END_LEASE: Final = "UPDATE turns SET due_at = clock_timestamp() WHERE id = ANY($1::uuid[])"

number = st.integers(0, 9)
a_few = st.integers(1, 6)
place = st.sampled_from(PLACES)

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens: the name of a method of the machine, and what it is given."""

    name: str
    arguments: dict[str, Any]

    @override
    def __repr__(self) -> str:
        return (
            f"{self.name}({', '.join(f'{name}={its!r}' for name, its in self.arguments.items())})"
        )


_EVENTS: Final[list[st.SearchStrategy[Event]]] = []


def happens(often: int = 1, **drawn: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Make a method one of the things that may happen, so many times as often as others.

    All of them are one rule: of several ones Hypothesis leaves some out of each example, and
    without any one of the usual things nothing comes of the others.
    """

    def note(method: F) -> F:
        for _ in range(often):
            arguments = st.fixed_dictionaries(drawn)
            _EVENTS.append(st.builds(Event, st.just(method.__name__), arguments))
        return method

    return note


@dataclass(slots=True)
class Job:
    """What a worker was given."""

    reply: ClaimReply
    agent: str

    def result(self, name: str, outcome: str, *, parts: int, retry: bool) -> dict[str, Any]:
        """Return a result of it, as the worker publishes it."""
        its = self.reply
        heard = " ".join(str(message.text) for message in its.messages)
        return {
            "v": 1,
            "id": name,
            "at": its.at.isoformat(),
            "session_id": str(its.session_id),
            "turn_id": str(its.turn_id),
            "attempt": its.attempt,
            "token": its.token,
            "outcome": outcome,
            "retry": retry,
            "parts": [{"text": f"{heard} ({name}.{n})"} for n in range(parts)],
        }


class ConversationMachine(RuleBasedStateMachine):
    """The rules; see the module.

    Args:
        make_world: Makes what everybody shares, empty for each example.
    """

    def __init__(self, make_world: Callable[[], World]) -> None:
        super().__init__()
        self.world = make_world()
        self.story = Story()
        self.routers: list[Router] = []
        self.dead: list[Router] = []
        self.made = 0
        self.jobs: list[Job] = []
        self.old_jobs: list[Job] = []
        self.told_to = 0
        self.routed_to = 0
        self.asking = Asking(self.world, self.story)
        self.patches = ExitStack()
        self.patches.enter_context(self.world.clocks())
        self.run(self.world.open())
        self.now: Snapshot = self.run(look(self.world))
        self.run(self._start())

    def run(self, work: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever the work returns
        """Let the loop run until a piece of work is done."""
        return self.world.stage.run(work)

    @rule(event=st.deferred(lambda: st.one_of(_EVENTS)))
    def happen(self, event: Event) -> None:
        """Let something happen."""
        getattr(self, event.name)(**event.arguments)

    # What people do.

    @happens(8, where=place, count=st.integers(1, 4))
    def say(self, where: Place, count: int) -> None:
        """Somebody writes."""
        for _ in range(count):
            self._hear(self.story.new(where).event)

    @happens(of=number)
    def repeat(self, of: int) -> None:
        """A platform sends something again."""
        if self.story.by_mid:
            said = self._recent(of)
            self._hear(said.event)

    @happens(2, of=number, version=st.integers(1, 3))
    def edit(self, of: int, version: int) -> None:
        """Somebody corrects what they wrote; platforms may bring corrections in any order."""
        if self._spoken():
            self._edit(self._recent(of, self._spoken()), version)

    @happens(where=place)
    def overtake(self, where: Place) -> None:
        """A correction comes before the message."""
        said = self.story.new(where)
        self._edit(said, 1)
        self._hear(said.event)

    @happens(of=number)
    def delete(self, of: int) -> None:
        """Somebody takes back what they wrote."""
        if self._spoken():
            said = self._recent(of, self._spoken())
            assert said.place is not None
            self._hear(said.place.event(mid=said.mid, kind="delete"))

    @happens(
        3,
        where=place,
        words=st.sampled_from(
            ["/new", "/stop", "/undo", "/title it", "/resume 2", "/branch", "/new", "/status"]
        ),
    )
    def command(self, where: Place, words: str) -> None:
        """Somebody tells the router something."""
        self._hear(self.story.new(where, words).event)

    # What routers do.

    @happens()
    def start(self) -> None:
        """A router starts."""
        if len(self.routers) < _MOST_ROUTERS:
            self.run(self._start())

    async def _start(self) -> None:
        self.made += 1
        router = Router(self.world, self.made)
        self.routers.append(router)
        await tried(router.own(PARTITIONS))

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
        await self.world.let_go(router.publisher, count, fate)
        router.relay.hurry()
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

    # What workers do.

    @happens(10, of=number, skip=st.sampled_from([0, 0, 1]), count=st.integers(1, 3))
    def work(self, of: int, skip: int, count: int) -> None:
        """Workers read notifications and claim; those that are skipped got lost."""
        notices = self.now.stored["TURNS"][self.told_to :][skip : skip + count]
        self.told_to += skip + len(notices) if notices else 0
        for one in notices:
            self._claim(self._router(of), UUID(one.body["turn_id"]), one.body["agent"], "w1")

    @happens(of=number, turn=number, is_known=st.booleans())
    def claim_again(self, of: int, turn: int, is_known: bool) -> None:  # noqa: FBT001 - drawn
        """Somebody claims a turn that may be somebody's, or asks for its answer again."""
        live = [one for one in self.now.turns.values() if one.is_live]
        if live:
            its = live[turn % len(live)]
            known = self.story.claims.get((its.id, its.attempt)) if is_known else None
            self._claim(self._router(of), its.id, its.agent, "w3", known)

    def _claim(
        self, router: Router, turn_id: UUID, agent: str, worker: str, claim_id: str | None = None
    ) -> None:
        asked = claim_id or f"claim-{len(self.story.claims)}-{worker}-{self.world.monotonic}"
        request = ClaimRequest(id=asked, at=self.world.now, turn_id=turn_id, worker=worker)
        self._step(self._granted(router, agent, request), claimed={turn_id})

    async def _granted(self, router: Router, agent: str, request: ClaimRequest) -> None:
        reply = await _until_answered(lambda: router.desk.claim(agent, request))
        if reply.status is not ClaimStatus.CLAIMED:
            return
        assert reply.attempt is not None
        holder = self.story.claims.setdefault((reply.turn_id, reply.attempt), request.id)
        assert holder == request.id, f"two workers have attempt {reply.attempt}"
        self.jobs.append(Job(reply, agent))

    @happens(of=number, job=number)
    def renew(self, of: int, job: int) -> None:
        """A worker asks for more time."""
        if self.jobs:
            its = self.jobs[job % len(self.jobs)]
            assert its.reply.attempt is not None
            assert its.reply.token is not None
            request = RenewRequest(
                id=f"renew-{self.world.monotonic}",
                at=self.world.now,
                turn_id=its.reply.turn_id,
                attempt=its.reply.attempt,
                token=its.reply.token,
            )
            router = self._router(of)
            self._step(_until_answered(lambda: router.desk.renew(its.agent, request)))

    @happens(
        9,
        job=number,
        outcome=st.sampled_from(["ok", "ok", "ok", "no_reply", "failed", "retry"]),
        parts=st.integers(1, 2),
        copies=st.integers(1, 2),
    )
    def answer(self, job: int, outcome: str, parts: int, copies: int) -> None:
        """A worker ends its turn; its result may be stored twice."""
        if self.jobs:
            its = self.jobs.pop(job % len(self.jobs))
            self.old_jobs.append(its)
            self._answer(its, outcome, parts, copies)

    def _answer(self, its: Job, outcome: str = "ok", parts: int = 1, copies: int = 1) -> None:
        word = "failed" if outcome == "retry" else outcome
        name = f"result-{len(self.story.results)}"
        count = parts if word == "ok" else 0
        result = its.result(name, word, parts=count, retry=outcome == "retry")
        for _ in range(copies):
            self._results(its.agent, result)

    @happens(job=number, outcome=st.sampled_from(["ok", "failed"]))
    def answer_late(self, job: int, outcome: str) -> None:
        """A worker that was given up, or has answered, answers once more."""
        if self.old_jobs:
            self._answer(self.old_jobs[job % len(self.old_jobs)], outcome)

    @happens(job=number)
    def forget_job(self, job: int) -> None:
        """A worker dies, or freezes."""
        if self.jobs:
            self.old_jobs.append(self.jobs.pop(job % len(self.jobs)))

    @happens(turn=number)
    def end_lease(self, turn: int) -> None:
        """The time of a turn comes: of its lease, or of its next notification."""
        live = [one.id for one in self.now.turns.values() if one.is_live]
        if live:
            self._step(self._execute(_END_LEASE, [live[turn % len(live)]]))

    @happens(3, count=a_few, is_acknowledged=st.booleans(), part=st.integers(0, 1))
    def subscribe(self, count: int, is_acknowledged: bool, part: int) -> None:  # noqa: FBT001
        """A stream worker answers what it reads, and may read it again."""
        routed = self.now.stored["ROUTED"][self.routed_to :][:count]
        for one in routed:
            self._answer_routed(one.body, part)
        if is_acknowledged and part == 0:
            self.routed_to += len(routed)

    def _answer_routed(self, routed: dict[str, Any], part: int = 0) -> None:
        name = f"answer-{len(self.story.results)}"
        body = {
            "v": 1,
            "id": name,
            "at": routed["at"],
            "session_id": routed["session_id"],
            "reply_to": routed["id"],
            "part": part,
            "text": f"{routed.get('text')} ({name})",
        }
        self._results("desk", body)

    # What callers ask for.

    @happens(
        2,
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
        target = [(asked.kind, asked.session_id)] if is_new else []
        self._step(_until_answered(lambda: self.asking.ask(router, asked)), asked=target)

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

    # What must hold.

    def _step(
        self,
        work: Awaitable[Any],
        *,
        claimed: set[UUID] | None = None,
        asked: list[tuple[str, UUID]] | None = None,
        may_expire: bool = False,
        is_ordered: bool = True,
    ) -> None:
        before = self.now
        self.run(self._do(work))
        decided = self.run(self._decided(before))
        step = Step(
            before, self.now, decided, claimed or set(), asked or [], may_expire, is_ordered
        )
        found = broken(step, self.story)
        for result_id, result in decided.results.items():
            result["counted"] = True
            del result_id
        assert not found, "\n".join(found)

    async def _do(self, work: Awaitable[Any]) -> None:
        await work
        for router in self.routers:
            await router.settle()
        self.now = await look(self.world)

    async def _decided(self, before: Snapshot) -> Decided:
        decided = Decided([], [], set(), {}, [])
        for partition, (cursor, _) in sorted(before.cursors.items()):
            until = self.now.cursors[partition][0]
            messages = await self.world.read(partition, cursor, 1000)
            for message in messages:
                if message.sequence <= until:
                    decided.messages.append(message)
                    self._note(message, decided)
        return decided

    def _note(self, message: LogMessage, decided: Decided) -> None:
        if message.log == "results":
            body = json.loads(message.body)
            decided.results[body["id"]] = self.story.results[body["id"]]
            return
        content = decoded(message, self.world.catalog).content
        assert isinstance(content, Prepared)
        event, story = content.heard.event, self.story
        said = story.by_mid[event.message_id or ""]
        if event.kind is Kind.EDIT:
            version = int(event.version or 0)
            if version > said.version and said.text is not None:
                said.version, said.text = version, event.text
        elif event.kind is Kind.DELETE:
            said.text = None
            decided.deleted.add(said.mid)
        elif said.order == 0:
            self._accept(said, content, message, decided)

    def _accept(self, said: Said, content: Prepared, message: LogMessage, decided: Decided) -> None:
        command, story = content.heard.command, self.story
        if command is not None and command.name in PASSED_ON:
            # What is said behind it is a message like any other.
            said.text, command = command.argument, None
        if command is not None or said.text is None:
            story.decided += 1
            said.order = story.decided
            if command is not None and command.name is not None:
                decided.commands.append((said.key, command.name, said.order))
            return
        message_id = message_id_of(message, self.world.catalog)
        assert message_id is not None
        story.accept(said, message_id)
        decided.accepted.append(said)

    # Helpers of the rules.

    def _router(self, of: int) -> Router:
        return self.routers[of % len(self.routers)]

    def _spoken(self) -> list[Said]:
        return [
            said
            for said in self.story.by_mid.values()
            if said.event is not None and not (said.event.text or "").startswith("/")
        ]

    def _recent(self, of: int, among: list[Said] | None = None) -> Said:
        said = [one for one in among or self.story.by_mid.values() if one.event is not None]
        return said[-1 - of % len(said)]

    def _edit(self, said: Said, version: int) -> None:
        assert said.place is not None
        text = f"{said.mid} v{version}"
        self._hear(said.place.event(mid=said.mid, kind="edit", version=str(version), text=text))

    def _hear(self, event: InboundEvent | None) -> None:
        assert event is not None
        token = chat_token_of(event)
        partition = partition_of(PARTITIONS, event.platform, event.account, token)
        subject = f"chat.v1.log.{partition}.{event.platform}.{event.account}.{token}"
        self.run(self.world.publish("inbound", partition, subject, encode(event)))

    def _results(self, agent: str, body: dict[str, Any]) -> None:
        self.story.results[body["id"]] = body
        session_id = body["session_id"]
        partition = partition_of(PARTITIONS, session_id)
        subject = f"chat.v1.rlog.{partition}.{agent}.{session_id}"
        self.run(self.world.publish("results", partition, subject, json.dumps(body).encode()))

    async def _execute(self, statement: str, ids: list[UUID]) -> None:
        async with self.world.store.transaction() as connection:
            await connection.execute(statement, ids)

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
            self._step(self._execute(_END_LEASE, live))
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


async def _until_answered(ask: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - its answer
    """Ask until the database has let somebody answer, as every caller does."""
    while True:
        try:
            return await ask()
        except TransientError:
            continue
