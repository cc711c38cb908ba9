"""The settings of a process: `chatlane.toml`, secrets in files, and `CHATLANE_<GROUP>__<NAME>`.

The environment wins over secret files, and they win over `chatlane.toml`. Only the composition root
and the command line read this module; all other modules get plain values.
"""

from __future__ import annotations

import os
import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import (
    ByteSize,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import SettingsError as SourceError
from typing_extensions import override

from chatlane.config.declarations import (
    AgentSettings,
    DefaultResetSettings,
    Group,
    KeySettings,
    LimitsSettings,
    Name,
    NoticeSettings,
    PlatformSettings,
    ProfileSettings,
    account_pair,
)
from chatlane.config.setting_values import quoted
from chatlane.domain.catalog import (
    MAIN_PROFILE,
    Catalog,
    canonical_profile,
)
from chatlane.domain.erasure_key import MIN_KEY_BYTES as MIN_ERASURE_KEY_BYTES
from chatlane.domain.erasure_key import ErasureKey
from chatlane.domain.log import MOST_PARTITIONS
from chatlane.domain.notices import ENGLISH, Notices, problems_of
from chatlane.domain.prompts.context import Prompts
from chatlane.domain.prompts.sanitize import MIN_KEY_BYTES
from chatlane.durations import Duration
from chatlane.errors import PermanentError
from chatlane.failpoints import SIGNALS, Failpoint, parse_failpoint
from chatlane_schemas.topology.streams import DEFAULT_MAX_BYTES, StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from chatlane.domain.catalog import Platform

ENV_PREFIX: Final = "CHATLANE_"
CONFIG_VARIABLE: Final = "CHATLANE_CONFIG"
SECRETS_VARIABLE: Final = "CHATLANE_SECRETS_DIR"
DEFAULT_CONFIG: Final = Path("chatlane.toml")

# Hosts with or without ports, after the credentials and the last @.
_NATS_SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})
_PORTS: Final = re.compile(
    r"[a-z]+://(?:[^/?#]*@)?(?:\[[^]]*\]|[^:,/?#@]*)(?::\d*)?"
    r"(?:,(?:\[[^]]*\]|[^:,/?#@]*)(?::\d*)?)*(?:[/?#]|$)"
)
# The name of the parameter in asyncpg and in the migration runner.
_VERIFIED: Final = "verify-full"

Age = Annotated[Duration, Field(ge=timedelta(days=1), le=timedelta(days=3650))]
StreamKey = Literal[
    "inbound",
    "routed",
    "turns",
    "results",
    "outbound",
    "events",
    "dead",
    "advisories",
    "deliverers",
    "cursors",
]


