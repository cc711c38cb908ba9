"""Routes of files: upload one for a message, and read those of a transcript."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from chatlane_console.conversations import Conversations
from chatlane_console.files import PersonFiles
from chatlane_console.http.problems import ProblemError
from chatlane_console.routes.callers import SignedIn, State
from chatlane_schemas.fields import MAX_INT64, Text
from chatlane_schemas.inbound import MAX_ATTACHMENTS

FILE_PATH: Final = "/files"
MAX_NAME_CHARACTERS: Final = 255

_UNKNOWN: Final = "application/octet-stream"
# Types that no browser runs; a file of any other type is served as bytes.
_SAFE_TYPES: Final = frozenset(
    {"application/pdf", "image/gif", "image/jpeg", "image/png", "image/webp", "text/plain"}
)
_SAFE_BEGINNINGS: Final = ("audio/", "video/")
_BYTES: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}

router = APIRouter()


class UploadedFile(BaseModel):
    """A file that was uploaded."""

    receipt: str = Field(description="Names the file in a message of the same person, for a day.")
    name: str | None = Field(default=None, description="Name that people see.")
    media_type: str = Field(description="Type; `application/octet-stream` if it is unknown.")
    size_bytes: int | None = Field(default=None, description="Size of the file.")


def files_of(state: State) -> PersonFiles:
    """Return the files of people.

    Raises:
        ProblemError: The console has no store.
    """
    if state.files is None:
        raise ProblemError(HTTPStatus.NOT_FOUND, "not_found", "the console keeps no files")
    return state.files


Files = Annotated[PersonFiles, Depends(files_of)]


@router.post(
    FILE_PATH,
    status_code=HTTPStatus.CREATED,
    summary="Upload a file",
    openapi_extra={"requestBody": {"required": True, "content": {_UNKNOWN: _BYTES}}},
)
async def upload_file(
    request: Request,
    visitor: SignedIn,
    files: Files,
    name: Annotated[Text, Query(min_length=1, max_length=MAX_NAME_CHARACTERS)],
) -> UploadedFile:
    """Keep a file, which is the body, until a message names its receipt.

    `Content-Type` names its type. A file that does not begin as its type does is of an unknown type.
    """
    content = request.stream()
    try:
        receipt, file = await files.keep(
            visitor.person,
            content,
            media_type=request.headers.get("content-type", _UNKNOWN),
            name=name,
        )
    except ProblemError:
        # Browsers show an answer only after they have sent the whole body.
        async for _ in content:
            pass
        raise
    except ClientDisconnect:
        raise ProblemError(HTTPStatus.BAD_REQUEST, "incomplete", "no whole body") from None
    return UploadedFile(
        receipt=receipt, name=file.name, media_type=file.media_type, size_bytes=file.size_bytes
    )


def file_routes(reach: Callable[..., Conversations]) -> APIRouter:
    """Return the route that reads files of transcripts.

    Args:
        reach: Dependency that returns the requests of the caller.
    """
    reading = APIRouter()

    @reading.get(
        "/sessions/{session_id}/rows/{seq}/files/{place}",
        summary="Read a file",
        response_class=StreamingResponse,
        responses={HTTPStatus.OK: {"content": {"*/*": _BYTES}, "description": "The file."}},
    )
    async def read_file(
        conversations: Annotated[Conversations, Depends(reach)],
        session_id: UUID,
        seq: Annotated[int, Path(ge=0, lt=MAX_INT64)],
        place: Annotated[int, Path(ge=0, lt=MAX_ATTACHMENTS)],
        files: Files,
    ) -> StreamingResponse:
        """Return a file of a row that the caller can read; the first file has the place 0."""
        page = await conversations.pages.rows(
            session_id, limit=1, before_seq=seq + 1, as_stored=True
        )
        attached = [file for row in page.rows if row.seq == seq for file in row.attachments]
        if place >= len(attached) or attached[place].key is None:
            raise ProblemError(HTTPStatus.NOT_FOUND, "not_found", "no such file")
        file = attached[place]
        stored = await files.read(file.key or "")
        is_safe = file.media_type in _SAFE_TYPES or file.media_type.startswith(_SAFE_BEGINNINGS)
        return StreamingResponse(
            stored.content,
            media_type=file.media_type if is_safe else _UNKNOWN,
            headers={
                "Content-Length": str(stored.size_bytes),
                "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name or 'file', safe='')}",
            },
        )

    return reading
