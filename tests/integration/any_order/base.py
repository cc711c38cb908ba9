"""What all events stand on: the world, the story, and one step after the other with its laws."""

import json
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine

from chatlane.decisions.batch_decision import decoded
from chatlane.decisions.inbound_decoder import ValidatedEvent
from chatlane.domain.commands.command_words import PASSED_ON
from chatlane.domain.log import LogMessage
from chatlane.errors import TransientError
from chatlane_schemas.codec import encode
from chatlane_schemas.inbound import InboundEvent, Kind
from chatlane_schemas.topology.subjects import chat_token_of, partition_of
from chatlane_schemas.turns import TurnTake
from tests.integration.any_order.derived_ids import note_late_files, note_retries
from tests.integration.any_order.laws import broken
from tests.integration.any_order.people import Decided, Said, Story
from tests.integration.any_order.router import Router, tried
from tests.integration.any_order.rules.api_calls import Asked, Asking
from tests.integration.any_order.rules.jobs import Job, Taken
from tests.integration.any_order.rules.steps import Step
from tests.integration.any_order.snapshot import Snapshot, look
from tests.integration.any_order.world import PARTITIONS, World
from tests.support.worlds.kernel import message_id_of


class Ground(RuleBasedStateMachine):
    """One example.

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
        self.run(until_answered(self.world.open))
        self.now: Snapshot = self.run(until_answered(lambda: look(self.world)))
        self.run(self._start())

    def run(self, work: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever the work returns
        """Let the loop run until a piece of work is done."""
        return self.world.stage.run(work)

    async def _start(self) -> None:
        self.made += 1
        router = Router(self.world, self.made)
        self.routers.append(router)
        await tried(router.own(PARTITIONS))

    # What must hold.

    def _step(
        self,
        work: Awaitable[Any],
        *,
        claimed: set[UUID] | None = None,
        taking: TurnTake | None = None,
        asked: Asked | None = None,
        may_expire: bool = False,
        is_ordered: bool = True,
    ) -> Any:  # noqa: ANN401 - whatever the work returns
        before = self.now
        answer = self.run(self._do(work))
        known = self.story.decided
        decided = self.run(self._decided(before))
        if decided.moves and self.story.moved_at is None:
            self.story.moved_at = known
        step = Step(
            before,
            self.now,
            decided,
            claimed=claimed or set(),
            taken=None if taking is None else Taken(taking, answer),
            asked=asked,
            may_expire=may_expire,
            is_ordered=is_ordered,
        )
        if taking is not None:
            self.story.taken |= {row.id for row in step.joined() if row.id is not None}
        answers = {row.id for row in step.answers() if row.id is not None}
        self.story.answers |= answers
        # They go past what waits for the next turn.
        self.story.taken |= answers
        note_retries(step, self.story)
        note_late_files(step, self.story)
        found = broken(step, self.story)
        for result_id in decided.results:
            self.story.results[result_id]["counted"] = True
        assert not found, "\n".join(found)
        return answer

    async def _do(self, work: Awaitable[Any]) -> Any:  # noqa: ANN401 - what it returns
        answer = await work
        for router in self.routers:
            await router.settle()
        # A slow machine is no failure: transactions are given up when nothing happens in them.
        self.now = await until_answered(lambda: look(self.world))
        return answer

    async def _decided(self, before: Snapshot) -> Decided:
        decided = Decided([], [], set(), {}, [], {}, [])
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
        assert isinstance(content, ValidatedEvent)
        event, story = content.declared.event, self.story
        if event.kind is Kind.MIGRATION:
            decided.moves.append(message)
            return
        said = story.by_mid[event.message_id or ""]
        if event.kind is Kind.EDIT:
            version = int(event.version or 0)
            if version > said.version and said.text is not None:
                said.version, said.text = version, event.text
        elif event.kind is Kind.DELETE:
            said.text = None
            decided.deleted.add(said.mid)
        elif event.kind is Kind.ATTACHMENTS and said.mid not in story.brought:
            story.brought.add(said.mid)
            by_itself = message_id_of(message, self.world.catalog)
            assert by_itself is not None
            story.decided += 1
            decided.files[said.mid] = by_itself, story.decided
        elif event.kind is not Kind.ATTACHMENTS and said.order == 0:
            self._accept(said, content, message, decided)

    def _accept(
        self, said: Said, content: ValidatedEvent, message: LogMessage, decided: Decided
    ) -> None:
        command, story = content.declared.command, self.story
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
        await until_answered(lambda: self._execute_once(statement, ids))

    async def _execute_once(self, statement: str, ids: list[UUID]) -> None:
        async with self.world.store.transaction() as connection:
            await connection.execute(statement, ids)


async def until_answered(ask: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - its answer
    """Ask until the database has let somebody answer, as every caller does."""
    while True:
        try:
            return await ask()
        except TransientError:
            continue
