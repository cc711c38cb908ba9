"""What a bot is: platform, model, tools, and where its servers are."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from chatlane.config.settings import SettingsError
from chatlane_servers.toml_text import toml_text

TERMINAL: Final = "terminal"
TERMINAL_PERSON: Final = "you"
"""Id of the person who talks in the terminal."""
AGENT: Final = "main"
# The text of a bot.toml, for a worker in a container.
BOT_VARIABLE: Final = "BOT_TOML"
_PRIVATE: Final = 0o600
_KEY_VARIABLES: Final = {"openai-chat": "OPENAI_API_KEY"}

Setting = str | int | float | bool | list[Any] | dict[str, Any]


class BotConfigError(SettingsError):
    """A bot.toml that cannot be used; its problems say what to change."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelTable(_Table):
    """The language model."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+:.+$")] = Field(
        description="Provider and model, such as `openai:gpt-5`, `anthropic:claude-sonnet-4-5`, "
        "`ollama:llama3.2`."
    )
    base_url: Annotated[str, Field(pattern=r"^https?://[^/\s]+")] | None = Field(
        default=None, description="Address of an endpoint that speaks the protocol of the provider."
    )
    api_key_file: Path | None = Field(
        default=None, description="File with the key; by default the variable of the provider."
    )
    settings: dict[str, Any] = Field(
        default={}, description="Settings of requests, such as `temperature` and `max_tokens`."
    )


class ToolTable(_Table):
    """An MCP server whose tools the model may call."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,32}$")] = Field(
        description="Prefix of the names of its tools."
    )
    command: str | None = Field(default=None, description="Program that speaks MCP on stdio.")
    args: tuple[str, ...] = Field(default=(), description="Its arguments.")
    env: dict[str, str] = Field(default={}, description="Variables of its environment.")
    url: str | None = Field(default=None, description="Address of a server over HTTP instead.")
    headers: dict[str, str] = Field(default={}, description="Headers of the requests to it.")
    approval: bool = Field(
        default=False, description="Whether a person has to allow each call in the chat."
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either `command` or `url`")
        return self


class ServersTable(_Table):
    """Servers that run elsewhere; what is missing is started on this machine."""

    nats: str | None = Field(default=None, description="Addresses of NATS, separated by commas.")
    postgres: str | None = Field(
        default=None, description="Address of the database, as the owner of its tables."
    )


class BotConfig(_Table):
    """A bot.toml."""

    platform: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")] = TERMINAL
    account: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")] = "bot"
    instructions: str = "You are a helpful assistant in a chat. Answer briefly."
    model: ModelTable
    titles: bool = Field(
        default=False,
        description="Whether the model also makes a title of each conversation: one short request more.",
    )
    tools: tuple[ToolTable, ...] = ()
    adapter: dict[str, Setting] = Field(
        default={}, description="Settings of the adapter, by their names in its documentation."
    )
    servers: ServersTable = ServersTable()
    chatlane: dict[str, Any] = Field(
        default={}, description="Further declarations, as in chatlane.toml."
    )

    def declarations(self) -> dict[str, Any]:
        """Return the chatlane.toml of the bot without its servers."""
        own = {
            # A turn of a killed worker waits for so long.
            "agents": {AGENT: {"reasoning": True, "lease": "15s"}},
            "profiles": {"default": {"agent": AGENT}},
            "platforms": {self.platform: {"accounts": {self.account: {}}}},
        }
        return merged(own, self.chatlane)

    def adapter_environment(self, nats_url: str) -> dict[str, str]:
        """Return the environment of the adapter."""
        named = {"nats_url": nats_url, "account": self.account, "platform": self.platform}
        return {
            f"CHATLANE_ADAPTER_{name.upper()}": value
            if isinstance(value, str)
            else json.dumps(value)
            for name, value in {**named, **self.adapter}.items()
        }


def read_bot_config(path: Path, changes: dict[str, Any] | None = None) -> BotConfig:
    """Read a bot.toml.

    Args:
        path: The file; paths in it are relative to its folder.
        changes: Tables that replace values of the file.

    Raises:
        BotConfigError: It cannot be read or used.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise BotConfigError(f"cannot read {path}") from exc
    given = _tables(text, str(path))
    for table in (given.get("model", {}), given.get("adapter", {})):
        for name, value in table.items():
            if name.endswith("_file"):
                table[name] = str(path.absolute().parent / value)
    return bot_config_of(merged(given, changes or {}), str(path))


def bot_config_of_text(
    text: str, change: Callable[[dict[str, Any]], dict[str, Any]] = lambda tables: tables
) -> BotConfig:
    """Return the bot that the text of a bot.toml describes.

    Args:
        text: The text.
        change: Returns the tables in which references are replaced.

    Raises:
        BotConfigError: It cannot be used.
    """
    return bot_config_of(change(_tables(text, BOT_VARIABLE)), BOT_VARIABLE)


def _tables(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise BotConfigError(f"{origin} is not TOML: {exc}") from exc


def bot_config_of(tables: dict[str, Any], origin: str = "the command line") -> BotConfig:
    """Check the tables of a bot.

    Raises:
        BotConfigError: They cannot be used.
    """
    if "name" not in tables.get("model", {}):
        raise BotConfigError(
            "which model answers? Give `--model openai:gpt-5`, or `[model]` with a `name` in bot.toml"
        )
    try:
        return BotConfig.model_validate(tables)
    except ValidationError as exc:
        raise BotConfigError(
            *(
                f"{origin}: {'.'.join(map(str, error['loc']))}: {error['msg']}"
                for error in exc.errors()
            )
        ) from exc


def key_variable(model: str) -> str:
    """Return the variable that has the key of the provider of a model."""
    provider = model.partition(":")[0]
    return _KEY_VARIABLES.get(provider, f"{provider.upper().replace('-', '_')}_API_KEY")


def write_bot_config(path: Path, config: BotConfig) -> None:
    """Write a bot.toml that only its owner can read."""
    path.touch(mode=_PRIVATE)
    tables = config.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    path.write_text(toml_text(tables), "utf-8")


def read_secret(path: Path) -> str:
    """Return the content of a file without the white space around it.

    Raises:
        BotConfigError: It cannot be read.
    """
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise BotConfigError(f"cannot read {path}") from exc


def merged(own: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return tables with those of `others` in them; its values win."""
    tables = {**own}
    for key, value in others.items():
        before = tables.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            tables[key] = merged(before, value)
        else:
            tables[key] = value
    return tables
