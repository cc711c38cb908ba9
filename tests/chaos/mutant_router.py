"""The command line of chatlane with one promise of the protocol broken; MUTANT names which.

Usage: as `python -m chatlane`. LOSE_ANSWERS=N lets every Nth commit look as if it had failed,
FREEZE_AT_BATCH=N freezes the router with every Nth batch in its hands, SWEEP_LATE=S puts off by S
seconds whatever adopts rows. The product has no such switch: what is broken is replaced here.
"""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from chatlane.api.deliveries import DeliveryQueries
from chatlane.cli import main
from chatlane.domain.deliveries import Delivery
from chatlane.domain.turns import lifecycle, turn_events, turn_results
from chatlane.errors import StoreUnavailableError
from chatlane.failpoints import RouterPoint, hit
from chatlane.ingest import batch_committer
from chatlane.ingest.partition_reader import PartitionFeed
from chatlane.nats.log_inspection import LogReplaced
from chatlane.outbox.publish_window import Pipeline
from chatlane.outbox.publisher import Publisher
from chatlane.outbox.relay import OutboxWriter, Relay
from chatlane.postgres.pool import Store
from chatlane.store import api_requests, outbox, questions, turns
from chatlane.store.addressing import dedupe_marks
from chatlane.store.conversations import sessions
from chatlane.store.logs import partitions
from chatlane.store.outbox import OutboxRow
from chatlane_schemas.deliveries import Receipt
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.deliveries import DeliveryReply
from chatlane_schemas.topology.subjects import LiveTurnPath

# One router, one pipeline: the publisher it was given.
_publishers: Final[list[Any]] = []


def publish_before_commit() -> None:
    """Rows are published as soon as they are written; the commit may still fail."""
    insert, make = OutboxWriter.insert, Pipeline.__init__

    def remember(self: Pipeline, publisher: Publisher, **its: Any) -> None:  # noqa: ANN401
        _publishers.append(publisher)
        make(self, publisher, **its)

    async def hasty(self: OutboxWriter, connection: Any, publications: Any) -> None:  # noqa: ANN401
        known = len(self.rows)
        await insert(self, connection, publications)
        sent = [
            await _publishers[0].publish(row.subject, row.payload, row.message_id)
            for row in self.rows[known:]
        ]
        if sent:
            await asyncio.wait(sent)

    _replace(Pipeline, "__init__", remember)
    _replace(OutboxWriter, "insert", hasty)


def no_epoch() -> None:
    """Whoever knows where a cursor stands may move it, whoever owns the partition by now."""
    _without("AND p.epoch = want.epoch", partitions, "ADVANCE_SQL")
    # A condition with the same parameter, which always holds.
    _edit(partitions, "ADVANCE_SQL", "WHERE p.owner = $1", "WHERE $1::uuid IS NOT NULL")


def no_compare_and_set() -> None:
    """A cursor is moved wherever it stands."""
    _without("AND p.cursor = want.cursor_from", partitions, "ADVANCE_SQL")


def no_seen() -> None:
    """Nobody remembers what was decided."""

    async def nothing_known(_connection: object, _digests: object) -> dedupe_marks.Marks:
        return dedupe_marks.Marks(set(), set(), {})

    async def not_marked(_connection: object, _rows: object) -> None:
        return None

    _replace(dedupe_marks, "probe", nothing_known)
    _replace(dedupe_marks, "insert", not_marked)


def no_compare_and_set_and_no_seen() -> None:
    """Neither: the marks absorb what a moved cursor repeats, so both have to go."""
    no_compare_and_set()
    no_seen()


def no_epoch_no_compare_and_set_no_seen() -> None:
    """Nothing is left of the fence: a router that was away decides again."""
    no_epoch()
    no_compare_and_set()
    no_seen()


def no_sweeper() -> None:
    """Nobody publishes what a dead router left behind."""

    async def adopt_nothing(_relay: Relay) -> int:
        return 0

    _replace(Relay, "adopt_orphans", adopt_nothing)


def sweeper_out_of_order() -> None:
    """What a dead router left behind is published newest first."""
    adopt = outbox.adopt

    async def reversed_rows(*its: Any) -> list[OutboxRow]:  # noqa: ANN401
        return (await adopt(*its))[::-1]

    _replace(outbox, "adopt", reversed_rows)


def older_rows_ignored() -> None:
    """New rows of a session are published although a dead router left older ones."""
    _edit(
        outbox,
        "INSERT_OUTBOX_SQL",
        "(older.router IS DISTINCT FROM $1 OR older.id = ANY($8::bigint[]))",
        "older.id = ANY($8::bigint[]) AND false",
    )


def frozen_relay_publishes_late() -> None:
    """A relay that was away publishes what it holds without asking whose it is by now."""
    make = Pipeline.__init__

    def patient(self: Pipeline, publisher: Publisher, **its: Any) -> None:  # noqa: ANN401
        make(self, publisher, **its | {"stale_after": timedelta(days=1)})

    _replace(Pipeline, "__init__", patient)


def no_token_check() -> None:
    """Every result of a turn counts, whichever attempt it is of."""
    _replace(turn_results, "_is_current", lambda _result, _turn: True)


def same_notification_id() -> None:
    """A repeated notification has the id of the first, which the stream swallows."""
    notify = lifecycle._notify

    def notify_again(turn: Any, at: Any, effects: Any) -> None:  # noqa: ANN401
        dispatch, turn.dispatch = turn.dispatch, 1
        notify(turn, at, effects)
        turn.dispatch = dispatch

    _replace(lifecycle, "_notify", notify_again)


