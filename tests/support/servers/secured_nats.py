"""A nats-server with the shipped users and TLS, and connections of each of them.

The configuration is `deploy/nats/accounts.conf`, with keys whose seeds are known here in place of
the examples, and with certificates of an authority that lives as long as the server.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import nkeys  # type: ignore[import-untyped]
import trustme

from chatlane.config.nats_users import (
    BusUsers,
    make_keys,
    read_public_keys,
    read_users,
    server_config,
)
from chatlane.nats.connection import Bus, BusOptions
from chatlane_devkit.contract import ACCOUNTS, REPOSITORY, USERS
from chatlane_servers.embedded import NatsServer, open_nats
from tests.support.eventually import eventually
from tests.support.servers.memory_directory import open_memory_directory
from tests.support.servers.nats_cluster import open_nats_cluster

if TYPE_CHECKING:
    from chatlane_client import Refusal

SHIPPED: Final = read_users(REPOSITORY / USERS)
_LONGEST_LINE: Final = 8 * 1024 * 1024
_RELOADED: Final = "Reloaded server configuration"


@dataclass(frozen=True)
class SecuredNats:
    """The server, and what its users connect with.

    Attributes:
        url: By the name that the certificate is for.
    """

    server: NatsServer
    directory: Path

    @property
    def url(self) -> str:
        return f"tls://localhost:{self.server.port}"

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.pem"

    def seed_file(self, place: str) -> Path:
        """Return the seed of a user, such as `production/router`."""
        return self.directory / "keys" / f"{place}.nk"

    def options(self, place: str) -> BusOptions:
        """Return how a user connects."""
        return BusOptions(
            url=self.url,
            nkey_seed_file=self.seed_file(place),
            principal=place.split("/")[1],
            tls_ca_file=self.ca_file,
        )

    def environment(self, place: str) -> dict[str, str]:
        """Return how a process of the service connects as a user."""
        return {
            "CHATLANE_NATS__URL": self.url,
            "CHATLANE_NATS__NKEY_SEED_FILE": str(self.seed_file(place)),
            "CHATLANE_NATS__PRINCIPAL": place.split("/")[1],
            "CHATLANE_NATS__TLS_CA_FILE": str(self.ca_file),
        }

    async def reload(self, users: BusUsers, day: date) -> None:
        """Have the server go by other users, or by another day.

        Shipped keys stand for those that we have the seeds of.
        """
        # As docs/operations.md says: an account that is new imports nothing before the second.
        for _ in range(2):
            await self.reload_once(users, day)

    async def reload_once(self, users: BusUsers, day: date) -> None:
        """Do it with one signal."""
        _write_accounts(self.directory, server_config(users, day))
        log = self.server.log_path
        before = log.read_text("utf-8").count(_RELOADED)
        self.server.reload()
        await eventually(lambda: log.read_text("utf-8").count(_RELOADED) > before)

    @property
    def tls(self) -> ssl.SSLContext:
        """What trusts the server."""
        return ssl.create_default_context(cafile=self.ca_file)

    async def answers(self, place: str | None, lines: Iterable[str]) -> str:
        """Return what the server says to a user that sends these lines; None is nobody.

        It answers in order, so every refusal comes before the answer to the PING at the end.
        """
        return (await self.tell(place, [line.encode() for line in lines])).decode()

    async def tell(self, place: str | None, lines: Iterable[bytes]) -> bytes:
        """Do the same for lines of bytes, such as those with the body of a message."""
        reader, writer = await asyncio.open_connection(
            "localhost", self.server.port, limit=_LONGEST_LINE
        )
        said: list[bytes] = []
        try:
            async with asyncio.timeout(20):
                greeting = json.loads((await reader.readline()).removeprefix(b"INFO "))
                await writer.start_tls(self.tls, server_hostname="localhost")
                proof = {} if place is None else self._proof(place, greeting["nonce"])
                connect = {**proof, "headers": True}
                sent = [f"CONNECT {json.dumps(connect)}".encode(), *lines, b"PING", b""]
                writer.write(b"\r\n".join(sent))
                while (line := await reader.readline()) not in {b"", b"PONG\r\n"}:
                    said.append(line)
        finally:
            writer.close()
        return b"".join(said)

    def _proof(self, place: str, nonce: str) -> dict[str, str]:
        pair = nkeys.from_seed(bytearray(self.seed_file(place).read_bytes().strip()))
        signature = base64.b64encode(pair.sign(nonce.encode())).decode()
        return {"nkey": pair.public_key.decode(), "sig": signature}


class Connection(Bus):
    """A connection of one user, and what the server refused it."""

    def __init__(self) -> None:
        self.refused: list[Refusal] = []
        super().__init__(self.refused.append)


@asynccontextmanager
async def connected(
    server: SecuredNats, user: str, environment: str = "production"
) -> AsyncIterator[Connection]:
    """Connect as a user for the length of the block."""
    connection = Connection()
    try:
        async with asyncio.timeout(10):
            await connection.connect(server.options(f"{environment}/{user}"))
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def open_secured_nats(
    changed: Callable[[str], str] = lambda config: config,
) -> AsyncIterator[SecuredNats]:
    """Run a server with the shipped configuration, or with what is made of it."""
    with open_memory_directory() as directory:
        (directory / "nats").mkdir()
        _prepare(directory, changed)
        async with open_nats(directory / "nats", extra_config='include "accounts.conf"') as server:
            yield SecuredNats(server, directory)


@asynccontextmanager
async def open_secured_cluster(
    changed: Callable[[str], str] = lambda config: config,
) -> AsyncIterator[list[SecuredNats]]:
    """Run three servers of one cluster with it."""
    with open_memory_directory() as directory:
        (directory / "nats").mkdir()
        _prepare(directory, changed)
        config = 'include "../nats/accounts.conf"'
        async with open_nats_cluster(directory, extra_config=config) as cluster:
            yield [SecuredNats(server, directory) for server in cluster.servers.values()]


def _prepare(directory: Path, changed: Callable[[str], str]) -> None:
    _write_certificates(directory)
    make_keys(SHIPPED, directory / "keys")
    _write_accounts(directory, changed((REPOSITORY / ACCOUNTS).read_text("utf-8")))


def _write_accounts(directory: Path, text: str) -> None:
    """Write a configuration with keys and certificates of our own in place of the shipped ones."""
    own = read_public_keys(SHIPPED, directory / "keys")
    for place, user in SHIPPED.places():
        [shipped] = user.nkeys
        text = text.replace(shipped, own[place])
    assert SHIPPED.tls is not None
    for shipped, name in ((SHIPPED.tls.cert_file, "server.pem"), (SHIPPED.tls.key_file, "key.pem")):
        assert text.count(shipped) == 1
        text = text.replace(shipped, str(directory / name))
    (directory / "nats" / "accounts.conf").write_text(text, "utf-8")


def _write_certificates(directory: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    certificate = authority.issue_cert("localhost")
    key_path = directory / "key.pem"
    key_path.touch(mode=0o600)
    certificate.private_key_pem.write_to_path(str(key_path))
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    (directory / "server.pem").write_bytes(chain)
