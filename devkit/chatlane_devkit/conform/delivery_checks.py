"""Checks of refused calls, crashes, pauses and several processes."""

import asyncio
from functools import partial
from typing import Final

from chatlane_devkit.conform.check import Check, FaultFoundError
from chatlane_devkit.conform.scenes.scene import Ability, ChatHandle
from chatlane_devkit.conform.trial import STOPS_WITHIN, Trial

_LIMITED_FOR: Final = 10.0
_MOST_CALLS: Final = 3
# Long enough for an adapter to fetch an update, shorter than its lease.
_TO_FETCH: Final = 2.0
_TO_SEND: Final = 1.0
_TRIES: Final = 3
# In one of them, the report of the refusal has arrived.
_TURNS: Final = 5


async def judge_limits(trial: Trial) -> None:
    """Answer 429 for one chat: only that chat waits."""
    scene = trial.scene
    chat, other = await scene.new_chat(), await scene.new_chat()
    token, before = trial.new_token(), scene.calls(chat)
    await _be_limited(trial, chat, token)
    later = trial.new_token()
    answering = asyncio.create_task(trial.ask(other, later))
    done, _ = await asyncio.wait({answering}, timeout=_LIMITED_FOR / 2)
    if not done:
        answering.cancel()
        raise FaultFoundError("another chat had to wait while one chat was limited")
    answering.result()
    await _sent_after_limit(trial, chat, token, before)


async def judge_stops(trial: Trial) -> None:
    """Stop the adapter while it is limited."""
    chat, token = await trial.scene.new_chat(), trial.new_token()
    before = trial.scene.calls(chat)
    await _be_limited(trial, chat, token)
    if not await trial.adapter.stop(STOPS_WITHIN):
        raise FaultFoundError("the adapter sleeps out the limit: it did not stop on SIGTERM")
    trial.adapter.start()
    await _sent_after_limit(trial, chat, token, before)


async def _be_limited(trial: Trial, chat: ChatHandle, text: str) -> None:
    """Limit a chat, write in it, and wait until the adapter meets the limit."""
    before = trial.scene.calls(chat)
    trial.scene.limit(chat, _LIMITED_FOR)
    await trial.scene.write(chat, text)
    await trial.until(lambda: trial.scene.calls(chat) > before, "the adapter did not try to send")


async def _sent_after_limit(trial: Trial, chat: ChatHandle, text: str, before: int) -> None:
    await trial.until_shown(chat, [text])
    if (calls := trial.scene.calls(chat) - before) > _MOST_CALLS:
        raise FaultFoundError(f"the platform was called {calls} times while it refused the calls")


async def judge_refusals(trial: Trial) -> None:
    """Block the bot: only that chat waits, and the agent gets a report."""
    scene = trial.scene
    chat, other = await scene.new_chat(), await scene.new_chat()
    await trial.ask(chat, trial.new_token())
    before, token = scene.calls(chat), trial.new_token()
    # A person who writes allows the bot again: they block it before the answer.
    await scene.write(chat, token)
    scene.block(chat, is_blocked=True)
    await trial.until(lambda: trial.agent.given(token), "the message was not given to the agent")
    await trial.until(lambda: scene.calls(chat) > before, "the adapter did not try to send")
    await trial.ask(other, trial.new_token())
    # The first refused call may have been one that shows typing.
    await asyncio.sleep(_TO_SEND)
    scene.block(chat, is_blocked=False)
    for _ in range(_TURNS):
        turn = await trial.ask(chat, trial.new_token())
        if turn.undelivered:
            return
    raise FaultFoundError("the agent did not learn that its answer was not delivered")


async def judge_crash_before_storing(trial: Trial) -> None:
    """Kill the adapter between the fetch of an update and its storage."""
    chat, token = await trial.scene.new_chat(), trial.new_token()
    trial.gate.block()
    await trial.scene.write(chat, token)
    await asyncio.sleep(_TO_FETCH)
    await trial.crash()
    await trial.until_shown(chat, [token])


async def judge_crash_after_storing(trial: Trial) -> None:
    """Kill the adapter after an event was stored, before it knows."""
    chat = await trial.scene.new_chat()
    token = await _stored_without_confirmation(trial, chat)
    await trial.crash()
    await _until_all_done(trial, chat)
    if (times := len(trial.agent.given(token))) != 1:
        raise FaultFoundError(f"the agent was given the message {times} times")
    if (times := trial.lines(chat).count(token)) != 1:
        raise FaultFoundError(f"the chat shows the answer {times} times")


