"""`chatlane check`: check the settings and the files that they name, without servers."""

import typer

from chatlane.cli.shared.options import Config, read_client_settings


def check(config: Config = None) -> None:
    """Check chatlane.toml, the environment, and the files of notices. Needs no server.

    Exits with 2 and one line per problem. Routers make the same checks when they start.
    """
    catalog = read_client_settings(config).catalog()
    accounts = sum(len(platform.accounts) for platform in catalog.platforms.values())
    typer.echo(
        f"the settings are valid: {_count(len(catalog.platforms), 'platform')}, "
        f"{_count(accounts, 'account')}, {_count(len(catalog.profiles), 'profile')}, "
        f"{_count(len(catalog.agents), 'agent')}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
