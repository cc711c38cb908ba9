"""Breaks one promise of the protocol at a time and requires that the checker notices.

A run of chaos that finds nothing proves something only where these are found.
"""

import asyncio
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from chatlane.failpoints import RouterPoint
from chatlane_devkit.dialogue.adapter import AdapterPoint
from chatlane_devkit.dialogue.people import KINDS
from chatlane_servers.binaries import server_directory
from tests.chaos.mutant_router import MUTANTS
from tests.support.chaos import Outcome, Plan, Stage, run_chaos
from tests.support.eventually import eventually
from tests.support.service.processes import apply_topology
from tests.support.service.scene import ALL_PARTITIONS

_ROUTER: Final = Path(__file__).with_name("mutant_router.py")
_MESSAGES: Final = 1_700
# A mutant that takes more is not noticed soon enough.
_MOST_MESSAGES: Final = 2_000
_WINDOW: Final = timedelta(seconds=5)

_PLAN: Final = Plan(
    seed=1,
    messages=_MESSAGES,
    per_second=150,
    pause=timedelta(milliseconds=250),
    people=20,
    settled_within=timedelta(seconds=20),
    router=_ROUTER,
    talkers=0,
)
# Dialogues take longer than questions.
_TALK: Final = replace(
    _PLAN,
    messages=400,
    per_second=12,
    pause=timedelta(seconds=1),
    weights={},
    talkers=8,
    settled_within=timedelta(minutes=1),
)
_PEOPLE: Final = 10
_UNKNOWN_COMMITS: Final = {"LOSE_ANSWERS": "15"}
_LONG: Final = timedelta(milliseconds=300)


async def _freeze_a_relay_with_rows(stage: Stage) -> None:
    """Freeze a router whose rows NATS has not taken, until the stream has forgotten their ids."""
    scene, nats = stage.scene, stage.servers["nats"]
    frozen = scene.process("router 2")
    async with scene.users.talking(65):
        await scene.until_answers_flow()
        for _ in range(3):
            nats.pause()
            await asyncio.sleep(0.4)
            frozen.send(signal.SIGSTOP)
            nats.resume()
            await asyncio.sleep(_WINDOW.total_seconds() + 1.5)
            frozen.send(signal.SIGCONT)
            await scene.until_answers_flow(10)


async def _freeze_a_router_with_batches(stage: Stage) -> None:
    """Let a router decide about batches long after another one has them."""
    scene = stage.scene
    frozen = scene.process("router 1")
    # Slowly, for damage that is done may last until nobody is answered any more.
    async with scene.users.talking(30):
        while len(scene.users.sent) < 800:
            await eventually(lambda: frozen.is_frozen, timedelta(seconds=30))
            # Longer than a lease: the other router reads on, and decides.
            await asyncio.sleep(1.6)
            frozen.send(signal.SIGCONT)
            await scene.until_answers_flow(10)


