"""The rules for every worker; docs/writing-a-worker.md has the words that the checks write."""

import asyncio
from typing import Final

from chatlane_devkit.conform.check import Check, FaultFoundError
from chatlane_devkit.conform.worker.trial import STOPS_WITHIN, WorkerTrial
from chatlane_schemas import HandBack, Outcome, PieceKind

# Longer than a lease, so that only a worker that renews it keeps the turn.
_LEASES: Final = 3
_CHATS: Final = 6
_AWAY_FOR: Final = 3
# Nothing but its first answer says that a program is ready.
_TO_START: Final = 30.0


async def judge_answers(trial: WorkerTrial) -> None:
    """Write a message."""
    chat, word = trial.people.new_chat(), trial.new_token()
    await trial.people.write(chat, f"echo {word}")
    problem = f"the chat did not show 'heard {word}', nor anything else"
    await trial.until(lambda: trial.people.shown(chat), problem, longer=_TO_START)
    if (shown := trial.people.shown(chat)) != [f"heard {word}"]:
        raise FaultFoundError(
            f"the worker answered 'echo {word}' with {shown[-1]!r} instead of 'heard {word}': "
            "it does not know the words of the checks"
        )
    if trial.people.unreadable:
        raise FaultFoundError(f"the worker published {trial.people.unreadable[0]}")


async def judge_order(trial: WorkerTrial) -> None:
    """Write several messages, some of them while a turn runs."""
    chat = trial.people.new_chat()
    words = [trial.new_token() for _ in range(5)]
    await trial.begun(chat, f"work 1 {words[0]}")
    for word in words[1:]:
        await trial.people.write(chat, f"echo {word}")
    await trial.until_shown(chat, [f"heard {word}" for word in words])


async def judge_history(trial: WorkerTrial) -> None:
    """Ask for what was said before."""
    chat, word = trial.people.new_chat(), trial.new_token()
    await trial.ask(chat, f"echo {word}", f"heard {word}")
    await trial.ask(chat, "recall", f"recalls echo {word} | heard {word}")


async def judge_side_by_side(trial: WorkerTrial) -> None:
    """Write in several chats at once to two processes."""
    trial.second.start()
    words = {trial.people.new_chat(): trial.new_token() for _ in range(_CHATS)}
    for chat, word in words.items():
        await trial.people.write(chat, f"work 1 {word}")
    for chat, word in words.items():
        await trial.until_shown(chat, [f"heard {word}"], longer=_CHATS)
        _expect_once(trial, chat)
    await trial.second.stop(STOPS_WITHIN)


async def judge_renewals(trial: WorkerTrial) -> None:
    """Let a turn take longer than its lease, while another process waits for it."""
    seconds = _LEASES * trial.lease.total_seconds()
    chat, word = trial.people.new_chat(), trial.new_token()
    trial.second.start()
    await trial.ask(chat, f"work {seconds:g} {word}", f"heard {word}", longer=seconds)
    _expect_once(trial, chat)
    await trial.second.stop(STOPS_WITHIN)


async def judge_late_result(trial: WorkerTrial) -> None:
    """Freeze the worker for longer than its lease: another process answers, and the late result is refused."""
    seconds = 2 * trial.lease.total_seconds()
    chat, word = trial.people.new_chat(), trial.new_token()
    await trial.begun(chat, f"work {seconds / 2:g} {word}")
    trial.worker.freeze()
    trial.second.start()
    try:
        await trial.until_said(chat, f"heard {word}", longer=2 * seconds)
    finally:
        trial.worker.thaw()
    # The one that was frozen must still work, and the other one is not asked.
    await trial.second.stop(STOPS_WITHIN)
    later = trial.new_token()
    await trial.ask(chat, f"echo {later}", f"heard {later}")
    if trial.people.shown(chat) != [f"heard {word}", f"heard {later}"]:
        raise FaultFoundError(f"the chat shows {trial.people.shown(chat)}")


async def judge_crash(trial: WorkerTrial) -> None:
    """Kill the worker in the middle of a turn: the next process answers, once."""
    chat, word = trial.people.new_chat(), trial.new_token()
    turn = await trial.begun(chat, f"work 1 {word}")
    await trial.worker.kill()
    trial.worker.start()
    await trial.until_shown(chat, [f"heard {word}"], longer=2 * trial.lease.total_seconds())
    if (attempts := trial.attempts(turn)) != [1, 2]:
        raise FaultFoundError(f"the attempts {attempts} began")
    _expect_once(trial, chat)


async def judge_steps(trial: WorkerTrial) -> None:
    """Kill the worker after a step of a turn: the next process does not run the step again."""
    chat, word = trial.people.new_chat(), trial.new_token()
    turn = await trial.begun(chat, f"step 1 {word}")
    await trial.until(lambda: trial.people.pieces[turn], "the turn showed no text after its step")
    await trial.worker.kill()
    trial.worker.start()
    wanted = [f"kept {word} 1"]
    await trial.until_shown(chat, wanted, longer=2 * trial.lease.total_seconds())
    if (attempts := trial.attempts(turn)) != [1, 2]:
        raise FaultFoundError(f"the attempts {attempts} began")


