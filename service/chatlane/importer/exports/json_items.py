"""Read the objects of a large JSON array one by one, so that memory holds one of them."""

from __future__ import annotations

import codecs
import json
import re
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from chatlane.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chatlane.importer.records import Omissions

MAX_ITEM_CHARACTERS: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_OUTSIDE: Final = re.compile(r"[^\s,\[\]\ufeff]")
_INSIDE: Final = re.compile(r'["{}]')
_IN_TEXT: Final = re.compile(r'["\\]')
_READ_ERRORS: Final = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


class NoExportError(PermanentError):
    """Raised if a file holds no export."""


class Item(NamedTuple):
    """An object of an array, and its place for reports."""

    place: str
    fields: dict[str, Any]


def items_of(path: Path, member: re.Pattern[str], omissions: Omissions) -> Iterator[Item]:
    """Yield the objects of an export: a JSON file, or the JSON files in an archive.

    Args:
        path: The file.
        member: Names of the files in an archive.
        omissions: Gets what cannot be read.

    Raises:
        NoExportError: There is no such file, it is empty, or the archive has no such files.
    """
    if not path.is_file():
        raise NoExportError(f"{path} is no file")
    if not path.stat().st_size:
        raise NoExportError(f"{path} is empty")
    try:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                yield from _items(file, path.name, omissions)
            return
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if member.fullmatch(name))
            if not names:
                raise NoExportError(f"{path} has no {member.pattern}")
            for name in names:
                with archive.open(name) as file:
                    yield from _items(file, name, omissions)
    except _READ_ERRORS as error:
        reason = f"cannot be read to its end ({type(error).__name__})"
        omissions.add_damaged("file", reason, path.name)


def _items(file: IO[bytes], name: str, omissions: Omissions) -> Iterator[Item]:
    for number, text in enumerate(_texts(file, name, omissions), 1):
        place = f"{name} item {number}"
        if text is None:
            omissions.mark_damaged(name)
            omissions.add("item", "longer than 64 MiB", place)
            continue
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            omissions.mark_damaged(name)
            omissions.add("item", "not JSON", place)
            continue
        yield Item(place, fields)


class _Scanner:
    """Finds the ends of the outermost objects in a text that comes in pieces."""

    def __init__(self) -> None:
        self.depth = 0
        self.is_long = False
        self.has_junk = False
        self._in_text = False
        self._is_escaped = False
        self._parts: list[str] = []
        self._size = 0

    def feed(self, chunk: str) -> Iterator[str | None]:
        """Yield the objects that end in a piece; None for one that is too long."""
        # The character behind a backslash at the end of the piece before means nothing.
        start, place = 0, int(self._is_escaped)
        self._is_escaped = False
        while True:
            if self.depth == 0:
                begin = _OUTSIDE.search(chunk, place)
                if begin is None:
                    return
                place = begin.end()
                if begin[0] != "{":
                    self.has_junk = True
                    continue
                start, self.depth = begin.start(), 1
                continue
            found = (_IN_TEXT if self._in_text else _INSIDE).search(chunk, place)
            if found is None:
                self._keep(chunk[start:])
                return
            place = found.end()
            match found[0]:
                case "\\":
                    self._is_escaped = place == len(chunk)
                    place += 1
                case '"':
                    self._in_text = not self._in_text
                case "{":
                    self.depth += 1
                case _:
                    self.depth -= 1
            if self.depth == 0:
                self._keep(chunk[start:place])
                yield None if self.is_long else "".join(self._parts)
                self._parts, self._size, self.is_long = [], 0, False

    def _keep(self, part: str) -> None:
        self._size += len(part)
        self.is_long = self.is_long or self._size > MAX_ITEM_CHARACTERS
        if self.is_long:
            self._parts = []
        else:
            self._parts.append(part)


def _texts(file: IO[bytes], name: str, omissions: Omissions) -> Iterator[str | None]:
    scanner = _Scanner()
    for chunk in _chunks(file):
        yield from scanner.feed(chunk)
    if scanner.depth:
        omissions.add_damaged("item", "has no end", name)
    if scanner.has_junk:
        omissions.add_damaged("file", "has text between its objects", name)


def _chunks(file: IO[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while raw := file.read(_CHUNK_BYTES):
        if text := decoder.decode(raw):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text
