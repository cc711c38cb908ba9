"""Report each error of a command as one line and an exit code.

0: done. 1: failed. 2: wrong command line or settings. 3: no such session or dead letter.
4: refused by the service. 5: no answer. 130: Ctrl-C.
"""

import os
import sys
from collections.abc import Iterator
from typing import Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from chatlane.errors import ChatlaneError, SchemaMismatchError
from chatlane.observability.logs import configure_logging

FAILED: Final = 1
WRONG_SETTINGS: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
UNANSWERED: Final = 5
INTERRUPTED: Final = 130


class CommandError(ChatlaneError):
    """The error of a failed command; its text says what to do."""

    def __init__(self, message: str, *, exit_code: int = FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class ReportingGroup(TyperGroup):
    """A command group that reports an expected error in one line, without a traceback."""

    @override
    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command; an unexpected error still shows its traceback."""
        # Only errors of a short-lived command matter to its user.
        configure_logging("error", json=False)
        try:
            return super().invoke(ctx)
        except BrokenPipeError as exc:
            # The reader of the output, such as `head`, has exited.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from exc
        except KeyboardInterrupt as exc:
            raise typer.Exit(INTERRUPTED) from exc
        except typer.Exit:
            # Nothing to look for among the expected errors.
            raise
        except _expected_errors() as exc:
            for line in _lines(exc):
                typer.secho(f"chatlane: {line}", err=True, fg=typer.colors.RED)
            raise typer.Exit(_exit_code(exc)) from exc


def _expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that are reported; only an error is worth the import of the client."""
    from chatlane_client.errors import ChatlaneClientError

    return ChatlaneError, ChatlaneClientError, OSError


def _lines(error: Exception) -> Iterator[str]:
    from chatlane.config.settings import SettingsError
    from chatlane_client.errors import RefusedRequestError, SessionNotFoundError

    match error:
        case SettingsError():
            yield from error.problems
        case SchemaMismatchError():
            yield from error.differences
        case SessionNotFoundError():
            yield f"{error.message}: `chatlane sessions` lists them"
        case RefusedRequestError():
            yield error.message
        case _:
            yield str(error)


def _exit_code(error: Exception) -> int:
    from chatlane.config.settings import SettingsError
    from chatlane_client.errors import RefusedRequestError, SessionNotFoundError, TransientError

    match error:
        case SettingsError():
            return WRONG_SETTINGS
        case CommandError():
            return error.exit_code
        case SessionNotFoundError():
            return NOT_FOUND
        case RefusedRequestError():
            return REFUSED
        case TransientError():
            return UNANSWERED
        case _:
            return FAILED
