"""Errors of the commands of all bridges, as a line each and an exit code."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import BaseSettings

WRONG_SETTINGS: Final = 2
"""Exit code for settings that cannot be used."""

_NO_ADDRESS: Final = 1

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def exit_without(extra: str, error: ModuleNotFoundError) -> NoReturn:
    """End the command because packages of an extra are missing."""
    typer.echo(f"{error.name} is not installed: pip install 'chatlane-bridges[{extra}]'", err=True)
    raise typer.Exit(WRONG_SETTINGS)


def read_settings(kind: type[SettingsT], given: Mapping[str, Any]) -> SettingsT:
    """Return settings from variables and from the options that were given.

    Raises:
        Exit: They cannot be used; each problem was printed.
    """
    try:
        return kind(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        report(error, kind.model_config.get("env_prefix", ""))
        raise typer.Exit(WRONG_SETTINGS) from None


def report(error: ValidationError, prefix: str = "") -> None:
    """Print each problem of a validation, without the values; with a prefix, by its variable."""
    for problem in error.errors():
        path = [str(part) for part in problem["loc"]]
        name = f"{prefix}{'_'.join(path)}".upper() if prefix else ".".join(path)
        typer.echo(f"{name}: {problem['msg']}", err=True)


@contextmanager
def served(host: str, port: int) -> Iterator[None]:
    """Serve an address within a block.

    Raises:
        Exit: Settings are wrong, or the address cannot be listened on; the reason was printed.
    """
    try:
        yield
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(WRONG_SETTINGS) from None
    except OSError as error:
        typer.echo(f"cannot serve {host}:{port}: {error.strerror}", err=True)
        raise typer.Exit(_NO_ADDRESS) from None