async def judge_cancel(trial: WorkerTrial) -> None:
    """Write /stop while a turn runs: it ends, and the next message is answered."""
    chat, word, later = trial.people.new_chat(), trial.new_token(), trial.new_token()
    seconds = 4 * trial.patience
    turn = await trial.begun(chat, f"work {seconds:g} {word}")
    await trial.people.write(chat, "/stop")
    await trial.until(lambda: trial.people.results[turn], "the turn did not end")
    await trial.ask(chat, f"echo {later}", f"heard {later}")
    if f"heard {word}" in trial.people.shown(chat):
        raise FaultFoundError("the stopped turn was answered")


async def judge_steer(trial: WorkerTrial) -> None:
    """Write a message for a running turn that waits for it."""
    chat, word = trial.people.new_chat(), trial.new_token()
    turn = await trial.begun(chat, "join")
    await trial.ask(chat, word, f"took {word}")
    if trial.people.turns[chat] != turn:
        raise FaultFoundError("the message was answered by another turn")


async def judge_question(trial: WorkerTrial) -> None:
    """Answer a question of a running turn."""
    chat, word = trial.people.new_chat(), trial.new_token()
    await trial.ask(chat, f"ask {word}", f"Go on with {word}?")
    labels = [button.label for button in trial.people.messages(chat)[-1].buttons or ()]
    if labels != ["yes", "no"]:
        raise FaultFoundError(f"the question has the options {labels}")
    turn = await trial.ask(chat, "no", "told no")
    _expect_attempts(trial, chat, 1)
    if len(trial.people.results[turn]) != 1:
        raise FaultFoundError("the turn has more than one result")


async def judge_parked(trial: WorkerTrial) -> None:
    """Kill the worker after it has parked a turn, and answer the question before another one runs."""
    chat, word = trial.people.new_chat(), trial.new_token()
    turn = await trial.ask(chat, f"park {word}", f"Keep {word}?")
    await trial.worker.kill()
    await trial.people.write(chat, "yes")
    trial.worker.start()
    wanted = [f"Keep {word}?", f"kept {word} 1, told yes"]
    await trial.until_shown(chat, wanted, longer=2 * trial.lease.total_seconds())
    if (attempts := trial.attempts(turn)) != [1, 2]:
        raise FaultFoundError(f"the attempts {attempts} began")


async def judge_live_pieces(trial: WorkerTrial) -> None:
    """Watch what a turn shows while it runs."""
    chat, word = trial.people.new_chat(), trial.new_token()
    turn = await trial.ask(chat, f"work 1 {word}", f"heard {word}")
    pieces = trial.people.pieces[turn]
    text = "".join(it.piece.text or "" for it in pieces if it.piece.kind is PieceKind.TEXT)
    if not text.startswith("tick"):
        raise FaultFoundError("the turn showed no text while it ran")
    if [it.index for it in pieces] != [*range(len(pieces))]:
        raise FaultFoundError(f"the pieces have the places {[it.index for it in pieces]}")


async def judge_unavailable(trial: WorkerTrial) -> None:
    """Let the agent be away for a while: the turn waits, and the attempt does not count."""
    chat, word = trial.people.new_chat(), trial.new_token()
    turn = await trial.ask(chat, f"away {_AWAY_FOR} {word}", f"heard {word}", longer=2 * _AWAY_FOR)
    first, *others = trial.people.results[turn]
    if first.hand_back is not HandBack.UNAVAILABLE or not others:
        raise FaultFoundError(f"the first result was {_described(first.outcome, first.hand_back)}")
    if first.again_in_ms != _AWAY_FOR * 1000:
        raise FaultFoundError(f"the turn was to be tried again in {first.again_in_ms} ms")
    if (waited := (others[0].at - first.at).total_seconds()) < _AWAY_FOR:
        raise FaultFoundError(f"the turn was tried again after {waited:.1f} s")


async def judge_failure(trial: WorkerTrial) -> None:
    """Let the handler fail: the turn is tried again, and the worker goes on."""
    chat, word = trial.people.new_chat(), trial.new_token()
    turn = await trial.ask(chat, f"fail {word}", f"heard {word}", longer=10)
    first, *others = trial.people.results[turn]
    if first.outcome is not Outcome.FAILED or not first.retry or not others:
        raise FaultFoundError(f"the first result was {_described(first.outcome, first.hand_back)}")
    if (attempts := trial.attempts(turn)) != [1, 2]:
        raise FaultFoundError(f"the attempts {attempts} began")


async def judge_stop(trial: WorkerTrial) -> None:
    """End the worker with SIGTERM in the middle of a long turn: it hands the turn back."""
    chat, word = trial.people.new_chat(), trial.new_token()
    await trial.begun(chat, f"work 12 {word}")
    trial.second.start()
    try:
        if not await trial.worker.stop(STOPS_WITHIN):
            raise FaultFoundError(f"the worker did not end within {STOPS_WITHIN.seconds} s")
        await trial.until_shown(chat, [f"heard {word}"], longer=12)
    finally:
        trial.worker.start()
        await trial.second.stop(STOPS_WITHIN)


