"""The settings of a process: `chatlane.toml`, secrets in files, and `CHATLANE_<GROUP>__<NAME>`.

The environment wins over secret files, and they win over `chatlane.toml`. Only the composition root
and the command line read this module; all other modules get plain values.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
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
    PLATFORMS_WITH_MEMBERS,
    AgentSettings,
    DefaultResetSettings,
    KeySettings,
    LimitsSettings,
    Name,
    NoticeSettings,
    PlatformSettings,
    ProfileSettings,
    account_pair,
)
from chatlane.config.setting_groups import (
    DeadLetterSettings,
    ErasureSettings,
    HttpSettings,
    ImportSettings,
    LogSettings,
    NatsSettings,
    PostgresSettings,
    PromptSettings,
    RetentionSettings,
    RouterSettings,
    StreamsSettings,
    TracingSettings,
)
from chatlane.config.setting_values import quoted
from chatlane.domain.catalog import MAIN_PROFILE, Catalog, canonical_profile
from chatlane.domain.erasure_key import ErasureKey
from chatlane.domain.notices import ENGLISH, Notices, problems_of
from chatlane.domain.prompts.context import Prompts
from chatlane.domain.prompts.sanitize import MIN_KEY_BYTES
from chatlane.errors import PermanentError
from chatlane.failpoints import SIGNALS, Failpoint, parse_failpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from chatlane.domain.catalog import Platform

ENV_PREFIX: Final = "CHATLANE_"
CONFIG_VARIABLE: Final = "CHATLANE_CONFIG"
SECRETS_VARIABLE: Final = "CHATLANE_SECRETS_DIR"
DEFAULT_CONFIG: Final = Path("chatlane.toml")


class SettingsError(PermanentError):
    """The settings are not valid.

    Attributes:
        problems: One sentence each: the setting and what to change. Never a value.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


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
    imports: ImportSettings = ImportSettings()
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
        yield from self._room_problems()
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

    def _room_problems(self) -> Iterator[str]:
        """Yield accounts that cannot have `rooms = "members"`, with the reason."""
        for platform, declared in self.platforms.items():
            for account in sorted(
                name for name, account in declared.accounts.items() if account.rooms == "members"
            ):
                setting = f'platforms.{platform}.accounts.{account}.rooms = "members"'
                if platform not in PLATFORMS_WITH_MEMBERS:
                    yield (
                        f"{setting} needs a platform whose adapter reports the members of a room "
                        f"({', '.join(sorted(PLATFORMS_WITH_MEMBERS))}): take it out"
                    )
                elif declared.has_moving_chats(platform):
                    yield (
                        f"{setting} needs chats that keep their ids, as a chat could get the words of "
                        f"another one: set platforms.{platform}.chats_migrate = false"
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
