"""Whom routers and migrations talk to: a server whose certificate and name are verified, or nobody."""

import shutil
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from chatlane.config.settings import Settings, load_settings
from chatlane.connections import store_of
from chatlane.errors import StoreUnavailableError
from chatlane.postgres.migrations import MigrationError, known_versions, migrate
from tests.integration.postgres.tls_proxy import tls_front

pytestmark = pytest.mark.integration

NAMED = "127.0.0.1"


@dataclass(frozen=True)
class Guarded:
    """A server that speaks TLS under a name of which its certificate knows.

    Attributes:
        ca: The authority that its certificate is from.
        other_ca: Another one.
    """

    dsn: str
    port: int
    directory: Path

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def other_ca(self) -> Path:
        return self.directory / "other.pem"

    def settings(self, ca: Path, host: str = NAMED, port: int | None = None) -> Settings:
        parts = urlsplit(self.dsn)
        login = parts.netloc.rpartition("@")[0]
        dsn = f"postgresql://{login}@{host}:{port or self.port}{parts.path}"
        path = self.directory / "chatlane.toml"
        path.write_text(f'[postgres]\ndsn = "{dsn}"\ntls_ca_file = "{ca}"\n')
        return load_settings(path, {})


@pytest.fixture
async def guarded(empty_database_url: str, tmp_path: Path) -> AsyncIterator[Guarded]:
    ca, other = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(NAMED).configure_cert(context)
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    async with tls_front(empty_database_url, context) as port:
        yield Guarded(empty_database_url, port, tmp_path)


async def answer(settings: Settings) -> object:
    async with store_of(settings) as store, store.transaction() as connection:
        return await connection.fetchval("SELECT 1")


async def test_a_server_that_is_who_it_says_is_talked_to(guarded: Guarded) -> None:
    settings = guarded.settings(guarded.ca)
    await migrate(settings.postgres.address())
    async with store_of(settings) as store, store.transaction() as connection:
        applied = await connection.fetchval("SELECT count(*) FROM schema_migrations")
    assert applied == len(known_versions())


@pytest.mark.parametrize("fault", ["authority", "name", "no file", "no tls"])
async def test_a_server_that_is_not_is_told_nothing(guarded: Guarded, fault: str) -> None:
    """Also one that says it has no TLS, as anybody in between could."""
    settings = {
        "authority": lambda: guarded.settings(guarded.other_ca),
        "name": lambda: guarded.settings(guarded.ca, "localhost"),
        "no file": lambda: guarded.settings(guarded.directory / "missing.pem"),
        "no tls": lambda: guarded.settings(guarded.ca, port=urlsplit(guarded.dsn).port),
    }[fault]()
    with pytest.raises(StoreUnavailableError):
        await answer(settings)
    with pytest.raises(MigrationError):
        await migrate(settings.postgres.address())


async def test_an_authority_that_is_replaced_is_used_by_the_next_connection(
    guarded: Guarded,
) -> None:
    ca = guarded.directory / "mounted.pem"
    shutil.copy(guarded.other_ca, ca)
    async with store_of(guarded.settings(ca)) as store:
        with pytest.raises(StoreUnavailableError):
            async with store.transaction():
                pytest.fail("its authority is not the one")
        shutil.copy(guarded.ca, ca)
        async with store.transaction() as connection:
            assert await connection.fetchval("SELECT 1") == 1
