"""Files that people send from the console: kept in the store, and named by signed receipts."""

from collections import Counter
from collections.abc import AsyncIterable
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import obstore.exceptions
from itsdangerous import BadSignature, URLSafeTimedSerializer
from pydantic import BaseModel, ValidationError

from chatlane_client.media.store import MediaRefusedError, MediaStore, StoredFile, chat_folder
from chatlane_console.http.problems import ProblemError
from chatlane_schemas import Attachment
from chatlane_schemas.session_api.people import Person

# Shorter than links to files last, so that an agent still has time to read them.
_RECEIPT_LASTS: Final = timedelta(days=1)
_MAX_UPLOADS: Final = 4


class _Receipt(BaseModel):
    """The content of a receipt.

    Attributes:
        person: The person who sent the file.
        file: The reference to it.
    """

    person: Person
    file: Attachment


class PersonFiles:
    """Keeps files of people, and knows who has sent which.

    A message names its files by receipts: a person can send only what the same person has uploaded.
    """

    def __init__(self, store: MediaStore, secret: str) -> None:
        """Create it.

        Args:
            store: Holds the files.
            secret: Key of the signatures.
        """
        self._store = store
        self._receipts = URLSafeTimedSerializer(secret, salt="chatlane-console-file")
        self._uploads: Counter[Person] = Counter()

    async def keep(
        self, person: Person, content: AsyncIterable[bytes], *, media_type: str, name: str
    ) -> tuple[str, Attachment]:
        """Keep a file of a person, and return its receipt and the reference.

        Raises:
            ProblemError: The file is too large or of a type that is not accepted, too many are
                being sent at once, or the store does not answer.
        """
        if self._uploads[person] >= _MAX_UPLOADS:
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_uploads",
                f"at most {_MAX_UPLOADS} files at once",
                headers={"Retry-After": "5"},
            )
        self._uploads[person] += 1
        try:
            file = await self._store.keep(
                chat_folder(person.platform, person.account, person.id),
                content,
                media_type=media_type,
                name=name,
            )
        except MediaRefusedError as refused:
            raise ProblemError(
                HTTPStatus.UNPROCESSABLE_ENTITY, "refused_file", str(refused)
            ) from None
        except obstore.exceptions.BaseError:
            raise _unavailable() from None
        finally:
            self._uploads[person] -= 1
            if not self._uploads[person]:
                del self._uploads[person]
        receipt = _Receipt(person=person, file=file).model_dump_json(exclude_none=True)
        text = self._receipts.dumps(receipt)
        return text if isinstance(text, str) else text.decode(), file

    def attachment(self, person: Person, receipt: str) -> Attachment:
        """Return the reference to a file that a person has uploaded.

        Raises:
            ProblemError: The receipt is not valid, has ended, or is of another person.
        """
        try:
            lasts = int(_RECEIPT_LASTS.total_seconds())
            found = _Receipt.model_validate_json(self._receipts.loads(receipt, max_age=lasts))
        except (BadSignature, ValidationError, TypeError):
            raise _unknown_file() from None
        if found.person != person:
            raise _unknown_file()
        return found.file

    async def delete_all(self, person: Person) -> None:
        """Delete all files that a person sent here, or to the account in the direct chat.

        Raises:
            ProblemError: The store does not answer; the same request again goes on.
        """
        try:
            await self._store.delete_chat(person.platform, person.account, person.id)
        except obstore.exceptions.BaseError:
            raise _unavailable() from None

    async def read(self, key: str) -> StoredFile:
        """Return the content of a file.

        Raises:
            ProblemError: The store has no such file, or does not answer.
        """
        try:
            return await self._store.read(key)
        except FileNotFoundError:
            raise ProblemError(
                HTTPStatus.NOT_FOUND, "not_found", "the store has no such file"
            ) from None
        except obstore.exceptions.BaseError:
            raise _unavailable() from None


def _unknown_file() -> ProblemError:
    return ProblemError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "unknown_file",
        "a file is not there any more: attach it again",
    )


def _unavailable() -> ProblemError:
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "unavailable",
        "the store of files does not answer",
        headers={"Retry-After": "5"},
    )
