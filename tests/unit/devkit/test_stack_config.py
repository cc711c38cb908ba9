"""The configuration of a stack that a user's chatlane.toml declares."""

import tomllib
from pathlib import Path

import pytest

from chatlane.config.settings import SettingsError, load_settings
from chatlane_devkit.demo.stack_config import check_user_config, stack_config
from chatlane_servers.toml_text import toml_text

EXAMPLE = Path(__file__).parents[3] / "examples" / "chatlane.toml"


@pytest.mark.parametrize(
    "text",
    [
        'a = "quote \\" and \\u007f and \\n"\n"b c" = [1, 2.5, true, [], {}]\n',
        "when = 2026-01-02T03:04:05Z\nday = 2026-01-02\nhour = 07:30:00\n",
        '[one.two."three four"]\nfive = {six = ["é", "\U0001f600"]}\n',
        EXAMPLE.read_text("utf-8"),
    ],
)
def test_toml_is_the_same_after_it_was_written(text: str) -> None:
    parsed = tomllib.loads(text)
    assert tomllib.loads(toml_text(parsed)) == parsed


def test_declarations_are_the_users_and_servers_are_those_of_the_stack(tmp_path: Path) -> None:
    written = tmp_path / "stack.toml"
    written.write_text(stack_config("nats://127.0.0.1:1", "postgresql://a@127.0.0.1:2/b", EXAMPLE))
    ours, theirs = load_settings(written, {}), load_settings(EXAMPLE, {})

    assert ours.catalog().agents == theirs.catalog().agents
    assert ours.catalog().platforms.keys() == theirs.catalog().platforms.keys()
    assert ours.router == theirs.router
    assert ours.nats.url == "nats://127.0.0.1:1"
    assert ours.streams.replicas == 1
    assert ours.http.host == "127.0.0.1"
    assert ours.log.format == "console"


def test_without_a_file_the_shipped_declarations_apply(tmp_path: Path) -> None:
    written = tmp_path / "stack.toml"
    written.write_text(stack_config("nats://127.0.0.1:1", "postgresql://a@127.0.0.1:2/b", None))

    assert {"main", "notes"} <= load_settings(written, {}).catalog().agents.keys()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = [\n", "is not TOML: "),
        ('[agents.main]\ndelivery = "push"\n', ": agents.main.delivery: "),
        ('[platforms.slack]\nnotices_file = "none.toml"\n', ": cannot read the notices in "),
    ],
)
def test_problems_of_a_users_file_name_it(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        check_user_config(file)
    [line] = caught.value.problems
    assert line.startswith(str(file))
    assert problem in line


def test_notices_of_a_users_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "texts.toml").write_text('stopped = "Angehalten."\n')
    file = tmp_path / "mine.toml"
    file.write_text('[platforms.slack]\nnotices_file = "texts.toml"\n')
    check_user_config(file)
