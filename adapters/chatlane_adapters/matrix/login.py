"""Find out which device the adapter is."""

import json
import os
from pathlib import Path
from typing import Final

from nio import AsyncClient, AsyncClientConfig  # type: ignore[import-untyped]

from chatlane_adapters.matrix.client import Device, require_success
from chatlane_adapters.matrix.settings import MatrixSettings

_DEVICE_NAME: Final = "chatlane"


async def find_device(settings: MatrixSettings) -> Device:
    """Return the device of the token; log in with the password if there is no token yet.

    Homeservers limit logins to a few in an hour, and each one makes another device that has no
    keys. So the token of a login is kept in the directory, and a login is made once.

    Raises:
        RevokedTokenError: The homeserver does not accept the token.
        RetryAfter: It asks to wait.
        HomeserverError: It does not answer as it should.
        UndeliverableError: It refuses the login.
    """
    config = AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0, encryption_enabled=False)
    client = AsyncClient(settings.homeserver, settings.user or "", config=config)
    try:
        if settings.access_token is not None:
            client.access_token = settings.access_token.get_secret_value()
            answer = await client.whoami()
            require_success(answer)
            return Device(answer.user_id, answer.device_id or "", client.access_token)
        path, password = settings.login
        if (kept := _load(path)) is not None:
            return kept
        answer = await client.login(password, device_name=_DEVICE_NAME)
        require_success(answer)
        device = Device(answer.user_id, answer.device_id, answer.access_token)
        _save(path, device)
        return device
    finally:
        await client.close()


def _load(path: Path) -> Device | None:
    try:
        return Device(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None


def _save(path: Path, device: Device) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fields = {"user_id": device.user_id, "device_id": device.device_id, "token": device.token}
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(fields, file)
    new.rename(path)
