"""No object shows a secret that it has when it is printed, and no error either."""

import asyncio
import dataclasses
import inspect
import pkgutil
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Final
from uuid import uuid4

import pytest
from pydantic import BaseModel, SecretStr

import chatlane
import chatlane_client
import chatlane_schemas
from chatlane.domain.states import Turn
from chatlane.errors import StoreUnavailableError
from chatlane.nats.connection import BusOptions
from chatlane.postgres.migrations import MigrationError, migrate
from chatlane.postgres.pool import open_store
from chatlane_client import open_connection
from chatlane_client.claims import Grant
from chatlane_schemas import ClaimReply, RenewRequest, ResultMessage
from chatlane_schemas.credentials import names_credential
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.results import Outcome
from chatlane_schemas.turns import ClaimStatus, HistoryPointer
from tests.unit.client.test_turn import SOURCE

SECRET: Final = "canary-7d1f"  # noqa: S105 - it opens nothing
OTHER_SECRETS: Final = re.compile(r"(seed|dsn|(digest|redaction|erasure|private)_key)$")


def shown_fields(kind: type) -> dict[str, Any]:
    """Return the annotations of what is in the repr of an object, by name of the field."""
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        return {one.name: one.type for one in fields if one.repr}
    if issubclass(kind, BaseModel):
        fields_of_model = kind.model_fields.items()
        return {name: one.annotation for name, one in fields_of_model if one.repr}
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind.__annotations__
    return {}


def kinds() -> Iterator[type]:
    for package in (chatlane, chatlane_client, chatlane_schemas):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                module = import_module(found.name)
                for kind in vars(module).values():
                    if inspect.isclass(kind) and kind.__module__ == found.name:
                        yield kind


def is_open(name: str, annotation: object) -> bool:
    """Return whether a field holds a secret that its own type does not hide."""
    if not names_credential(name) and OTHER_SECRETS.search(name) is None:
        return False
    # A place in a sequence that is called a token is none.
    return annotation not in {int, "int"} and "SecretStr" not in str(annotation)


def test_no_class_shows_a_field_that_is_named_like_a_secret() -> None:
    found = list(kinds())
    assert len(found) > 300
    shown = [
        f"{kind.__module__}.{kind.__qualname__}.{name}"
        for kind in found
        for name, annotation in shown_fields(kind).items()
        if is_open(name, annotation)
    ]
    assert shown == []


def test_the_guard_sees_what_is_shown() -> None:
    @dataclasses.dataclass
    class Shows:
        access_token: str
        nkey_seed: bytes
        count: int
        hidden_token: str = dataclasses.field(repr=False)
        password: SecretStr | None = None

    names = [name for name, annotation in shown_fields(Shows).items() if is_open(name, annotation)]
    assert names == ["access_token", "nkey_seed"]


def objects() -> Iterator[object]:
    now, session = datetime.now(UTC), uuid4()
    stamp: dict[str, Any] = {"id": "e1", "at": now}
    yield Grant(
        turn_id=uuid4(),
        session_id=session,
        session_key="agent:main:test:bot:dm:1",
        attempt=1,
        token=SECRET,
        asked_at=0,
        lease=timedelta(seconds=30),
        source=SOURCE,
        messages=(),
        history=HistoryPointer(session_id=session, before_seq=1),
        session_is_new=True,
        reset_reason=None,
    )
    yield Turn(uuid4(), session, "main", "claimed", token=SECRET)
    yield BusOptions(url="nats://127.0.0.1", user="ann", password=SECRET)
    yield BusOptions(url="nats://127.0.0.1", token=SECRET)
    yield ClaimReply(**stamp, turn_id=uuid4(), status=ClaimStatus.CLAIMED, token=SECRET)
    yield RenewRequest(**stamp, turn_id=uuid4(), attempt=1, token=SECRET)
    yield ResultMessage(
        **stamp, session_id=session, turn_id=uuid4(), attempt=1, token=SECRET, outcome=Outcome.OK
    )
    yield Attachment(url=f"https://files.example/a?sig={SECRET}", media_type="image/png")


@pytest.mark.parametrize("held", list(objects()), ids=lambda held: type(held).__name__)
def test_a_secret_is_in_no_text_of_its_object(held: object) -> None:
    for text in (repr(held), str(held), f"{held}", repr([held])):
        assert SECRET not in text
        assert type(held).__name__ in text or "=" in text


def texts_of(error: BaseException | None) -> Iterator[str]:
    """Yield all that is shown of an error, with those behind it."""
    while error is not None:
        yield f"{error!s} {error!r} {getattr(error, '__notes__', '')}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/chat",
        f"postgresql://ann:{SECRET}@[::1:1/chat",
        f"postgresql://ann:{SECRET}@127.0.0.1:port/chat",
        f"postgresql://ann@127.0.0.1:1/chat?password={SECRET}",
        f"{SECRET}://ann@127.0.0.1/chat",
    ],
)
async def test_an_address_that_cannot_be_reached_is_not_quoted(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(dsn) as store:
        with pytest.raises(StoreUnavailableError) as caught:
            async with store.transaction():
                pass
    assert SECRET not in " ".join(texts_of(caught.value)) + caplog.text


async def test_what_migrates_does_not_quote_its_address() -> None:
    with pytest.raises(MigrationError) as caught:
        await migrate(f"postgresql://ann:{SECRET}@127.0.0.1:1/chat?sslmode=disable")
    assert SECRET not in " ".join(texts_of(caught.value))


async def test_a_client_that_reaches_nobody_does_not_log_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    with pytest.raises(TimeoutError) as caught:
        async with (
            asyncio.timeout(1),
            open_connection(f"nats://ann:{SECRET}@127.0.0.1:1", name="a"),
        ):
            pass
    logged = [str(vars(record)) for record in caplog.records]
    assert any("Connect" in text for text in logged)
    assert SECRET not in " ".join((*texts_of(caught.value), *logged))