def unsorted_locks() -> None:
    """Sessions are locked in any order."""
    for name in ("LOCK_SESSIONS_SQL", "LOCK_FREE_SESSIONS_SQL"):
        _edit(sessions, name, "ORDER BY id", "ORDER BY random()")


def log_not_checked() -> None:
    """A cursor is believed although the log is not the one it counts in."""
    rewind = PartitionFeed._rewind

    async def go_on(self: PartitionFeed, found: Any) -> None:  # noqa: ANN401
        if not isinstance(found, LogReplaced):
            await rewind(self, found)

    _replace(PartitionFeed, "_rewind", go_on)


def receipt_adds_up() -> None:
    """A receipt adds to what is known instead of taking its place."""
    apply = Delivery.apply

    def add(self: Delivery, receipt: Receipt, *its: Any) -> bool:  # noqa: ANN401
        before = self.sent
        is_changed = apply(self, receipt, *its)
        if is_changed:
            self.sent = before + receipt.sent
        return is_changed

    _replace(Delivery, "apply", add)


def piece_progress_forgotten() -> None:
    """An adapter that asks what was delivered learns of nothing."""

    async def nothing_known(_self: DeliveryQueries, _request: object) -> DeliveryReply:
        return DeliveryReply(id=new_envelope_id(), at=datetime.now(UTC), is_settled=True)

    _replace(DeliveryQueries, "_find", nothing_known)


def question_kept() -> None:
    """A question outlives its attempt and its turn, and takes answers."""
    _edit(
        turns,
        "UPDATE_TURNS_SQL",
        "question = CASE WHEN (new.state",
        "question = CASE WHEN true THEN turns.question WHEN (new.state",
    )
    _without(" AND (question ->> 'attempt')::int = attempt", questions, "FIND_OPEN_SQL")


def turns_shown_to_another_account() -> None:
    """What happens in a turn is published to one account, whichever account is answered."""
    find_path = turn_events.live_turn_path

    def wrong_path(*its: Any) -> LiveTurnPath:  # noqa: ANN401
        return find_path(*its)._replace(account="talk")

    _replace(turn_events, "live_turn_path", wrong_path)


def request_made_again() -> None:
    """A request that is repeated is made again."""
    begin = api_requests.begin

    async def begin_again(*its: Any) -> datetime:  # noqa: ANN401
        return await begin(*its) or datetime.now(UTC)

    _replace(api_requests, "begin", begin_again)


def draft_forgotten() -> None:
    """Nobody remembers which message of a chat shows an answer so far."""

    async def note_nothing(_connection: object, _drafts: object) -> None:
        return None

    _replace(turns, "note_drafts", note_nothing)


MUTANTS: Final[Sequence[Callable[[], None]]] = (
    publish_before_commit,
    no_seen,
    no_compare_and_set_and_no_seen,
    no_epoch_no_compare_and_set_no_seen,
    no_sweeper,
    sweeper_out_of_order,
    older_rows_ignored,
    frozen_relay_publishes_late,
    no_token_check,
    same_notification_id,
    unsorted_locks,
    log_not_checked,
    receipt_adds_up,
    piece_progress_forgotten,
    question_kept,
    turns_shown_to_another_account,
    request_made_again,
    draft_forgotten,
)


def lose_answers(every: int) -> None:
    """Report every so many-th commit as unknown although it went through: a fault, no mutant."""
    transaction, numbers = Store.transaction, itertools.count(1)

    @asynccontextmanager
    async def forgetful(self: Store) -> AsyncIterator[Any]:
        async with transaction(self) as connection:
            yield connection
        if next(numbers) % every == 0:
            raise StoreUnavailableError(kind="the answer to a commit was lost")

    _replace(Store, "transaction", forgetful)


def freeze_at_batch(every: int) -> None:
    """Stop the process by SIGSTOP with every so many-th batch decoded and not begun: a fault."""
    numbers = itertools.count(1)

    def freeze_or_hit(point: RouterPoint) -> None:
        if point is RouterPoint.BATCH_TAKEN and next(numbers) % every == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        hit(point)

    _replace(batch_committer, "hit", freeze_or_hit)


def sweep_late(seconds: float) -> None:
    """Let rows of dead routers lie for a while: a fault, no mutant.

    Nothing is promised about when a sweep comes: another one may be at it and hang, or the
    database be slow. Here it comes after the next messages of the same conversations.
    """
    adopt = Relay.adopt_orphans

    async def adopt_late(relay: Relay) -> int:
        await asyncio.sleep(seconds)
        return await adopt(relay)

    _replace(Relay, "adopt_orphans", adopt_late)


def _replace(owner: object, name: str, replacement: object) -> None:
    getattr(owner, name)  # What is not there cannot be replaced.
    setattr(owner, name, replacement)


def _edit(owner: object, name: str, old: str, new: str) -> None:
    text = getattr(owner, name)
    if text.count(old) != 1:
        raise ValueError(f"{name} has no {old!r} to break")
    setattr(owner, name, text.replace(old, new))


def _without(text: str, owner: object, name: str) -> None:
    _edit(owner, name, text, "")


if __name__ == "__main__":
    if mutant := os.environ.get("MUTANT"):
        {mutate.__name__: mutate for mutate in MUTANTS}[mutant]()
    if every := os.environ.get("LOSE_ANSWERS"):
        lose_answers(int(every))
    if every := os.environ.get("FREEZE_AT_BATCH"):
        freeze_at_batch(int(every))
    if seconds := os.environ.get("SWEEP_LATE"):
        sweep_late(float(seconds))
    main()
