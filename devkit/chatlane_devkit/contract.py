"""Write the files that are generated from code or from other files, and check them.

Run as `python -m chatlane_devkit.contract write` or `check`. Needs no server and none of the
packages of the embedded servers.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from chatlane.config.nats_users import read_users, server_config
from chatlane_adapters.kit.catalogue import capabilities_table, shown_capabilities
from chatlane_console.application import api_document
from chatlane_console.settings import settings_table
from chatlane_devkit.env_example import render_env_example
from chatlane_schemas.topology import documents
from chatlane_schemas.topology.channels import messages
from chatlane_servers.toml_text import toml_text

REPOSITORY: Final = Path(__file__).parents[2]
JSON_SCHEMAS: Final = Path("schemas/json")
ASYNCAPI: Final = Path("schemas/asyncapi.json")
OPENAPI: Final = Path("schemas/openapi.json")
USERS: Final = Path("deploy/nats/users.toml")
ACCOUNTS: Final = Path("deploy/nats/accounts.conf")
ENV_EXAMPLE: Final = Path(".env.example")
# Files of rules, and the PrometheusRule of each.
PROMETHEUS_RULES: Final = {
    Path("deploy/observability/alerts.yaml"): "prometheus-rule.yaml",
    Path("deploy/observability/kubernetes_alerts.yaml"): "kubernetes-prometheus-rule.yaml",
}
MONITORING: Final = Path("deploy/kubernetes/components/monitoring")

BENCHMARKS: Final = Path("docs/benchmarks.md")
CLUSTER_MANUAL: Final = Path("deploy/kubernetes/capacity.md")
_CAPACITY_BEGINS: Final = "<!-- capacity: written by `make contract` from docs/benchmarks.md -->\n"
_CAPACITY_ENDS: Final = "<!-- end of the capacity -->"
_CPU_COLUMN: Final = 7
PLATFORMS: Final = Path("docs/platforms/index.md")
_PLATFORMS_BEGIN: Final = "<!-- platforms: written by `make contract` from their capabilities -->\n"
_PLATFORMS_END: Final = "<!-- end of the platforms -->"
SHOWN_CAPABILITIES: Final = Path("service/chatlane/domain/prompts/platforms.toml")
_SHOWN_CAPABILITIES_HEAD: Final = (
    "# Written by `make contract` from the capabilities of the adapters.\n"
)
CONSOLE: Final = Path("docs/console.md")
_SETTINGS_BEGIN: Final = (
    "<!-- settings: written by `make contract` from the settings of the console -->\n"
)
_SETTINGS_END: Final = "<!-- end of the settings -->"
# Kustomize cannot put a file into a field, so the rules are copied into the resource here.
_PROMETHEUS_RULE_HEAD: Final = """\
# Written by `make contract` from {source}.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {name}
  labels: {{chatlane/step: serve, release: kube-prometheus-stack}}
spec:
"""


def generated_files() -> dict[Path, str]:
    """Return the content of every generated file by its path in the repository."""
    files = {
        JSON_SCHEMAS / f"{message.__name__}.schema.json": _text(documents.message_schema(message))
        for message in messages()
    }
    files[ASYNCAPI] = _text(documents.asyncapi())
    files[OPENAPI] = _text(api_document())
    files[ACCOUNTS] = server_config(read_users(REPOSITORY / USERS), datetime.now(UTC).date())
    files[ENV_EXAMPLE] = render_env_example()
    files[SHOWN_CAPABILITIES] = _SHOWN_CAPABILITIES_HEAD + toml_text(shown_capabilities())
    for source, target in PROMETHEUS_RULES.items():
        rules = (REPOSITORY / source).read_text(encoding="utf-8")
        name = "chatlane" if target == "prometheus-rule.yaml" else "chatlane-kubernetes"
        head = _PROMETHEUS_RULE_HEAD.format(source=source, name=name)
        files[MONITORING / target] = head + textwrap.indent(rules, "  ")
    files[CLUSTER_MANUAL] = _with_capacity(
        (REPOSITORY / CLUSTER_MANUAL).read_text(encoding="utf-8"),
        (REPOSITORY / BENCHMARKS).read_text(encoding="utf-8"),
    )
    for path, begin, end, table in (
        (PLATFORMS, _PLATFORMS_BEGIN, _PLATFORMS_END, capabilities_table()),
        (CONSOLE, _SETTINGS_BEGIN, _SETTINGS_END, settings_table()),
    ):
        before, begins, rest = (REPOSITORY / path).read_text(encoding="utf-8").partition(begin)
        _, ends, after = rest.partition(end)
        files[path] = f"{before}{begins}{table}\n{ends}{after}"
    return files


def _with_capacity(manual: str, benchmarks: str) -> str:
    """Return the manual with the figures for planning the capacity of production."""
    before, begins, rest = manual.partition(_CAPACITY_BEGINS)
    _, ends, after = rest.partition(_CAPACITY_ENDS)
    table = ["| what | set-up | figure | processor, µs for each message |", "|---|---|---|---|"]
    table += [
        f"| {what} | {setup} | {figure} | {processor} |"
        for what, setup, figure, processor in _measured(benchmarks)
        if "sync always" in setup or "1,000,000 sessions" in setup or "time to" in what
    ]
    return before + begins + "\n".join([*table, ends]) + after


def _measured(benchmarks: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the benchmark table: subject, set-up, figure, and processor time."""
    for line in benchmarks.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > _CPU_COLUMN and cells[2][:1].isdigit():
            yield cells[0], cells[1], cells[2], cells[_CPU_COLUMN]


def _text(document: documents.Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write(root: Path) -> list[Path]:
    """Write changed files, remove schemas of removed messages, and return both."""
    files = generated_files()
    differing = differences(root)
    for path in differing:
        target = root / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files[path], encoding="utf-8")
        else:
            target.unlink()
    return differing


def differences(root: Path) -> list[Path]:
    """Return the paths of files that are missing, out of date or left over."""
    files = generated_files()
    changed = [path for path, text in files.items() if _content(root / path) != text]
    present = {path.relative_to(root) for path in (root / JSON_SCHEMAS).glob("*.json")}
    return sorted([*changed, *(present - files.keys())])


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 1 when `check` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m chatlane_devkit.contract")
    parser.add_argument("command", choices=["write", "check"])
    parser.add_argument("--root", type=Path, default=REPOSITORY)
    options = parser.parse_args(arguments)
    if options.command == "write":
        _report("wrote", write(options.root))
        return 0
    stale = differences(options.root)
    _report("out of date (run `make contract`):", stale)
    return 1 if stale else 0


def _report(verdict: str, paths: Sequence[Path]) -> None:
    for path in paths:
        sys.stdout.write(f"{verdict} {path}\n")


if __name__ == "__main__":
    raise SystemExit(main())
