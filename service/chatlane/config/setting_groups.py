"""The groups of settings of a process: its servers, streams, limits of time, and secrets.

Declarations of platforms, profiles and agents are in `declarations`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import ByteSize, Field, SecretStr, field_validator, model_validator

from chatlane.config.declarations import Group, Name
from chatlane.domain.erasure_key import MIN_KEY_BYTES as MIN_ERASURE_KEY_BYTES
from chatlane.domain.log import MOST_PARTITIONS
from chatlane.domain.prompts.sanitize import MIN_KEY_BYTES
from chatlane.durations import Duration
from chatlane_schemas.topology.streams import DEFAULT_MAX_BYTES, StreamName

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        description="Part of the size limit of a log, OUTBOUND, ROUTED or TURNS above which decided and "
        "delivered messages of the account or agent that holds most of it are purged early.",
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


class ImportSettings(Group):
    """Limits of what a person imports over the API; `chatlane import` has no limit."""

    most_messages: int = Field(
        default=100_000,
        ge=1,
        le=100_000_000,
        description="Most messages in all imported conversations of a person.",
    )
    most_bytes: ByteSize = Field(
        default=ByteSize(512 * 1024 * 1024),
        ge=1,
        description="Most bytes of the texts of these.",
    )


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
