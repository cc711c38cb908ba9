"""Read the file of a message: where it is, what it is, and its key if it is encrypted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from chatlane_schemas import Attachment

# What the platform shows a file as, and its media type if the message does not name it.
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "m.image": ("photo", "image/*"),
    "m.sticker": ("sticker", "image/*"),
    "m.video": ("video", "video/*"),
    "m.audio": ("audio", "audio/*"),
    "m.file": ("file", "application/octet-stream"),
}
FILE_TYPES: Final = frozenset(_KINDS)
_VOICE: Final = ("m.voice", "org.matrix.msc3245.voice", "org.matrix.msc3245.voice.v2")
_MAX_NUMBER: Final = 2**53


@dataclass(frozen=True, slots=True)
class FileKey:
    """The keys that decrypt a file of an encrypted room."""

    key: str = field(repr=False)
    iv: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomFile:
    """The file of a message.

    Attributes:
        mxc: Its address, `mxc://server/id`; a client needs a token of the homeserver to fetch it.
        media_type: As its sender names it.
        kind: What the platform shows it as.
        name: Its name.
        size_bytes: Its size, as its sender says.
        duration_ms: Length of sound or video.
        key: What decrypts it; None if it is not encrypted.
    """

    mxc: str
    media_type: str
    kind: str
    name: str | None = None
    size_bytes: int | None = None
    duration_ms: int | None = None
    key: FileKey | None = None

    def attachment(self, url: str | None = None) -> Attachment:
        """Return the file as an attachment with another address than its own, if given."""
        return Attachment(
            url=url or self.mxc,
            media_type=self.media_type,
            kind=self.kind,
            name=self.name,
            size_bytes=self.size_bytes,
            duration_ms=self.duration_ms,
        )


def file_of(message_type: str, content: Mapping[str, Any]) -> RoomFile | None:
    """Return the file of a message, or None if it has none that can be fetched.

    Args:
        message_type: `msgtype` of the message, or `m.sticker`.
        content: Content of its event; nothing in it is trusted to have the right type.
    """
    found = _KINDS.get(message_type)
    if found is None:
        return None
    kind, media_type = found
    encrypted = mapping(content, "file")
    mxc = text(encrypted, "url") or text(content, "url")
    if mxc is None or not mxc.startswith("mxc://"):
        return None
    info = mapping(content, "info")
    if kind == "audio" and any(name in content for name in _VOICE):
        kind = "voice"
    if kind == "photo" and text(info, "mimetype") == "image/gif":
        kind = "animation"
    return RoomFile(
        mxc=mxc,
        media_type=text(info, "mimetype") or media_type,
        kind=kind,
        name=text(content, "filename") or (text(content, "body") if kind != "sticker" else None),
        size_bytes=number(info, "size"),
        duration_ms=number(info, "duration"),
        key=_key_of(encrypted),
    )


def _key_of(encrypted: Mapping[str, Any]) -> FileKey | None:
    key = text(mapping(encrypted, "key"), "k")
    iv = text(encrypted, "iv")
    sha256 = text(mapping(encrypted, "hashes"), "sha256")
    return FileKey(key, iv, sha256) if key and iv and sha256 else None


def text(content: Mapping[str, Any], name: str) -> str | None:
    """Return a text of a content that anybody may have written, or None."""
    value = content.get(name)
    return value if isinstance(value, str) and value else None


def mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of a content that anybody may have written; an empty one by default."""
    value = content.get(name)
    return value if isinstance(value, Mapping) else {}


def number(content: Mapping[str, Any], name: str) -> int | None:
    """Return a count of a content that anybody may have written, or None."""
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < _MAX_NUMBER else None