class SettingsError(PermanentError):
    """The settings are not valid.

    Attributes:
        problems: One sentence each: the setting and what to change. Never a value.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class NatsSettings(Group):
    """Connection to NATS."""

    url: str = Field(
        default="nats://127.0.0.1:4222",
        description="Server address; several are separated by commas.",
    )
    user: str | None = Field(default=None, description="User name, with a password.")
    password: SecretStr | None = Field(default=None, description="Password of the user.")
    token: SecretStr | None = Field(default=None, description="Token, instead of a user.")
    creds_file: Path | None = Field(
        default=None,
        description="Credentials file (JWT and key); read again at every reconnect.",
    )
    nkey_seed_file: Path | None = Field(
        default=None,
        description="File with the seed of our key (`chatlane admin nats-keys`); read again at "
        "every reconnect.",
    )
    principal: Name | None = Field(
        default=None,
        description="The name of our user in NATS, which its permissions pin: of requests, and "
        "of the subjects that answers come on.",
    )
    tls_ca_file: Path | None = Field(
        default=None,
        description="Certificates of the authority that servers are checked against, in place "
        "of the system's; what does not encrypt is then left alone.",
    )
    connect_timeout: Duration = Field(
        default=timedelta(seconds=2),
        ge=timedelta(milliseconds=100),
        le=timedelta(minutes=1),
        description="Longest wait for one connection attempt.",
    )
    reconnect_wait: Duration = Field(
        default=timedelta(milliseconds=250),
        ge=timedelta(milliseconds=10),
        le=timedelta(seconds=10),
        description="Pause between two connection attempts.",
    )
    publish_timeout: Duration = Field(
        default=timedelta(seconds=2),
        ge=timedelta(milliseconds=100),
        le=timedelta(minutes=1),
        description="Shared deadline of a batch of publishes; the rest is repeated.",
    )

    @field_validator("url")
    @classmethod
    def _has_nats_servers(cls, url: str) -> str:
        servers = [server.strip() for server in url.split(",")]
        schemes = {server.partition("://")[0] for server in servers if "://" in server}
        if not all(servers) or schemes - _NATS_SCHEMES:
            raise ValueError(
                "write each server as nats://HOST:PORT (or tls://, ws://, wss://), "
                "separated by commas"
            )
        return url

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        if "@" in self.url:
            raise ValueError(
                "nats.url must not carry a password, which ends up in logs and process lists: "
                "take it out and set nats.user and nats.password, or nats.token"
            )
        if (self.user is None) != (self.password is None):
            raise ValueError("nats.user and nats.password belong together: set both or neither")
        ways = (self.user, self.token, self.creds_file, self.nkey_seed_file)
        if sum(way is not None for way in ways) > 1:
            raise ValueError(
                "keep one of nats.user, nats.token, nats.creds_file and nats.nkey_seed_file"
            )
        return self


class PostgresSettings(Group):
    """Connection to Postgres."""

    dsn: SecretStr = Field(
        default=SecretStr("postgresql://chatlane@127.0.0.1:5432/chatlane"),
        description="Connection string; pgbouncer in transaction mode is fine.",
    )
    password: SecretStr | None = Field(
        default=None, description="Password, in place of one in dsn; read again, as dsn is."
    )
    tls_ca_file: Path | None = Field(
        default=None,
        description="Certificate authority; the server's certificate and name are then verified.",
    )
    pool_size: int = Field(default=8, ge=2, le=100, description="Connections of one router.")
    statement_cache_size: int = Field(
        default=256,
        ge=0,
        le=10_000,
        description="Prepared statements per connection; 0 for pgbouncer before 1.21.",
    )
    connect_timeout: Duration = Field(
        default=timedelta(seconds=5),
        ge=timedelta(milliseconds=100),
        le=timedelta(minutes=1),
        description="Longest wait for a new connection.",
    )
    statement_timeout: Duration = Field(
        default=timedelta(milliseconds=1400),
        ge=timedelta(milliseconds=50),
        le=timedelta(minutes=1),
        description="Longest statement; must be under half of router.lease.",
    )
    lock_timeout: Duration = Field(
        default=timedelta(seconds=1),
        ge=timedelta(milliseconds=10),
        le=timedelta(minutes=1),
        description="Longest wait for a row lock; must be under statement_timeout.",
    )

    @field_validator("dsn")
    @classmethod
    def _is_an_address(cls, value: SecretStr) -> SecretStr:
        if not re.match(r"postgres(ql)?://", value.get_secret_value()):
            raise ValueError("no connection string: write postgresql://user@host/database")
        # asyncpg would quote this part, which is the rest of a password that contains a /.
        if not _PORTS.match(value.get_secret_value()):
            raise ValueError(
                "a port is no number: in a password, / ? # and @ have to be written as %2F %3F %23 "
                "and %40, or set postgres.password"
            )
        return value

    @model_validator(mode="after")
    def _verified_as_it_says(self) -> Self:
        mode = dict(self._parameters()).get("sslmode", _VERIFIED)
        if self.tls_ca_file is not None and mode != _VERIFIED:
            raise ValueError(
                "postgres.tls_ca_file has certificate and name verified, and sslmode in postgres.dsn "
                f"says otherwise: take it out, or make it {_VERIFIED}"
            )
        return self

    def _parameters(self) -> list[tuple[str, str]]:
        _, _, query = self.dsn.get_secret_value().partition("?")
        return parse_qsl(query, keep_blank_values=True)

    def address(self) -> str:
        """Return the connection string, with the password and the TLS settings in it."""
        place, _, _ = self.dsn.get_secret_value().partition("?")
        parameters = self._parameters()
        if self.password is not None:
            place = _with_password(place, self.password.get_secret_value())
            parameters = [parameter for parameter in parameters if parameter[0] != "password"]
        if self.tls_ca_file is not None:
            parameters = [
                parameter
                for parameter in parameters
                if parameter[0] not in {"sslmode", "sslrootcert"}
            ]
            parameters += [("sslmode", _VERIFIED), ("sslrootcert", str(self.tls_ca_file))]
        return f"{place}?{urlencode(parameters)}" if parameters else place


def _with_password(place: str, password: str) -> str:
    """Return `scheme://user@hosts/database` with the password set or replaced."""
    scheme, _, rest = place.partition("://")
    hosts, slash, database = rest.partition("/")
    login, _, hosts = hosts.rpartition("@")
    user = login.partition(":")[0]
    return f"{scheme}://{user}:{quote(password, safe='')}@{hosts}{slash}{database}"


class RouterSettings(Group):
    """Reading, deciding and publishing in a router."""

    partitions: int = Field(
        default=32,
        ge=1,
        le=MOST_PARTITIONS,
        description="Partitions of each of the two logs. Fixed when their streams are made; see docs/operations.md.",
    )
    slots: int = Field(
        default=32,
        ge=1,
        le=256,
        description="Slots of a stream agent: how many of its messages are in work at most.",
    )
    batch_messages: int = Field(
        default=512, ge=1, le=10_000, description="Most messages decided in one transaction."
    )
    batch_linger: Duration = Field(
        default=timedelta(milliseconds=2),
        ge=timedelta(0),
        le=timedelta(seconds=1),
        description="How long a batch waits for more messages.",
    )
    buffer_bytes: int = Field(
        default=32 * 1024 * 1024,
        ge=1024 * 1024,
        le=1024 * 1024 * 1024,
        description="Most bytes read ahead of the decisions, over all partitions.",
    )
    outbox_rows: int = Field(
        default=20_000,
        ge=0,
        le=10_000_000,
        description="Rows that may wait in the database for a full stream; beyond that the messages "
        "that lead to it stay in their log, and with them what is behind them.",
    )
    lease: Duration = Field(
        default=timedelta(seconds=3),
        ge=timedelta(milliseconds=500),
        le=timedelta(minutes=1),
        description="How long a partition stays with a router that no longer renews.",
    )
    renew_interval: Duration = Field(
        default=timedelta(seconds=1),
        ge=timedelta(milliseconds=50),
        le=timedelta(seconds=30),
        description="Pause between renewals of idle partitions; at most half of the lease.",
    )
    poll_interval: Duration = Field(
        default=timedelta(milliseconds=250),
        ge=timedelta(milliseconds=10),
        le=timedelta(seconds=10),
        description="Longest pause between two looks for free partitions.",
    )
    stop_timeout: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(milliseconds=100),
        le=timedelta(minutes=5),
        description="How long a graceful stop may take; give the process manager more.",
    )

    @model_validator(mode="after")
    def _renewals_fit_the_lease(self) -> Self:
        if self.renew_interval > self.lease / 2:
            raise ValueError(
                "router.renew_interval must be at most half of router.lease: "
                "lower renew_interval or raise lease"
            )
        return self


class StreamsSettings(Group):
    """Streams that `chatlane admin apply` declares."""

    replicas: Literal[1, 3, 5] = Field(default=1, description="Copies of every stream: 1, 3, 5.")
    duplicate_window: Duration = Field(
        default=timedelta(minutes=10),
        ge=timedelta(seconds=1),
        le=timedelta(hours=24),
        description="How long NATS remembers message ids; its memory grows with it.",
    )
    replay_window: Duration = Field(
        default=timedelta(hours=72),
        ge=timedelta(minutes=1),
        le=timedelta(days=90),
        description="How long read messages stay in the logs, and `seen` a bit longer.",
    )
    trim_above: float = Field(
        default=0.75,
        ge=0.1,
        le=0.95,
        description="Part of the size limit of a log or of OUTBOUND above which decided and delivered "
        "messages of the account or agent that holds most of it are purged early.",
    )
    max_bytes: dict[StreamKey, ByteSize] = Field(
        default_factory=dict,
        description='Size limits by stream, such as inbound = "2GiB"; what is missing has its '
        "default.",
    )

    @field_validator("replicas", mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        # Only for a value from the environment: the file can write it as a number.
        return int(value) if type(value) is str and value.isdecimal() else value

    def max_bytes_by_stream(self) -> Mapping[StreamName, int]:
        """Return the limit of every stream."""
        own = {StreamName(name.upper()): int(size) for name, size in self.max_bytes.items()}
        return {**DEFAULT_MAX_BYTES, **own}

    @model_validator(mode="after")
    def _windows_nest(self) -> Self:
        if self.duplicate_window > self.replay_window:
            raise ValueError(
                "streams.replay_window must not be shorter than streams.duplicate_window: "
                "raise replay_window or lower duplicate_window"
            )
        return self


class HttpSettings(Group):
    """HTTP server of `/livez`, `/readyz` and `/metrics`."""

    host: str = Field(default="127.0.0.1", description='Address; "0.0.0.0" inside a container.')
    port: int = Field(default=8080, ge=0, le=65535, description="Port; 0 takes a free one.")
    probe_timeout: Duration = Field(
        default=timedelta(seconds=1),
        ge=timedelta(milliseconds=50),
        le=timedelta(seconds=30),
        description="Deadline of the write to Postgres behind /readyz.",
    )


class LogSettings(Group):
    """Level and format of the logs."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level: debug, info, warning, error."
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="json, console, or auto: console on a terminal."
    )
    digest_key: SecretStr | None = Field(
        default=None,
        description="Key of the digests that stand for ids; without it each process has its own.",
    )


