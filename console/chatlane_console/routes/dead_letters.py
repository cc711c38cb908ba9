"""Routes by which operators look at dead letters, retry and drop them."""

from base64 import b64decode
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import AwareDatetime, BaseModel, Field

from chatlane_client.api.dead_letters import DeadLetterApi, LetterFilters, LetterOutcome
from chatlane_console.conversations import PATIENCE
from chatlane_console.routes.bodies import Body
from chatlane_console.routes.callers import Operator, State
from chatlane_schemas.dead import Cause, Stage
from chatlane_schemas.fields import Name, PlatformName
from chatlane_schemas.session_api.operators.dead_letters import (
    MAX_LETTER_IDS,
    LetterGroup,
    LetterText,
    LetterView,
)
from chatlane_schemas.session_api.sessions import Cursor

router = APIRouter()

# A rare match may need several pages of the service, but not without an end.
_MAX_PAGES: Final = 10


class LettersQuery(Body):
    """A filter of dead letters."""

    reason: Name | None = Field(default=None, description="Only with this reason.")
    cause: Cause | None = Field(default=None, description="Only those that this party acts on.")
    stage: Stage | None = Field(default=None, description="Only of this stage.")
    platform: PlatformName | None = Field(default=None, description="Only of this platform.")
    account: Name | None = Field(default=None, description="Only of accounts with this name.")
    session_id: UUID | None = Field(default=None, description="Only of this session.")
    before: AwareDatetime | None = Field(
        default=None, description="Only those that were set aside before this time."
    )

    def filters(self) -> LetterFilters:
        """Return the filters of the client."""
        return LetterFilters(
            reason=self.reason,
            cause=self.cause,
            stage=self.stage,
            platform=self.platform,
            account=self.account,
            session_id=self.session_id,
            before=self.before,
        )


class LettersPageQuery(LettersQuery):
    """A filter of dead letters and a place in the list."""

    limit: int = Field(default=50, ge=1, le=100, description="Most dead letters of the page.")
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")


class LetterAction(StrEnum):
    """An action on dead letters."""

    RETRY = "retry"
    DROP = "drop"


class PreviewQuery(LettersQuery):
    """An action, and the dead letters that it is for."""

    action: LetterAction = Field(description="What is to be done.")


class LettersPage(BaseModel):
    """A page of dead letters."""

    letters: tuple[LetterView, ...] = Field(description="Dead letters, newest first.")
    next_cursor: Cursor | None = Field(default=None, description="`cursor` of the next page.")


class LetterCounts(BaseModel):
    """Numbers of dead letters."""

    letters: int = Field(description="How many match.")
    conversations: int = Field(description="How many chats and sessions they are of.")
    is_complete: bool = Field(description="Whether all were counted; if not, there are more.")
    groups: tuple[LetterGroup, ...] = Field(description="By reason and account, largest first.")


class LettersPreview(BaseModel):
    """The next effect of an action on all dead letters that match."""

    letters: int = Field(description="How many match.")
    conversations: int = Field(description="How many chats and sessions they are of.")
    is_complete: bool = Field(description="Whether all were counted; if not, there are more.")
    letter_ids: list[UUID] = Field(
        description=f"Those of the next step, oldest first: at most {MAX_LETTER_IDS}."
    )
    left_out: int = Field(
        description="How many older than the last of them no retry can help; they stay."
    )


class LetterContent(BaseModel):
    """A dead letter with its content."""

    letter: LetterView = Field(description="The dead letter.")
    subject: str | None = Field(default=None, description="Subject of the message.")
    digest: str | None = Field(default=None, description="SHA-256 of the body, in hex.")
    body: str | None = Field(default=None, description="The body as text; none if it is gone.")
    texts: tuple[LetterText, ...] = Field(description="What people wrote in a failed turn.")
    first_texts: tuple[str, ...] = Field(
        description="Present text of the first message with the same id."
    )
    obstacle: str | None = Field(default=None, description="Why it cannot be retried now.")


class ChosenLetters(Body):
    """Dead letters to retry or drop."""

    letter_ids: Annotated[list[UUID], Field(min_length=1, max_length=MAX_LETTER_IDS)] = Field(
        description="Their ids, as the preview has them."
    )


class LetterFate(StrEnum):
    """The outcome of an action on a dead letter."""

    DONE = "done"
    GONE = "gone"
    STAYS = "stays"


class LetterResult(BaseModel):
    """The outcome of an action on a dead letter."""

    letter_id: UUID = Field(description="Id of the dead letter.")
    fate: LetterFate = Field(description="What became of it.")
    obstacle: str | None = Field(default=None, description="Why it stays.")


