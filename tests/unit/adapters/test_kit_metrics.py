"""What an adapter does is counted, and a refused account is seen."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import ClassVar
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY
from typing_extensions import override

from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.metrics import CountedPlatform
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.kit.runner import _complaints
from chatlane_client import (
    AdapterClient,
    ChatGone,
    Piece,
    RetryAfter,
    TextLimit,
    Undeliverable,
    open_connection,
)
from chatlane_schemas import Chat, OutboundMessage, Source, new_envelope_id


class Scripted(Platform):
    """Answers each call with the next error, or without one."""

    capabilities: ClassVar[Capabilities] = Capabilities(platform="p", text_limit=TextLimit(10))

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = list(errors)

    @override
    async def receive(self, adapter: AdapterClient) -> None:
        raise NotImplementedError

    @override
    async def deliver(self, piece: Piece) -> str:
        self._fail()
        return "m1"

    @override
    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        self._fail()
        return "m1"

    @override
    async def show_typing(self, target: Source) -> None:
        self._fail()

    def _fail(self) -> None:
        if self._errors and (error := self._errors.pop(0)) is not None:
            raise error


class Leading:
    """Tells that this process sends for the account."""

    is_delivering = True


def source(chat: str = "7") -> Source:
    return Source(platform="p", account="a", chat=Chat(id=chat))


def piece(chat: str = "7") -> Piece:
    message = OutboundMessage(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=uuid4(),
        out_seq=1,
        agent="main",
        target=source(chat),
    )
    return Piece(message=message, number=0, count=1, text="x")


@pytest.fixture
def names() -> tuple[str, str]:
    """Return an account of the test's own, because metrics are those of the process."""
    return "p", f"a{uuid4().hex}"


@pytest.fixture
def value(names: tuple[str, str]) -> Callable[..., float | None]:
    def read(name: str, **labels: str) -> float | None:
        its = {"platform": names[0], "account": names[1], **labels}
        return REGISTRY.get_sample_value(f"chatlane_adapter_{name}", its)

    return read


async def test_pieces_are_counted_by_what_became_of_them(
    names: tuple[str, str], value: Callable[..., float | None]
) -> None:
    errors = {
        "delivered": None,
        "rate_limited": RetryAfter(5),
        "chat_gone": ChatGone("x"),
        "undeliverable": Undeliverable("x"),
        "failed": OSError(),
    }
    counted = CountedPlatform(Scripted(*errors.values()), names)
    for error in errors.values():
        if error is None:
            assert await counted.deliver(piece()) == "m1"
            continue
        with pytest.raises(type(error)):
            await counted.deliver(piece())
    for outcome in errors:
        assert value("pieces_total", outcome=outcome) == 1
    assert value("rate_limits_total", call="piece") == 1


async def test_a_chat_waits_until_its_piece_is_sent_or_given_up(
    names: tuple[str, str], value: Callable[..., float | None]
) -> None:
    counted = CountedPlatform(Scripted(RetryAfter(5), OSError(), None, ChatGone("x")), names)
    leading = Leading()
    counted.watch(leading)  # type: ignore[arg-type] # of the client only this is read
    for chat, error, waiting in (
        ("1", RetryAfter, 1),
        ("2", OSError, 2),
        ("1", None, 1),
        ("2", ChatGone, 0),
    ):
        if error is None:
            await counted.deliver(piece(chat))
        else:
            with pytest.raises(error):
                await counted.deliver(piece(chat))
        assert waiting == value("waiting_chats")
    assert value("delivering") == 1
    leading.is_delivering = False
    assert value("delivering") == 0


async def test_refusals_of_drafts_and_typing_are_counted(
    names: tuple[str, str], value: Callable[..., float | None]
) -> None:
    unknown = Undeliverable("x")
    counted = CountedPlatform(Scripted(RetryAfter(1), RetryAfter(1), unknown, unknown), names)
    with pytest.raises(RetryAfter):
        await counted.send(source(), "x", key="1", may_be_sent=True)
    with pytest.raises(RetryAfter):
        await counted.show_typing(source())
    assert value("rate_limits_total", call="draft") == 1
    assert value("rate_limits_total", call="typing") == 1
    assert value("rate_limits_total", call="piece") == 0
    for may_be_sent, strays in ((False, 0), (True, 1)):
        with pytest.raises(Undeliverable):
            await counted.send(source(), "x", key="1", may_be_sent=may_be_sent)
        assert value("stray_drafts_total") == strays


async def test_a_refused_account_is_logged_once_and_shown(
    names: tuple[str, str],
    value: Callable[..., float | None],
    caplog: pytest.LogCaptureFixture,
    nats_url: str,
) -> None:
    caplog.set_level(logging.INFO)
    platform = Scripted()
    CountedPlatform(platform, names)
    async with open_connection(nats_url, name="test") as client:
        assert _complaints(platform, client) == ()
        for _ in range(3):
            platform.note_account(is_refused=True)
        assert value("account_refused") == 1
        assert _complaints(platform, client) == ("account",)
        platform.note_account(is_refused=False)
        assert value("account_refused") == 0
    assert _complaints(platform, client) == ("nats",)
    said = [record.message for record in caplog.records if "account" in record.message]
    assert said == ["account_refused", "account_accepted"]
    assert Scripted().refused == frozenset()
