"""What workers do, in any order: they claim, renew, take in, answer, come late or die."""

from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from chatlane_schemas.turns import ClaimRequest, ClaimStatus, RenewRequest, RenewStatus, TurnTake
from tests.integration.any_order.base import Ground, until_answered
from tests.integration.any_order.router import Router
from tests.integration.any_order.rules.api_calls import Asked
from tests.integration.any_order.rules.events import a_few, happens, number
from tests.integration.any_order.rules.jobs import Job

_END_LEASE: Final = "UPDATE turns SET due_at = clock_timestamp() WHERE id = ANY($1::uuid[])"
_END_WAITS: Final = "UPDATE waiting SET ready_at = NULL WHERE session_id = ANY($1::uuid[])"


class Working(Ground):
    """Workers of agents of both deliveries."""

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
        request = ClaimRequest(
            id=asked,
            at=self.world.now,
            turn_id=turn_id,
            worker=worker,
            # One is of a release that does not.
            tells_begin=worker != "w3",
        )
        self._step(self._granted(router, agent, request), claimed={turn_id})

    async def _granted(self, router: Router, agent: str, request: ClaimRequest) -> None:
        reply = await until_answered(lambda: router.desk.claim(agent, request))
        if reply.status is not ClaimStatus.CLAIMED:
            return
        assert reply.attempt is not None
        tells_begin = bool(request.tells_begin)
        job = Job(reply, agent, reply.messages[-1].seq, tells_begin)
        if job.attempt not in self.story.claims and (reply.attempt == 1 or not tells_begin):
            self.story.begun.add(job.attempt)
        holder = self.story.claims.setdefault(job.attempt, request.id)
        assert holder == request.id, f"two workers have attempt {reply.attempt}"
        self.jobs.append(job)

    @happens(3, of=number, job=number, begins=st.booleans())
    def renew(self, of: int, job: int, begins: bool) -> None:  # noqa: FBT001 - drawn
        """A worker asks for more time, says that it begins, or that it has yet to begin."""
        if self.jobs:
            its = self.jobs[job % len(self.jobs)]
            assert its.reply.attempt is not None
            assert its.reply.token is not None
            its.has_begun |= begins
            request = RenewRequest(
                id=f"renew-{self.world.monotonic}",
                at=self.world.now,
                turn_id=its.reply.turn_id,
                attempt=its.reply.attempt,
                token=its.reply.token,
                begun=its.has_begun if its.tells_begin else None,
            )
            self._step(self._renewed(self._router(of), its, request))

    async def _renewed(self, router: Router, its: Job, request: RenewRequest) -> None:
        reply = await until_answered(lambda: router.desk.renew(its.agent, request))
        if reply.status is RenewStatus.RENEWED and request.begun is not None:
            (self.story.begun.add if request.begun else self.story.begun.discard)(its.attempt)

    @happens(3, of=number, job=number, is_again=st.booleans())
    def take_in(self, of: int, job: int, is_again: bool) -> None:  # noqa: FBT001 - drawn
        """A worker takes in what came while it works, or what it was told of before."""
        jobs = self.jobs or self.old_jobs
        if jobs:
            its = jobs[job % len(jobs)]
            after = 0 if is_again else its.seq
            self._take_in(self._router(of), its, after)

    def _take_in(self, router: Router, its: Job, after: int) -> None:
        assert its.reply.attempt is not None
        assert its.reply.token is not None
        request = TurnTake(
            id=f"take-{self.world.monotonic}",
            at=self.world.now,
            turn_id=its.reply.turn_id,
            attempt=its.reply.attempt,
            token=its.reply.token,
            after_seq=after,
        )
        asking = until_answered(lambda: router.desk.take(its.agent, request))
        reply = self._step(asking, taking=request)
        its.seq = max([its.seq, *(one.seq for one in reply.messages)])

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

    @happens(4, of=number, job=number, has_options=st.booleans(), is_heard=st.booleans())
    def park(self, of: int, job: int, has_options: bool, is_heard: bool) -> None:  # noqa: FBT001
        """A worker asks the person, and gives its turn up until the answer; or asks once more."""
        jobs = self.jobs or self.old_jobs
        if jobs:
            its = jobs[job % len(jobs)]
            asked = self.asking.question(its, has_options=has_options)
            self._step(self._parked(self._router(of), its, asked, is_heard=is_heard), asked=asked)

    async def _parked(self, router: Router, its: Job, asked: Asked, *, is_heard: bool) -> None:
        for _ in range(1 if is_heard else 2):
            await until_answered(lambda: self.asking.ask(router, asked))
        if asked.reply is not None and asked.reply.error is None:
            self.story.begun.discard(its.attempt)
            self.story.questions.setdefault(its.reply.turn_id, []).append(
                asked.request.message.text
            )
            self.jobs.remove(its)
            self.old_jobs.append(its)

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
            self._step(self._end_leases([live[turn % len(live)]]))

    @happens()
    def end_wait(self) -> None:
        """What waits for its files has waited long enough."""
        self._step(self._end_waits())

    async def _end_waits(self) -> None:
        await self._execute(_END_WAITS, list(self.now.sessions))

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

    async def _end_leases(self, turns: list[UUID]) -> None:
        await self._execute(_END_LEASE, turns)
