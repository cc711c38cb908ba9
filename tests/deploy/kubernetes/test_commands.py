"""What containers run: commands of chatlane that exist, with options that they have."""

import pytest
import typer.main

from chatlane.cli.commands import app
from tests.deploy.kubernetes.manifests import RENDERED, TEAMS, workloads


def parsed(arguments: list[str]) -> list[str]:
    """Return the names of the command that a command line means; it is read and not run."""
    command, words, names = typer.main.get_command(app), list(arguments), []
    while commands := getattr(command, "commands", None):
        names.append(words.pop(0))
        command = commands[names[-1]]
    # Refuses an option that there is not, or a value that is none.
    command.make_context(names[-1], words)
    return names


@pytest.mark.parametrize("overlay", RENDERED)
def test_what_containers_run_are_commands_of_this_release(overlay: str) -> None:
    ran = {
        workload.name: [parsed(its["args"]) for its in workload.containers if "args" in its]
        for workload in workloads(overlay)
        if workload.is_ours
    }
    assert ran == (
        {"echo-worker": [["echo-worker"]]}
        if overlay in TEAMS
        else {
            "chatlane-migrate": [["admin", "migrate"], ["admin", "grants"]],
            "chatlane-provision": [["admin", "apply"]],
            "chatlane-router": [["router"]],
            "chatlane-toolbox": [],
            "chatlane-erasure": [],
            "chatlane-retention": [["admin", "retain"]],
            "chatlane-smoke": [["smoke"]],
        }
    )