async def judge_outage(trial: WorkerTrial) -> None:
    """Write while no worker runs."""
    await trial.worker.stop(STOPS_WITHIN)
    words = {trial.people.new_chat(): trial.new_token() for _ in range(3)}
    for chat, word in words.items():
        await trial.people.write(chat, f"echo {word}")
    trial.worker.start()
    for chat, word in words.items():
        await trial.until_shown(chat, [f"heard {word}"])
    await asyncio.gather(*(trial.people.write(chat, "echo again") for chat in words))
    for chat, word in words.items():
        await trial.until_shown(chat, [f"heard {word}", "heard again"])


def _expect_once(trial: WorkerTrial, chat: str) -> None:
    turn = trial.people.turns[chat]
    good = [it for it in trial.people.results[turn] if it.outcome is Outcome.OK]
    if len({result.id for result in good}) != 1:
        raise FaultFoundError(f"the turn was answered {len(good)} times")
    _expect_attempts(trial, chat, good[0].attempt or 0)


def _expect_attempts(trial: WorkerTrial, chat: str, last: int) -> None:
    attempts = trial.attempts(trial.people.turns[chat])
    if attempts != [*range(1, last + 1)]:
        raise FaultFoundError(f"the attempts {attempts} began")


def _described(outcome: Outcome | None, hand_back: HandBack | None) -> str:
    return f"{outcome}" if hand_back is None else f"{outcome}, handed back as {hand_back}"


WORKER_CHECKS: Final[tuple[Check[WorkerTrial], ...]] = (
    Check(
        name="answers",
        asks="a message is answered in its chat",
        advice="pull turns.AGENT, claim the turn, and publish a result with its attempt and token. The "
        "checks write words such as 'echo WORD', which the worker must know: "
        "docs/writing-a-worker.md#judge-a-worker lists them, examples/conform_worker.py knows them",
        judge=judge_answers,
    ),
    Check(
        name="order",
        asks="what is written while a turn runs is answered after it, in order",
        advice="answer all messages of a claim, and name their ids in message_ids",
        judge=judge_order,
    ),
    Check(
        name="history",
        asks="the worker reads what was said before",
        advice="load the transcript up to history.before_seq of the claim",
        judge=judge_history,
    ),
    Check(
        name="side-by-side",
        asks="two processes work on several sessions at once, each turn once",
        advice="work on a turn only after its claim was granted; acknowledge a notice after the claim",
        judge=judge_side_by_side,
    ),
    Check(
        name="renewals",
        asks="a turn may take longer than its lease",
        advice="renew at a third of the lease, also while the handler works",
        judge=judge_renewals,
    ),
    Check(
        name="late-result",
        asks="a worker that was frozen for longer than its lease goes on, and answers nothing twice",
        advice="publish a result with the attempt and the token of its claim, never of another one",
        judge=judge_late_result,
    ),
    Check(
        name="crash",
        asks="a turn whose worker was killed is answered once, by the next process",
        advice="do not acknowledge a notice before its claim; make a new id for each result",
        judge=judge_crash,
    ),
    Check(
        name="steps",
        asks="a step that has finished is not run again after a crash",
        advice="request turn.keep after a step, and turn.step before it in attempts after the first",
        judge=judge_steps,
    ),
    Check(
        name="cancel",
        asks="/stop ends a running turn",
        advice="listen to control messages, read cancel in replies to renewals, and publish no_reply",
        judge=judge_cancel,
    ),
    Check(
        name="steer",
        asks="a running turn takes in a message that arrives",
        advice="on control.steer request turn.take, and name the ids that it returned in the result",
        judge=judge_steer,
    ),
    Check(
        name="question",
        asks="a running turn asks the person and gets the answer",
        advice="request turn.ask, then turn.answer until its state is answered; renew meanwhile",
        judge=judge_question,
    ),
    Check(
        name="parked",
        asks="a turn waits for an answer without a worker, and goes on with it",
        advice="request turn.ask with park_as, publish no result, and request turn.step of ask: and the "
        "name in attempts after the first",
        judge=judge_parked,
    ),
    Check(
        name="live-pieces",
        asks="readers see a turn while it runs",
        advice="publish pieces from index 0 on the subject of the turn's address",
        judge=judge_live_pieces,
    ),
    Check(
        name="unavailable",
        asks="a turn whose agent is away waits as long as the worker says",
        advice="publish failed with retry, hand_back unavailable and again_in_ms",
        judge=judge_unavailable,
    ),
    Check(
        name="failure",
        asks="a failed attempt is tried again, and the worker goes on",
        advice="publish failed with retry when the handler raises; do not end the process",
        judge=judge_failure,
    ),
    Check(
        name="outage",
        asks="what was written while no worker ran is answered",
        advice="use the durable consumer of the agent; do not begin at new messages",
        judge=judge_outage,
    ),
    Check(
        name="stop",
        asks="SIGTERM ends the worker, and another process answers its turn",
        advice="on SIGTERM take no turn, and hand running ones back with hand_back stopping",
        judge=judge_stop,
    ),
)
