"""Find the secrets in a bot.toml, so that what is printed names a variable in their place."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from pydantic import SecretStr

from chatlane.config.settings import ENV_PREFIX, SECRET_SETTINGS
from chatlane_adapters.kit.settings import AdapterSettings
from chatlane_bot.bot_config import BotConfig, BotConfigError

# Whatever a tool or a model is given in these tables may be a key.
_SECRET_TABLES: Final = frozenset({"env", "headers", "extra_headers"})


def adapter_secrets(config: BotConfig) -> tuple[str, ...]:
    """Return the settings of the adapter that are secrets and are given or required."""
    found = _settings_of(config.platform)
    if found is None:
        # Nothing says which of them are none.
        return tuple(config.adapter)
    return tuple(
        name
        for name, field in found.model_fields.items()
        if field.annotation in {SecretStr, SecretStr | None}
        and (name in config.adapter or field.is_required())
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
    kept = {name: tables[name] for name in ("model", "instructions", "tools") if name in tables}
    variables: dict[str, None] = {}

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
            case str() if is_secret:
                variable = _variable_of(path)
                variables[variable] = None
                return refer(variable)
            case str():
                return escape(value)
            case _:
                return value

    return replaced(kept, (), is_secret=False), tuple(variables)


def _name_of(item: Any, at: int) -> str:  # noqa: ANN401 - TOML
    return str(item["name"]) if isinstance(item, dict) and "name" in item else str(at)


def _variable_of(path: tuple[str, ...]) -> str:
    words = "_".join(path)
    return "".join(it if it.isascii() and it.isalnum() else "_" for it in words).upper()
