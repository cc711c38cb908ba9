"""Answer read-only requests of operators about dead letters."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.api.endpoint import fitting
from chatlane.domain.sessions.refusals import invalid, not_found
from chatlane.outbox import redrive
from chatlane.outbox.redrive import NotRetriedError
from chatlane.store import dead_letters, letter_lists
from chatlane.store.letter_lists import MAX_RETRIED_BYTES, LetterPlace
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.operators.dead_letters import (
    LetterCount,
    LetterCountReply,
    LetterGet,
    LetterList,
    LetterListReply,
    LetterReply,
    LetterText,
)

if TYPE_CHECKING:
    from chatlane.api.endpoint import Reads
    from chatlane.postgres.pool import Store
    from chatlane_schemas.turns import TurnMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The body takes most of a reply; texts of a turn are shown up to here.
_MAX_TEXT_CHARACTERS: Final = 4000
_MAX_TEXTS: Final = 20


class DeadLetterQueries:
    """Answers read-only requests about dead letters."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def table(self) -> Reads:
        """Return the model of each request and the method that answers it."""
        return {
            "letter.list": (LetterList, self._list),
            "letter.count": (LetterCount, self._count),
            "letter.get": (LetterGet, self._get),
        }

    async def _list(self, request: LetterList) -> LetterListReply:
        if request.letter_ids:
            async with self._store.transaction() as connection:
                chosen = await letter_lists.of_ids(connection, request.letter_ids)
            return LetterListReply(id=new_envelope_id(), at=datetime.now(UTC), letters=chosen)
        try:
            after = _place(request.cursor) if request.cursor else None
        except (ValueError, OverflowError):
            error = invalid("cursor: must be the next_cursor of an earlier answer")
            return LetterListReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)
        async with self._store.transaction() as connection:
            found = await letter_lists.page(
                connection,
                request,
                limit=request.limit,
                after=after,
                oldest_first=request.oldest_first,
            )
        letters = fitting(found.letters)
        is_cut = len(letters) < len(found.letters)
        end = LetterPlace(letters[-1].at, letters[-1].id) if is_cut else found.end
        return LetterListReply(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            letters=letters,
            next_cursor=None if end is None else _cursor(end),
        )

    async def _count(self, request: LetterCount) -> LetterCountReply:
        async with self._store.transaction() as connection:
            totals = await letter_lists.count(connection, request)
        return LetterCountReply(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            letters=totals.letters,
            conversations=totals.conversations,
            is_complete=totals.is_complete,
            groups=totals.groups,
        )

    async def _get(self, request: LetterGet) -> LetterReply:
        async with self._store.transaction() as connection:
            views = await letter_lists.of_ids(connection, [request.letter_id])
            row = await dead_letters.lock(connection, request.letter_id)
            if row is None or not views:
                error = not_found("there is no such dead letter")
                return LetterReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)
            written = await redrive.written_in(connection, row)
            first_texts = await redrive.first_texts(connection, row)
            try:
                publication = await redrive.publication_of(connection, row)
                obstacle = None
            except NotRetriedError as why:
                publication, obstacle = None, str(why)
        has_body = bool(row.body) and row.size_bytes <= MAX_RETRIED_BYTES
        if not has_body and obstacle is None:
            publication, obstacle = None, "its body is too large for this request"
        return LetterReply(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            letter=views[0],
            subject=row.subject,
            digest=row.digest.hex(),
            body_base64=b64encode(row.body or b"").decode() if has_body else None,
            texts=tuple(map(_text, written[:_MAX_TEXTS])),
            first_texts=tuple(text[:_MAX_TEXT_CHARACTERS] for text in first_texts),
            obstacle=obstacle,
            publish_to=None if publication is None else publication.subject,
            publish_id=None if publication is None else publication.message_id,
        )


def _text(message: TurnMessage) -> LetterText:
    sender = message.source.sender
    text = message.text or f"[{len(message.attachments)} attachments]"
    author = (sender.name or sender.id) if sender else None
    return LetterText(author=author, text=text[:_MAX_TEXT_CHARACTERS])


def _cursor(place: LetterPlace) -> str:
    return f"{(place.at - _EPOCH) // timedelta(microseconds=1)}.{place.id}"


def _place(cursor: str) -> LetterPlace:
    """Return the place in a cursor.

    Raises:
        ValueError: It is no such cursor.
        OverflowError: Its time is out of range.
    """
    micros, _, letter_id = cursor.partition(".")
    return LetterPlace(_EPOCH + timedelta(microseconds=int(micros)), UUID(letter_id))
