"""Commands that are imported when they are used.

To import all commands takes longer than most of them run, and a process runs one.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, cast

import typer
from typer.main import get_command
from typing_extensions import override

if TYPE_CHECKING:
    from typer.core import TyperGroup


class LazyCommands(MutableMapping[str, Any]):
    """The commands of a group by name, in the order in which `--help` lists them."""

    def __init__(
        self, own: Mapping[str, tuple[str, str]], group: str, *, panels: tuple[str, str]
    ) -> None:
        """Import nothing.

        Args:
            own: Place (`module:name`) and panel of the help, by name.
            group: Entry points of further commands, which are listed last.
            panels: Where the help lists these: groups, and commands.
        """
        self._own: Final = own
        self._group: Final = group
        self._group_panel, self._command_panel = panels
        self._found: list[str] | None = None
        self._imported: Final[dict[str, Any]] = {}

    @override
    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            self._imported[name] = self._import(name)
        return self._imported[name]

    @override
    def __setitem__(self, name: str, command: Any) -> None:
        raise NotImplementedError

    @override
    def __delitem__(self, name: str) -> None:
        raise NotImplementedError

    @override
    def __iter__(self) -> Iterator[str]:
        if self._found is None:
            self._found = sorted(found.name for found in entry_points(group=self._group))
        yield from self._own
        yield from self._found

    @override
    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _import(self, name: str) -> object:
        panel: str | None
        if name in self._own:
            place, panel = self._own[name]
            module, _, attribute = place.partition(":")
            command = getattr(import_module(module), attribute)
        else:
            # A look at the metadata of all installed packages.
            entry_point = next(iter(entry_points(group=self._group, name=name)), None)
            if entry_point is None:
                raise KeyError(name)
            command, panel = entry_point.load(), None
        parent = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        # A parent of a single command would become that command.
        parent.callback()(_nothing)
        if isinstance(command, typer.Typer):
            parent.add_typer(command, name=name, rich_help_panel=panel or self._group_panel)
        else:
            parent.command(name, rich_help_panel=panel or self._command_panel)(command)
        return cast("TyperGroup", get_command(parent)).commands[name]


def _nothing() -> None:
    """Do nothing."""