class DeadLetterSettings(Group):
    """Retention of dead letters, and the age at which they make a router degraded."""

    keep: Duration = Field(
        default=timedelta(days=30),
        ge=timedelta(hours=1),
        le=timedelta(days=3650),
        description="For how long dead letters and late results are kept, with what they say.",
    )
    degraded_after: Duration = Field(
        default=timedelta(hours=24),
        ge=timedelta(minutes=1),
        le=timedelta(days=3650),
        description="Age of the oldest dead letter from which on /readyz says `degraded`.",
    )
    most_per_hour: int = Field(
        default=5000,
        ge=1,
        le=1_000_000,
        description="Most dead letters that one account or agent causes in an hour by what it "
        "publishes; those beyond are counted in one summary and not kept.",
    )
    most_bytes_per_hour: ByteSize = Field(
        default=ByteSize(16 * 1024 * 1024),
        ge=1,
        description="Most bytes of the bodies of these.",
    )


class RetentionSettings(Group):
    """Retention of stored data; `chatlane admin retain` enforces it.

    Without a value, data is kept until an operator deletes it.
    """

    sessions: Age | None = Field(
        default=None,
        description="Sessions that have ended, with their transcripts, counted from their end.",
    )
    archive: Age | None = Field(
        default=None,
        description="Rows that were undone, or that a summary stands for, since they were taken "
        "out.",
    )
    revisions: Age | None = Field(
        default=None, description="What messages said before they were edited or deleted."
    )
    turns: Age = Field(
        default=timedelta(days=90),
        description="Turns that are over; their answers are in the transcript.",
    )
    audit: Age = Field(
        default=timedelta(days=730),
        description="What operators did, and what was done to sessions.",
    )


