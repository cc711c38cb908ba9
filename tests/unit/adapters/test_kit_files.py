"""The files of messages: which are fetched, kept or left, and what follows a message."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.files import FileKeeper
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.kit.voice import VoiceCommand
from chatlane_client import AdapterClient, Piece, TextLimit
from chatlane_client.media.store import MediaSettings, MediaStore, open_media
from chatlane_schemas import Attachment, Chat, InboundEvent, Kind, Sender

PNG = bytes.fromhex("89504e470d0a1a0a")
LIMIT = 100
PHOTO = Attachment(key="p", media_type="image/png", kind="photo", name="red.png")
VOICE = Attachment(key="v", media_type="audio/ogg", kind="voice", duration_ms=3000)
LINK = Attachment(url="https://files.test/x", media_type="image/png")


class Files(Platform):
    """A platform with two files; it does not give out others."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        platform="files", text_limit=TextLimit(100), has_readable_files=True
    )
    voice = b"call me"

    @override
    async def receive(self, adapter: AdapterClient) -> None:
        raise NotImplementedError

    @override
    async def deliver(self, piece: Piece) -> str | None:
        raise NotImplementedError

    @override
    async def content(self, event: InboundEvent, file: Attachment) -> AsyncIterator[bytes]:
        yield {"p": PNG, "v": self.voice}[file.key or ""]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MediaStore | None]:
    async with open_media(MediaSettings(url=str(tmp_path))) as media:
        yield media


def keeper(
    store: MediaStore | None, command: str | None = None, files: Files | None = None
) -> FileKeeper:
    voice = None if command is None else VoiceCommand(("sh", "-c", command), 30)
    return FileKeeper(files or Files(), store, voice, LIMIT)


def message(*files: Attachment, **more: Any) -> InboundEvent:  # noqa: ANN401 - any field
    fields = {"kind": Kind.MESSAGE, "message_id": "1", "album_id": "a", **more}
    return InboundEvent(
        id="e1",
        at=datetime(2026, 1, 1, tzinfo=UTC),
        platform="files",
        account="bot",
        chat=Chat(id="c", kind="dm"),
        sender=Sender(id="ann"),
        attachments=files,
        **fields,
    )


@pytest.mark.parametrize(
    ("event", "with_store", "with_voice"),
    [
        (message(PHOTO), True, False),
        (message(VOICE), True, True),
        (message(VOICE, text="listen"), True, False),
        (message(), False, False),
        (message(awaits_files=True), False, False),
        (message(PHOTO, kind=Kind.EDIT), False, False),
        (message(VOICE, kind=Kind.ATTACHMENTS), False, False),
    ],
)
def test_which_messages_are_followed_by_their_files(
    store: MediaStore, event: InboundEvent, *, with_store: bool, with_voice: bool
) -> None:
    assert keeper(store).fetches(event) == with_store
    assert keeper(None, "cat $0").fetches(event) == with_voice


async def test_the_files_follow_with_nothing_that_the_message_has_said(store: MediaStore) -> None:
    brought = await keeper(store).files_of(message(PHOTO, text="look", reply_to="0"))
    assert (brought.id, brought.kind, brought.message_id) == ("e1-files", Kind.ATTACHMENTS, "1")
    assert (brought.text, brought.reply_to, brought.album_id) == (None, None, None)
    [kept] = brought.attachments
    assert (kept.name, kept.kind, kept.size_bytes) == ("red.png", "photo", len(PNG))
    assert kept.key is not None
    assert kept.url is not None


async def test_a_file_that_cannot_be_kept_stays_at_its_address_or_is_missing(
    store: MediaStore,
) -> None:
    lost = Attachment(key="unknown", media_type="image/png")
    brought = await keeper(store).files_of(message(LINK, lost))
    assert brought.attachments == (LINK,)


async def test_a_file_that_is_said_to_be_too_large_is_not_fetched(store: MediaStore) -> None:
    large = PHOTO.model_copy(update={"size_bytes": LIMIT + 1})
    assert (await keeper(store).files_of(message(large))).attachments == ()


async def test_words_come_with_the_voice_message_with_and_without_a_store(
    store: MediaStore,
) -> None:
    kept = await keeper(store, "cat $0").files_of(message(VOICE))
    left = await keeper(None, "cat $0").files_of(message(PHOTO, VOICE))
    assert kept.text == left.text == "call me"
    assert kept.attachments[0].size_bytes == len(b"call me")
    assert kept.attachments[0].duration_ms == 3000
    assert left.attachments == (PHOTO, VOICE)


@pytest.mark.parametrize("command", ["exit 1", "true"])
async def test_a_voice_message_without_words_is_a_file(store: MediaStore, command: str) -> None:
    brought = await keeper(store, command).files_of(message(VOICE))
    assert brought.text is None
    assert brought.attachments[0].kind == "voice"


async def test_a_voice_message_that_is_too_large_has_no_words() -> None:
    files = Files()
    files.voice = b"x" * (LIMIT + 1)
    brought = await keeper(None, "cat $0", files).files_of(message(VOICE))
    assert (brought.text, brought.attachments) == (None, (VOICE,))


async def test_an_edit_has_its_files_where_they_have_no_address(store: MediaStore) -> None:
    edited = await keeper(store).with_kept_files(message(PHOTO, kind=Kind.EDIT))
    assert edited.attachments[0].url is not None
    for other in (message(LINK, kind=Kind.EDIT), message(PHOTO)):
        assert await keeper(store).with_kept_files(other) is other
