"""Write `.env.example` from the settings, so that the file stays up to date."""

from __future__ import annotations

from datetime import timedelta
from inspect import cleandoc
from typing import TYPE_CHECKING, Final

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr

from chatlane.config.settings import CONFIG_VARIABLE, ENV_PREFIX, SECRETS_VARIABLE, Settings
from chatlane.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

# Groups with names that the operator chooses; chatlane.toml suits them better.
_DECLARATIONS: Final = ("platforms", "profiles", "agents")

_HEAD: Final = f"""\
# Settings of chatlane as environment variables. Generated: `make contract` writes this file.
#
# Every line shows the default; take the first `#` away to change it. The environment wins over
# secret files, and they win over chatlane.toml. Spans of time are written 2ms, 30s, 1h30m.

# The configuration file; without it ./chatlane.toml, if there is one.
# {CONFIG_VARIABLE}=chatlane.toml

# A directory with one file per secret, named like its variable, such as
# /run/secrets/{ENV_PREFIX}POSTGRES__DSN.
# {SECRETS_VARIABLE}=/run/secrets
"""

_TAIL: Final = """\
# Platforms, accounts, profiles and agents are declared in chatlane.toml; see
# examples/chatlane.toml.
"""


def render_env_example() -> str:
    """Return the text of `.env.example`."""
    groups = (
        _group(name, field)
        for name, field in Settings.model_fields.items()
        if name not in _DECLARATIONS
    )
    return "\n".join((_HEAD, *groups, _TAIL))


def _group(name: str, field: FieldInfo) -> str:
    model = field.annotation
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"settings.{name} is not a group of settings")
    description = cleandoc(model.__doc__ or "")
    comment_and_settings = [f"# {line}".rstrip() for line in f"[{name}] {description}".splitlines()]
    for setting, setting_field in model.model_fields.items():
        # A table does not fit in one line.
        if setting_field.default_factory is None or setting == "own_ids":
            comment_and_settings += (
                "",
                *_setting(f"{ENV_PREFIX}{name}__{setting}".upper(), setting_field),
            )
    return "\n".join((*comment_and_settings, ""))


def _setting(variable: str, field: FieldInfo) -> Iterator[str]:
    yield f"# {field.description}{_bounds(field)}"
    yield f"# {variable}={_shown(field.default)}"


def _bounds(field: FieldInfo) -> str:
    """Return the allowed range as text, "" when any value is valid."""
    lower = [bound.ge for bound in field.metadata if isinstance(bound, Ge)]
    above = [bound.gt for bound in field.metadata if isinstance(bound, Gt)]
    upper = [bound.le for bound in field.metadata if isinstance(bound, Le)]
    if not upper:
        return ""
    start = f"From {_shown(lower[0])}" if lower else f"More than {_shown(above[0])}"
    return f" {start}, at most {_shown(upper[0])}."


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case timedelta():
            return format_duration(value)
        case SecretStr():
            return value.get_secret_value()
        case _:
            return str(value)
