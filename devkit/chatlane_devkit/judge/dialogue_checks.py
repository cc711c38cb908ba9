"""Rules for questions, drafts, pieces and messages outside turns.

Every problem is one line that begins with the kind of damage, so that a test can require a kind.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from chatlane_devkit.judge.delivery_checks import (
    delivery_order_problems,
    numbering_problems,
    receipt_problems,
)
from chatlane_devkit.judge.dialogue import Call, CallKind, Dialogue, Question, Reply, SentAlone
from chatlane_devkit.judge.history import Heard, Received, Row, grouped, shown
from chatlane_devkit.judge.run_checks import result_problems, spell_problems, work_problems

ADAPTER: Final = "adapter"
# A default may overtake an answer that was stored so recently: routers may have been away.
_UNREAD_SECONDS: Final = 20.0
# The report of a draft and the answer are in different logs, and may be read in any order. A router
# may have been away for so long.
_UNREPORTED_SECONDS: Final = 3.0


def piece_problems(dialogue: Dialogue) -> Iterator[str]:
    """Require each piece once, in order, and the whole text; one crash explains one repetition."""
    texts = {message.id: message.text for message in dialogue.outbound}
    pieces = dialogue.pieces()
    for message_id in texts.keys() - pieces.keys():
        yield f"lost: {message_id} never reached its chat"
    for message_id, calls in pieces.items():
        if message_id not in texts:
            yield f"made up: the chat {calls[0].chat} got {message_id}, which was never published"
            continue
        yield from _repeated_pieces(dialogue, message_id, calls)
        firsts = {call.piece: call for call in reversed(calls)}
        if sorted(firsts) != list(range(calls[0].pieces)):
            missing = set(range(calls[0].pieces)) - firsts.keys()
            yield f"lost: pieces {shown(sorted(missing))} of {message_id} never reached the chat"
        elif "".join("".join(firsts[n].text for n in sorted(firsts)).split()) != "".join(
            texts[message_id].split()
        ):
            yield f"changed: the text of {message_id} on its way to its chat"
        times = [firsts[number].at for number in sorted(firsts)]
        if times != sorted(times):
            yield f"inverted: the pieces of {message_id}"


def _repeated_pieces(dialogue: Dialogue, message_id: str, calls: Sequence[Call]) -> Iterator[str]:
    """Find repetitions without a crash, or of a piece before the last one."""
    last: Call | None = None
    for call in calls:
        # A call that edits a message again changes nothing.
        if last is not None and call.piece <= last.piece and call.kind == CallKind.SEND:
            if call.piece < last.piece:
                yield (
                    f"doubled: piece {call.piece} of {message_id} came again after piece "
                    f"{last.piece}"
                )
            elif not dialogue.has_ended_between(ADAPTER, last.at, call.at):
                yield f"doubled: piece {call.piece} of {message_id} came again without a crash"
        last = call


def delivery_state_problems(dialogue: Dialogue) -> Iterator[str]:
    """Require that the database ends with what the platform has of each message."""
    pieces = dialogue.pieces()
    states = {state.message_id: state for state in dialogue.deliveries}
    for message in dialogue.outbound:
        if message.id not in states:
            yield f"lost: {message.id} has no delivery"
    for state in dialogue.deliveries:
        calls = pieces.get(state.message_id, [])
        if state.state not in {"delivered", "failed"}:
            yield f"lost: the receipt of {state.message_id}, which is {state.state}"
        elif state.state == "failed":
            yield f"lost: {state.message_id} was given up"
        elif calls and (state.sent, state.pieces) != (calls[0].pieces, calls[0].pieces):
            yield (
                f"counted: {state.sent} of {state.pieces} pieces of {state.message_id}, the chat "
                f"has {calls[0].pieces}"
            )
        elif calls:
            known = [
                {call.platform_id for call in calls if call.piece == number}
                for number in range(state.pieces)
            ]
            told = list(state.platform_ids)
            if len(told) != len(known) or any(
                it not in ids for it, ids in zip(told, known, strict=True)
            ):
                yield f"misrouted: the platform's ids of {state.message_id}"


def draft_problems(dialogue: Dialogue) -> Iterator[str]:
    """Require that the answer takes the place of each draft, unless a crash explains that it stays."""
    ended = {call.platform_id for call in dialogue.calls if call.kind == CallKind.DELETE}
    ended.update(
        call.platform_id
        for call in dialogue.calls
        if call.kind == CallKind.EDIT and not call.is_draft
    )
    answers = {message.turn_id: message for message in dialogue.outbound if message.turn_id}
    pieces = dialogue.pieces()
    for draft in drafts(dialogue):
        if draft.platform_id in ended:
            continue
        answer = answers.get(draft.turn_id)
        shown_at = pieces[answer.id][0].at if answer and answer.id in pieces else float("inf")
        if not dialogue.has_ended_between(ADAPTER, draft.at, shown_at):
            yield f"lost: draft {draft.platform_id} stays beside its answer, without a crash"
        elif answer is not None and _was_known(dialogue, draft.platform_id, answer.id):
            yield f"forgotten: draft {draft.platform_id} was reported and stays beside its answer"


def drafts(dialogue: Dialogue) -> list[Call]:
    """Return the calls that began a draft."""
    return [call for call in dialogue.calls if call.is_draft and call.kind == CallKind.SEND]


def _was_known(dialogue: Dialogue, draft: str, answer_id: str) -> bool:
    reported, stored = dialogue.reported.get(draft), dialogue.stored.get(answer_id)
    if reported is None or stored is None:
        return False
    return reported < stored - _UNREPORTED_SECONDS


def question_problems(dialogue: Dialogue) -> Iterator[str]:
    """Require that each question is answered once, by its own answer, or by its default."""
    questions = {question.name: question for question in dialogue.questions}
    outcomes = grouped(dialogue.outcomes, lambda outcome: outcome.name)
    replies = grouped(dialogue.replies, lambda reply: reply.name)
    yield from _unanswered_questions(dialogue, questions.values(), outcomes.keys())
    for name, found in outcomes.items():
        question = questions.get(name)
        if question is None:
            yield f"made up: question {name} was answered and never asked"
            continue
        if len(found) > 1:
            yield f"answered twice: question {name} got {[it.value for it in found]}"
        for outcome in found:
            yield from _outcome_problems(question, outcome.value, dialogue.replies, questions)
            stored_long = [
                reply
                for reply in replies.get(name, [])
                if reply.chat == question.chat and reply.at < outcome.at - _UNREAD_SECONDS
            ]
            if outcome.is_default and stored_long:
                yield f"lost: question {name} got its default, its answer was stored before"
    yield from _late_answers(dialogue, questions)
    if dialogue.questions_kept:
        yield f"kept: {dialogue.questions_kept} ended turns have a question"


def _unanswered_questions(
    dialogue: Dialogue, questions: Iterable[Question], answered: Container[str]
) -> Iterator[str]:
    """Find questions of attempts that ended their turns without getting an answer."""
    turns = {turn.id: turn for turn in dialogue.history.turns}
    for question in questions:
        turn = turns.get(question.turn_id)
        is_last = turn is not None and turn.attempt == question.attempt
        if is_last and question.name not in answered:
            yield f"lost: question {question.name} was never answered"


def _outcome_problems(
    question: Question, value: str, replies: Sequence[Reply], questions: Mapping[str, Question]
) -> Iterator[str]:
    """Require that a question got what its chat said to it.

    A text says nothing about the question that it is meant for: one that was stored after another
    attempt had asked answers that one.
    """
    name, _, choice = value.partition(":")
    if choice == "default" and name == question.name:
        return
    answers = [reply for reply in replies if reply.name == name and reply.chat == question.chat]
    meant = questions.get(name)
    is_of_turn = meant is not None and meant.turn_id == question.turn_id
    is_after = any(not reply.is_press and reply.at > question.at for reply in answers)
    if name != question.name and not (is_of_turn and is_after):
        yield f"misrouted: question {question.name} got {value!r}"
    elif not answers:
        yield f"misrouted: question {question.name} got {value!r}, which its chat never said"


def _late_answers(dialogue: Dialogue, questions: Mapping[str, Question]) -> Iterator[str]:
    """Find answers that count although their attempt was over, and those that count twice."""
    keys = {session.id: session.key for session in dialogue.history.sessions}
    rows = Counter((keys.get(row.session_id), row.text) for row in dialogue.history.rows)
    begun: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for spell in dialogue.history.spells:
        begun[spell.turn_id].append((spell.attempt, spell.begin))
    for reply in dialogue.replies:
        question = questions.get(reply.name)
        count = rows[dialogue.chats.get(reply.chat), reply.text]
        if question is None or not reply.is_press:
            continue
        if count > 1:
            yield f"answered twice: {reply.text!r} is in the transcript {count} times"
        if count and reply.chat != question.chat:
            yield f"misrouted: {reply.text!r} counts in {reply.chat}"
        next_begun = [at for attempt, at in begun[question.turn_id] if attempt > question.attempt]
        firsts = [it for it in dialogue.replies if it.text == reply.text and it.chat == reply.chat]
        if count and next_begun and min(it.begun_at for it in firsts) > min(next_begun):
            yield f"late: {reply.text!r} counts, and its attempt was over"


def send_problems(dialogue: Dialogue) -> Iterator[str]:
    """Require each message outside a turn once, in its session, in the order of its sender."""
    rows = grouped(
        (row for row in dialogue.history.rows if row.role == "assistant"), lambda row: row.text
    )
    keys = {session.id: session.key for session in dialogue.history.sessions}
    published = {message.id for message in dialogue.outbound}
    for request_id, sends in grouped(dialogue.sends, lambda send: send.request_id).items():
        first = sends[0]
        found = rows.get(first.text, [])
        if len({send.message_id for send in sends}) > 1:
            yield f"doubled: request {request_id} sent several messages"
        if first.message_id not in published:
            yield f"lost: {first.message_id} was sent and never published"
        if not found:
            yield f"lost: {first.text!r} is in no transcript"
        elif len(found) > 1:
            yield f"doubled: {first.text!r} is in transcripts {len(found)} times"
        elif keys.get(found[0].session_id) != dialogue.chats.get(first.chat):
            yield f"misrouted: {first.text!r} is in {keys.get(found[0].session_id)}"
    yield from _send_order_problems(dialogue.sends, rows)


def _send_order_problems(sends: Sequence[SentAlone], rows: dict[str, list[Row]]) -> Iterator[str]:
    for chat, of_chat in grouped(sends, lambda send: send.chat).items():
        texts = dict.fromkeys(send.text for send in sorted(of_chat, key=lambda send: send.at))
        order = [rows[text][0].seq for text in texts if text in rows]
        if order != sorted(order):
            yield f"inverted: what was sent to {chat} is {shown(order)} in its transcript"


def dialogue_problems(dialogue: Dialogue) -> Iterator[str]:
    """Require each message of a person once in its transcript, heard once or as an answer."""
    history = dialogue.history
    names = {session.id: session.key for session in history.sessions}
    yield from numbering_problems(history.rows, names)
    received = list(dialogue.received())
    yield from delivery_order_problems(received, names)
    for message in received:
        if names.get(message.session_id) != message.key:
            yield f"misrouted: {message.id} of {names.get(message.session_id)} came to {message.key}"
    yield from _told_problems(dialogue)
    yield from _placing_problems(dialogue, names)
    yield from result_problems(history)
    yield from spell_problems(history.spells)
    yield from work_problems(history)
    # The adapter ends in the run: a report may be repeated, but no entry of the log.
    yield from receipt_problems(history, are_adapters_killed=True)
    yield from (
        f"misrouted: an adapter knows of turn {it} of another account" for it in dialogue.foreign
    )


def _told_problems(dialogue: Dialogue) -> Iterator[str]:
    """Compare the assistant's rows of each session with its messages."""
    rows = grouped(
        sorted(
            (row for row in dialogue.history.rows if row.role == "assistant"),
            key=lambda row: row.seq,
        ),
        lambda row: row.session_id,
    )
    texts = grouped(dialogue.outbound, lambda message: message.session_id)
    for session_id in rows.keys() | texts.keys():
        written = [row.text for row in rows.get(session_id, [])]
        told = [message.text for message in texts.get(session_id, [])]
        if written != told:
            place = next(
                (
                    n
                    for n, pair in enumerate(zip(written, told, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(written), len(told)),
            )
            yield (
                f"told otherwise: message {place + 1} of {session_id} is "
                f"{written[place : place + 1]}, its chat was told {told[place : place + 1]}"
            )


def _placing_problems(dialogue: Dialogue, names: dict[str, str]) -> Iterator[str]:
    rows = grouped(
        (row for row in dialogue.history.rows if row.role == "user"),
        lambda row: row.message_id or row.text,
    )
    answer_counts: Counter[tuple[str, int]] = Counter()
    for row in dialogue.history.rows:
        if row.role == "assistant":
            answer_counts.update((row.session_id, it.seq) for it in _heard(row))
    answers = {(reply.chat, reply.text) for reply in dialogue.replies}
    chats = {key: chat for chat, key in dialogue.chats.items()}
    # A pressed button is no message: its label is different for each.
    for name, sent in {
        sent.message_id or sent.text: sent for sent in dialogue.history.sent
    }.items():
        found = rows.get(name, [])
        if len(found) != 1:
            kind = "doubled" if found else "lost"
            yield f"{kind}: {sent.text!r} is in transcripts {len(found)} times"
            continue
        row = found[0]
        count = answer_counts[row.session_id, row.seq]
        if names.get(row.session_id) != sent.key or row.text != sent.text:
            yield f"misrouted: {sent.text!r} is {row.text!r} in {names.get(row.session_id)}"
        is_answer = (chats.get(sent.key), sent.text) in answers
        if count > 1:
            yield f"answered twice: {sent.text!r} was heard {count} times"
        elif not count and not is_answer:
            yield f"unanswered: nobody heard {sent.text!r}"
    context = Counter(row.text for row in dialogue.history.rows if row.role == "context")
    for reaction in dialogue.reactions:
        if context[reaction] != 1:
            kind = "doubled" if context[reaction] else "lost"
            yield f"{kind}: reaction {reaction!r} is in transcripts {context[reaction]} times"


def _heard(row: Row) -> Iterator[Heard]:
    return Received("", row.session_id, 0, "", "", row.text).heard_messages()


def quote_problems(dialogue: Dialogue) -> Iterator[str]:
    """Require that each reply leads the agent to the message that the person replied to."""
    shown_by: dict[str, str] = {}
    for call in dialogue.calls:
        if call.message_id:
            shown_by[call.platform_id] = call.message_id
    texts = {message.id: message.text for message in dialogue.outbound}
    for quote in dialogue.quotes:
        text = texts.get(shown_by.get(quote.platform_id, ""), "")
        if quote.text is None:
            yield f"lost: the message {quote.platform_id} that a person replied to"
        elif text and not text.startswith(quote.text[:100]):
            yield f"misrouted: a reply to {quote.platform_id} leads to {quote.text[:60]!r}"
