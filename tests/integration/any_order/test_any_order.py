"""A state machine of conversations: any events in any order, on streams in memory and real ones."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from chatlane.domain.effects import Effects
from chatlane.domain.log import LOGS
from chatlane.domain.states import Turn
from chatlane.domain.turns import claims, turn_results
from chatlane.outbox.relay import Relay
from chatlane.store import outbox, pending_messages
from chatlane.store.addressing import dedupe_marks
from chatlane.store.conversations import lane_merges, removals
from chatlane.store.history import transcript_changes
from chatlane.turns import claims as claim_service
from chatlane.turns import leases
from chatlane_schemas.turns import ClaimStatus, RenewStatus
from tests.integration.any_order.machine import ConversationMachine
from tests.integration.any_order.people import PLACES
from tests.integration.any_order.servers import ServerWorld
from tests.integration.any_order.world import Stage, World
from tests.support.servers.backends import RunningServer

pytestmark = pytest.mark.integration

# The same ones every time, and not shrunk; who asks for more gets others, shrunk.
_MORE: Final = os.environ.get("CHATLANE_TEST_EXAMPLES")
QUICK: Final = 5
EXAMPLES: Final = settings(
    max_examples=int(_MORE or 25),
    stateful_step_count=60,
    deadline=None,
    derandomize=_MORE is None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if _MORE else [Phase.generate],
)


@pytest.fixture
def stage(shared_database_url: str) -> Iterator[Stage]:
    opened = Stage(shared_database_url)
    yield opened
    opened.close()


def machine_on(world_of: Callable[[], World]) -> type[ConversationMachine]:
    class Machine(ConversationMachine):
        def __init__(self) -> None:
            super().__init__(world_of)

    return Machine


def test_conversations_are_whole_in_some_orders(stage: Stage) -> None:
    few = settings(EXAMPLES, max_examples=QUICK)
    run_state_machine_as_test(machine_on(lambda: World(stage)), settings=few)


@pytest.mark.slow
@pytest.mark.timeout(0 if _MORE else 600)
def test_conversations_are_whole_whatever_happens(stage: Stage) -> None:
    run_state_machine_as_test(machine_on(lambda: World(stage)), settings=EXAMPLES)


@pytest.mark.timeout(0 if _MORE else 600)
def test_conversations_are_whole_on_a_real_server(stage: Stage, shared_nats: RunningServer) -> None:
    machine = machine_on(lambda: ServerWorld(stage, shared_nats.url))
    # Fewer, for each step asks the server many times.
    few = settings(EXAMPLES, max_examples=max(3, EXAMPLES.max_examples // 10))
    run_state_machine_as_test(machine, settings=few)


# What is broken on purpose must be noticed, by the shortest ways to it; nothing is where it is not.


class Way(NamedTuple):
    """Steps that lead to harm where something is broken, and what is said of it then."""

    steps: Callable[[ConversationMachine], None]
    breaking: Callable[[], AbstractContextManager[Any]]
    noticed: str


async def _nothing(*_arguments: object) -> None:
    return


async def _none_waits(*_arguments: object) -> set[Any]:
    return set()


def _granted(turn: Any, agent: str, claim_id: str) -> ClaimStatus:  # noqa: ANN401 - not looked at
    status = _claim_status(turn, agent, claim_id)
    return ClaimStatus.CLAIMED if status is ClaimStatus.TAKEN else status


_claim_status: Final = claims.claim_status


def _told_no_more(turn: Turn, effects: Effects) -> None:
    turn.state = "ready"
    effects.changed_turns.append(turn)


def _changed(module: ModuleType, name: str, part: str, instead: str) -> AbstractContextManager[Any]:
    statement = getattr(module, name)
    assert part in statement
    return patch.object(module, name, statement.replace(part, instead))


def _answer_after_another_claim(machine: ConversationMachine) -> None:
    _run_one_turn_until_it_is_claimed(machine)
    machine.forget_job(0)
    machine.end_lease(0)
    machine.sweep_turns(0)
    machine.publish(0, 9)
    machine.work(0, 0, 1)
    machine.answer_late(0, "ok")
    _decide(machine)


def _run_one_turn_until_it_is_claimed(machine: ConversationMachine) -> None:
    machine.say(TURNS, 1)
    _decide(machine)
    machine.work(0, 0, 1)


def _decide(machine: ConversationMachine, of: int = 0, *, sends: bool = True) -> None:
    machine.decide(of, 6, LOGS, sends=sends)


def _answer_two_claims_too_late(machine: ConversationMachine) -> None:
    _run_one_turn_until_it_is_claimed(machine)
    _end_what_is_claimed(machine)
    machine.publish(0, 9)
    machine.jobs.clear()
    machine.work(0, 0, 1)
    _end_what_is_claimed(machine)


def _end_what_is_claimed(machine: ConversationMachine) -> None:
    machine.end_lease(0)
    machine.sweep_turns(0)


def _ask_for_time_too_late(machine: ConversationMachine) -> None:
    _answer_two_claims_too_late(machine)
    machine.renew(0, 0, begins=False)
    _end_what_is_claimed(machine)


def _claim_what_another_has(machine: ConversationMachine) -> None:
    _run_one_turn_until_it_is_claimed(machine)
    machine.claim_again(0, 0, is_known=False)


def _say_twice(machine: ConversationMachine) -> None:
    machine.say(TURNS, 1)
    _decide(machine)
    machine.repeat(0)
    _decide(machine)


def _leave_two_to_the_sweep(machine: ConversationMachine) -> None:
    machine.say(STREAM, 2)
    _decide(machine, sends=False)
    machine.start()
    machine.kill(0)
    machine.sweep(0)
    machine.publish(0, 9)


def _overtake_one_that_sleeps(machine: ConversationMachine) -> None:
    machine.say(STREAM, 1)
    _decide(machine, sends=False)
    machine.take_over(0)
    machine.start()
    machine.say(STREAM, 1)
    _decide(machine, 1)


def _go_on_after_an_unanswered_commit(machine: ConversationMachine) -> None:
    machine.say(STREAM, 1)
    machine.lose(0, ["unanswered"])
    _decide(machine, sends=False)
    machine.own(0, 4)
    machine.say(STREAM, 1)
    _decide(machine)


def _say_more_while_a_turn_runs(machine: ConversationMachine) -> None:
    _run_one_turn_until_it_is_claimed(machine)
    machine.say(TURNS, 1)
    _decide(machine)
    machine.answer(0, "ok", 1, 1)
    _decide(machine)


def _lose_the_first_notification(machine: ConversationMachine) -> None:
    machine.say(TURNS, 1)
    _decide(machine)
    machine.told_to += 1
    machine.end_lease(0)
    machine.sweep_turns(0)


def _take_in_after_another_claim(machine: ConversationMachine) -> None:
    _run_one_turn_until_it_is_claimed(machine)
    machine.forget_job(0)
    machine.end_lease(0)
    machine.sweep_turns(0)
    machine.publish(0, 9)
    machine.work(0, 0, 1)
    machine.pass_on(TURNS, "/steer")
    _decide(machine)
    # The new worker is slow, and the old one asks.
    slow = machine.jobs.pop()
    machine.take_in(0, 0, is_again=False)
    machine.jobs.append(slow)


def _take_away_what_has_a_line(machine: ConversationMachine) -> None:
    machine.say(TURNS, 1)
    _decide(machine)
    machine.ask(0, "remove", 0, 0)


def _go_on_behind_a_summary(machine: ConversationMachine) -> None:
    for _ in range(3):
        machine.talk(TURNS)
    machine.ask(0, "continue", 0, 0)


def _let_the_last_turn_run_again(machine: ConversationMachine) -> None:
    machine.talk(TURNS)
    machine.command(TURNS, "/retry")
    _decide(machine)


def _answer_after_the_chat_moved(machine: ConversationMachine) -> None:
    machine.say(GROUP, 1)
    _decide(machine)
    machine.work(0, 0, 1)
    machine.move()
    _decide(machine)
    machine.answer(0, "ok", 1, 1)
    _decide(machine)


def _show_an_album_where_messages_queue(machine: ConversationMachine) -> None:
    machine.show(QUEUE, 2)
    _decide(machine)
    machine.end_lease(0)
    machine.sweep_turns(0)
    machine.publish(0, 9)
    machine.work(0, 0, 1)


def _bring_files_while_they_are_waited_for(machine: ConversationMachine) -> None:
    machine.announce(TURNS, is_late=False)
    _decide(machine)


async def _nothing_to_bring(*_arguments: object, **_more: object) -> bool:
    return False


def _granted_to_who_says_nothing(turn: Turn, *, tells_begin: bool, **more: Any) -> None:  # noqa: ANN401
    del tells_begin
    _grant(turn, **more)


_grant: Final = claims.grant


def _always_held(*_arguments: object) -> RenewStatus:
    return RenewStatus.RENEWED


async def _nothing_taken_out(*_arguments: object, **_more: object) -> int:
    return 0


TURNS: Final = PLACES[0]
GROUP: Final = PLACES[1]
STREAM: Final = PLACES[5]
QUEUE: Final = PLACES[9]
WAYS: Final = {
    "results count whoever they are of": Way(
        _answer_after_another_claim,
        lambda: patch.object(turn_results, "_is_current", lambda _, turn: turn.is_live),
        "unfenced",
    ),
    "a turn is given to whoever asks": Way(
        _claim_what_another_has,
        lambda: patch.object(claims, "claim_status", _granted),
        "unfenced",
    ),
    "claims that are answered too late count": Way(
        _answer_two_claims_too_late,
        lambda: patch.object(claims, "grant", _granted_to_who_says_nothing),
        "tries",
    ),
    "an attempt counts for nothing twice": Way(
        _ask_for_time_too_late, lambda: patch.object(claims, "go_on", lambda _: None), "tries"
    ),
    "nothing is remembered as seen": Way(
        _say_twice, lambda: patch.object(dedupe_marks, "insert", _nothing), "made up"
    ),
    "the sweep goes newest first": Way(
        _leave_two_to_the_sweep,
        lambda: _changed(
            outbox,
            "ADOPT_OUTBOX_SQL",
            "SELECT * FROM adopted ORDER BY id",
            "SELECT * FROM adopted ORDER BY id DESC",
        ),
        "inverted",
    ),
    "new rows go out before older ones of others": Way(
        _overtake_one_that_sleeps,
        lambda: _changed(
            outbox, "INSERT_OUTBOX_SQL", "older.router IS DISTINCT FROM $1 OR", "false OR"
        ),
        "inverted",
    ),
    "rows of unknown fate are forgotten": Way(
        _go_on_after_an_unanswered_commit,
        lambda: patch.object(Relay, "_doubtful", lambda _: []),
        "inverted",
    ),
    "what waits is not seen when a turn ends": Way(
        _say_more_while_a_turn_runs,
        lambda: patch.object(pending_messages, "sessions_with_waiting", _none_waits),
        "stranded",
    ),
    "nobody is told of a turn again": Way(
        _lose_the_first_notification,
        lambda: patch.object(leases, "repeat_notice", _told_no_more),
        "there is no end to it",
    ),
    "whoever asks takes in": Way(
        _take_in_after_another_claim,
        lambda: patch.object(claim_service, "held_status", _always_held),
        "unfenced",
    ),
    "a session is taken away without its line": Way(
        _take_away_what_has_a_line,
        lambda: _changed(
            removals,
            "REMOVE_SQL",
            "DELETE FROM waiting WHERE session_id = ANY($1::uuid[]) RETURNING 1",
            "SELECT 1",
        ),
        "stray",
    ),
    "rows go along in any order": Way(
        _go_on_behind_a_summary,
        lambda: _changed(transcript_changes, "MOVE_TAIL_SQL", "ORDER BY seq", "ORDER BY seq DESC"),
        "inverted",
    ),
    "what runs again is not taken back": Way(
        _let_the_last_turn_run_again,
        lambda: patch.object(transcript_changes, "take_out", _nothing_taken_out),
        "made up",
    ),
    "what runs in a chat is not told that it moved": Way(
        _answer_after_the_chat_moved,
        lambda: patch.object(lane_merges, "update_addresses", _nothing),
        "misrouted",
    ),
    "an album is one message after the other": Way(
        _show_an_album_where_messages_queue,
        lambda: patch.object(claims.WaitingHead, "is_one_with", lambda *_: False),
        "parted",
    ),
    "files are brought to nobody": Way(
        _bring_files_while_they_are_waited_for,
        lambda: patch.object(pending_messages, "bring_files", _nothing_to_bring),
        "lost: the files",
    ),
}


def _go(stage: Stage, way: Way) -> None:
    machine = ConversationMachine(lambda: World(stage))
    try:
        way.steps(machine)
    finally:
        machine.teardown()


@pytest.mark.parametrize("broken", WAYS)
@pytest.mark.slow
def test_what_is_broken_is_noticed(stage: Stage, broken: str) -> None:
    way = WAYS[broken]
    _go(stage, way)
    with way.breaking(), pytest.raises(AssertionError, match=way.noticed):
        _go(stage, way)
