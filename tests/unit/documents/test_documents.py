"""The documents say what is true of this release: links, commands, code, bodies and metrics."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest
import typer.main

from chatlane.cli.commands import app
from chatlane.config.settings import Settings
from chatlane.domain.commands.command_handlers import HANDLERS
from chatlane.domain.commands.command_words import OTHER_WORDS, CommandName
from chatlane.domain.commands.replies import help_text
from chatlane.domain.notices import ENGLISH
from chatlane.postgres.grants import Roles
from chatlane_schemas import Chat, InboundEvent, Sender, decode
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.channels import CHANNELS, Channel
from chatlane_schemas.topology.subjects import LiveTurnPath
from tests.support.declared_metrics import ADAPTER_METRICS, METRICS, WEBHOOK_METRICS, DeclaredMetric

if TYPE_CHECKING:
    from chatlane_schemas.envelope import Record

ROOT: Final = Path(__file__).parents[3]
GENERATED: Final = {".venv", ".venv-tools", "node_modules", "var"}

MAX_README_LINES: Final = 150
MAX_README_WORDS: Final = 1000

SESSION: Final = UUID("01a21fa8-19af-8a6e-b7ef-85f0b1384c47")
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
METRIC: Final = re.compile(r"(?<!@)\bchatlane_[a-z_]+\b")
SETTING: Final = re.compile(r"\bCHATLANE_([A-Z]+)__([A-Z_]+)\b")
# Where this machine or this person's account would show, and what a merge left behind.
FORBIDDEN: Final = re.compile(
    r"(?<![\w./])/(?:home|root|work|Users)/|\bTODO\b|\bTBD\b|^(?:<{7}|>{7}) ", re.MULTILINE
)

# Written by a shell between quotes: '{"id": "'$(uuid)'"}'.
SHIM: Final = """#!/bin/sh
exec "$PYTHON" -c '
import json, os, sys
with open(os.environ["SAID"], "a") as said:
    said.write(json.dumps(sys.argv[1:]) + "\\n")
