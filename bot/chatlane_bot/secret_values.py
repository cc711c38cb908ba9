"""Find the secrets in a bot.toml, so that what is printed names a variable in their place."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from chatlane.config.settings import ENV_PREFIX, SECRET_SETTINGS
from chatlane_adapters.kit.settings import AdapterSettings
from chatlane_bot.bot_config import BotConfig, BotConfigError, read_secret

# Whatever a tool or a model is given in these tables may be a key.
_SECRET_TABLES: Final = frozenset({"env", "headers", "extra_headers"})
_REFERENCE: Final = re.compile(r"\$\(([A-Z0-9_]+)\)")


def adapter_secrets(config: BotConfig) -> tuple[str, ...]:
    """Return the settings of the adapter that are secrets and are given, also as a file, or required."""
    found = _settings_of(config.platform)
    if found is None:
        # Nothing says which of them are none.
        return tuple(config.adapter)
    return tuple(
        name
        for name, field in found.model_fields.items()
        if field.annotation in {SecretStr, SecretStr | None}
        and (field.is_required() or not {name, f"{name}_file"}.isdisjoint(config.adapter))
    )


def _settings_of(platform: str) -> type[AdapterSettings] | None:
    try:
        module = import_module(f"chatlane_adapters.{platform}.settings")
    except ModuleNotFoundError:
        return None
    classes = (found for found in vars(module).values() if isinstance(found, type))
    return next(
        (it for it in classes if issubclass(it, AdapterSettings) and it is not AdapterSettings),
        None,
    )


def require_no_declared_secret(config: BotConfig) -> None:
    """Raise an error if the declarations have a secret.

    Raises:
        BotConfigError: They have; the error names the variable for it.
    """
    for variable in SECRET_SETTINGS:
        group, _, name = variable.removeprefix(ENV_PREFIX).lower().partition("__")
        table = config.chatlane.get(group)
        if isinstance(table, dict) and name in table:
            raise BotConfigError(
                f"[chatlane.{group}] {name} is a secret, which is not printed: take it out, and give "
                f"the routers {variable}"
            )


def worker_tables(
    config: BotConfig, refer: Callable[[str], str], escape: Callable[[str], str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what a worker needs of a bot.toml, and the variables that its secrets come from.

    Args:
        config: The bot. The key of its model has a variable of the provider.
        refer: Returns the text that the value of a variable replaces.
        escape: Returns a text that means itself where variables are replaced.
    """
    tables = config.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    tables["model"].pop("api_key_file", None)
    kept: dict[str, Any] = {
        name: tables[name] for name in ("model", "instructions", "tools") if name in tables
    }
    variables: dict[str, None] = {}

    def referred(path: tuple[str, ...], _: str) -> str:
        variables[variable := _variable_of(path)] = None
        return refer(variable)

    return _replaced(kept, referred, escape), tuple(variables)


def with_secret_files(tables: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return tables with the content of the file NAME for each secret value `$(NAME)`.

    Raises:
        BotConfigError: There is no such file.
    """

    def content(_: tuple[str, ...], value: str) -> str:
        reference = _REFERENCE.fullmatch(value)
        return value if reference is None else read_secret(directory / reference[1])

    return _replaced(tables, content, lambda text: text)


def _replaced(
    tables: dict[str, Any],
    secret: Callable[[tuple[str, ...], str], str],
    plain: Callable[[str], str],
) -> dict[str, Any]:
    """Return tables with other texts in the tables that have secrets, and beside them."""

    def replaced(value: Any, path: tuple[str, ...], *, is_secret: bool) -> Any:  # noqa: ANN401 - TOML
        match value:
            case dict():
                return {
                    name: replaced(
                        item, (*path, name), is_secret=is_secret or name in _SECRET_TABLES
                    )
                    for name, item in value.items()
                }
            case list():
                return [
                    replaced(item, (*path, _name_of(item, at)), is_secret=is_secret)
                    for at, item in enumerate(value)
                ]
            case str():
                return secret(path, value) if is_secret else plain(value)
            case _:
                return value

    return {name: replaced(table, (name,), is_secret=False) for name, table in tables.items()}


def _name_of(item: Any, at: int) -> str:  # noqa: ANN401 - TOML
    return str(item["name"]) if isinstance(item, dict) and "name" in item else str(at)


def _variable_of(path: tuple[str, ...]) -> str:
    words = "_".join(path)
    return "".join(it if it.isascii() and it.isalnum() else "_" for it in words).upper()