def _require_bytes(key: SecretStr | None, count: int) -> SecretStr | None:
    if key is not None and len(key.get_secret_value().encode()) < count:
        raise ValueError(
            f"too short: use at least {count} random bytes, such as `openssl rand -hex 32` prints"
        )
    return key


class ErasureSettings(Group):
    """Erasure of a person's data (`chatlane people erase`)."""

    key: SecretStr | None = Field(
        default=None,
        description="Key of the digests on the erasure list, at least 32 bytes, the same "
        "everywhere and always; erasures need it.",
    )

    @field_validator("key")
    @classmethod
    def _is_long_enough(cls, key: SecretStr | None) -> SecretStr | None:
        return _require_bytes(key, MIN_ERASURE_KEY_BYTES)


class PromptSettings(Group):
    """Description of the conversation's place in system prompts."""

    redact_ids: bool = Field(
        default=False,
        description="Show keyed digests of ids where these are phone numbers or the like.",
    )
    redaction_key: SecretStr | None = Field(
        default=None,
        description="Secret of these digests, of at least 16 bytes; the same for all routers.",
    )

    @field_validator("redaction_key")
    @classmethod
    def _is_long_enough(cls, key: SecretStr | None) -> SecretStr | None:
        return _require_bytes(key, MIN_KEY_BYTES)


