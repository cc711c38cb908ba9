"""Checks of what an adapter passes on: messages, edits, reactions, threads, albums, long texts."""

from collections.abc import Callable
from functools import partial
from typing import Final

from chatlane_devkit.conform.agent import Heard
from chatlane_devkit.conform.check import Check, FaultFoundError
from chatlane_devkit.conform.scenes.scene import Ability, ChatHandle
from chatlane_devkit.conform.trial import Trial

_TRIES: Final = 8
_CHATS, _MESSAGES = 3, 6


async def judge_answers(trial: Trial) -> None:
    """Write a message; its answer must appear in its chat, and in no other."""
    chat, other = await trial.scene.new_chat(), await trial.scene.new_chat()
    token = trial.new_token()
    await trial.scene.write(chat, token)
    await trial.until_shown(chat, [token])
    if trial.lines(other):
        raise FaultFoundError("the answer appeared in another chat, too")


async def judge_order(trial: Trial) -> None:
    """Write several messages at once in several chats."""
    chats = {trial.new_token(): await trial.scene.new_chat() for _ in range(_CHATS)}
    for number in range(_MESSAGES):
        for token, chat in chats.items():
            await trial.scene.write(chat, f"{token} {number}")
    for token, chat in chats.items():
        wanted = [f"{token} {number}" for number in range(_MESSAGES)]
        await trial.until(
            partial(_has_all, trial, token), f"the agent was not given all of {wanted}"
        )
        given = trial.agent.given(token)
        if given != wanted:
            raise FaultFoundError(f"written as {wanted}, given to the agent as {given}")
        await trial.until_shown(chat, wanted)


def _has_all(trial: Trial, token: str) -> bool:
    return len(trial.agent.given(token)) >= _MESSAGES


async def judge_repeats(trial: Trial) -> None:
    """Tell the same updates twice."""
    chat, token = await trial.scene.new_chat(), trial.new_token()
    wanted = [f"{token} {number}" for number in range(3)]
    for text in wanted:
        await trial.scene.write_twice(chat, text)
    await trial.ask(chat, f"{token} end")
    given = trial.agent.given(token)
    if given != [*wanted, f"{token} end"]:
        raise FaultFoundError(f"written once as {wanted}, given to the agent as {given}")


async def judge_edits(trial: Trial) -> None:
    """Edit an answered message: the transcript must have the new text."""
    chat, token, edited = await trial.scene.new_chat(), trial.new_token(), trial.new_token()
    message = await trial.scene.write(chat, token)
    await trial.until_shown(chat, [token])
    await trial.scene.rewrite(chat, message, edited)
    await _until_history(
        trial, chat, lambda texts: edited in texts and token not in texts, "the edit did not arrive"
    )
    if trial.agent.given(edited):
        raise FaultFoundError("the edit was answered as a new message")


async def judge_deletes(trial: Trial) -> None:
    """Delete an answered message: the transcript must not have it any more."""
    chat, token = await trial.scene.new_chat(), trial.new_token()
    message = await trial.scene.write(chat, token)
    await trial.until_shown(chat, [token])
    await trial.scene.remove(chat, message)
    await _until_history(
        trial, chat, lambda texts: token not in texts, "the deletion did not arrive"
    )


async def judge_reactions(trial: Trial) -> None:
    """React to a message: the agent must see it in the history of its next turn."""
    chat, token = await trial.scene.new_chat(), trial.new_token()
    message = await trial.scene.write(chat, token)
    await trial.until_shown(chat, [token])
    await trial.scene.react(chat, message)
    for _ in range(_TRIES):
        turn = await trial.ask(chat, trial.new_token())
        if any(kind == "reaction" for kind, _ in turn.history):
            return
    raise FaultFoundError("the reaction did not arrive")


async def judge_threads(trial: Trial) -> None:
    """Write in two threads: each is a conversation, and has its own answers."""
    chat, first, second = await trial.scene.new_threads()
    tokens = {first: trial.new_token(), second: trial.new_token()}
    for thread, token in tokens.items():
        await trial.scene.write(chat, token, thread)
    for thread, token in tokens.items():
        await trial.until_shown(chat, [token], thread)
    later = await trial.ask(chat, trial.new_token(), first)
    texts = _texts(later)
    if tokens[first] not in texts or tokens[second] in texts:
        raise FaultFoundError("the threads are not conversations of their own")


