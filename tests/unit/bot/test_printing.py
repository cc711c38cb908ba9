"""What `--print` gives to a company."""

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from chatlane.config.settings import load_settings
from chatlane_bot.bot_config import (
    BotConfig,
    BotConfigError,
    bot_config_of,
    bot_config_of_text,
    read_bot_config,
)
from chatlane_bot.printing import compose_of, helm_values_of
from chatlane_bot.secret_values import with_secret_files

CHART: Final = Path(__file__).parents[3] / "deploy" / "chart"
BOT: Final = bot_config_of(
    {
        "platform": "telegram",
        "model": {
            "name": "anthropic:claude-sonnet-4-5",
            "settings": {"max_tokens": 9, "extra_headers": {"X-Key": "model-secret"}},
        },
        "instructions": "Answer like a pirate,\nfor $5.",
        "tools": [
            {"name": "web", "url": "http://t/$(A)", "headers": {"Authorization": "header-secret"}},
            {"name": "files", "command": "serve", "env": {"KEY": "variable-secret"}},
        ],
        "adapter": {"token": "123:secret", "webhook_secret": "hook-secret", "groups": "all"},
    }
)


def settings_of(text: str, directory: Path) -> Any:  # noqa: ANN401
    path = directory / "chatlane.toml"
    path.write_text(text, "utf-8")
    return load_settings(path, {"CHATLANE_POSTGRES__DSN": "postgresql://a@b/c"})


@pytest.mark.parametrize("printed", [compose_of, helm_values_of])
def test_no_secret_is_printed(printed: Any) -> None:  # noqa: ANN401
    text = printed(BOT)
    for secret in ("123:secret", "hook-secret", "header-secret", "variable-secret", "model-secret"):
        assert secret not in text


@pytest.mark.parametrize("printed", [compose_of, helm_values_of])
def test_an_unknown_adapter_shows_none_of_its_settings(printed: Any) -> None:  # noqa: ANN401
    bot = bot_config_of({**BOT.model_dump(), "platform": "pager", "adapter": {"pin": "abc-1234"}})
    assert "abc-1234" not in printed(bot)
    assert "chatlane_adapter_pin" in printed(bot).lower()


@pytest.mark.parametrize("printed", [compose_of, helm_values_of])
def test_a_secret_among_the_declarations_is_refused(printed: Any) -> None:  # noqa: ANN401
    bot = bot_config_of({**BOT.model_dump(), "chatlane": {"erasure": {"key": "k" * 40}}})
    with pytest.raises(BotConfigError, match="CHATLANE_ERASURE__KEY"):
        printed(bot)


def test_the_values_fit_the_chart(tmp_path: Path) -> None:
    values = yaml.safe_load(helm_values_of(BOT))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    jsonschema.Draft7Validator(schema).validate({**defaults, **values})
    settings = settings_of(values["configuration"], tmp_path)
    assert "telegram" in settings.catalog().platforms
    [worker], [adapter] = values["workers"], values["adapters"]
    assert adapter["account"] == "telegram/bot"
    assert {"name": "CHATLANE_ADAPTER_GROUPS", "value": "all"} in adapter["env"]
    assert adapter["tokens"] == "chatlane-bot-adapter"
    assert "chatlane_adapter_token, chatlane_adapter_webhook_secret" in helm_values_of(BOT)
    # As the pod finds them: files of the Secret, and what the kubelet leaves as it is.
    key = tmp_path / "ANTHROPIC_API_KEY"
    secrets = {
        "TOOLS_WEB_HEADERS_AUTHORIZATION": "header-secret",
        "TOOLS_FILES_ENV_KEY": "variable-secret",
        "MODEL_SETTINGS_EXTRA_HEADERS_X_KEY": "model-secret",
    }
    for name, value in secrets.items():
        (tmp_path / name).write_text(f"{value}\n", "utf-8")
    [variable] = worker["env"]
    text = variable["value"].replace("$$(", "$(").replace("/run/secrets/chatlane", str(tmp_path))
    given = bot_config_of_text(text, lambda tables: with_secret_files(tables, tmp_path))
    assert given.tools == BOT.tools
    assert given.model == BOT.model.model_copy(update={"api_key_file": key})
    (tmp_path / "TOOLS_FILES_ENV_KEY").unlink()
    with pytest.raises(BotConfigError, match="TOOLS_FILES_ENV_KEY"):
        bot_config_of_text(text, lambda tables: with_secret_files(tables, tmp_path))


def test_a_secret_in_a_file_is_printed_as_its_variable(tmp_path: Path) -> None:
    path = tmp_path / "bot.toml"
    path.write_text(
        'platform = "telegram"\nmodel = {name = "openai:gpt-5"}\n'
        'adapter = {token_file = "telegram.token"}\n'
    )
    bot = read_bot_config(path)
    environment = yaml.safe_load(compose_of(bot))["services"]["adapter"]["environment"]
    assert environment.keys() >= {"CHATLANE_ADAPTER_TOKEN"}
    assert "${CHATLANE_ADAPTER_TOKEN:?}" in environment.values()
    for text in (compose_of(bot), helm_values_of(bot)):
        assert "telegram.token" not in text


def test_the_compose_file_has_all_parts(tmp_path: Path) -> None:
    document = yaml.safe_load(compose_of(BOT))
    services = document["services"]
    assert {"nats", "postgres", "prepare", "router-1", "router-2", "worker", "adapter"} == {
        *services
    }
    settings_of(document["configs"]["declarations"]["content"], tmp_path)
    text = services["worker"]["environment"]["BOT_TOML"].replace("$$", "$")
    assert BOT.instructions == bot_config_of_text(text).instructions
    assert tomllib.loads(text)["model"]["name"] == "anthropic:claude-sonnet-4-5"
    assert "${TOOLS_WEB_HEADERS_AUTHORIZATION:?}" in text
    adapter = services["adapter"]["environment"]
    for name in ("CHATLANE_ADAPTER_TOKEN", "CHATLANE_ADAPTER_WEBHOOK_SECRET"):
        assert adapter[name] == f"${{{name}:?}}"


def test_a_terminal_is_for_one_machine() -> None:
    terminal = BotConfig.model_validate({"model": {"name": "openai:gpt-5"}})
    with pytest.raises(BotConfigError, match="terminal"):
        compose_of(terminal)
