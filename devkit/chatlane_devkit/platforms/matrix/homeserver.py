"""Run a real homeserver (Synapse) on loopback, with its data in a directory."""

import base64
import contextlib
import hashlib
import hmac
import json
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from typing_extensions import override

from chatlane_servers.embedded import LOOPBACK, EmbeddedServer

SERVER_NAME: Final = "chatlane.test"
_FAST: Final[Mapping[str, Any]] = {"per_second": 10_000, "burst_count": 10_000}
# The server's defaults are for people; a test sends faster. `default_limits` keeps them.
_RAISED_LIMITS: Final[Mapping[str, Any]] = {
    "rc_message": _FAST,
    "rc_registration": _FAST,
    "rc_login": {"address": _FAST, "account": _FAST, "failed_attempts": _FAST},
    "rc_joins": {"local": _FAST, "remote": _FAST},
    "rc_joins_per_room": _FAST,
    "rc_invites": {"per_room": _FAST, "per_user": _FAST, "per_issuer": _FAST},
    "rc_room_creation": _FAST,
    "rc_admin_redaction": _FAST,
}
_LOGGING: Final[Mapping[str, Any]] = {
    "version": 1,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"level": "WARNING", "handlers": ["console"]},
    "disable_existing_loggers": False,
}


@dataclass(frozen=True, slots=True)
class Account:
    """A registered user with one device.

    Attributes:
        user_id: Such as `@ann:chatlane.test`.
        token: Access token of the device.
        device_id: The device.
    """

    user_id: str
    token: str = field(repr=False)
    device_id: str


class Homeserver(EmbeddedServer):
    """One Synapse with a database in a file, without federation.

    Attributes:
        directory: Holds the configuration, the database, the files and the log.
    """

    name = "synapse"

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        default_limits: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(directory, port)
        self._default_limits = default_limits
        self._settings = settings or {}
        self._secret = secrets.token_hex(16)

    @property
    @override
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    @override
    def _stop_signal(self) -> signal.Signals:
        return signal.SIGTERM

    @property
    @override
    def _parent_death_signal(self) -> signal.Signals:
        return signal.SIGKILL

    @override
    def _arguments(self) -> list[str]:
        config = self.directory / "homeserver.json"
        config.write_text(json.dumps(self._config()), "utf-8")
        key = self.directory / "signing.key"
        if not key.exists():
            seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
            key.write_text(f"ed25519 a_test {seed}\n", "ascii")
        # Synapse reads YAML, of which JSON is a part.
        (self.directory / "logging.json").write_text(json.dumps(_LOGGING), "utf-8")
        return [sys.executable, "-m", "synapse.app.homeserver", "--config-path", str(config)]

    def _config(self) -> dict[str, Any]:
        listener = {
            "port": self.port,
            "type": "http",
            "bind_addresses": [LOOPBACK],
            "resources": [{"names": ["client"]}],
        }
        return {
            "server_name": SERVER_NAME,
            "pid_file": str(self.directory / "homeserver.pid"),
            "public_baseurl": self.url,
            "listeners": [listener],
            "database": {
                "name": "sqlite3",
                "args": {"database": str(self.directory / "homeserver.db")},
            },
            "media_store_path": str(self.directory / "media"),
            "signing_key_path": str(self.directory / "signing.key"),
            "log_config": str(self.directory / "logging.json"),
            "registration_shared_secret": self._secret,
            "macaroon_secret_key": self._secret,
            "form_secret": self._secret,
            "report_stats": False,
            "trusted_key_servers": [],
            "federation_domain_whitelist": [],
            "presence": {"enabled": False},
            **({} if self._default_limits else _RAISED_LIMITS),
            **self._settings,
        }

    @override
    async def _answers(self) -> bool:
        async with httpx.AsyncClient(trust_env=False, timeout=2) as client:
            with contextlib.suppress(httpx.HTTPError):
                return (await client.get(f"{self.url}/health")).is_success
        return False

    async def register(self, name: str, password: str | None = None) -> Account:
        """Register a user, who gets one device.

        Args:
            name: Local part of its id, such as `ann`.
            password: For logins; a random one without.

        Raises:
            HTTPStatusError: The server refuses, for example because the name is taken.
        """
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=30) as client:
            path = "/_synapse/admin/v1/register"
            nonce = (await client.get(path)).raise_for_status().json()["nonce"]
            password = password or secrets.token_hex(16)
            signed = f"{nonce}\0{name}\0{password}\0notadmin".encode()
            mac = hmac.new(self._secret.encode(), signed, hashlib.sha1).hexdigest()
            user = {"nonce": nonce, "username": name, "password": password, "mac": mac}
            answer = (await client.post(path, json={**user, "admin": False})).raise_for_status()
        account = answer.json()
        return Account(account["user_id"], account["access_token"], account["device_id"])


@contextlib.asynccontextmanager
async def open_homeserver(
    directory: Path,
    port: int | None = None,
    *,
    default_limits: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Homeserver]:
    """Run a homeserver until the end of the block.

    Args:
        directory: For its files; created if missing, never removed.
        port: Chosen if not given.
        default_limits: Whether it keeps its own rate limits instead of raised ones.
        settings: More settings of Synapse, by name.
    """
    server = Homeserver(directory, port, default_limits=default_limits, settings=settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
