"""The chatlane.toml of a stack: the shipped one, or one of the user on embedded servers."""

import tomllib
from importlib import resources
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any, Final

from chatlane.config.settings import SettingsError, load_settings, resolve_notices
from chatlane_servers.toml_text import toml_text

# Settings that the stack itself decides: server addresses, loopback for every listener, and the key
# of the erasure list, which is empty in a new database.
_OWN_SECTIONS: Final = ("nats", "postgres", "http", "log", "tracing", "erasure")


def stack_config(nats_url: str, dsn: str, user_config: Path | None) -> str:
    """Return the configuration of a stack as TOML.

    Args:
        nats_url: Address of the embedded NATS server.
        dsn: Address of the embedded Postgres server, as the role of routers.
        user_config: A chatlane.toml whose declarations apply; None takes the shipped ones.
    """
    if user_config is None:
        shipped = resources.files("chatlane_devkit.demo").joinpath("data/stack.toml")
        return Template(shipped.read_text("utf-8")).substitute({"nats_url": nats_url, "dsn": dsn})
    declared = _declared(user_config)
    for section in _OWN_SECTIONS:
        declared.pop(section, None)
    # There is one NATS server.
    declared["streams"] = {**declared.get("streams", {}), "replicas": 1}
    own = {"nats": {"url": nats_url}, "postgres": {"dsn": dsn}, "log": {"format": "console"}}
    return toml_text(own | declared)


def _declared(user_config: Path) -> dict[str, Any]:
    try:
        declared = tomllib.loads(user_config.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{user_config} is not TOML: {error}") from error
    except OSError as error:
        raise SettingsError(f"cannot read {user_config}: {error.strerror}") from error
    # The copy of the file is in another directory.
    resolve_notices(declared, user_config.absolute().parent)
    return declared


def check_user_config(user_config: Path) -> None:
    """Check the declarations of the user before any server starts.

    Raises:
        SettingsError: They cannot be used; each problem names the file.
    """
    text = stack_config("nats://127.0.0.1:1", "postgresql://chatlane@127.0.0.1:1/a", user_config)
    with TemporaryDirectory() as directory:
        copy = Path(directory) / "chatlane.toml"
        copy.write_text(text, "utf-8")
        try:
            load_settings(copy, {}).catalog()
        except SettingsError as error:
            problems = (f"{user_config}: {problem}" for problem in error.problems)
            raise SettingsError(*problems) from error