async def judge_albums(trial: Trial) -> None:
    """Send an album: it is one message for the agent."""
    chat, token = await trial.scene.new_chat(), trial.new_token()
    files = await trial.scene.send_album(chat, token)
    await trial.until(lambda: trial.agent.given(token), "the album did not arrive")
    await trial.ask(chat, trial.new_token())
    [turn, *more] = trial.agent.turns_of(token)
    if more or turn.files != files:
        raise FaultFoundError(f"an album of {files} files arrived as a message of {turn.files}")


async def judge_long_answers(trial: Trial) -> None:
    """Let the agent answer with a text that needs several messages."""
    chat, token = await trial.scene.new_chat(), trial.new_token()
    answer = " ".join(f"part{number:05}" for number in range(trial.scene.long_words))
    trial.agent.answers[token] = answer
    await trial.scene.write(chat, token)
    wanted = answer.split()

    def words() -> list[str]:
        return " ".join(trial.scene.shown(chat)).split()

    try:
        await trial.until(lambda: words() == wanted, "the whole text did not appear")
    except FaultFoundError as error:
        shown = words()
        missing = len(set(wanted) - set(shown))
        raise FaultFoundError(f"{error}: {missing} of {len(wanted)} words are missing") from error
    if len(trial.scene.shown(chat)) == 1:
        raise FaultFoundError("the platform takes no message of this length, and has one")


async def _until_history(
    trial: Trial, chat: ChatHandle, holds: Callable[[str], bool], problem: str
) -> None:
    """Ask until the transcript before a turn is as it should be."""
    for _ in range(_TRIES):
        if holds(_texts(await trial.ask(chat, trial.new_token()), only_people=True)):
            return
    raise FaultFoundError(problem)


def _texts(turn: Heard, *, only_people: bool = False) -> str:
    """Return the transcript before a turn as text."""
    return "\n".join(text for role, text in turn.history if not only_people or role != "assistant")


CONTENT_CHECKS: Final = (
    Check(
        name="answers",
        asks="a message is answered in its chat",
        advice="publish each message with the id of its chat, and send an answer to message.target",
        judge=judge_answers,
    ),
    Check(
        name="order",
        asks="messages of a chat arrive and are answered in their order",
        advice="publish the events of a chat one after the other, in the order of the updates",
        judge=judge_order,
    ),
    Check(
        name="repeats",
        asks="an update that the platform tells twice counts once",
        advice="take message_id from the platform; never make one for each attempt",
        judge=judge_repeats,
        needs=(Ability.REPEATS,),
    ),
    Check(
        name="edits",
        asks="an edit changes the message in the transcript",
        advice="publish edited(event, version=...) with the whole message as it is now",
        judge=judge_edits,
        needs=(Ability.EDITS,),
    ),
    Check(
        name="deletes",
        asks="a deleted message leaves the transcript",
        advice="publish deleted(event) with the chat and the message_id of the message",
        judge=judge_deletes,
        needs=(Ability.DELETES,),
    ),
    Check(
        name="reactions",
        asks="a reaction is in the history of the next turn",
        advice="publish reacted(event, emoji, event_id=...)",
        judge=judge_reactions,
        needs=(Ability.REACTIONS,),
    ),
    Check(
        name="threads",
        asks="a thread is a conversation with its own answers",
        advice="set thread_id and chat.is_forum, and send answers to target.thread_id",
        judge=judge_threads,
        needs=(Ability.THREADS,),
    ),
    Check(
        name="albums",
        asks="an album is one message for the agent",
        advice="set the same album_id on each of its messages",
        judge=judge_albums,
        needs=(Ability.ALBUMS,),
    ),
    Check(
        name="long-answers",
        asks="a long answer comes in several messages, whole and in order",
        advice="deliver with deliver_pieces and the limit of the platform in its own unit",
        judge=judge_long_answers,
        needs=(Ability.LONG_ANSWERS,),
    ),
)
