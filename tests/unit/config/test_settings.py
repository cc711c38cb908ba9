"""What the settings accept, where they come from, and what they say when they refuse."""

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane.config.declarations import ResetSettings
from chatlane.config.settings import Settings, SettingsError, load_settings
from chatlane.connections import bus_options
from chatlane.domain.catalog import DeliveryPolicy, HomeChannel
from chatlane.domain.commands.command_words import CommandName, CommandRules
from chatlane.domain.notices import ENGLISH, NoticeId
from chatlane.domain.policy import KeyRules, ResetPolicy
from chatlane_devkit.env_example import render_env_example
from chatlane_schemas.topology.streams import DEFAULT_MAX_BYTES, StreamName

REPOSITORY = Path(__file__).parents[3]
CANARY = "canary-7f3a"


class Config:
    """A chatlane.toml of the test's own, in an environment without settings."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, text: str = "") -> Settings:
        self.path.write_text(text)
        return load_settings(self.path)

    def refusal(self, text: str) -> str:
        with pytest.raises(SettingsError) as caught:
            self.load(text)
        return str(caught.value)


class MountedSecrets:
    """A directory of secrets as Kubernetes mounts it: links that all change at one instant."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._version = 0

    def write(self, value: str) -> None:
        self._version += 1
        data = self.directory / f"..version_{self._version}"
        data.mkdir(parents=True)
        for name in ("CHATLANE_NATS__TOKEN", "CHATLANE_POSTGRES__PASSWORD"):
            (data / name).write_text(f"{value}\n")
            link = self.directory / name
            link.unlink(missing_ok=True)
            link.symlink_to(Path("..data") / name)
        new = self.directory / "..data_new"
        new.symlink_to(data.name)
        new.replace(self.directory / "..data")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    for name in [name for name in os.environ if name.startswith("CHATLANE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Config(tmp_path / "chatlane.toml")


def test_everything_has_a_default(config: Config) -> None:
    settings = config.load()

    assert settings.router.partitions == 32
    assert settings.router.lease == timedelta(seconds=3)
    assert settings.agents.keys() == {"main"}


def test_environment_wins_over_secret_file_and_file(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "CHATLANE_POSTGRES__DSN").write_text("postgresql://from-secret\n")
    (secrets / "CHATLANE_NATS__TOKEN").write_text("from-secret\n")
    monkeypatch.setenv("CHATLANE_SECRETS_DIR", str(secrets))
    monkeypatch.setenv("CHATLANE_NATS__TOKEN", "from-environment")
    monkeypatch.setenv("CHATLANE_ROUTER__BATCH_LINGER", "5ms")

    settings = config.load(
        '[postgres]\ndsn = "postgresql://from-file"\npool_size = 3\n'
        '[router]\nbatch_linger = "7ms"\nslots = 4\n'
    )

    assert settings.nats.token is not None
    assert settings.nats.token.get_secret_value() == "from-environment"
    assert settings.postgres.dsn.get_secret_value() == "postgresql://from-secret"
    assert settings.postgres.pool_size == 3
    assert settings.router.batch_linger == timedelta(milliseconds=5)
    assert settings.router.slots == 4


def test_secrets_are_found_as_kubernetes_mounts_them_and_again_when_they_have_changed(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = MountedSecrets(tmp_path / "secrets")
    secrets.write("old")
    monkeypatch.setenv("CHATLANE_SECRETS_DIR", str(secrets.directory))
    settings = config.load()

    secrets.write("new")

    assert settings.nats.token is not None
    assert settings.nats.token.get_secret_value() == "old"
    fresh = settings.fresh()
    assert fresh.nats.token is not None
    assert fresh.nats.token.get_secret_value() == "new"
    assert fresh.postgres.address() == "postgresql://chatlane:new@127.0.0.1:5432/chatlane"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("CHATLANE_POSTGRES_PASSWORD", "files are called CHATLANE_<GROUP>__<NAME>"),
        ("chatlane_database__dsn", "files are called CHATLANE_<GROUP>__<NAME>"),
        ("CHATLANE_POSTGRES__", "files are called CHATLANE_<GROUP>__<NAME>"),
        ("POSTGRES__DSN", "call it CHATLANE_POSTGRES__DSN"),
        ("dsn", "call it CHATLANE_POSTGRES__DSN"),
        ("password", "call it CHATLANE_NATS__PASSWORD or CHATLANE_POSTGRES__PASSWORD"),
        ("digest_key", "call it CHATLANE_LOG__DIGEST_KEY"),
    ],
)
def test_a_secret_file_that_no_setting_is_read_from_is_refused(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / name).write_text(CANARY)
    monkeypatch.setenv("CHATLANE_SECRETS_DIR", str(tmp_path / "secrets"))

    said = config.refusal("")

    assert f"the file {name} in CHATLANE_SECRETS_DIR is not read: {told}" in said
    assert CANARY not in said


def test_a_secret_file_with_a_misspelt_name_is_refused_as_a_setting_is(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "CHATLANE_POSTGRES__PASWORD").write_text(CANARY)
    monkeypatch.setenv("CHATLANE_SECRETS_DIR", str(tmp_path / "secrets"))

    assert config.refusal("") == "postgres.pasword: there is no such setting"


def test_certificates_may_lie_beside_secrets(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets").mkdir()
    for name in ("postgres-ca.crt", "tls.key", "username", "router.nk"):
        (tmp_path / "secrets" / name).write_text("a certificate")
    (tmp_path / "secrets" / "CHATLANE_NATS__TOKEN").write_text("token")
    monkeypatch.setenv("CHATLANE_SECRETS_DIR", str(tmp_path / "secrets"))

    settings = config.load()

    assert settings.nats.token is not None


def test_settings_that_cannot_be_read_again_are_refused(config: Config) -> None:
    settings = config.load('[nats]\ntoken = "old"\n')
    config.path.write_text("half a fi")

    with pytest.raises(SettingsError):
        settings.fresh()


@pytest.mark.parametrize(
    ("dsn", "more", "expected"),
    [
        ("postgresql://ann:a@db/chat", "", "postgresql://ann:a@db/chat"),
        ("postgresql:///chat?host=/run", "", "postgresql:///chat?host=%2Frun"),
        ("postgresql://ann:a@b@[::1]:5432,db:/c", "", "postgresql://ann:a@b@[::1]:5432,db:/c"),
        (
            "postgresql://ann:a@db/chat",
            'password = "b/@:?"',
            "postgresql://ann:b%2F%40%3A%3F@db/chat",
        ),
        (
            "postgres://ann@one:1,two:2/chat?password=a&connect_timeout=3",
            'password = "b"',
            "postgres://ann:b@one:1,two:2/chat?connect_timeout=3",
        ),
        ("postgresql://db/chat?user=ann", 'password = "b"', "postgresql://:b@db/chat?user=ann"),
        (
            "postgresql://ann@db?sslmode=verify-full",
            'tls_ca_file = "/run/ca.pem"',
            "postgresql://ann@db?sslmode=verify-full&sslrootcert=%2Frun%2Fca.pem",
        ),
    ],
)
def test_the_address_of_postgres_has_the_password_and_what_to_verify(
    config: Config, dsn: str, more: str, expected: str
) -> None:
    assert config.load(f'[postgres]\ndsn = "{dsn}"\n{more}\n').postgres.address() == expected


def test_environment_can_be_a_given_one(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLANE_ROUTER__SLOTS", "5")
    config.path.write_text("")

    assert load_settings(config.path, {}).router.slots == 32
    assert load_settings(config.path, {"CHATLANE_ROUTER__SLOTS": "3"}).router.slots == 3


def test_file_is_found_by_variable_and_in_the_directory(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.path.write_text("[router]\nslots = 3\n")
    other = tmp_path / "other.toml"
    other.write_text("[router]\nslots = 5\n")

    assert load_settings().router.slots == 3
    monkeypatch.setenv("CHATLANE_CONFIG", str(other))
    assert load_settings().router.slots == 5
    assert load_settings(config.path).router.slots == 3


def test_named_file_must_exist(config: Config, tmp_path: Path) -> None:
    del config
    with pytest.raises(SettingsError, match=r"no configuration file .*missing\.toml"):
        load_settings(tmp_path / "missing.toml")


def test_declarations_can_come_from_the_environment(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATLANE_PLATFORMS__SLACK__ACCOUNTS__BOT__OWN_IDS", '["U1"]')

    catalog = config.load().catalog()

    assert catalog.platforms["slack"].accounts["bot"].own_ids == {"U1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[router]\nlease = "2s"\n', "lower statement_timeout or raise lease"),
        ('[router]\nrenew_interval = "2s"\n', "lower renew_interval or raise lease"),
        ('[postgres]\nlock_timeout = "2s"\n', "lower lock_timeout or raise statement_timeout"),
        (
            '[streams]\nduplicate_window = "8s"\n',
            "lower publish_timeout or raise duplicate_window",
        ),
        (
            '[streams]\nreplay_window = "5m"\n',
            "raise replay_window or lower duplicate_window",
        ),
        ('[reset]\nmode = "weekly"\n', "reset.mode: use one of the modes none, idle, daily, both"),
        ('[reset]\nidle = "0s"\n', "reset.idle: Input should be greater than 0"),
        ("[reset]\nat_hour = 24\n", "reset.at_hour: Input should be less than or equal to 23"),
        ('[reset]\ntimezone = "Mars/Base"\n', 'use an IANA name such as "Europe/Berlin"'),
        ('[reset]\ntimezone = "../etc"\n', 'use an IANA name such as "Europe/Berlin"'),
        ("[profiles.sales]\n", "add [agents.sales] or set profiles.sales.agent"),
        ("[agents.sales]\n", "add [agents.main] or set profiles.main.agent"),
        (
            "[platforms.discord]\nbots_allowed = true\n[platforms.discord.accounts.bot]\n",
            "platforms.discord.accounts.bot allows bots, and without own_ids",
        ),
        (
            (
                '[platforms.slack.accounts.a]\nown_ids = ["U1"]\nbots_allowed = true\n'
                "[platforms.slack.accounts.b]\nbots_allowed = true\n"
            ),
            "platforms.slack.accounts.b allows bots, and without own_ids",
        ),
        ('[profiles.default]\nagent = "mian"\n', "profile 'default' is served by agent 'mian'"),
        ("[profiles.main]\n[profiles.default]\n", "are one profile: keep one of them"),
        (
            '[platforms.telegram.accounts.bot]\nprofiles = ["sales"]\n',
            "platforms.telegram.accounts.bot.profiles names 'sales', which is not declared",
        ),
        (
            '[platforms.telegram.accounts.bot]\npeople_of = ["mail/desk"]\n',
            "platforms.telegram.accounts.bot.people_of names 'mail/desk', which is not declared",
        ),
        (
            '[platforms.telegram.accounts.bot]\nrooms = "members"\n',
            'platforms.telegram.accounts.bot.rooms = "members" needs a platform whose adapter reports',
        ),
        (
            (
                "[platforms.matrix]\nchats_migrate = true\n"
                '[platforms.matrix.accounts.bot]\nrooms = "members"\n'
            ),
            'platforms.matrix.accounts.bot.rooms = "members" needs chats that keep their ids',
        ),
        ("[platforms.telegram.accounts.bot]\nprofiles = []\n", "at least 1 item"),
        ("[platforms.Telegram]\n", "platforms.Telegram: String should match pattern"),
        ('[reset.classes.room]\nmode = "idle"\n', "Input should be 'dm' or 'group'"),
        ('[agents.main]\ndelivery = "push"\n', "Input should be 'turns' or 'stream'"),
        ("[router]\npartitions = 0\n", "router.partitions: Input should be greater than or"),
        ('[router]\nlease = "long"\n', "router.lease: write a duration as"),
        ('[nats]\nurll = "x"\n', "nats.urll: there is no such setting"),
        ("colour = 1\n", "colour: there is no such setting"),
        ("colour =\n", "chatlane.toml is not TOML"),
        ('[nats]\nurl = "http://host"\n', "nats.url: write each server as nats://HOST:PORT"),
        ('[nats]\nurl = "nats://a,,nats://b"\n', "nats.url: write each server as nats://HOST"),
        ('[nats]\nuser = "ann"\n', "set both or neither"),
        ('[nats]\ntoken = "a"\ncreds_file = "b"\n', "keep one of nats.user, nats.token, nats"),
        ('[nats]\nurl = "nats://ann:pw@host"\n', "nats.url must not carry a password"),
        ('[postgres]\ndsn = "host=db"\n', "write postgresql://user@host/database"),
        (
            '[postgres]\ntls_ca_file = "ca"\ndsn = "postgresql://db/chat?sslmode=require"\n',
            "take it out, or make it verify-full",
        ),
        ('[nats]\ntoken = "a"\nnkey_seed_file = "b"\n', "nats.creds_file and nats.nkey_seed_file"),
        ('[nats]\nprincipal = "a.b"\n', "nats.principal: String should match pattern"),
        ('[tracing]\nendpoint = "collector:4318"\n', "match pattern '^https?://"),
    ],
)
def test_refusal_says_what_to_change(config: Config, text: str, expected: str) -> None:
    assert expected in config.refusal(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[reset]\nat_hour = true\n", "reset.at_hour: write a number, not true or false"),
        ('[reset]\nat_hour = "4"\n', "reset.at_hour: write it without quotes"),
        ("[reset]\nat_hour = 4.0\n", "reset.at_hour: write a whole number"),
        ("[reset]\nnotify = 1\n", "reset.notify: write true or false, not a number"),
        ('[reset]\nnotify = "yes"\n', "reset.notify: write it without quotes"),
        ("[reset]\nidle = true\n", 'reset.idle: write a duration as "30s"'),
        ("[reset.classes.dm]\nat_hour = false\n", "reset.classes.dm.at_hour: write a number"),
        ("[router]\nslots = true\n", "router.slots: write a number"),
        ('[router]\npartitions = "8"\n', "router.partitions: write it without quotes"),
        ('[http]\nport = "8080"\n', "http.port: write it without quotes"),
        ("[streams]\nreplicas = true\n", "streams.replicas: write a number"),
        ('[streams]\nreplicas = "3"\n', "streams.replicas: write it without quotes"),
        ("[streams]\ntrim_above = true\n", "streams.trim_above: write a number"),
        ('[streams]\ntrim_above = "0.5"\n', "streams.trim_above: write it without quotes"),
        ("[streams.max_bytes]\ninbound = true\n", "streams.max_bytes: write a number"),
        ("[streams.max_bytes]\ninbound = 1e9\n", "streams.max_bytes: write a whole number"),
        ("[agents.main]\nmax_attempts = true\n", "agents.main.max_attempts: write a number"),
        ('[agents.main]\nmax_attempts = "3"\n', "agents.main.max_attempts: write it without"),
        (
            "[platforms.x.limits.per_chat]\nmessages = true\n",
            "platforms.x.limits.per_chat.messages: write a number",
        ),
        (
            "[platforms.x.accounts.a]\nown_ids = [1]\nbots_allowed = 1\n",
            "platforms.x.accounts.a.bots_allowed: write true or false",
        ),
        ("[keys]\ngroup_sessions_per_user = 0\n", "keys.group_sessions_per_user: write true"),
        *(
            (f'[reset]\ntimezone = "{zone}"\n', "reset.timezone: not a time zone that is the same")
            for zone in (
                "localtime",
                "posixrules",
                "Factory",
                "/usr/share/zoneinfo/Europe/Berlin",
                "posix/Europe/Berlin",
                "right/UTC",
                "europe/berlin",
                "Europe",
                "Europe/Berlin ",
                "",
            )
        ),
    ],
)
def test_f13_what_would_be_read_strangely_is_refused(
    config: Config, text: str, expected: str
) -> None:
    assert expected in config.refusal(text)


def test_f13_an_environment_has_only_texts(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATLANE_RESET__AT_HOUR", "5")
    monkeypatch.setenv("CHATLANE_RESET__NOTIFY", "false")
    monkeypatch.setenv("CHATLANE_STREAMS__REPLICAS", "3")
    settings = config.load('[reset]\ntimezone = "Etc/GMT+3"\n')
    assert (settings.reset.at_hour, settings.reset.notify) == (5, False)
    assert (settings.streams.replicas, settings.reset.timezone) == (3, "Etc/GMT+3")

    monkeypatch.setenv("CHATLANE_RESET", '{"at_hour": true}')
    monkeypatch.delenv("CHATLANE_RESET__AT_HOUR")
    assert "reset.at_hour: write a number" in config.refusal("")


def test_f13_what_is_written_plainly_is_taken(config: Config) -> None:
    settings = config.load(
        '[streams.max_bytes]\ninbound = "2GiB"\nevents = 1048576\n[streams]\ntrim_above = 0.5\n'
        "[reset]\nidle = 90\nquiet = 1.5\nat_hour = 0\nnotify = false\n"
        "[platforms.x.accounts.a]\nown_ids = [7]\n"
    )
    assert settings.streams.max_bytes_by_stream()[StreamName.INBOUND] == 2 * 1024**3
    assert settings.reset.idle == timedelta(seconds=90)
    assert (settings.reset.at_hour, settings.reset.notify) == (0, False)


def test_chats_move_on_telegram_and_where_that_is_declared(config: Config) -> None:
    text = "[platforms.telegram]\n[platforms.slack]\n[platforms.custom]\nchats_migrate = true\n"
    platforms = config.load(text).catalog().platforms
    found = {name: its.chats_migrate for name, its in platforms.items()}
    assert found == {"telegram": True, "slack": False, "custom": True}


def test_f06_bots_are_allowed_where_our_own_ids_are_known(config: Config) -> None:
    text = (
        "[platforms.discord]\nbots_allowed = true\n[platforms.discord.accounts.a]\nown_ids = [7]\n"
        "[platforms.discord.accounts.b]\nbots_allowed = false\n"
    )
    accounts = config.load(text).catalog().platforms["discord"].accounts
    assert accounts["a"].own_ids == {"7"}
    assert accounts["b"].bots_allowed is False


def test_all_problems_are_told_at_once(config: Config) -> None:
    refusal = config.refusal('[router]\nslots = 0\n[reset]\nmode = "weekly"\n[http]\nport = -1\n')

    assert [line.split(":")[0] for line in refusal.splitlines()] == [
        "router.slots",
        "http.port",
        "reset.mode",
    ]


@pytest.mark.parametrize("variable", ["CHATLANE_NATZ__URL", "CHATLANE_DEAD_LETTER__KEEP"])
def test_misspelt_group_in_the_environment_is_refused(
    config: Config, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "7d")

    assert f"{variable} names no group of settings" in config.refusal("")


def test_a_group_of_two_words_is_known_in_the_environment(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATLANE_DEAD_LETTERS__KEEP", "7d")

    assert config.load("").dead_letters.keep == timedelta(days=7)


@pytest.mark.parametrize(
    "text",
    [
        f'[nats]\ntoken = "{CANARY}"\n[router]\nslots = 0\n',
        f"[postgres]\ndsn = ['{CANARY}']\n",
        f'[nats]\nurl = "nats://ann:{CANARY}@host"\n',
        f'[nats]\npasword = "{CANARY}"\n',
        f'[router]\nlease = "{CANARY}"\n',
        f'[postgres]\ndsn = "db:{CANARY}"\n',
        f'[postgres]\ndsn = "postgresql://ann:{CANARY}/{CANARY}@db/chat"\n',
        f'[postgres]\ndsn = "postgresql://ann@one:1,two:{CANARY}/chat"\n',
        f'[postgres]\ndsn = "postgresql://{CANARY}?sslmode=allow"\ntls_ca_file = "ca"\n',
    ],
)
def test_refusal_never_shows_a_value(config: Config, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        config.load(text)

    assert CANARY not in f"{caught.value!r} {caught.value} {caught.value.__cause__}"


def test_settings_never_show_a_secret(config: Config) -> None:
    settings = config.load(
        f'[postgres]\ndsn = "postgresql://{CANARY}"\n[nats]\nuser = "ann"\n'
        f'password = "{CANARY}"\n[log]\ndigest_key = "{CANARY}"\n'
    )

    assert CANARY not in f"{settings!r} {settings.model_dump_json()}"


def test_keys_of_a_platform_replace_single_defaults(config: Config) -> None:
    catalog = config.load(
        '[keys]\nthread_sessions_per_user = true\nanonymous_dm = "shared"\n'
        "[platforms.slack]\nthread_sessions_per_user = false\n[platforms.discord]\n"
    ).catalog()

    assert catalog.platforms["slack"].keys == KeyRules(anonymous_dm="shared")
    assert catalog.platforms["discord"].keys == KeyRules(
        thread_sessions_per_user=True, anonymous_dm="shared"
    )


def test_policies_replace_each_other_as_a_whole(config: Config) -> None:
    catalog = config.load(
        '[reset]\nmode = "idle"\nidle = "2h"\nquiet = "0s"\n'
        '[platforms.slack.reset]\nmode = "daily"\n'
        '[platforms.slack.classes.dm.reset]\nmode = "both"\nidle = "1h"\n'
    ).catalog()

    assert catalog.reset_policy_for("slack", "group") == ResetPolicy(mode="daily")
    assert catalog.reset_policy_for("slack", "dm") == ResetPolicy(
        mode="both", idle=timedelta(hours=1)
    )
    assert catalog.default_reset == ResetPolicy(
        mode="idle", idle=timedelta(hours=2), quiet=timedelta(0)
    )


def test_default_policy_of_settings_is_the_one_of_the_domain() -> None:
    assert ResetSettings().policy() == ResetPolicy()


def test_persons_have_several_ids_on_the_platforms_known_for_it(config: Config) -> None:
    platforms = (
        config.load(
            "[platforms.whatsapp]\n[platforms.signal]\nperson_aliases = false\n"
            "[platforms.telegram]\n[platforms.other]\nperson_aliases = true\n"
        )
        .catalog()
        .platforms
    )

    with_aliases = {name for name, platform in platforms.items() if platform.person_aliases}
    assert with_aliases == {"whatsapp", "other"}


def test_ids_of_our_own_may_be_written_as_numbers(config: Config) -> None:
    catalog = config.load('[platforms.x.accounts.bot]\nown_ids = [12345678901234567890, "U1"]\n')

    assert catalog.platforms["x"].accounts["bot"].own_ids == {"12345678901234567890", "U1"}


def test_stream_sizes_that_are_not_given_are_the_defaults(config: Config) -> None:
    sizes = config.load('[streams.max_bytes]\ninbound = "1GiB"\n').streams.max_bytes_by_stream()

    assert sizes == {**DEFAULT_MAX_BYTES, StreamName.INBOUND: 2**30}


def test_the_principal_says_where_replies_come(config: Config) -> None:
    settings = config.load('[nats]\nprincipal = "my-router_1"\n')

    arguments = bus_options(settings, "router").connect_arguments()
    assert arguments["inbox_prefix"] == "_INBOX.my-router_1"
    arguments = bus_options(config.load(""), "router").connect_arguments()
    assert arguments["inbox_prefix"] == "_INBOX"


def test_ids_are_hidden_where_they_are_private(config: Config) -> None:
    platforms = (
        config.load(f"""
            [prompt]
            redact_ids = true
            redaction_key = "{CANARY}-of-sixteen-bytes"
            [platforms.telegram]
            [platforms.discord]
            has_tools = true
            note = "Be brief."
            [platforms.sms]
            redact_ids = false
            [platforms.intranet]
            redact_ids = true
        """)
        .catalog()
        .platforms
    )

    assert {name for name, its in platforms.items() if its.hides_ids} == {"telegram", "intranet"}
    assert (platforms["discord"].has_tools, platforms["discord"].note) == (True, "Be brief.")


@pytest.mark.parametrize(
    "text",
    [
        "[prompt]\nredact_ids = true\n[platforms.discord]\n",
        "[platforms.telegram]\nredact_ids = true\n",
    ],
)
def test_ids_are_hidden_with_a_key_or_not_at_all(config: Config, text: str) -> None:
    settings = config.load(text)

    with pytest.raises(SettingsError, match="set CHATLANE_PROMPT__REDACTION_KEY, or a file of"):
        settings.catalog()


def test_a_home_channel_is_declared_with_its_account(config: Config) -> None:
    catalog = config.load("""
        [platforms.telegram.accounts.bot.home]
        chat_id = -100200
        name = "Team"
        [platforms.telegram.accounts.other]
    """).catalog()

    accounts = catalog.platforms["telegram"].accounts
    assert accounts["bot"].home == HomeChannel("-100200", "Team")
    assert accounts["other"].home is None


def test_turns_bring_a_prompt_context_and_streams_on_request(config: Config) -> None:
    agents = (
        config.load("""
            [agents.turner]
            [agents.quiet]
            prompt_context = false
            [agents.notes]
            delivery = "stream"
            [agents.chatty]
            delivery = "stream"
            prompt_context = true
            [agents.main]
            [platforms.x]
        """)
        .catalog()
        .agents
    )

    assert {name for name, its in agents.items() if its.prompts} == {"main", "turner", "chatty"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[agents.main]\ndebounce = "2s"', "agents.main"),
        ('[platforms.slack]\ndebounce = "2s"', "platforms.slack (with agents.main)"),
        (
            '[agents.main]\ndebounce = "500ms"\n[platforms.slack]\ndebounce_cap = "100ms"',
            "platforms.slack (with agents.main)",
        ),
    ],
)
def test_a_burst_may_last_as_long_as_one_message_waits(
    config: Config, text: str, place: str
) -> None:
    assert f"{place}: debounce_cap must not be shorter" in config.refusal(text)
    config.load('[agents.main]\ndebounce = "2s"\ndebounce_cap = "5s"')


def test_a_platform_says_how_its_messages_meet_a_running_turn(config: Config) -> None:
    declared = config.load(
        """
        [agents.main]
        busy = "steer"
        busy_note = "At it."
        debounce = "350ms"
        [platforms.slack]
        busy = "queue"
        busy_note = ""
        debounce_cap = "3s"
        album_wait = "2s"
        files_wait = "5m"
        [platforms.telegram]
        """
    ).catalog()
    main = declared.agents["main"]
    telegram, slack = (
        declared.manners_of(main, declared.platforms[name]) for name in ("telegram", "slack")
    )
    assert telegram == DeliveryPolicy("steer", "At it.", timedelta(milliseconds=350))
    assert slack == DeliveryPolicy(
        "queue",
        "",
        timedelta(milliseconds=350),
        timedelta(seconds=3),
        timedelta(seconds=2),
        timedelta(minutes=5),
    )


def test_commands_are_set_by_platform(config: Config) -> None:
    catalog = config.load("""
        [platforms.whatsapp.accounts.phone]
        bot_name = "our_bot"
        [platforms.whatsapp.commands]
        prefix = "!"
        off = ["title"]
        [platforms.whatsapp.commands.access]
        default = [49123, "*"]
        [platforms.whatsapp.commands.group_access]
        new = ["49123@s.whatsapp.net"]
        [platforms.slack]
    """).catalog()

    platform = catalog.platforms["whatsapp"]
    assert platform.accounts["phone"].bot_name == "our_bot"
    assert platform.commands == CommandRules(
        prefix="!",
        off=frozenset({CommandName.TITLE}),
        access={"default": frozenset({"49123", "*"})},
        group_access={"new": frozenset({"49123", "49123@s.whatsapp.net"})},
    )
    assert catalog.platforms["slack"].commands == CommandRules()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('prefix = "a"', "prefix"),
        ('prefix = ""', "prefix"),
        ('off = ["nothing"]', "off"),
        ('access = { nothing = ["1"] }', "access"),
        ('access = { help = ["1"] }', "all people may use help"),
        ("group_access = { help = [] }", "all people may use help"),
    ],
)
def test_wrong_commands_are_refused(config: Config, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        config.load(f"[platforms.slack.commands]\n{text}\n")


def test_router_without_platforms_is_refused(config: Config) -> None:
    with pytest.raises(SettingsError, match=r"examples/chatlane\.toml is a start"):
        config.load().catalog()


def test_example_file_is_valid_and_whole(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    del config
    monkeypatch.chdir(REPOSITORY)
    catalog = load_settings(REPOSITORY / "examples" / "chatlane.toml").catalog()

    assert catalog.platforms.keys() == {"telegram", "discord", "slack", "whatsapp", "terminal"}
    assert {name: agent.delivery for name, agent in catalog.agents.items()} == {
        "main": "turns",
        "notes": "stream",
    }


def test_example_of_variables_shows_the_defaults(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = config.load().model_dump()
    shown = re.findall(r"^# (CHATLANE_[A-Z]+__[A-Z_]+)=(.*)$", render_env_example(), re.MULTILINE)

    for name, value in shown:
        monkeypatch.setenv(name, value)

    assert len(shown) > 40
    assert config.load().model_dump() == defaults


def test_example_of_variables_sets_nothing() -> None:
    assert {line[:1] for line in render_env_example().splitlines()} == {"", "#"}


def test_notices_come_from_the_file_of_the_platform_before_that_of_the_deployment(
    config: Config, tmp_path: Path
) -> None:
    (tmp_path / "de.toml").write_text('stopped = "Angehalten."\nqueued = "Eingereiht."\n')
    (tmp_path / "fr.toml").write_text('stopped = "Arrêté."\n')
    catalog = config.load(f"""
        notices.file = "{tmp_path}/de.toml"
        [platforms.telegram]
        notices_file = "{tmp_path}/fr.toml"
        [platforms.discord]
    """).catalog()
    stopped = {
        platform: catalog.notices_of(platform).text(NoticeId.STOPPED)
        for platform in ("telegram", "discord", "undeclared")
    }
    assert stopped == {
        "telegram": "Arrêté.",
        "discord": "Angehalten.",
        "undeclared": "Angehalten.",
    }
    queued = catalog.notices_of("telegram").text(NoticeId.QUEUED)
    assert queued == ENGLISH.text(NoticeId.QUEUED)


def test_paths_of_notices_are_relative_to_the_configuration_file(
    config: Config, tmp_path: Path
) -> None:
    (tmp_path / "all.toml").write_text('stopped = "Angehalten."\n')
    (tmp_path / "french.toml").write_text('stopped = "Arrêté."\n', "utf-8")
    catalog = config.load("""
        notices.file = "all.toml"
        [platforms.discord]
        [platforms.telegram]
        notices_file = "french.toml"
    """).catalog()

    names = ("discord", "telegram")
    texts = [catalog.notices_of(name).text(NoticeId.STOPPED) for name in names]
    assert texts == ["Angehalten.", "Arrêté."]


def test_a_directory_is_no_configuration_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is a directory: name the file"):
        load_settings(tmp_path, {})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            'title = "Titel"\nstoped = "x"\n',
            "title: the field {title} is missing",
        ),
        ("stopped = \n", "are not TOML"),
        (None, "cannot read the notices in"),
    ],
)
def test_a_file_of_notices_with_a_mistake_is_refused(
    config: Config, tmp_path: Path, content: str | None, problem: str
) -> None:
    path = tmp_path / "notices.toml"
    if content is not None:
        path.write_text(content)
    settings = config.load(f"""
        notices.file = "{path}"
        [platforms.telegram]
    """)
    with pytest.raises(SettingsError) as caught:
        settings.catalog()
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