' "$@"
"""


def documents() -> list[Path]:
    """Return the documents that are read by people, wherever they are in the repository."""
    return sorted(
        path
        for path in ROOT.rglob("*.md")
        if not any(
            part in GENERATED or part.startswith(".") for part in path.relative_to(ROOT).parts
        )
    )


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_document = pytest.mark.parametrize("document", documents(), ids=name_of)


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def blocks(path: Path, language: str) -> list[str]:
    return [body for found, body in CODE.findall(text_of(path)) if found == language]


def prose(path: Path) -> str:
    return CODE.sub("", text_of(path))


# Links.


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def is_reachable(document: Path, link: str) -> bool:
    place, _, anchor = link.partition("#")
    target = (document.parent / place).resolve() if place else document
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target)


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    links = [link for link in LINK.findall(prose(document)) if "://" not in link]
    assert [link for link in links if not is_reachable(document, link)] == []


def test_every_decision_is_in_the_index_under_its_number_and_title() -> None:
    folder = ROOT / "docs/adr"
    files = sorted(path.name for path in folder.glob("0*.md"))
    index = text_of(folder / "README.md")
    # Numbers are given out before they are used, so some may be missing for a while.
    assert sorted({name[:4] for name in files}) == [name[:4] for name in files]
    for name in files:
        number, _, title = (
            text_of(folder / name).partition("\n")[0].removeprefix("# ").partition(". ")
        )
        assert f"| [{number}]({name}) | {title} |" in index


@each_document
def test_nothing_in_it_belongs_to_one_machine(document: Path) -> None:
    assert FORBIDDEN.findall(text_of(document)) == []


# Where whoever reads looks for a file that is named. What a command leaves in `var/` is no file of
# the repository.
ROOTS: Final = tuple(ROOT / its for its in ("", "service/chatlane", "schemas", "service", "tests"))
FILE: Final = re.compile(
    r"`(?!var/)([\w*][\w./*-]*/(?:[\w.*-]+\.(?:py|sql|toml|json|conf|yaml))?)`"
)


@each_document
def test_files_that_are_named_exist(document: Path) -> None:
    named = FILE.findall(prose(document))
    roots = (document.parent, *ROOTS)
    missing = [name for name in named if not any(list(root.glob(name)) for root in roots)]
    assert missing == []


@pytest.mark.parametrize("changelog", ["CHANGELOG.md", "schemas/CHANGELOG.md"])
def test_a_changelog_begins_with_this_release(changelog: str) -> None:
    newest = re.search(r"^## (\S+)", text_of(ROOT / changelog), re.MULTILINE)
    distribution = "chatlane-schemas" if "schemas" in changelog else "chatlane"
    assert newest is not None
    assert newest[1] == version(distribution)


# Commands.


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", text_of(ROOT / "Makefile"), re.MULTILINE))


def shell_and_inline_code(document: Path) -> Iterator[str]:
    for block in blocks(document, "sh"):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", prose(document))


@each_document
def test_make_targets_exist(document: Path) -> None:
    named = {
        found[1]
        for line in shell_and_inline_code(document)
        if (found := re.match(r"make ([a-z][a-z-]*)", line))
    }
    assert set() == named - make_targets()


COMMAND = typer.main.get_command(app)


def options_of(words: list[str]) -> set[str] | None:
    """Return the options of the command that these words name, if there is one."""
    command = COMMAND
    for word in words:
        subcommands = getattr(command, "commands", None)
        # A group may run by itself, with options.
        if subcommands is None or word.startswith("-"):
            break
        if word not in subcommands:
            return None
        command = subcommands[word]
    return {name for its in command.params for name in its.opts} | {"--help"}


def unknown_in(line: str) -> list[str]:
    """Return what a call of chatlane names that does not exist."""
    words = line.partition("#")[0].split()[1:]
    options = options_of(words)
    if options is None:
        return [line]
    # A dash alone is the standard input.
    named = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
    return [f"{line}: {name}" for name in sorted(named - options)]


@each_document
def test_commands_and_their_options_exist(document: Path) -> None:
    calls = [
        line
        for line in shell_and_inline_code(document)
        if re.match(r"(?:\.venv/bin/)?chatlane [a-z-]", line)
    ]
    assert [problem for line in calls for problem in unknown_in(line)] == []


# Chat commands.


def command_cells() -> list[list[str]]:
    """Return the first cell of each row of the table of chat commands: how it is written."""
    rows = re.findall(r"^\| (`/[^|]+`) \|", text_of(ROOT / "docs/commands.md"), re.MULTILINE)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def test_every_chat_command_has_its_row() -> None:
    """`/help` lists the same commands, in the same order, with the same arguments."""
    usages = [line.partition(":")[0] for line in help_text(ENGLISH, CommandName, "/").splitlines()]
    assert [cells[0] for cells in command_cells()] == usages


def test_every_other_word_for_a_chat_command_is_in_its_row() -> None:
    others = {
        cell.split()[0].removeprefix("/"): cells[0].split()[0].removeprefix("/")
        for cells in command_cells()
        for cell in cells[1:]
    }
    assert others == OTHER_WORDS


def test_every_chat_command_has_a_handler() -> None:
    assert set(CommandName) == HANDLERS.keys()


# Code.


def test_the_whole_subscriber_is_shown() -> None:
    page = ROOT / "docs/writing-a-worker.md"
    assert text_of(ROOT / "examples/subscriber.py") in blocks(page, "python")


def fields_in_the_table(page: Path) -> set[str]:
    """Return the names in the first column of the table of fields of an event."""
    section = text_of(page).partition("## Fields of an event")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}


def test_every_field_of_an_event_is_explained_to_adapters() -> None:
    page = ROOT / "docs/writing-an-adapter.md"
    parts: dict[str, type[Record]] = {"chat": Chat, "sender": Sender}
    expected = {
        name
        for field in InboundEvent.model_fields
        for name in (
            [f"{field}.{inner}" for inner in parts[field].model_fields]
            if field in parts
            else [field]
        )
    }
    # The version of the contract is the same in every message.
    assert fields_in_the_table(page) == expected - {"v"}


def test_the_readme_is_short() -> None:
    readme = text_of(ROOT / "README.md")
    assert len(readme.splitlines()) <= MAX_README_LINES
    assert len(readme.split()) < MAX_README_WORDS


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs/index.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(prose(index))}
    pages = set((ROOT / "docs").glob("*.md")) - {index}
    assert {page.name for page in pages - linked} == set()


@pytest.mark.slow
def test_the_site_builds_and_each_of_its_links_leads_somewhere(tmp_path: Path) -> None:
    packages = f"paths: [{ROOT / 'client'}, {ROOT / 'schemas'}]"
    config = text_of(ROOT / "mkdocs.yml").replace("paths: [client, schemas]", packages)
    assert packages in config
    (tmp_path / "mkdocs.yml").write_text(config)
    zensical = Path(sys.executable).with_name("zensical")
    for command in (
        [sys.executable, str(ROOT / "docs/site.py"), "var/site-pages"],
        [str(zensical), "build", "--strict"],
    ):
        done = subprocess.run(  # noqa: S603
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
        )
        assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "var/site/docs/api/client.html").read_text("utf-8")
    assert 'id="chatlane_client.TurnWorker"' in reference


# The protocol by hand.


def channel_of(subject: str) -> Channel:
    """Return the channel of a concrete subject."""
    matching = [
        channel
        for channel in CHANNELS
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^.*>]+", re.escape(channel.address)), subject)
    ]
    assert len(matching) == 1, subject
    return matching[0]


@pytest.fixture(scope="module")
def said_by_hand(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Run the commands of docs/by-hand.md with a `nats` that only records its arguments."""
    tmp_path = tmp_path_factory.mktemp("by-hand")
    shim = tmp_path / "nats"
    shim.write_text(SHIM)
    shim.chmod(0o755)
    said = tmp_path / "said"
    script = "".join(block for block in blocks(ROOT / "docs/by-hand.md", "sh") if "nats " in block)
    for placeholder, value in {
        "ID-OF-THE-ROUTED-MESSAGE": "01a21fa8-19af-8448-9bcd-0ccc842ea5a3",
        "ITS-SESSION_ID": str(SESSION),
        "ITS-TURN_ID": "01a21fa8-b52f-8809-8161-99a7b8361c94",
        "TOKEN-OF-THE-CLAIM": "mUvKQ2w4sZ-token",
    }.items():
        assert placeholder in script
        script = script.replace(placeholder, value)
    python = shutil.which("python3") or ""
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "SAID": str(said), "PYTHON": python}
    command = [shutil.which("bash") or "bash", "-euc", script]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=30)  # noqa: S603
    return [json.loads(line) for line in said.read_text().splitlines()]