async def _leave_rows_behind(stage: Stage) -> None:
    """Let a router die with committed rows, and another one go on with its conversations."""
    scene = stage.scene
    doomed = scene.process("router 2")
    for _ in range(5):
        await doomed.kill()
        doomed.start_with_failpoint(f"{RouterPoint.OUTBOX_COMMITTED}:2")
        await scene.recorder.until_owned(*[ALL_PARTITIONS // 2] * 2)
        async with scene.users.talking(45):
            # At once, so that its second transaction is one of many messages.
            await asyncio.gather(*map(scene.users.say, scene.users.members * 4))
            await doomed.wait(timedelta(seconds=60))
            await scene.recorder.until_owned(ALL_PARTITIONS)
            await scene.until_answers_flow(10)
    doomed.start()


async def _make_the_log_anew(stage: Stage) -> None:
    """Delete both logs and make them again, with everything in them answered."""
    scene = stage.scene
    async with scene.users.talking(100):
        await eventually(lambda: len(scene.users.sent) >= 500, timedelta(seconds=30))
    await scene.recorder.until_settled(scene.users)
    stage.earlier.extend((await scene.recorder.history(scene.users)).log)
    for name in ("INBOUND", "RESULTS"):
        await scene.client.jetstream().delete_stream(name)
    await apply_topology(scene.service.settings)
    async with scene.users.talking(100):
        await eventually(lambda: len(scene.users.sent) >= 700, timedelta(seconds=30))


def _dying_at(*points: RouterPoint) -> Plan:
    return replace(_PLAN, weights={"crash": 2, "freeze": 1}, points=points, people=_PEOPLE)


def _talking_until(point: AdapterPoint, kind: str) -> Plan:
    kinds = {**KINDS, kind: sum(KINDS.values())}
    return replace(_TALK, weights={"crash": 1}, points=(point,), kinds=kinds)


# The faults that a mutant cannot stand; by default all of them.
_PLANS: Final = {
    "publish_before_commit": _dying_at(RouterPoint.BATCH_WRITTEN),
    "no_compare_and_set_and_no_seen": replace(
        _PLAN, weights={"freeze": 1}, variables=_UNKNOWN_COMMITS, repeated=0
    ),
    "no_epoch_no_compare_and_set_no_seen": replace(
        _PLAN,
        of_first={"FREEZE_AT_BATCH": "10"},
        repeated=0,
        script=_freeze_a_router_with_batches,
    ),
    "no_sweeper": replace(_PLAN, people=_PEOPLE, script=_leave_rows_behind),
    "sweeper_out_of_order": _dying_at(RouterPoint.OUTBOX_COMMITTED),
    # Who takes the partitions of a dead router adopts its rows at once, mostly before anything
    # new is written that could overtake them.
    "older_rows_ignored": replace(
        _PLAN, people=_PEOPLE, variables={"SWEEP_LATE": "2"}, script=_leave_rows_behind
    ),
    "frozen_relay_publishes_late": replace(
        _PLAN, duplicate_window=_WINDOW, script=_freeze_a_relay_with_rows
    ),
    # A worker that is hit has turns in work.
    "no_token_check": replace(_PLAN, weights={"freeze": 1}, think=_LONG),
    "same_notification_id": replace(
        _PLAN,
        weights={"kill": 1},
        think=_LONG,
        per_second=80,
        # A worker lives long enough to claim something.
        pause=timedelta(milliseconds=800),
    ),
    "unsorted_locks": replace(
        _PLAN, messages=1_500, weights={"freeze server": 1}, people=40, per_second=300
    ),
    "log_not_checked": replace(_PLAN, script=_make_the_log_anew),
    "receipt_adds_up": _TALK,
    "piece_progress_forgotten": _talking_until(AdapterPoint.LATER_PIECE_TAKEN, "long"),
    # A worker that is hit waits for an answer.
    "question_kept": replace(_TALK, weights={"freeze": 1}),
    "turns_shown_to_another_account": _TALK,
    "request_made_again": _TALK,
    "draft_forgotten": _talking_until(AdapterPoint.DRAFT_EDITED, "slow"),
}


# What the checker must find of each. That a run is slow, or has not settled, is no such proof: a
# busy machine does that, too.
_NOTICED_BY: Final = {
    "publish_before_commit": {"unanswered", "misrouted", "made up"},
    "no_seen": {"doubled"},
    "no_compare_and_set_and_no_seen": {"lost", "unanswered"},
    "no_epoch_no_compare_and_set_no_seen": {"lost", "unanswered", "doubled"},
    "no_sweeper": {"left over"},
    "sweeper_out_of_order": {"inverted"},
    "older_rows_ignored": {"inverted"},
    "frozen_relay_publishes_late": {"doubled"},
    "no_token_check": {"answered twice", "late"},
    "same_notification_id": {"lost", "unanswered"},
    "unsorted_locks": {"deadlocks"},
    "log_not_checked": {"lost"},
    "receipt_adds_up": {"counted"},
    "piece_progress_forgotten": {"doubled"},
    "question_kept": {"kept", "late"},
    "turns_shown_to_another_account": {"misrouted"},
    "request_made_again": {"doubled"},
    "draft_forgotten": {"forgotten"},
}


def is_noticed(name: str, problems: Iterable[str]) -> bool:
    """Return whether the damage that a mutant does is among what a checker found."""
    return any(line.partition(":")[0] in _NOTICED_BY[name] for line in problems)


async def _run(name: str, *, is_control: bool) -> Outcome:
    plan = _PLANS.get(name, _PLAN)
    variables = {**plan.variables, "MUTANT": "" if is_control else name}
    plan = replace(plan, variables=variables)
    if is_control:
        # Where nothing is wrong, only a slow machine takes long.
        plan = replace(plan, settled_within=timedelta(minutes=2))
    with server_directory() as directory:
        return await run_chaos(directory, plan)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="make chaos-mutants", description=__doc__)
    parser.add_argument(
        "--control", action="store_true", help="make the same faults with the router as it is"
    )
    names = [mutate.__name__ for mutate in MUTANTS]
    parser.add_argument("name", nargs="*", metavar="NAME", help=", ".join(names))
    return parser


def main() -> int:
    """Run the mutants that are named, or all; return 1 when one is not noticed.

    With `--control` return 1 when anything is noticed.
    """
    parser = _parser()
    asked = parser.parse_args()
    known = [mutate.__name__ for mutate in MUTANTS]
    if unknown := set(asked.name) - set(known):
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    is_control, names = asked.control, asked.name or known
    wrong = []
    for name in names:
        outcome = asyncio.run(_run(name, is_control=is_control))
        print(f"{name}: {outcome.summary()}", flush=True)
        for line in outcome.problems[:3]:
            print(f"    {line[:150]}", flush=True)
        if is_control:
            is_right = not outcome.problems
        else:
            is_right = outcome.sent <= _MOST_MESSAGES and is_noticed(name, outcome.problems)
        if not is_right:
            wrong.append(name)
    verb = (
        "went wrong without being broken"
        if is_control
        else f"went unnoticed in {_MOST_MESSAGES:,} messages"
    )
    print(f"{len(wrong)} of {len(names)} {verb}: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
