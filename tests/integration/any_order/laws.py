"""What must hold after every step, and what one step may change.

Nothing here knows how a router decides: it compares what was said and asked for with what there
is, and two moments with each other. Each law returns what breaks it, in words.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pydantic_core import from_json

from tests.integration.any_order.people import FIRST_ID, NEXT_ID, Said, Story, file_of
from tests.integration.any_order.rules.steps import Step
from tests.integration.any_order.snapshot import Row, Sent, Snapshot, Turn, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

Problems = Iterator[str]

_CLOSING: Final = frozenset({"reset", "stop", "cancel"})


def broken(step: Step, story: Story) -> list[str]:
    """Return all that is wrong after a step."""
    told: list[str] = []
    for law in _LAWS:
        told += law(step, story)
    return told


# Where what was said is.


def _is_in_one_place(step: Step, story: Story) -> Problems:
    """What was said is in one line or one transcript, or it is known why not."""
    now = step.after
    places = Counter(one.id for one in now.waiting)
    places.update(row.id for row in now.rows if row.id is not None)
    places.update(now.removed)
    yield from (f"made up: {one}" for one in places.keys() - story.by_id.keys())
    for message_id, said in story.by_id.items():
        if places[message_id] > 1:
            yield f"doubled: {said.mid} is in {places[message_id]} places"
        elif places[message_id] and message_id in story.gone:
            yield f"doubled: {said.mid} came back after it was {story.gone[message_id]}"
        elif not places[message_id] and message_id not in story.gone:
            reason = _why_gone(step, said, message_id)
            if reason:
                story.gone[message_id] = reason
            else:
                yield f"lost: {said.mid} is nowhere"


def _why_gone(step: Step, said: Said, message_id: UUID) -> str:
    """Return why a message that was there before this step need not be there any more."""
    has_waited = any(one.id == message_id for one in step.before.waiting)
    if said.mid in step.decided.deleted and not has_waited:
        return "deleted"
    was_written = (*step.before.rows, *step.before.archive)
    homes = {one.session_id for one in was_written if one.id == message_id}
    homes |= {one.session_id for one in step.before.waiting if one.id == message_id}
    return "removed" if any(map(step.is_removed, homes)) else ""


def _leaves_its_line_for_a_reason(step: Step, story: Story) -> Problems:
    """A message gets no turn where it was deleted, or somebody stopped or ended what it was in."""
    known = {row.id for row in step.before.rows if row.is_closed}
    for row in step.after.rows:
        is_new = row.is_closed and row.id not in known
        said = story.by_id.get(row.id) if row.id and is_new else None
        if said is not None and not _was_closed(step, said, row):
            yield f"dropped: {said.mid}, and nobody asked for it"


def _was_closed(step: Step, said: Said, row: Row) -> bool:
    if said.mid in step.decided.deleted or step.asks(row.session_id, *_CLOSING):
        return True
    keys = {key for key, its in step.before.lanes.items() if its == row.session_id}
    keys |= {key for key, its in step.after.lanes.items() if its == row.session_id}
    if any(one.id == row.id for one in step.before.waiting):
        return step.decided.stops(keys)
    # Said and closed in one batch, before or after which its lane may have led elsewhere.
    return any(
        name in {"stop", "new"} and (order > said.order or not step.is_ordered)
        for _, name, order in step.decided.commands
    )


def _says_what_its_edits_say(step: Step, story: Story) -> Problems:
    now = step.after
    found: list[tuple[UUID, str | None, str | None]] = []
    found += [(one.id, one.content, None) for one in now.waiting]
    found += [(row.id, row.content, row.state) for row in now.rows if row.id is not None]
    for message_id, content, state in found:
        said = story.by_id.get(message_id)
        if said is None or said.is_copy:
            continue
        if content != said.text:
            yield f"changed: {said.mid} says {content!r} and not {said.text!r}"
        if (said.text is None) != (state == "deleted"):
            yield f"changed: {said.mid} is {state}"


def _is_in_order(step: Step, story: Story) -> Problems:
    """In each session what was said in one lane is in the order in which it was decided.

    What a running turn took in went past what waits for the next one.
    """
    lines: defaultdict[tuple[UUID, str, bool], list[int]] = defaultdict(list)
    # What is not answered any more stands before what waited longer.
    rows = [(row.session_id, row.id) for row in step.after.rows if not row.is_closed]
    rows += [(one.session_id, one.id) for one in step.after.waiting]
    for session_id, message_id in rows:
        said = story.by_id.get(message_id) if message_id else None
        if said is not None and said.place is not None:
            lines[session_id, said.key, message_id in story.taken].append(said.order)
    yield from (
        f"inverted: {key} is {orders}" for (_, key, _), orders in lines.items() if _falls(orders)
    )


def _albums_stay_whole(step: Step, story: Story) -> Problems:
    """What is shown as one and waited in one line is in one turn."""
    joined = {row.id for row in step.joined()}
    left = {one.id for one in step.after.waiting}
    lines: defaultdict[tuple[UUID, str], set[UUID]] = defaultdict(set)
    for one in step.before.waiting:
        said = story.by_id.get(one.id)
        if said is not None and said.album:
            lines[one.session_id, said.album].add(one.id)
    for (_, album), ids in lines.items():
        if ids & joined and ids & left:
            yield f"parted: {album}"


def _files_come_to_their_message(step: Step, story: Story) -> Problems:
    """Files are where their message is, or a message by themselves if that has run."""
    now = step.after
    everywhere: list[Waiting | Row] = [*now.waiting, *now.rows, *now.archive]
    for mid, (by_itself, _) in step.decided.files.items():
        said = story.by_mid[mid]
        ids = {message_id for message_id, its in story.by_id.items() if its is said}
        found = [one for one in everywhere if one.id in ids or one.id == by_itself]
        has_files = any(one.file == file_of(mid) for one in found)
        is_changed = said.text is None or said.version
        if not (has_files or is_changed) and any(_goes_on(now, one, said) for one in found):
            yield f"lost: the files of {mid}"


def _goes_on(now: Snapshot, one: Waiting | Row, said: Said) -> bool:
    """Whether a message is yet to be answered, or was where its lane leads."""
    is_here = now.lanes.get(said.key) == one.session_id
    return one in now.waiting or (is_here and one in now.rows)


def _places_are_contiguous(step: Step, _story: Story) -> Problems:
    found: defaultdict[UUID, list[int]] = defaultdict(list)
    for row in step.after.rows:
        found[row.session_id].append(row.seq)
    for session in step.after.sessions.values():
        numbers = found[session.id]
        if len(numbers) + session.gaps != session.next_seq - 1:
            yield f"gap: {session.key} has {numbers}, and {session.gaps} gaps"


def _transcripts_only_grow(step: Step, _story: Story) -> Problems:
    """A row stays where it is, unless somebody took it back, or a summary stands for it."""
    now = {(row.session_id, row.seq): row for row in step.after.rows}
    is_undone = any(name in {"undo", "retry"} for _, name, _ in step.decided.commands)
    for row in step.before.rows:
        found = now.get((row.session_id, row.seq))
        if found is None or not _is_same(found, row):
            if not (is_undone or _may_move(step, row)):
                yield f"changed: row {row.seq} of {row.session_id} was {row.content!r}"
        elif found.content != row.content and row.role != "user":
            yield f"changed: the answer {row.content!r} became {found.content!r}"


def _is_same(found: Row, row: Row) -> bool:
    """Whether two rows are one, whatever was said of it and wherever its answer is to go."""
    may_change = ("content", "state", "source", "file", "is_closed")
    now = found._replace(**{name: getattr(row, name) for name in may_change})
    return now == row


def _may_move(step: Step, row: Row) -> bool:
    asked = step.asked
    if asked is None or asked.session_id != row.session_id:
        return False
    if asked.kind == "compact":
        return bool(row.seq <= asked.request.through_seq)
    if asked.kind == "continue":
        return bool(row.seq > asked.request.through_seq)
    return asked.kind == "retry" or step.is_removed(row.session_id)


def _summaries_stand_before_the_rest(step: Step, _story: Story) -> Problems:
    """A summary has one place, and what it does not stand for comes behind it, in order."""
    asked = step.asked
    if asked is None or asked.kind not in {"compact", "continue"}:
        return
    [summary] = asked.request.rows
    places = [row for row in step.after.rows if row.content == summary.content]
    if asked.reply is None or asked.reply.error is not None:
        if places:
            yield f"made up: a summary of {asked.session_id} that was refused"
        return
    through = asked.request.through_seq
    was = [row for row in step.before.rows if row.session_id == asked.session_id]
    rest = [(row.id, row.content) for row in was if row.seq > through]
    home = places[0].session_id if len(places) == 1 else None
    stands = [row for row in step.after.rows if row.session_id == home]
    if [(row.id, row.content) for row in stands] != [(None, summary.content), *rest]:
        yield f"summed up: {home} has {[row.content for row in stands]}"
    kept = (*step.after.archive, *step.after.rows)
    old = [row for row in kept if row.session_id == asked.session_id]
    lost = {row.content for row in was if row.seq <= through} - {row.content for row in old}
    yield from (f"lost: {content!r}, which was summed up" for content in lost)


def _nothing_is_of_no_session(step: Step, _story: Story) -> Problems:
    """What is taken away goes with all that was in it."""
    yield from (f"stray: in {table} of {its}" for table, its in step.after.strays)
    for session_id in step.before.sessions.keys() - step.after.sessions.keys():
        if not step.is_removed(session_id):
            yield f"lost: session {session_id}"


# Who may run.


def _one_turn_at_a_time(step: Step, _story: Story) -> Problems:
    live: defaultdict[UUID, list[Turn]] = defaultdict(list)
    for turn in step.after.turns.values():
        if turn.is_live:
            live[turn.session_id].append(turn)
    waiting = {one.session_id for one in step.after.waiting}
    for session in step.after.sessions.values():
        held_by = [turn.id for turn in live[session.id]]
        if held_by != [session.active_turn] * (session.active_turn is not None):
            yield f"two at once: {session.key} has {held_by}, and goes by {session.active_turn}"
        if session.id in waiting and not held_by:
            yield f"stranded: something waits in {session.key}, and no turn is there"


def _workers_are_told(step: Step, _story: Story) -> Problems:
    """Of every turn that is to be claimed, workers are or will be told."""
    told = step.after.of_stream("TURNS")
    for turn in step.after.turns.values():
        is_due = turn.is_live and turn.rest not in {"resting", "parked"}
        if is_due and f"turn:{turn.id}:{turn.dispatch}" not in told:
            yield f"untold: turn {turn.id} at dispatch {turn.dispatch}"


def _messages_join_for_a_reason(step: Step, _story: Story) -> Problems:
    """A message is in a turn by its claim, or because the attempt that holds it took it in."""
    for turn_id in {row.turn_id for row in step.joined() if row.turn_id}:
        was = step.before.turns.get(turn_id)
        is_claimed = turn_id in step.claimed and was is not None and was.attempt == 0
        if not is_claimed and not _holds(was, step):
            yield f"unfenced: a message was added to turn {turn_id}"


def _holds(was: Turn | None, step: Step) -> bool:
    """Whether who asks to take something in has the turn, and it is not to end."""
    if was is None or step.taken is None or not was.is_live or was.cancel is not None:
        return False
    asked = step.taken.request
    return (was.id, was.attempt, was.token) == (asked.turn_id, asked.attempt, asked.token)


def _workers_get_what_they_take_in(step: Step, _story: Story) -> Problems:
    """What a worker is given is what its turn has behind the place it names, in order."""
    if step.taken is None:
        return
    asked, reply = step.taken
    rows = [row for row in step.after.rows if row.turn_id == asked.turn_id and row.id is not None]
    due = [row.seq for row in rows if row.seq > asked.after_seq and row.state != "deleted"]
    given = [one.seq for one in reply.messages]
    if given != (due if reply.status == "renewed" else []):
        yield f"taken in: {given} and not {due}, {reply.status}"


def _turns_end_for_a_reason(step: Step, _story: Story) -> Problems:
    for turn in step.after.turns.values():
        was = step.before.turns.get(turn.id)
        if was is None:
            if turn.attempt or turn.state not in {"ready", "void"}:
                yield f"made up: turn {turn.id} began as {turn.state}"
        elif not was.is_live and turn != was:
            yield f"revived: turn {turn.id} was {was.state} and is {turn.state}"
        elif turn.attempt != was.attempt:
            is_free = was.state == "ready" and not was.is_parked and turn.id in step.claimed
            if turn.attempt != was.attempt + 1 or not is_free:
                yield f"unfenced: turn {turn.id} went from attempt {was.attempt} to {turn.attempt}"
        elif was.is_live and not turn.is_live:
            yield from _ended(step, was, turn)


def _parked_turns_ask(step: Step, story: Story) -> Problems:
    """A parked turn has an open question, each is over once, and each text answers one at most."""
    events = step.after.of_stream("EVENTS")
    asked, over = (
        {key.rpartition(":")[2] for key in events if key.startswith(f"turn.{verb}:")}
        for verb in ("asked", "answered")
    )
    open_ones = 0
    for turn in step.after.turns.values():
        open_ones += turn.asks
        if turn.asks != (turn.is_parked and turn.cancel is None):
            yield f"parked: turn {turn.id} is {turn.state} and {turn.rest}, and asks: {turn.asks}"
    if not over <= asked or len(asked) - len(over) != open_ones:
        yield f"parked: {len(asked)} were asked, {len(over)} are over, and {open_ones} are open"
    if len(story.answers) > len(asked):
        yield f"parked: {len(story.answers)} answers to {len(asked)} questions"
    now = {turn.id for turn in step.after.turns.values() if turn.is_live}
    yield from (f"stray: steps of turn {one}" for one in step.after.steps - now)


def _only_what_began_is_lost(step: Step, story: Story) -> Problems:
    """An attempt that nobody began costs no try, each once, and one that somebody began costs one."""
    for turn in step.after.turns.values():
        was = step.before.turns.get(turn.id)
        others = [n for n in range(1, turn.attempt + 1) if (turn.id, n) not in story.begun]
        if not 0 <= turn.unbegun <= len(others):
            yield f"tries: {turn.unbegun} of turn {turn.id} count for nothing, and {others} were not begun"
        if was is None or turn.interruptions == was.interruptions:
            continue
        has_begun = (turn.id, turn.attempt) in story.begun
        if not (step.may_expire and has_begun and turn.interruptions == was.interruptions + 1):
            yield f"tries: turn {turn.id} lost attempt {turn.attempt}, which nobody began"


def _ended(step: Step, was: Turn, turn: Turn) -> Problems:
    if turn.state == "void":
        # Stopped, emptied, or begun by nobody when its end was asked for.
        return
    result = step.decided.results.get(turn.result_id or "")
    if result is None:
        if turn.state != "failed" or not step.may_expire:
            yield f"made up: turn {turn.id} is {turn.state} without a result"
    elif (result["turn_id"], result["attempt"], result["token"]) != (
        str(turn.id),
        was.attempt,
        was.token,
    ):
        yield f"unfenced: turn {turn.id} was ended by attempt {result['attempt']}"


# What was answered.


def _answers_stand_once(step: Step, story: Story) -> Problems:
    """What a turn left in the transcript is what its one result says."""
    answers = _answers_by_turn(step.after)
    said = _by_turn(step.after.of_stream("OUTBOUND").values())
    for turn in step.after.turns.values():
        result = story.results.get(turn.result_id or "", {"parts": []})
        parts = [part["text"] for part in result["parts"]] if turn.state == "done" else []
        asked = story.questions.get(turn.id, [])
        if answers[turn.id] != [*asked, *parts] and turn.session_id not in story.removed:
            yield f"answered: turn {turn.id} left {answers[turn.id]} and not {parts}"
        heard = [one["text"] for one in said[turn.id] if one["kind"] == "answer"]
        if heard != [*asked, *(parts if turn.cancel != "session_ended" else [])]:
            yield f"answered: turn {turn.id} told {heard} and not {parts}"


def _answers_by_turn(now: Snapshot) -> defaultdict[UUID, list[str | None]]:
    """Return what turns said, in transcripts and in what was taken out of them."""
    answers: defaultdict[UUID, list[str | None]] = defaultdict(list)
    for row in (*now.archive, *now.rows):
        turn = now.turns.get(row.turn_id) if row.turn_id else None
        if turn is None or row.role != "assistant":
            continue
        # Rows go along where a conversation goes on behind a summary; copies are others.
        if turn.session_id in _followed_by(now, row.session_id):
            answers[turn.id].append(row.content)
    return answers


def _followed_by(now: Snapshot, session_id: UUID) -> list[UUID]:
    """Return a session and those before it that were summed up for it."""
    chain = [session_id]
    while (its := now.sessions.get(chain[-1])) and its.parent_id and its.link_kind == "compression":
        chain.append(its.parent_id)
    return chain


def _by_turn(sent: Iterable[Sent]) -> defaultdict[UUID, list[dict[str, Any]]]:
    by_turn: defaultdict[UUID, list[dict[str, Any]]] = defaultdict(list)
    for one in sent:
        if one.body.get("turn_id"):
            by_turn[UUID(one.body["turn_id"])].append(one.body)
    return by_turn


def _answers_go_where_questions_came_from(step: Step, _story: Story) -> Problems:
    asked = {
        row.turn_id: row.source
        for row in step.after.rows
        if row.turn_id and row.source and row.id is not None
    }
    for turn_id, told in _by_turn(step.after.of_stream("OUTBOUND").values()).items():
        source = from_json(asked.get(turn_id) or "{}")
        for one in told:
            if source and _place_of(one["target"]) != _place_of(source):
                yield f"misrouted: turn {turn_id} was told in {one['target']}"


def _place_of(source: dict[str, Any]) -> tuple[str, str | None]:
    """Return chat and thread of an address; a chat that moves is one."""
    chat = source["chat"]["id"]
    return FIRST_ID if chat == NEXT_ID else chat, source.get("thread_id")


def _moved_chats_are_told_where_they_are(step: Step, story: Story) -> Problems:
    """Who asked in a chat before it moved is answered under its new id."""
    if story.moved_at is None or step.decided.moves:
        return
    orders: defaultdict[UUID, list[int]] = defaultdict(list)
    for row in (*step.after.archive, *step.after.rows):
        said = story.by_id.get(row.id) if row.id else None
        if said is not None and row.turn_id:
            orders[row.turn_id].append(said.order)
    known = step.before.of_stream("OUTBOUND")
    for name, one in step.after.of_stream("OUTBOUND").items():
        asked = orders[UUID(one.body["turn_id"])] if one.body.get("turn_id") else []
        is_old = name in known or one.body["target"]["chat"]["id"] != FIRST_ID
        if not is_old and asked and max(asked) <= story.moved_at:
            yield f"misrouted: {one.body['text']!r} is told where nobody is any more"


def _late_results_change_nothing(step: Step, story: Story) -> Problems:
    """Every result counts once, or is kept as late, or was there before."""
    for result_id, result in step.decided.results.items():
        turn_id = result.get("turn_id")
        if turn_id is None:
            continue
        was = step.before.turns.get(UUID(turn_id))
        is_current = was is not None and (was.attempt, was.token) == (
            result["attempt"],
            result["token"],
        )
        now = step.after.turns.get(UUID(turn_id))
        has_counted = now is not None and now.result_id == result_id
        if has_counted and not is_current and was is not None and was.result_id != result_id:
            yield f"unfenced: a result of attempt {result['attempt']} counted for {turn_id}"
        is_of_nobody = UUID(result["session_id"]) in story.removed
        is_kept = result_id in step.after.late or is_of_nobody or _is_old(story, result_id)
        if not has_counted and not is_kept:
            yield f"lost: result {result_id} of {turn_id} is nowhere"


def _is_old(story: Story, result_id: str) -> bool:
    return bool(story.results[result_id].get("counted"))


# What goes out.


def _chats_are_told_in_order(step: Step, _story: Story) -> Problems:
    """Each session tells 1, 2, 3 ...: a beginning stands in the stream, the rest is to come."""
    stored = _numbers(step.after.stored["OUTBOUND"], "out_seq")
    every = _numbers(step.after.of_stream("OUTBOUND").values(), "out_seq")
    yield from _twice(step.after.stored["OUTBOUND"])
    for session in step.after.sessions.values():
        numbers = list(range(1, session.next_out_seq))
        if sorted(every[session.id]) != numbers:
            yield f"gap: {session.key} tells {every[session.id]} of {len(numbers)}"
        if stored[session.id] != numbers[: len(stored[session.id])]:
            yield f"inverted: {session.key} told {stored[session.id]}"


def _agents_are_told_in_order(step: Step, _story: Story) -> Problems:
    stored = _numbers(step.after.stored["ROUTED"], "seq")
    yield from _twice(step.after.stored["ROUTED"])
    yield from (
        f"inverted: {its} was routed as {seqs}" for its, seqs in stored.items() if _falls(seqs)
    )
    told = step.after.of_stream("ROUTED")
    for row in step.after.rows:
        session = step.after.sessions.get(row.session_id)
        is_due = session is not None and session.agent == "desk" and row.role == "user"
        if is_due and row.id is not None and str(row.id) not in told:
            yield f"lost: row {row.seq} of {row.session_id} is not routed"


def _claimed_turns_end_once(step: Step, _: Story) -> Problems:
    """Every claimed turn that is over has one event that tells so, and a live one has none."""
    heads = (key.split(":") for key in step.after.of_stream("EVENTS") if key.count(":") == 2)
    told = Counter(turn for kind, turn, *_ in heads if kind == "turn.ended")
    for turn in step.after.turns.values():
        expected = 0 if turn.is_live or not turn.attempt else 1
        if told[str(turn.id)] != expected:
            yield f"turn: the end of {turn.id} ({turn.state}) was told {told[str(turn.id)]} times"


def _sessions_begin_and_end_once(step: Step, story: Story) -> Problems:
    yield from _twice(step.after.stored["EVENTS"])
    told = Counter(
        (one.subject.rpartition(".")[2], one.session_id)
        for one in step.after.of_stream("EVENTS").values()
    )
    story.reopened += step.asked is not None and step.asked.kind in {"switch", "reopen"}
    story.reopened += sum(name == "resume" for _, name, _ in step.decided.commands)
    for session in step.after.sessions.values():
        begun, ended = told["started", session.id], told["ended", session.id]
        if begun != 1:
            yield f"begun: {session.key} was told to begin {begun} times"
        if ended < (session.ended_at is not None) or ended > 1 + story.reopened:
            yield f"ended: {session.key} was told to end {ended} times"


def _positions_only_rise(step: Step, _story: Story) -> Problems:
    for partition, was in step.before.cursors.items():
        now = step.after.cursors[partition]
        if now[0] < was[0] or now[1] < was[1]:
            yield f"rewound: {partition} went from {was} to {now}"


def _numbers(sent: Iterable[Sent], field_name: str) -> defaultdict[UUID, list[int]]:
    numbers: defaultdict[UUID, list[int]] = defaultdict(list)
    for one in sent:
        numbers[one.session_id].append(one.body[field_name])
    return numbers


def _twice(sent: Iterable[Sent]) -> Problems:
    ids = Counter(one.id for one in sent)
    yield from (f"doubled: {one} stands in its stream {n} times" for one, n in ids.items() if n > 1)


def _falls(numbers: list[int]) -> bool:
    return any(later <= earlier for earlier, later in pairwise(numbers))


_LAWS: "Final[tuple[Callable[[Step, Story], Problems], ...]]" = (
    _is_in_one_place,
    _leaves_its_line_for_a_reason,
    _says_what_its_edits_say,
    _is_in_order,
    _albums_stay_whole,
    _files_come_to_their_message,
    _places_are_contiguous,
    _transcripts_only_grow,
    _summaries_stand_before_the_rest,
    _nothing_is_of_no_session,
    _one_turn_at_a_time,
    _workers_are_told,
    _messages_join_for_a_reason,
    _workers_get_what_they_take_in,
    _turns_end_for_a_reason,
    _parked_turns_ask,
    _only_what_began_is_lost,
    _answers_stand_once,
    _answers_go_where_questions_came_from,
    _moved_chats_are_told_where_they_are,
    _late_results_change_nothing,
    _chats_are_told_in_order,
    _agents_are_told_in_order,
    _claimed_turns_end_once,
    _sessions_begin_and_end_once,
    _positions_only_rise,
)


def unfinished(now: Snapshot, story: Story) -> list[str]:
    """Return what is left undone once everybody had time to do everything."""
    told = [f"left over: {one.content!r} waits" for one in now.waiting]
    told += [f"left over: a row for {stream}" for stream, rows in now.unsent.items() if rows]
    told += [
        f"unanswered: turn {one.id} is {one.state}" for one in now.turns.values() if one.is_live
    ]
    failed = sum(one.state == "failed" for one in now.turns.values())
    # What answers a question that was taken back, or is of a session that was, is a dead letter.
    excused = {"invalid"} if now.removed else set()
    excused |= {"unknown_session"} if story.removed else set()
    dead = [reason for reason in now.dead if reason not in excused]
    if dead != ["turn_failed"] * failed:
        told.append(f"lost: dead letters {dead}, {failed} turns failed")
    for row in now.rows:
        session = now.sessions[row.session_id]
        said = story.by_id.get(row.id) if row.id else None
        if said is None or session.is_branch:
            continue
        is_answer = row.id in story.answers
        if row.turn_id is None and session.agent != "desk" and not (row.is_closed or is_answer):
            told.append(f"unanswered: {said.mid} is in no turn")
    # Answers go with what is taken back behind their question, and into summaries.
    answered = {row.reply_to for row in (*now.archive, *now.rows) if row.reply_to} | now.removed
    told += [
        f"unanswered: {one.id} was routed"
        for one in now.stored["ROUTED"]
        if UUID(one.id) not in answered and one.session_id not in story.removed
    ]
    return told