class LetterResults(BaseModel):
    """The outcomes of an action on dead letters."""

    results: list[LetterResult] = Field(description="In the order in which they were handled.")


def letter_api(_: Operator, state: State) -> DeadLetterApi:
    """Return the requests about dead letters."""
    return DeadLetterApi(
        state.operator_client,
        principal=state.operator_principal,
        is_operator=True,
        patience=PATIENCE,
    )


Letters = Annotated[DeadLetterApi, Depends(letter_api)]


@router.get("/dead-letters", summary="List dead letters")
async def list_dead_letters(
    letters: Letters, wanted: Annotated[LettersPageQuery, Query()]
) -> LettersPage:
    """Return dead letters without their bodies, those first that were set aside last."""
    reply = await letters.list_page(limit=wanted.limit, cursor=wanted.cursor, **wanted.filters())
    return LettersPage(letters=reply.letters, next_cursor=reply.next_cursor)


@router.get("/dead-letters/counts", summary="Count dead letters")
async def count_dead_letters(
    letters: Letters, wanted: Annotated[LettersQuery, Query()]
) -> LetterCounts:
    """Return the numbers of dead letters by reason and account."""
    reply = await letters.count(**wanted.filters())
    return LetterCounts(
        letters=reply.letters,
        conversations=reply.conversations,
        is_complete=reply.is_complete,
        groups=reply.groups,
    )


@router.get("/dead-letters/preview", summary="Look at what an action would do")
async def preview_dead_letters(
    letters: Letters, wanted: Annotated[PreviewQuery, Query()]
) -> LettersPreview:
    """Return the next effect of retrying or dropping all dead letters that match.

    Retry or drop the ids that it returns: those set aside later stay, and so a second press
    changes nothing.
    """
    counts = await letters.count(**wanted.filters())
    chosen: list[UUID] = []
    left_out = 0
    cursor = None
    for _ in range(_MAX_PAGES):
        reply = await letters.list_page(
            limit=MAX_LETTER_IDS - len(chosen),
            cursor=cursor,
            oldest_first=True,
            **wanted.filters(),
        )
        for letter in reply.letters:
            if wanted.action is LetterAction.DROP or letter.is_retriable:
                chosen.append(letter.id)
            else:
                left_out += 1
        cursor = reply.next_cursor
        if cursor is None or len(chosen) == MAX_LETTER_IDS:
            break
    return LettersPreview(
        letters=counts.letters,
        conversations=counts.conversations,
        is_complete=counts.is_complete,
        letter_ids=chosen,
        left_out=left_out,
    )


@router.post("/dead-letters/retry", summary="Retry dead letters")
async def retry_dead_letters(letters: Letters, body: ChosenLetters) -> LetterResults:
    """Retry dead letters, those first whose messages came first.

    One that cannot be retried stays. Repeating the request changes nothing for those that are
    done, and tries the others again.
    """
    return _results(await letters.retry(body.letter_ids))


@router.post("/dead-letters/drop", summary="Drop dead letters")
async def drop_dead_letters(letters: Letters, body: ChosenLetters) -> LetterResults:
    """Delete dead letters with their bodies; repeating the request changes nothing."""
    return _results(await letters.drop(body.letter_ids))


@router.get("/dead-letters/{letter_id}", summary="Read a dead letter")
async def read_dead_letter(letters: Letters, letter_id: UUID) -> LetterContent:
    """Return a dead letter with its body; the audit of the service names it."""
    reply = await letters.get(letter_id)
    assert reply.letter is not None  # noqa: S101 - a reply without one is an error
    body = None if reply.body_base64 is None else b64decode(reply.body_base64)
    return LetterContent(
        letter=reply.letter,
        subject=reply.subject,
        digest=reply.digest,
        body=None if body is None else body.decode(errors="backslashreplace"),
        texts=reply.texts,
        first_texts=reply.first_texts,
        obstacle=reply.obstacle,
    )


def _results(outcomes: Iterable[LetterOutcome]) -> LetterResults:
    return LetterResults(
        results=[
            LetterResult(
                letter_id=outcome.letter_id, fate=_fate(outcome), obstacle=outcome.obstacle
            )
            for outcome in outcomes
        ]
    )


def _fate(outcome: LetterOutcome) -> LetterFate:
    if outcome.is_done:
        return LetterFate.DONE
    return LetterFate.GONE if outcome.is_gone else LetterFate.STAYS