def test_what_is_said_by_hand_keeps_the_contract(said_by_hand: list[list[str]]) -> None:
    told = [words for words in said_by_hand if words[0] != "sub"]
    models = []
    for verb, subject, body in told:
        channel = channel_of(subject)
        message = decode(channel.message, body.encode())
        models.append((verb, type(message).__name__))
        if channel.name == "inbound":
            assert subjects.inbound_for(message) == subject  # type: ignore[arg-type]
        if channel.name == "result":
            assert subject.endswith(f".{SESSION}")
            assert str(SESSION) == json.loads(body)["session_id"]
    assert models == [
        ("pub", "InboundEvent"),
        ("pub", "ResultMessage"),
        ("req", "SessionList"),
        ("req", "TranscriptLoad"),
        ("req", "ClaimRequest"),
        ("req", "RenewRequest"),
        ("pub", "ResultMessage"),
        ("req", "TurnKeep"),
        ("req", "TurnStep"),
        ("pub", "TurnFollow"),
    ]


def test_what_is_watched_by_hand_is_what_the_service_says(said_by_hand: list[list[str]]) -> None:
    watched = [words[1] for words in said_by_hand if words[0] == "sub"]
    turns = LiveTurnPath("terminal", "local")
    assert watched == [
        "chat.v1.routed.notes.*.*",
        subjects.outbound_filter("terminal", "local"),
        *map(turns.of, (subjects.TURN_EVENT, subjects.PIECE, subjects.RECAP)),
    ]


# Metrics and settings.


def metrics_table(metrics: Sequence[DeclaredMetric]) -> str:
    rows = [
        f"| `{its.name}` | {its.kind} | {', '.join(its.labels)} | {its.meaning} |"
        for its in metrics
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


@pytest.mark.parametrize(
    ("document", "metrics"),
    [
        ("docs/operations.md", METRICS),
        ("docs/platforms/index.md", ADAPTER_METRICS),
        ("docs/webhooks.md", WEBHOOK_METRICS),
    ],
)
def test_the_table_of_metrics_is_complete(document: str, metrics: Sequence[DeclaredMetric]) -> None:
    table = metrics_table(metrics)
    assert table in text_of(ROOT / document), f"{document} must have:\n{table}"


@each_document
def test_metrics_exist(document: Path) -> None:
    # Packages, and roles of the database.
    others = {"chatlane_adapters", "chatlane_schemas", "chatlane_client", "chatlane_devkit"}
    others |= {"chatlane_bot", "chatlane_bridges", "chatlane_console", "chatlane_servers"}
    others |= {"chatlane_owner", "chatlane_router", "chatlane_keeper", "chatlane_copier"}
    named = set(METRIC.findall(text_of(document))) - others - {*Roles().names()}
    declared = (*METRICS, *ADAPTER_METRICS, *WEBHOOK_METRICS)
    assert set() == named - {its.name for its in declared}


def is_setting(path: str) -> bool:
    group, _, name = path.partition(".")
    its = Settings.model_fields.get(group)
    fields = getattr(its.annotation, "model_fields", {}) if its else {}
    return name in fields


@each_document
def test_settings_exist(document: Path) -> None:
    named = [f"{group}.{name}".lower() for group, name in SETTING.findall(text_of(document))]
    groups = "nats|postgres|router|streams|http|log|tracing|dead_letters|prompt|keys|reset|limits"
    named += re.findall(rf"`((?:{groups})\.[a-z_]+)[^`.]*`", prose(document))
    assert [path for path in named if not is_setting(path)] == []