class TracingSettings(Group):
    """Destination of spans; the trace context of messages is always passed on."""

    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/]",
        description="OTLP over HTTP, such as http://collector:4318/v1/traces; needs chatlane[otel].",
    )


class Settings(BaseSettings):
    """All external inputs of a process, checked at start."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        secrets_dir_missing="error",
    )

    nats: NatsSettings = NatsSettings()
    postgres: PostgresSettings = PostgresSettings()
    router: RouterSettings = RouterSettings()
    streams: StreamsSettings = StreamsSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    retention: RetentionSettings = RetentionSettings()
    erasure: ErasureSettings = ErasureSettings()
    prompt: PromptSettings = PromptSettings()
    keys: KeySettings = KeySettings()
    reset: DefaultResetSettings = DefaultResetSettings()
    limits: LimitsSettings = LimitsSettings()
    notices: NoticeSettings = NoticeSettings()
    platforms: dict[Name, PlatformSettings] = Field(default_factory=dict)
    profiles: dict[Name, ProfileSettings] = Field(default_factory=dict)
    agents: dict[Name, AgentSettings] = Field(default_factory=lambda: {"main": AgentSettings()})

    def fresh(self) -> Settings:
        """Return the settings as files and environment have them now, for new credentials.

        Raises:
            SettingsError: They cannot be read, or are not valid.
        """
        return self

    @model_validator(mode="after")
    def _groups_fit_together(self) -> Self:
        problems = tuple(self._problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        if self.postgres.statement_timeout >= self.router.lease / 2:
            yield (
                "postgres.statement_timeout must be under half of router.lease, so that a stuck "
                "statement ends before the partition is lost: lower statement_timeout or raise lease"
            )
        if self.postgres.lock_timeout >= self.postgres.statement_timeout:
            yield (
                "postgres.lock_timeout must be under postgres.statement_timeout: "
                "lower lock_timeout or raise statement_timeout"
            )
        if self.nats.publish_timeout >= self.streams.duplicate_window / 4:
            yield (
                "nats.publish_timeout must be under a quarter of streams.duplicate_window, so that "
                "repeats are still recognised: lower publish_timeout or raise duplicate_window"
            )
        yield from self._catalog_problems()
        yield from self._bot_problems()
        yield from self._prompt_problems()
        yield from self._patience_problems()

    def _catalog_problems(self) -> Iterator[str]:
        if {"default", MAIN_PROFILE} <= self.profiles.keys():
            yield "profiles.default and profiles.main are one profile: keep one of them"
        agents = self._agents_of_profiles()
        for profile, agent in agents.items():
            if agent not in self.agents:
                is_default = profile == MAIN_PROFILE and "default" in self.profiles
                name = "default" if is_default else profile
                yield (
                    f"profile {name!r} is served by agent {agent!r}, which is not declared: "
                    f"add [agents.{agent}] or set profiles.{name}.agent"
                )
        for platform, declared in self.platforms.items():
            for account, allowed in declared.accounts.items():
                unknown = {canonical_profile(name) for name in allowed.profiles} - agents.keys()
                for profile in sorted(unknown):
                    yield (
                        f"platforms.{platform}.accounts.{account}.profiles names {profile!r}, which "
                        f"is not declared: add [profiles.{profile}] or take it out of the list"
                    )
                for path in sorted(allowed.people_of):
                    other, name = account_pair(path)
                    if name not in getattr(self.platforms.get(other), "accounts", {}):
                        yield (
                            f"platforms.{platform}.accounts.{account}.people_of names {path!r}, which "
                            "is not declared"
                        )

    def _bot_problems(self) -> Iterator[str]:
        """Yield accounts that allow other bots and could not recognise our own messages."""
        for platform, platform_settings in self.platforms.items():
            for account, declared in platform_settings.accounts.items():
                own = declared.bots_allowed
                if (
                    platform_settings.bots_allowed if own is None else own
                ) and not declared.own_ids:
                    yield (
                        f"platforms.{platform}.accounts.{account} allows bots, and without own_ids "
                        "our own messages would run as those of another bot: set own_ids to the "
                        "sender ids of this account, or bots_allowed = false"
                    )

    def _prompt_problems(self) -> Iterator[str]:
        for name, platform in self.platforms.items():
            if platform.has_tools and platform.hides_ids(name, default=self.prompt.redact_ids):
                yield (
                    f"platforms.{name}.has_tools needs the ids that redact_ids hides: set "
                    f"platforms.{name}.redact_ids = false or has_tools = false"
                )

    def _patience_problems(self) -> Iterator[str]:
        """Yield problems of debounce settings: an agent's, as each platform overrides them."""
        for agent, agent_settings in self.agents.items():
            if agent_settings.debounce > agent_settings.debounce_cap:
                yield _cap_problem(f"agents.{agent}")
            for platform, platform_settings in self.platforms.items():
                own = (platform_settings.debounce, platform_settings.debounce_cap)
                debounce = agent_settings.debounce if own[0] is None else own[0]
                cap = agent_settings.debounce_cap if own[1] is None else own[1]
                if own != (None, None) and debounce > cap:
                    yield _cap_problem(f"platforms.{platform} (with agents.{agent})")

    def _agents_of_profiles(self) -> Mapping[str, str]:
        declared = {
            canonical_profile(name): profile.agent or canonical_profile(name)
            for name, profile in self.profiles.items()
        }
        return {MAIN_PROFILE: MAIN_PROFILE, **declared}

    def catalog(self) -> Catalog:
        """Return the declarations as the domain's types.

        Raises:
            SettingsError: No platform is declared, so every message would be refused; ids are to
                be hidden, and the key for it is missing; or a file of notices cannot be used.
        """
        if not self.platforms:
            raise SettingsError(
                "no platform is declared: write chatlane.toml (examples/chatlane.toml is a start) "
                f"and name it with --config or {CONFIG_VARIABLE}"
            )
        notices = _read_notices(self.notices.file)
        platforms = {
            name: platform.platform(
                name,
                self.keys,
                self.limits,
                redact_ids=self.prompt.redact_ids,
                notices=notices
                if platform.notices_file is None
                else _read_notices(platform.notices_file),
            )
            for name, platform in self.platforms.items()
        }
        profiles = self._agents_of_profiles()
        prompts = Prompts(
            platforms,
            profiles,
            self._redaction_key(platforms.values()),
            {
                profile: self.agents[agent].send_to
                for profile, agent in profiles.items()
                if agent in self.agents
            },
        )
        return Catalog(
            platforms=platforms,
            profiles=profiles,
            agents={name: agent.agent(name, prompts) for name, agent in self.agents.items()},
            default_reset=self.reset.policy(),
            class_reset={klass: reset.policy() for klass, reset in self.reset.classes.items()},
            notices=notices,
        )

    def erasure_key(self) -> ErasureKey | None:
        """Return the key of the digests in the erasure list, if it is set."""
        key = self.erasure.key
        return None if key is None else ErasureKey(key.get_secret_value().encode())

    def _redaction_key(self, platforms: Iterable[Platform]) -> bytes | None:
        key = self.prompt.redaction_key
        if key is not None:
            return key.get_secret_value().encode()
        # Not checked when the settings are read: a client command needs no secret.
        if self.prompt.redact_ids or any(platform.hides_ids for platform in platforms):
            raise SettingsError(
                "prompt.redaction_key is missing, and without it ids cannot be hidden (redact_ids): "
                f"set {ENV_PREFIX}PROMPT__REDACTION_KEY, or a file of that name in "
                f"{SECRETS_VARIABLE}, to a secret of at least {MIN_KEY_BYTES} bytes that stays the "
                "same"
            )
        return None


