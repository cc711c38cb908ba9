"""The reviewed file of NATS users, the keys, and the configuration made of them."""

import re
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from chatlane.cli.commands import app
from chatlane.config.nats_users import (
    BusUsers,
    make_keys,
    new_seed,
    parse_users,
    public_key,
    read_public_keys,
    read_users,
    server_config,
)
from chatlane.config.settings import SettingsError
from tests.support.logs import restored_logging

SEED: Final = new_seed().decode()
KEY: Final = public_key(SEED.encode())
OTHER: Final = public_key(new_seed())
DAY: Final = date(2026, 7, 1)

USERS: Final = f"""
[environments.production.users.router]
role = "router"
nkeys = ["{KEY}"]

[environments.production.users.contractor]
role = "operator"
nkeys = ["{OTHER}"]
until = 2026-06-30
"""


def user(*lines: str) -> str:
    return "\n".join(["[environments.production.users.somebody]", *lines])


def run(*arguments: str) -> tuple[int, str]:
    with restored_logging():
        done = CliRunner().invoke(app, ["admin", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("environments = {}", "environments: Dictionary should have at least 1 item"),
        (user('role = "king"'), "expected tags"),
        (user('role = "router"', 'account = "telegram/bot"'), "there is no such setting"),
        (user('role = "adapter"'), "account: Field required"),
        (user('role = "adapter"', 'account = "telegram"'), "account: String should match"),
        (user('role = "adapter"', 'account = "telegram/*"'), "account: String should match"),
        (user('role = "front_end"', "accounts = []"), "at least 1 item"),
        (user('role = "worker"', 'agent = ">"'), "agent: String should match"),
        (user('role = "router"', f'nkeys = ["{SEED}"]'), "nkeys.0: String should match"),
        (user('role = "router"', f'nkeys = ["{KEY}"]', "until = 1"), "until"),
        (USERS + user('role = "router"', f'nkeys = ["{KEY}"]'), "have the same key"),
        (
            user('role = "front_end"', 'accounts = ["telegram/bot"]')
            + "\n[environments.production.users.other]\nrole = 'adapter'\n"
            + "account = 'telegram/somebody'",
            "has the name of the account telegram/somebody",
        ),
        ('[environments."a.b".users.x]\nrole = "router"', "environments.a.b: String should"),
        ("environments =", "the file of users is not TOML"),
    ],
)
def test_what_cannot_be_used_is_refused_without_being_repeated(text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_users(text)
    assert expected in str(caught.value)
    assert SEED not in str(caught.value)


def test_a_file_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read the users of NATS"):
        read_users(tmp_path / "users.toml")


def test_the_configuration_names_who_may_connect_on_the_day() -> None:
    text = server_config(parse_users(USERS), DAY)
    assert f'nkey: "{KEY}"' in text
    assert OTHER not in text
    assert "# Expired: production/contractor (until 2026-06-30)" in text
    assert OTHER in server_config(parse_users(USERS), date(2026, 6, 30))
    assert "tls {" not in text
    assert text.count("{") == text.count("}")


ADAPTERS: Final = f"""
[environments.production.users.router]
role = "router"
nkeys = ["{KEY}"]

[environments.production.users.telegram-bot]
role = "adapter"
account = "telegram/bot"
nkeys = ["{OTHER}"]
"""


def account(text: str, name: str) -> str:
    """Return what a configuration says of one account."""
    [found] = re.findall(rf'^  "{name}": \{{\n(.*?)^  \}}$', text, re.DOTALL | re.MULTILINE)
    return str(found)


def imported(text: str, kind: str) -> list[str]:
    """Return the subjects that an account imports under their own name."""
    return re.findall(rf'{{ {kind}: {{ account: "production", subject: "(\S+)" }} }}', text)


def exported(text: str, kind: str) -> dict[str, str]:
    """Return the subjects that an account exports, and to which accounts."""
    return dict(re.findall(rf'{{ {kind}: "(\S+)",.*? accounts: \[(.*)\] }}', text))


@pytest.mark.parametrize("role", ["router", "provisioner", "eraser", "backup", "restorer"])
def test_a_trusted_role_shares_the_account_of_the_streams(role: str) -> None:
    text = server_config(parse_users(user(f'role = "{role}"', f'nkeys = ["{KEY}"]')), DAY)
    assert KEY in account(text, "production")
    assert '"production/somebody"' not in text


@pytest.mark.parametrize(
    "lines",
    [
        ('role = "adapter"', 'account = "telegram/bot"'),
        ('role = "front_end"', 'accounts = ["telegram/bot"]'),
        ('role = "worker"', 'agent = "main"'),
        ('role = "worker"', 'agent = "notes"', 'delivery = "stream"', "slots = 2"),
        ('role = "operator"',),
        ('role = "observer"',),
    ],
)
def test_every_other_user_imports_what_its_role_may_use_and_nothing_else(
    lines: tuple[str, ...],
) -> None:
    users = parse_users(user(*lines, f'nkeys = ["{KEY}"]'))
    text = server_config(users, DAY)
    own, streams = account(text, "production/somebody"), account(text, "production")
    allowed = users.environments["production"].users["somebody"].permissions("somebody")
    between_users = ("_INBOX.", "chat.v1.piece.", "chat.v1.recap.", "chat.v1.follow.")
    said = [its for its in allowed.publish if not its.startswith(between_users)]
    heard = [its for its in allowed.subscribe if not its.startswith(between_users)]
    assert imported(own, "service") == said
    assert imported(own, "stream") == heard
    assert exported(own, "stream") == {}
    assert "jetstream" not in own
    assert KEY in own
    assert KEY not in streams
    services = exported(streams, "service")
    assert services.pop("chatlane.nothing") == '"production/somebody"'
    assert services.keys() == set(said)
    assert set(services.values()) == {'"production/somebody"'}
    assert exported(streams, "stream").keys() == set(heard)


def test_only_a_request_for_messages_has_several_answers() -> None:
    text = account(server_config(parse_users(ADAPTERS), DAY), "production")
    several = [line for line in text.splitlines() if 'response_type: "stream"' in line]
    assert len(several) == 1
    assert '"$JS.API.CONSUMER.MSG.NEXT.OUTBOUND.telegram=bot"' in several[0]


def test_who_may_not_connect_any_more_has_no_account_and_nothing_is_exported_to_it() -> None:
    text = server_config(parse_users(USERS), DAY)
    assert '"production/contractor"' not in text
    assert '"production/contractor"' in server_config(parse_users(USERS), date(2026, 6, 30))


def test_two_keys_are_two_ways_to_be_the_same_user() -> None:
    users = parse_users(user('role = "observer"', f'nkeys = ["{KEY}", "{OTHER}"]'))
    text = server_config(users, DAY)
    assert text.count("_INBOX.somebody.>") == 2


def test_who_has_no_key_is_told_so() -> None:
    with pytest.raises(SettingsError, match="production/somebody has no key"):
        server_config(parse_users(user('role = "router"')), DAY)


def test_keys_are_made_once_and_kept_from_others(tmp_path: Path) -> None:
    users = parse_users(USERS)
    keys = make_keys(users, tmp_path / "keys")
    assert keys.keys() == {"production/router", "production/contractor"}
    assert make_keys(users, tmp_path / "keys") == keys
    assert read_public_keys(users, tmp_path / "keys") == keys
    seed = tmp_path / "keys/production/router.nk"
    assert seed.stat().st_mode & 0o777 == 0o600
    assert seed.parent.stat().st_mode & 0o077 == 0
    assert public_key(seed.read_bytes().strip()) == keys["production/router"]


def test_made_keys_take_the_place_of_those_in_the_file(tmp_path: Path) -> None:
    users = parse_users(USERS)
    keys = make_keys(users, tmp_path)
    changed = users.with_keys(keys)
    assert isinstance(changed, BusUsers)
    assert KEY not in server_config(changed, DAY)
    assert keys["production/router"] in server_config(changed, DAY)


def test_a_public_key_that_is_missing_or_none_is_a_clear_error(tmp_path: Path) -> None:
    users = parse_users(USERS)
    with pytest.raises(SettingsError, match="has no public key at"):
        read_public_keys(users, tmp_path)
    make_keys(users, tmp_path)
    (tmp_path / "production/router.pub").write_text(SEED)
    with pytest.raises(SettingsError, match="does not hold the public key") as caught:
        read_public_keys(users, tmp_path)
    assert SEED not in str(caught.value)


def test_the_commands_make_keys_and_a_configuration_and_notice_when_it_is_old(
    tmp_path: Path,
) -> None:
    users, keys, output = tmp_path / "users.toml", tmp_path / "keys", tmp_path / "accounts.conf"
    users.write_text(USERS)
    code, said = run("nats-keys", str(users), "--directory", str(keys))
    assert code == 0
    made = read_public_keys(read_users(users), keys)
    assert said.splitlines() == [f"{place} {key}" for place, key in made.items()]

    making = ["nats-config", str(users), "--keys", str(keys), "--output", str(output)]
    assert run(*making, "--on", "2026-06-30") == (0, "")
    assert made["production/contractor"] in output.read_text()
    code, said = run(*making, "--check", "--on", "2026-06-30")
    assert (code, "is up to date with" in said) == (0, True)
    code, said = run(*making, "--check", "--on", "2026-07-01")
    assert (code, "is out of date with" in said) == (1, True)
    assert run("nats-config", str(users), "--on", "2026-07-01") == (
        0,
        server_config(read_users(users), DAY),
    )
    assert run("nats-config", str(users), "--check")[0] == 2
