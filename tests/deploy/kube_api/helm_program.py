"""The commands of Helm that the documents use, run by Helm's own code as a library.

A test puts it on PATH as `helm`; it runs in the environment of the manifest tools. The official chart
of NATS comes from the directory in CHATLANE_TEST_NATS_CHART; without one it is not installed.
"""

import argparse
import functools
import os
import sys
from pathlib import Path
from unittest import mock

import helm_python  # type: ignore[import-not-found] # of the manifest tools
import yaml


def seconds(text: str) -> int:
    """Return a duration such as `15m` in seconds."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def values_of(options: argparse.Namespace) -> dict[str, object]:
    """Return the values of all options, the last of which wins."""
    values: dict[str, object] = {}
    for path in options.values:
        values |= yaml.safe_load(Path(path).read_text())
    for pair in options.set_file:
        name, _, path = pair.partition("=")
        values[name] = Path(path).read_text()
    return values


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("upgrade", "rollback", "uninstall", "test"):
        command = commands.add_parser(name)
        command.add_argument("release")
        command.add_argument("--namespace", required=True)
        command.add_argument("--timeout", type=seconds, default=300)
        command.add_argument("--wait", action="store_const", const="watcher")
        if name == "upgrade":
            command.add_argument("--server-side", choices=["true", "false"])
            command.add_argument("--force-conflicts", action="store_true")
            command.add_argument("chart")
            command.add_argument("--install", action="store_true", required=True)
            command.add_argument("--values", action="append", default=[])
            command.add_argument("--set-file", action="append", default=[])
            command.add_argument("--repo")
            command.add_argument("--version")
        if name == "rollback":
            command.add_argument("revision", type=int, nargs="?")
        if name == "test":
            # There are no logs where no container runs.
            command.add_argument("--logs", action="store_true")
    options = parser.parse_args()
    config = helm_python.Config(namespace=options.namespace)
    release = options.release
    if options.command == "upgrade":
        chart = os.environ.get("CHATLANE_TEST_NATS_CHART") if options.repo else options.chart
        if not chart:
            sys.stdout.write("the chart of NATS is not here; nothing is installed\n")
            return
        named = {found["name"] for found in config.list(all_states=True)}
        act = config.upgrade if release in named else config.install
        # Helm's own options, which the Python package does not pass on. It installs with `true`.
        is_chosen = options.server_side is not None and release in named
        more = {"server_side_apply": options.server_side} if is_chosen else {}
        if options.force_conflicts:
            more["force_conflicts"] = True
        opts = functools.partial(helm_python.config._opts, **more)
        with mock.patch.object(helm_python.config, "_opts", opts):
            act(
                chart,
                release,
                values_of(options),
                namespace=options.namespace,
                timeout=options.timeout,
                wait=options.wait,
            )
        sys.stdout.write(config.get_all(release)["info"].get("notes", ""))
    elif options.command == "rollback":
        config.rollback(
            release, version=options.revision, timeout=options.timeout, wait=options.wait
        )
    elif options.command == "uninstall":
        config.uninstall(release, timeout=options.timeout, wait=options.wait)
    else:
        config.test(release, timeout=options.timeout)


if __name__ == "__main__":
    try:
        main()
    except helm_python.HelmError as error:
        sys.exit(f"Error: {error}")