def _read_notices(path: Path | None) -> Notices:
    """Return the texts of a file; without a file, the English texts.

    Raises:
        SettingsError: The file cannot be read, or an id, a field or a text in it is wrong.
    """
    if path is None:
        return ENGLISH
    try:
        texts = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the notices in {path} are not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read the notices in {path}: {error}") from error
    if problems := [f"{path}: {problem}" for problem in problems_of(texts)]:
        raise SettingsError(*problems)
    return Notices(texts)


def _cap_problem(place: str) -> str:
    return (
        f"{place}: debounce_cap must not be shorter than debounce: "
        "raise debounce_cap or lower debounce"
    )


class _GivenEnvironment(EnvSettingsSource):
    """Reads variables from a mapping, which need not be the environment of the process."""

    def __init__(self, settings: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(settings)

    @override
    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._environ.items() if value}


def load_settings(config: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read and check the settings.

    Args:
        config: The file to read; else `CHATLANE_CONFIG`, else `./chatlane.toml` if it exists.
        environ: The environment; by default that of the process.

    Raises:
        SettingsError: A file or value cannot be used; its text says what to change.
    """
    _refuse_unknown_groups(environ)
    _refuse_unread_secrets(environ)
    file = _config_file(config, environ)
    return _read(_sourced(file, environ), file)


def _read(sourced: type[Settings], file: Path | None) -> Settings:
    try:
        return sourced()
    except ValidationError as exc:
        raise SettingsError(*problem_sentences(exc)) from None
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"the configuration file {file} is not TOML: {exc}") from exc
    except (SourceError, OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"cannot read the settings: {exc}") from exc


def read_failpoint(environ: Mapping[str, str], *, is_allowed: bool) -> Failpoint | None:
    """Return the failpoint that the environment names, if any.

    Args:
        environ: The environment of the process.
        is_allowed: Whether the command line has `--enable-failpoints`.

    Raises:
        SettingsError: Failpoints are not allowed, or the variable names no failpoint, no pass, or
            both variables are set.
    """
    names = [name for name in SIGNALS if environ.get(name)]
    if not names:
        return None
    if not is_allowed:
        raise SettingsError(f"{names[0]} is for tests only: unset it, or pass --enable-failpoints")
    if len(names) > 1:
        raise SettingsError(f"set only one of {' and '.join(names)}")
    [name] = names
    try:
        return parse_failpoint(environ[name], SIGNALS[name])
    except ValueError as exc:
        raise SettingsError(f"{name} {exc}") from exc


class _TomlFile(TomlConfigSettingsSource):
    """A TOML file, which separates texts from numbers."""

    def __init__(self, settings: type[BaseSettings], file: Path | None) -> None:
        self._directory = None if file is None else file.parent
        super().__init__(settings, toml_file=file)

    @override
    def __call__(self) -> dict[str, Any]:
        tables = super().__call__()
        if self._directory is not None:
            resolve_notices(tables, self._directory)
        return {name: quoted(value) for name, value in tables.items()}


def resolve_notices(tables: dict[str, Any], directory: Path) -> None:
    """Make the paths of notices in a parsed configuration relative to its directory."""
    platforms = tables.get("platforms")
    places = [(tables.get("notices"), "file")]
    if isinstance(platforms, dict):
        places += [(platform, "notices_file") for platform in platforms.values()]
    for table, name in places:
        if isinstance(table, dict) and isinstance(path := table.get(name), str):
            table[name] = str(directory / path)


def _sourced(config: Path | None, environ: Mapping[str, str]) -> type[Settings]:
    """Return a settings class that reads these sources; the first that has a value wins."""

    class Sourced(Settings):
        @override
        def fresh(self) -> Settings:
            return _read(type(self), config)

        @override
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del init_settings, env_settings, dotenv_settings
            secrets_dir = environ.get(SECRETS_VARIABLE) or None
            return (
                _GivenEnvironment(settings_cls, environ),
                NestedSecretsSettingsSource(file_secret_settings, secrets_dir=secrets_dir),
                _TomlFile(settings_cls, config),
            )

    return Sourced


def _config_file(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    named = config or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    if named is None:
        return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None
    if named.is_dir():
        raise SettingsError(f"{named} is a directory: name the file, such as chatlane.toml")
    if not named.is_file():
        raise SettingsError(
            f"there is no configuration file {named}: change --config or {CONFIG_VARIABLE}"
        )
    return named


def _refuse_unknown_groups(environ: Mapping[str, str]) -> None:
    """Refuse a misspelt group; within a group the models refuse unknown names."""
    for variable in sorted(environ):
        match = re.fullmatch(r"CHATLANE_([A-Z0-9]+(?:_[A-Z0-9]+)*)__.+", variable.upper())
        if match and match[1].lower() not in Settings.model_fields:
            groups = ", ".join(Settings.model_fields)
            raise SettingsError(f"{variable} names no group of settings; there are: {groups}")


def _refuse_unread_secrets(environ: Mapping[str, str]) -> None:
    """Refuse a secret file whose name means that it would be ignored; certificates are allowed.

    Within a group the models refuse unknown names, here as in the environment.
    """
    directory = environ.get(SECRETS_VARIABLE)
    if not directory or not Path(directory).is_dir():
        # The source that reads the directory reports this.
        return
    for name in sorted(path.name for path in Path(directory).iterdir()):
        if (wanted := _name_of_a_setting(name)) is not None:
            raise SettingsError(f"the file {name} in {SECRETS_VARIABLE} is not read: {wanted}")


def _name_of_a_setting(name: str) -> str | None:
    """Return the right name of a file that is almost named like a setting, else None."""
    bare = name.upper().removeprefix(ENV_PREFIX)
    group, delimiter, rest = bare.partition("__")
    is_known = group.lower() in Settings.model_fields
    if name.upper().startswith(ENV_PREFIX):
        if is_known and delimiter and rest:
            return None
        return f"files are called {ENV_PREFIX}<GROUP>__<NAME>, such as {ENV_PREFIX}POSTGRES__DSN"
    if is_known and delimiter:
        return f"call it {ENV_PREFIX}{bare}"
    places = [place for place in SECRET_SETTINGS if place.endswith(f"__{bare}")]
    return f"call it {' or '.join(places)}" if places else None


def _secret_settings() -> Iterator[str]:
    for group, group_field in Settings.model_fields.items():
        for name, field in getattr(group_field.annotation, "model_fields", {}).items():
            if field.annotation in {SecretStr, SecretStr | None}:
                yield f"{ENV_PREFIX}{group}__{name}".upper()


SECRET_SETTINGS: Final = tuple(_secret_settings())
"""The variables of settings that are secrets, such as `CHATLANE_POSTGRES__DSN`."""


def problem_sentences(error: ValidationError) -> Iterator[str]:
    """Yield one sentence per problem, without the value that caused it."""
    for problem in error.errors(include_input=False, include_context=False, include_url=False):
        place = ".".join(str(part) for part in problem["loc"] if part != "[key]")
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            text = "there is no such setting"
        for line in text.splitlines():
            yield f"{place}: {line}" if place else line
