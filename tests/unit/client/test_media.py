"""Files of chats: kept once per chat, checked, linked for a time, deleted with their chat."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from chatlane_adapters.commands import app
from chatlane_adapters.kit.settings import AdapterMediaSettings
from chatlane_client.media.links import link_secret
from chatlane_client.media.store import (
    MediaRefusedError,
    MediaSettings,
    MediaStore,
    chat_folder,
    folder_of,
    open_media,
)
from chatlane_schemas import Attachment, Chat, InboundEvent, new_envelope_id

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 100


@pytest.fixture
async def media(tmp_path: Path) -> AsyncIterator[MediaStore]:
    settings = MediaSettings(url=str(tmp_path), max_bytes=1000, types=("image/*", "text/plain"))
    async with open_media(settings) as opened:
        assert opened is not None
        yield opened


def message(chat: str = "7") -> InboundEvent:
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        platform="telegram",
        account="bot",
        chat=Chat(id=chat),
    )


async def in_chunks(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), 10):
        yield content[begin : begin + 10]


async def kept(media: MediaStore, content: bytes = PNG, chat: str = "7", **more: str) -> Attachment:
    its = {"media_type": "image/png", **more}
    return await media.keep(folder_of(message(chat)), in_chunks(content), **its)


async def answer(url: str | None) -> tuple[int, str, bytes]:
    assert url is not None
    async with ClientSession() as session, session.get(url) as response:
        return response.status, response.content_type, await response.read()


async def test_a_link_leads_to_the_file(media: MediaStore) -> None:
    attachment = await kept(media, name="a.png", kind="photo")
    expected = ("image/png", len(PNG), "a.png", "photo")
    its = attachment
    assert expected == (its.media_type, its.size_bytes, its.name, its.kind)
    assert await answer(attachment.url) == (200, "image/png", PNG)
    stored = await media.read(str(attachment.key))
    assert (stored.size_bytes, b"".join([it async for it in stored.content])) == (len(PNG), PNG)
    with pytest.raises(FileNotFoundError):
        await media.read("telegram/bot/none/gone.png")


async def test_a_link_is_valid_for_its_file_and_time_only(media: MediaStore) -> None:
    attachment, other = await kept(media), await kept(media, PNG + b"x")
    assert attachment.url is not None
    assert other.key is not None
    wrong = attachment.url.replace(str(attachment.key), other.key)
    assert (await answer(wrong))[0] == 403
    [until] = parse_qs(urlsplit(attachment.url).query)["until"]
    assert (await answer(attachment.url.replace(until, str(int(until) + 1))))[0] == 403
    ended = await media._sign(str(attachment.key), timedelta(seconds=-1))
    assert (await answer(ended))[0] == 403
    assert (await answer(attachment.url.partition("?")[0]))[0] == 403


async def test_the_same_file_is_stored_once_in_each_chat(media: MediaStore) -> None:
    first, again, elsewhere = await kept(media), await kept(media), await kept(media, chat="8")
    assert first.key == again.key
    assert first.key != elsewhere.key
    assert str(first.key).startswith(chat_folder("telegram", "bot", "7"))


@pytest.mark.parametrize(
    ("content", "media_type"), [(PNG + b"x" * 1000, "image/png"), (b"<p>", "text/html")]
)
async def test_what_is_too_large_or_of_another_type_is_refused(
    media: MediaStore, content: bytes, media_type: str
) -> None:
    with pytest.raises(MediaRefusedError):
        await kept(media, content, media_type=media_type)


@pytest.mark.parametrize("media_type", ["image/png", "IMAGE/PNG; x=1"])
async def test_a_file_that_is_not_of_its_type_is_unknown(
    media: MediaStore, media_type: str
) -> None:
    attachment = await kept(media, b"<script>", media_type=media_type)
    assert attachment.media_type == "application/octet-stream"
    assert await answer(attachment.url) == (200, "application/octet-stream", b"<script>")


async def test_files_are_deleted_by_key_by_chat_and_by_age(media: MediaStore) -> None:
    first, second = await kept(media), await kept(media, PNG + b"x")
    elsewhere = await kept(media, chat="8")
    await media.delete(str(first.key), "telegram/bot/none/gone.png")
    assert [(await answer(it.url))[0] for it in (first, second, elsewhere)] == [404, 200, 200]
    assert await media.delete_chat("telegram", "bot", "7") == 1
    assert [(await answer(it.url))[0] for it in (second, elsewhere)] == [404, 200]
    assert await media.delete_older(datetime.now(UTC) - timedelta(hours=1)) == 0
    assert await media.delete_older(datetime.now(UTC) + timedelta(hours=1)) == 1
    assert (await answer(elsewhere.url))[0] == 404


async def test_without_a_place_no_file_is_kept() -> None:
    async with open_media(MediaSettings()) as media:
        assert media is None


def test_the_secret_of_links_stays(tmp_path: Path) -> None:
    assert link_secret(tmp_path / "new") == link_secret(tmp_path / "new")
    assert (tmp_path / "new" / "link-secret").stat().st_mode & 0o777 == 0o600


def test_processes_that_begin_together_have_the_same_secret(tmp_path: Path) -> None:
    directory, count = tmp_path / "new", 16
    barrier = Barrier(count)

    def secret() -> bytes:
        barrier.wait()
        return link_secret(directory)

    with ThreadPoolExecutor(count) as threads:
        found = {made.result() for made in [threads.submit(secret) for _ in range(count)]}
    [shared] = found
    assert len(shared) == 32
    assert [path.name for path in directory.iterdir()] == ["link-secret"]


def test_a_secret_that_a_killed_process_left_empty_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "link-secret").touch()
    assert len(link_secret(tmp_path)) == 32


async def test_an_object_store_gets_the_type_and_signs_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored: dict[str, tuple[bytes, str]] = {}

    async def bucket(request: web.Request) -> web.Response:
        if request.method == "PUT":
            stored[request.path] = (await request.read(), request.headers["Content-Type"])
            return web.Response(headers={"ETag": '"1"'})
        if request.path not in stored:
            return web.Response(status=404)
        body, media_type = stored[request.path]
        return web.Response(body=body, content_type=media_type)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", bucket)
    async with TestServer(application) as server:
        environment = {
            "AWS_ENDPOINT_URL": str(server.make_url("/")).rstrip("/"),
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "eu-1",
            "AWS_ALLOW_HTTP": "true",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        async with open_media(MediaSettings(url="s3://bucket/chats")) as media:
            assert media is not None
            attachment = await kept(media)
            assert list(stored.values()) == [(PNG, "image/png")]
            assert await answer(attachment.url) == (200, "image/png", PNG)
            assert "X-Amz-Expires=604800" in str(attachment.url)
            assert str(attachment.key) in str(attachment.url)
            assert "chats/" in next(iter(stored))


def test_an_operator_deletes_the_files_of_a_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"MEDIA_URL": str(tmp_path), "PLATFORM": "telegram", "ACCOUNT": "bot"}
    for name, value in environment.items():
        monkeypatch.setenv(f"CHATLANE_ADAPTER_{name}", value)

    async def keep_two() -> Attachment:
        async with open_media(AdapterMediaSettings()) as media:
            assert media is not None
            await kept(media)
            return await kept(media, chat="8")

    attachment = asyncio.run(keep_two())
    command = CliRunner()
    assert "deleted: 1" in command.invoke(app, ["delete-files", "--chat", "7"]).stdout
    keys = [str(attachment.key), str(attachment.key), "telegram/bot/none/missing.png"]
    assert "deleted: 1" in command.invoke(app, ["delete-files", *keys]).stdout
    assert "deleted: 0" in command.invoke(app, ["delete-files", *keys]).stdout
    assert "deleted: 0" in command.invoke(app, ["delete-files", "--older-than-days", "0"]).stdout


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, "set CHATLANE_ADAPTER_MEDIA_URL"),
        ({"MEDIA_URL": "disk://files"}, "the address of the store of files"),
        ({"MEDIA_URL": "s3://"}, "the address of the store of files"),
        ({"MEDIA_MAX_BYTES": "large"}, "CHATLANE_ADAPTER_MEDIA_MAX_BYTES"),
    ],
)
def test_a_wrong_store_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], told: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"CHATLANE_ADAPTER_{name}", value)

    result = CliRunner().invoke(app, ["delete-files", "telegram/bot/chat/file.png"])

    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_chat_of_an_unnamed_account_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATLANE_ADAPTER_MEDIA_URL", str(tmp_path))

    result = CliRunner().invoke(app, ["delete-files", "--chat", "7"])

    assert result.exit_code == 2
    assert "CHATLANE_ADAPTER_ACCOUNT: Field required" in result.stderr


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"TOKEN": "bad"}, "the token is none of a bot"),
        ({"TOKEN_FILE": "/nowhere"}, "the token is none of a bot"),
        ({"TOKEN": "1:x", "MEDIA_MAX_BYTES": "abc"}, "CHATLANE_ADAPTER_MEDIA_MAX_BYTES"),
    ],
)
def test_settings_of_an_adapter_that_are_wrong_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], told: str
) -> None:
    for name, value in {"ACCOUNT": "bot", **environment}.items():
        monkeypatch.setenv(f"CHATLANE_ADAPTER_{name}", value)

    result = CliRunner().invoke(app, ["telegram"])

    assert result.exit_code == 2
    assert told in result.stderr
    assert environment.get("TOKEN", "/nowhere") not in result.stderr
    assert len(result.stderr.splitlines()) == 1