async def _stored_without_confirmation(trial: Trial, chat: ChatHandle) -> str:
    """Write a message whose event is stored while no confirmation passes, and return its token.

    An adapter may keep its cursor before it reads the next update. If it waits for the confirmation
    of that, the message is answered as usual, and another is written.
    """
    tries_left = _TRIES
    while True:
        token = trial.new_token()
        await trial.ask(chat, trial.new_token())
        trial.gate.withhold_answers()
        await trial.scene.write(chat, token)
        try:
            await trial.until(partial(trial.agent.given, token), "the event was not stored")
        except FaultFoundError:
            tries_left -= 1
            if not tries_left:
                raise
        else:
            return token
        trial.gate.open()
        await trial.until(partial(trial.agent.given, token), "the event was not stored")


async def judge_crash_after_sending(trial: Trial) -> None:
    """Kill the adapter after the platform has the answer, before it knows."""
    scene = trial.scene
    chat, token = await scene.new_chat(), trial.new_token()
    scene.lose_answers(chat)
    await scene.write(chat, token)
    await trial.until(lambda: token in trial.lines(chat), "the answer was not sent")
    await trial.adapter.kill()
    scene.restore_answers(chat)
    await trial.crash()
    await _until_all_done(trial, chat)
    most = 1 if scene.is_idempotent else 2
    if (times := trial.lines(chat).count(token)) not in range(1, most + 1):
        raise FaultFoundError(f"the chat shows the answer {times} times")


async def judge_catch_up(trial: Trial) -> None:
    """Write while the adapter is down."""
    chats = {trial.new_token(): await trial.scene.new_chat() for _ in range(3)}
    await trial.adapter.stop(STOPS_WITHIN)
    for number in range(3):
        for token, chat in chats.items():
            await trial.scene.write(chat, f"{token} {number}")
    trial.adapter.start()
    for token, chat in chats.items():
        await trial.until_shown(chat, [f"{token} {number}" for number in range(3)])


async def judge_two_processes(trial: Trial) -> None:
    """Run two processes; kill each of them once."""
    chat = await trial.scene.new_chat()
    trial.second.start()
    try:
        await _answered_once(trial, chat)
        for victim in (trial.adapter, trial.second):
            await victim.kill()
            await _answered_once(trial, chat)
            victim.start()
    finally:
        await trial.second.stop(STOPS_WITHIN)


async def _answered_once(trial: Trial, chat: ChatHandle) -> None:
    token = trial.new_token()
    await trial.ask(chat, f"{token} a")
    await trial.ask(chat, f"{token} b")
    given = trial.agent.given(token)
    if given != [f"{token} a", f"{token} b"]:
        raise FaultFoundError(f"the agent was given {given}")
    if (times := trial.lines(chat).count(f"{token} a")) != 1:
        raise FaultFoundError(f"the chat shows an answer {times} times")


async def _until_all_done(trial: Trial, chat: ChatHandle) -> None:
    """Wait until what came before is settled: a chat is answered in order."""
    await trial.ask(chat, trial.new_token())


DELIVERY_CHECKS: Final = (
    Check(
        name="limits",
        asks="a 429 holds up its own chat only",
        advice="raise RetryAfter(seconds); turn off the sleep and the retries of the library",
        judge=judge_limits,
        needs=(Ability.CHAT_LIMITS,),
    ),
    Check(
        name="stops",
        asks="an adapter stops while it is limited, and sends afterwards",
        advice="raise RetryAfter(seconds); do not wait out the limit before a stop",
        judge=judge_stops,
    ),
    Check(
        name="refusals",
        asks="a blocked bot holds nothing else up, and the agent learns of it",
        advice="raise ChatGone or Undeliverable; do not return as if the message were sent",
        judge=judge_refusals,
        needs=(Ability.BLOCKS,),
    ),
    Check(
        name="crash-before-storing",
        asks="an update that was fetched and not stored comes again",
        advice="confirm an update, or keep the cursor, only after publish has returned",
        judge=judge_crash_before_storing,
    ),
    Check(
        name="crash-after-storing",
        asks="an update that was stored and not confirmed counts once",
        advice="take message_id from the platform; never make one for each attempt",
        judge=judge_crash_after_storing,
    ),
    Check(
        name="crash-after-sending",
        asks="an answer that was sent is not lost, and shown twice at most",
        advice="send with piece.key where the platform takes a key; report the ids that it returns",
        judge=judge_crash_after_sending,
        needs=(Ability.LOST_ANSWERS,),
    ),
    Check(
        name="catch-up",
        asks="what was written while the adapter was down is answered in order",
        advice="begin where the last confirmed update or the kept cursor is",
        judge=judge_catch_up,
    ),
    Check(
        name="two-processes",
        asks="of two processes one serves the account, and the other takes over",
        advice="receive under run_leased, or drop no update; call deliver in both",
        judge=judge_two_processes,
    ),
)
