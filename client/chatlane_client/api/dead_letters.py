"""Typed client of the requests by which operators look at dead letters, retry and drop them."""

from base64 import b64decode
from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypedDict, Unpack
from uuid import UUID

import nats.errors

from chatlane_client.api.requests import Api
from chatlane_client.errors import (
    ConflictingRequestError,
    SessionNotFoundError,
    UnconfirmedPublishError,
)
from chatlane_schemas.dead import Cause, Stage
from chatlane_schemas.session_api.operators.dead_letters import (
    MAX_LETTER_IDS,
    LetterCount,
    LetterCountReply,
    LetterDrop,
    LetterGet,
    LetterList,
    LetterListReply,
    LetterReply,
    LetterRetry,
    LetterView,
)
from chatlane_schemas.session_api.sessions import ApiReply

_CONFIRMED_WITHIN_SECONDS: Final = 5.0
_LOGGED: Final = frozenset({Stage.INBOUND, Stage.RESULTS})


class LetterFilters(TypedDict, total=False):
    """Selects dead letters: those that match all given filters.

    Attributes:
        reason: Only with this reason.
        cause: Only those that this party acts on.
        stage: Only of this stage.
        platform: Only of this platform.
        account: Only of accounts with this name.
        session_id: Only of this session.
        before: Only those that were set aside before this time; a time with time zone.
    """

    reason: str | None
    cause: Cause | None
    stage: Stage | None
    platform: str | None
    account: str | None
    session_id: UUID | None
    before: datetime | None


class LetterOutcome(NamedTuple):
    """The outcome of an action on a dead letter.

    Attributes:
        is_done: It was retried or dropped.
        is_gone: There is none with this id any more.
        obstacle: Why it stays.
    """

    letter_id: UUID
    is_done: bool = False
    is_gone: bool = False
    obstacle: str | None = None


class DeadLetterApi(Api):
    """Lists, shows, retries and drops dead letters; repeats every request until there is a reply.

    Raises (from every method):
        SessionNotFoundError: There is no such dead letter.
        ForbiddenRequestError: The caller is no operator.
        UnansweredRequestError: The service did not reply in time.
    """

    async def list_page(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        oldest_first: bool = False,
        **filters: Unpack[LetterFilters],
    ) -> LetterListReply:
        """Return one page of dead letters; there is another page if it has a `next_cursor`.

        Args:
            limit: Most dead letters of the page, 1 to 200; a page may have fewer.
            cursor: `next_cursor` of the page before.
            oldest_first: Whether those come first that were set aside first.
            filters: The dead letters to list.
        """
        stamp = self._stamp()
        request = LetterList(
            id=stamp["id"],
            at=stamp["at"],
            limit=limit,
            cursor=cursor,
            oldest_first=oldest_first,
            **filters,
        )
        return await self._ask("letter", "list", request, LetterListReply)

    async def count(self, **filters: Unpack[LetterFilters]) -> LetterCountReply:
        """Return the numbers of dead letters that match all given filters."""
        stamp = self._stamp()
        request = LetterCount(id=stamp["id"], at=stamp["at"], **filters)
        return await self._ask("letter", "count", request, LetterCountReply)

    async def get(self, letter_id: UUID) -> LetterReply:
        """Return a dead letter with its body; the audit names it."""
        stamp = self._stamp()
        request = LetterGet(id=stamp["id"], at=stamp["at"], letter_id=letter_id)
        return await self._ask("letter", "get", request, LetterReply)

    async def retry(self, letter_ids: Sequence[UUID]) -> tuple[LetterOutcome, ...]:
        """Retry dead letters, those first whose messages came first.

        The message of a log goes to its end, after newer messages; this connection publishes it.
        A failed turn goes to the workers again. Calling it again changes nothing for those that
        are done.

        Args:
            letter_ids: At most 100 ids.

        Raises:
            UnconfirmedPublishError: A log did not confirm a message; its letter stays.
        """
        letters = await self._chosen(letter_ids)
        done = [await self._outcome(letter.id, self._retry_one(letter)) for letter in letters]
        return (*done, *_gone(letter_ids, letters))

    async def drop(self, letter_ids: Sequence[UUID]) -> tuple[LetterOutcome, ...]:
        """Delete dead letters with their bodies; calling it again changes nothing.

        Args:
            letter_ids: At most 100 ids.
        """
        letters = await self._chosen(letter_ids)
        done = [await self._outcome(letter.id, self._drop_one(letter.id)) for letter in letters]
        return (*done, *_gone(letter_ids, letters))

    async def _chosen(self, letter_ids: Sequence[UUID]) -> tuple[LetterView, ...]:
        if not letter_ids:
            return ()
        stamp = self._stamp()
        request = LetterList(
            id=stamp["id"],
            at=stamp["at"],
            letter_ids=tuple(letter_ids),
            limit=MAX_LETTER_IDS,
        )
        return (await self._ask("letter", "list", request, LetterListReply)).letters

    async def _outcome(self, letter_id: UUID, change: Coroutine[None, None, None]) -> LetterOutcome:
        try:
            await change
        except SessionNotFoundError:
            return LetterOutcome(letter_id, is_gone=True)
        except ConflictingRequestError as why:
            return LetterOutcome(letter_id, obstacle=why.message)
        return LetterOutcome(letter_id, is_done=True)

    async def _retry_one(self, letter: LetterView) -> None:
        is_logged = letter.stage in _LOGGED
        if is_logged:
            await self._publish(letter.id)
        stamp = self._stamp()
        request = LetterRetry(
            id=stamp["id"], at=stamp["at"], letter_id=letter.id, is_published=is_logged
        )
        await self._ask("letter", "retry", request, ApiReply)

    async def _publish(self, letter_id: UUID) -> None:
        found = await self.get(letter_id)
        subject, message_id = found.publish_to, found.publish_id
        if subject is None or message_id is None or found.body_base64 is None:
            obstacle = found.obstacle or "its message cannot be published"
            raise ConflictingRequestError(self._requests.subject("letter", "get"), obstacle)
        try:
            # The same id for every attempt: routers drop the duplicate.
            await self._client.jetstream().publish(
                subject,
                b64decode(found.body_base64),
                timeout=_CONFIRMED_WITHIN_SECONDS,
                headers={"Nats-Msg-Id": message_id},
            )
        except (nats.errors.Error, TimeoutError) as exc:
            raise UnconfirmedPublishError(subject, message_id) from exc

    async def _drop_one(self, letter_id: UUID) -> None:
        stamp = self._stamp()
        request = LetterDrop(id=stamp["id"], at=stamp["at"], letter_id=letter_id)
        await self._ask("letter", "drop", request, ApiReply)


def _gone(letter_ids: Sequence[UUID], letters: Sequence[LetterView]) -> list[LetterOutcome]:
    missing = set(letter_ids) - {letter.id for letter in letters}
    return [LetterOutcome(letter_id, is_gone=True) for letter_id in sorted(missing)]
