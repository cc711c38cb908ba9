"""Files of the emulated platform."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from chatlane_devkit.platforms.telegram.wire import Call, Json, Upload, bad_request

# The hosted Bot API gives out no larger file.
MAX_DOWNLOAD: Final = 20 * 2**20
_ATTACH: Final = "attach://"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file: its bytes, or the address that the platform fetched it from."""

    id: str
    name: str
    media_type: str
    content: bytes = b""
    url: str | None = None
    size: int = 0

    @property
    def reference(self) -> Json:
        """Return the fields of a message for each kind of file."""
        unique = sha256(self.id.encode()).hexdigest()[:12]
        return {"file_id": self.id, "file_unique_id": unique, "file_size": self.size}


class FileStore:
    """Files by their id."""

    def __init__(self) -> None:
        self._files: dict[str, StoredFile] = {}

    def add(self, upload: Upload, *, size: int | None = None) -> StoredFile:
        """Keep a file; `size` claims another size than it has."""
        file_id = f"file-{len(self._files) + 1}"
        self._files[file_id] = stored = StoredFile(
            file_id,
            upload.name,
            upload.media_type,
            upload.content,
            size=len(upload.content) if size is None else size,
        )
        return stored

    def get(self, file_id: str) -> StoredFile:
        """Return a file.

        Raises:
            RefusalError: There is none.
        """
        if file_id not in self._files:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        return self._files[file_id]

    def sent(self, call: Call, reference: str | None, part: str) -> StoredFile:
        """Return the file that a bot sends: uploaded, by its id, or by an address.

        Args:
            call: The call.
            reference: Value of the parameter.
            part: Name of the parameter; some libraries upload under this name.
        """
        if reference is not None and reference.startswith(_ATTACH):
            part = reference.removeprefix(_ATTACH)
        elif reference is not None and reference.startswith(("http://", "https://")):
            file_id = f"file-{len(self._files) + 1}"
            name = reference.rsplit("/", 1)[-1].partition("?")[0]
            self._files[file_id] = StoredFile(file_id, name, "", url=reference)
            return self._files[file_id]
        elif reference is not None:
            return self.get(reference)
        if part not in call.uploads:
            raise bad_request("there is no file in the request")
        return self.add(call.uploads[part])
