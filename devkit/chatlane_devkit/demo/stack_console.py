"""The console of a stack: where it is, and the link that signs in."""

import secrets
from datetime import timedelta
from typing import Final, NamedTuple

import aiohttp

from chatlane_devkit.demo.stack import Stack
from chatlane_servers.conditions import until
from chatlane_servers.embedded import free_port
from chatlane_servers.programs import Program

CONSOLE: Final = "console"

_START_PATIENCE: Final = timedelta(seconds=30)
# Who `chatlane chat --as ann` is.
_PERSON: Final = "ann"


class ConsoleAddress(NamedTuple):
    """The address of the console.

    Attributes:
        url: Its address.
        link: The address that signs in.
    """

    url: str
    link: str


async def start_console(stack: Stack) -> ConsoleAddress:
    """Start a console for the people of the first account, the one of the terminal if there is one.

    Raises:
        ServerStartError: It ended by itself, or did not start in time.
    """
    port, token = free_port(), secrets.token_urlsafe(24)
    platform, account = _account_of(stack)
    environment = {
        "CHATLANE_CONSOLE_PORT": str(port),
        "CHATLANE_CONSOLE_NATS_URL": stack.nats.url,
        "CHATLANE_CONSOLE_OPERATOR_PRINCIPAL": "console-operator",
        "CHATLANE_CONSOLE_PLATFORM": platform,
        "CHATLANE_CONSOLE_ACCOUNT": account,
        "CHATLANE_CONSOLE_LINK_PERSON": _PERSON,
        "CHATLANE_CONSOLE_LINK_TOKEN": token,
        "CHATLANE_CONSOLE_MEDIA_URL": str(stack.directory / "media"),
    }
    arguments = ["-m", "chatlane", "console"]
    program = Program(CONSOLE, arguments, stack.directory, environment)
    stack.programs[CONSOLE] = program
    program.start()
    url = f"http://127.0.0.1:{port}"

    async def is_ready() -> bool:
        program.require_running()
        try:
            async with aiohttp.ClientSession() as client, client.get(f"{url}/readyz") as response:
                return response.ok
        except aiohttp.ClientError:
            return False

    try:
        await until(is_ready, _START_PATIENCE)
    except TimeoutError as error:
        raise program.failure("it did not come up in time") from error
    return ConsoleAddress(url, f"{url}/sign-in/link?token={token}")


def _account_of(stack: Stack) -> tuple[str, str]:
    platforms = stack.settings.platforms
    for name in ("terminal", *platforms):
        accounts = platforms[name].accounts if name in platforms else {}
        if accounts:
            return name, "local" if "local" in accounts else next(iter(accounts))
    return "console", "web"
