"""Folders of a person: list them, and put sessions into them."""

from typing import Annotated

import typer

from chatlane.cli.sessions.filters import person_named
from chatlane.cli.sessions.queries import Apis, Named, ask
from chatlane.cli.sessions.views import print_changed
from chatlane.cli.shared.options import AsJson, Config, Principal
from chatlane.cli.shared.terminal import add_row, open_console, print_json, short_id, table
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.projects import Project
from chatlane_schemas.session_api.sessions import SessionView

_OfFolders = Annotated[
    Person,
    typer.Option(
        "--person",
        parser=person_named,
        metavar="PLATFORM/ACCOUNT/ID",
        help="Person whose folders they are.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the group."""
    app.command()(folders)
    app.command()(move)


def folders(
    config: Config = None,
    *,
    person: _OfFolders,
    make: Annotated[
        str | None, typer.Option("--make", metavar="NAME", help="Make this folder first.")
    ] = None,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """List the folders of a person."""

    async def found(apis: Apis) -> tuple[Project, ...]:
        if make is not None:
            await apis.folders.create(make)
        return await apis.folders.list_all()

    listed = ask(config, principal, found, person)
    if as_json:
        print_json(listed)
        return
    if not listed:
        typer.echo("there is no folder: `chatlane sessions folders --make NAME` makes one")
        return
    rows = table("…id", "sessions", "name")
    for folder in listed:
        add_row(rows, [short_id(folder.id), str(folder.sessions), folder.name])
    open_console().print(rows)


def move(
    session: Named,
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[FOLDER]", help="Name of the folder, its id, or the last characters of it."
        ),
    ] = None,
    config: Config = None,
    *,
    person: _OfFolders,
    is_taken_out: Annotated[
        bool, typer.Option("--out", help="Take the session out of its folder.")
    ] = False,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Put a session into a folder of its person, or take it out."""
    if (folder is None) is not is_taken_out:
        raise typer.BadParameter("give a folder or --out")

    async def moved(apis: Apis) -> SessionView:
        view = await apis.find(session)
        chosen = None if folder is None else await apis.find_folder(folder)
        return await apis.sessions.move(view.id, chosen)

    print_changed(
        config,
        principal,
        moved,
        as_json=as_json,
        confirmation=lambda view: f"{view.id} is in {'no folder' if is_taken_out else folder}",
        person=person,
    )
