"""What a bot.toml may say, and what is made of it."""

import tomllib
from pathlib import Path

import pytest

from chatlane_bot.bot_config import (
    BotConfigError,
    bot_config_of,
    bot_config_of_text,
    read_bot_config,
    write_bot_config,
)

MODEL = {"name": "openai:gpt-5"}


def test_a_bot_without_a_model_is_told_what_to_give() -> None:
    with pytest.raises(BotConfigError, match="which model answers"):
        bot_config_of({"platform": "terminal"})


def test_a_misspelt_key_and_a_value_of_the_wrong_kind_are_named() -> None:
    with pytest.raises(BotConfigError) as raised:
        bot_config_of({"model": MODEL, "instruction": "x", "tools": [{"name": "a"}]})
    assert [problem.rpartition(": ")[0] for problem in raised.value.problems] == [
        "the command line: tools.0",
        "the command line: instruction",
    ]


def test_a_secret_is_in_no_error() -> None:
    with pytest.raises(BotConfigError) as raised:
        bot_config_of({"model": MODEL, "adapter": ["123:secret"]})
    assert "secret" not in str(raised.value)


def test_options_replace_values_of_the_file_and_paths_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "bot.toml"
    file.write_text(
        'platform = "telegram"\n'
        '[model]\nname = "openai:gpt-5"\nbase_url = "http://a/v1"\n'
        '[adapter]\ntoken_file = "token"\ngroups = "all"\n'
        '[chatlane.agents.main]\nbusy = "steer"\n',
        "utf-8",
    )
    config = read_bot_config(file, {"model": {"name": "openai:gpt-6"}})
    assert (config.model.name, config.model.base_url) == ("openai:gpt-6", "http://a/v1")
    assert {
        "CHATLANE_ADAPTER_NATS_URL": "nats://x",
        "CHATLANE_ADAPTER_ACCOUNT": "bot",
        "CHATLANE_ADAPTER_PLATFORM": "telegram",
        "CHATLANE_ADAPTER_TOKEN_FILE": str(tmp_path / "token"),
        "CHATLANE_ADAPTER_GROUPS": "all",
    } == config.adapter_environment("nats://x")
    assert config.declarations()["agents"] == {
        "main": {"reasoning": True, "lease": "15s", "busy": "steer"}
    }


def test_what_ran_last_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "bot.toml"
    given = bot_config_of({"model": MODEL, "adapter": {"token": "123:abc"}, "platform": "telegram"})
    write_bot_config(file, given)
    assert given == read_bot_config(file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_worker_in_a_container_gets_the_text() -> None:
    assert bot_config_of_text('model = {name = "openai:gpt-5"}').model.name == "openai:gpt-5"
    with pytest.raises(BotConfigError, match="is not TOML"):
        bot_config_of_text("model =")


def test_the_documented_bot_toml_is_valid() -> None:
    page = Path(__file__).parents[3] / "docs" / "bot.md"
    text = page.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(text)["model"]
    assert bot_config_of_text(text).tools
