"""Read sessions of Claude Code: folders of files with one JSON object a line."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from chatlane.errors import PermanentError
from chatlane.importer.exports.claude_code_lines import LineReader, entries_in
from chatlane.importer.exports.conversation import (
    EPOCH,
    Conversation,
    ForeignRow,
    NoConversationError,
    title_of,
)
from chatlane.importer.records import Omissions
from chatlane_schemas.fields import scrubbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SOURCE: Final = "claude_code"

_MAX_LINE_BYTES: Final = 32 * 1024 * 1024
_SESSION_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CWD_CHARACTERS: Final = 4096
_MODEL_CHARACTERS: Final = 256


class NoDirectoryError(PermanentError):
    """Raised if there is no directory with sessions."""


def default_directory() -> Path:
    """Return where Claude Code keeps the sessions of this user."""
    configured = os.environ.get("CLAUDE_CONFIG_DIR") or "~/.claude"
    return Path(configured).expanduser() / "projects"


def conversations(directory: Path, omissions: Omissions) -> Iterator[Conversation]:
    """Yield the sessions in the folders of a directory, in the order of their names.

    Symbolic links are never followed. A file that cannot be read costs no other file.

    Raises:
        NoDirectoryError: There is no such directory.
    """
    for path in _files(directory, omissions):
        name = f"{_printed(path.parent.name)}/{_printed(path.name)}"
        try:
            status = path.stat()
            changed_at = datetime.fromtimestamp(status.st_mtime, UTC)
            stem = scrubbed(_printed(path.stem))
            file = _File(name, stem, _opener(path), status.st_size, changed_at)
            found = file.conversation(omissions)
        except NoConversationError as error:
            omissions.add("file", str(error), name)
        except OSError as error:
            omissions.add_damaged("file", f"cannot be read ({type(error).__name__})", name)
        else:
            yield found


def conversation_in(
    content: bytes, name: str, read_at: datetime, omissions: Omissions
) -> Conversation:
    """Return the session in the content of a file.

    Args:
        content: The whole file.
        name: Name of the file.
        read_at: Time of rows if no line has a time.
        omissions: Gets what is left out.

    Raises:
        NoConversationError: It has no message.
    """
    stem = scrubbed(Path(name).stem)
    file = _File(name, stem, lambda: BytesIO(content), len(content), read_at)
    return file.conversation(omissions)


def _files(directory: Path, omissions: Omissions) -> Iterator[Path]:
    if directory.is_symlink() or not directory.is_dir():
        raise NoDirectoryError(f"{directory} is no directory, or a symbolic link to another one")
    if directory.name != "projects" and (directory / "projects").is_dir():
        directory /= "projects"
    for folder in _entries(directory, omissions):
        if stat.S_ISDIR(_mode(folder)):
            for path in _entries(folder, omissions):
                if path.suffix.lower() != ".jsonl":
                    continue
                if stat.S_ISREG(_mode(path)):
                    yield path
                else:
                    omissions.add("file", "a symbolic link, or no file", _printed(path.name))
        elif folder.is_symlink():
            omissions.add("folder", "a symbolic link", _printed(folder.name))
        elif folder.suffix.lower() == ".jsonl" and stat.S_ISREG(_mode(folder)):
            yield folder


def _entries(directory: Path, omissions: Omissions) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError as error:
        reason = f"cannot be read ({type(error).__name__})"
        omissions.add_damaged("folder", reason, _printed(directory.name))
        return []


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _opener(path: Path) -> Callable[[], BinaryIO]:
    return lambda: path.open("rb")


def _printed(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


@dataclass(slots=True)
class _Facts:
    """The facts about a file that its first read finds besides its rows."""

    first_at: datetime | None = None
    title: str | None = None
    named: str | None = None
    cwd: str | None = None
    model: str | None = None
    session_id: str | None = None


class _File:
    """One file; what is appended to it during the import is left to the next one."""

    def __init__(
        self,
        name: str,
        stem: str,
        open_file: Callable[[], BinaryIO],
        size: int,
        changed_at: datetime,
    ) -> None:
        self._name = name
        self._stem = stem
        self._open = open_file
        self._size = size
        self._changed_at = changed_at

    def conversation(self, omissions: Omissions) -> Conversation:
        facts = _Facts()
        ignored = Omissions()
        for _, line in self._objects(omissions):
            _learn(facts, line)
        if not any(True for _ in self.rows(ignored)):
            omissions.update(ignored)
            raise NoConversationError("has no message")
        return Conversation(
            source=SOURCE,
            id=self._id(facts),
            name=self._name,
            began_at=facts.first_at or EPOCH,
            file_at=facts.first_at or self._changed_at,
            rows=self.rows,
            title=facts.named or facts.title,
            cwd=facts.cwd,
            model=facts.model,
        )

    def _id(self, facts: _Facts) -> str:
        """Return the id of the session: its file has the name of it, wherever it is moved."""
        stem = self._stem
        # A copy of a file has the same id inside.
        return stem if _SESSION_ID.fullmatch(stem) else f"{facts.session_id or ''}/{stem}"

    def rows(self, omissions: Omissions) -> Iterator[ForeignRow]:
        """Yield the rows of the file."""
        reader = LineReader(self._name, omissions)
        # The first read has reported what is no JSON.
        for place, line in self._objects(Omissions()):
            yield from reader.rows(place, line)
        reader.finish()

    def _objects(self, omissions: Omissions) -> Iterator[tuple[int, dict[str, Any]]]:
        left, place = self._size, 0
        with self._open() as file:
            while left > 0 and (raw := file.readline(min(left, _MAX_LINE_BYTES + 1))):
                left -= len(raw)
                place += 1
                where = f"{self._name} line {place}"
                if len(raw) > _MAX_LINE_BYTES and not raw.endswith(b"\n"):
                    left -= _skip_line(file, left)
                    omissions.add("line", "longer than 32 MiB", where)
                    continue
                if not raw.strip():
                    continue
                value = _json(raw)
                if isinstance(value, dict):
                    yield place, value
                elif not raw.endswith(b"\n") and left <= 0:
                    omissions.add("line", "torn last line", where)
                else:
                    omissions.mark_damaged(self._name)
                    omissions.add("line", "not a JSON object", where)


def _skip_line(file: BinaryIO, left: int) -> int:
    skipped = 0
    while skipped < left and (raw := file.readline(min(left - skipped, _MAX_LINE_BYTES))):
        skipped += len(raw)
        if raw.endswith(b"\n"):
            break
    return skipped


def _json(raw: bytes) -> object:
    try:
        return json.loads(raw.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _learn(facts: _Facts, line: Mapping[str, Any]) -> None:
    if facts.named is None and line.get("type") == "custom-title":
        facts.named = title_of(line.get("customTitle"))
    if facts.title is None:
        facts.title = title_of(line.get("summary"), line.get("title"), line.get("aiTitle"))
    cwd, session_id = line.get("cwd"), line.get("sessionId")
    for entry in entries_in(line):
        if entry.is_of_helper:
            return
        facts.first_at = facts.first_at or entry.at
        model = entry.message.get("model")
        # Messages that the program made up have the model `<synthetic>`.
        if isinstance(model, str) and model and not model.startswith("<"):
            facts.model = scrubbed(model)[:_MODEL_CHARACTERS]
    if isinstance(cwd, str) and 0 < len(cwd) <= _CWD_CHARACTERS:
        facts.cwd = scrubbed(cwd)
    if facts.session_id is None and isinstance(session_id, str) and session_id:
        facts.session_id = scrubbed(session_id)
