"""What `chatlane bot --print compose` prints: a bot in containers, which a kill does not stop.

Downloads and builds take minutes: `.ci/containers make cluster-faults ARGS=tests/deploy`.
"""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from chatlane_devkit.model_endpoint import open_model_endpoint
from chatlane_devkit.platforms.telegram import open_telegram_server
from tests.deploy.compose_stack import ran
from tests.support.eventually import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = timedelta(seconds=120)


@pytest.fixture(autouse=True)
def _engine() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run((docker, "version"), check=False).returncode:  # noqa: S603
        pytest.skip("no Docker engine answers: .ci/containers starts one")


def compose_command() -> Sequence[str]:
    """Return the program that runs the file; it needs Compose 2.23 or newer."""
    if "CHATLANE_TEST_COMPOSE" in os.environ:
        return (os.environ["CHATLANE_TEST_COMPOSE"],)
    return ("docker", "compose")


async def python_image(directory: Path) -> str:
    """Build a Python image in which uv finds the packages of this checkout."""
    uv = str(ROOT / ".venv-tools/bin/uv")
    wheels = directory / "wheels"
    await ran(uv, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(wheels))
    base = os.environ.get("CHATLANE_PYTHON_IMAGE", "python:3.13-slim")
    (directory / "Dockerfile").write_text(
        f"FROM {base}\nCOPY wheels /wheels\nENV UV_FIND_LINKS=/wheels\n"
    )
    tag = f"chatlane/test-python:{secrets.token_hex(4)}"
    await ran("docker", "build", "--quiet", "--tag", tag, str(directory))
    return tag


def printed(directory: Path, bot: dict[str, Any], tables: str) -> dict[str, Any]:
    """Write a bot.toml, and return what `--print compose` prints for it."""
    (directory / "bot.toml").write_text(tables)
    command = ("-m", "chatlane", "bot", "--config", "bot.toml", "--print", "compose")
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, *command], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (directory / "bot.yaml").write_text(done.stdout)
    document: dict[str, Any] = yaml.safe_load(done.stdout)
    assert bot["services"].keys() <= document["services"].keys()
    (directory / "test.yaml").write_text(yaml.safe_dump(bot))
    return document


@asynccontextmanager
async def running(directory: Path, variables: dict[str, str]) -> AsyncIterator[Sequence[str]]:
    """Bring the file up, and take everything away at the end."""
    files = [f"--file={directory / name}" for name in ("bot.yaml", "test.yaml")]
    project = f"--project-name=chatlane-bot-test-{secrets.token_hex(4)}"
    compose = (*compose_command(), project, *files)
    try:
        await ran(*compose, "up", "--build", "--detach", environment=variables)
        yield compose
    finally:
        sys.stderr.write(
            await ran(*compose, "logs", "--no-color", "--tail=50", environment=variables)
        )
        await ran(*compose, "down", "--volumes", "--timeout=25", environment=variables)


async def test_the_printed_bot_answers_and_survives_the_death_of_its_parts(tmp_path: Path) -> None:
    gateway = (
        await ran("docker", "network", "inspect", "bridge", "-f={{(index .IPAM.Config 0).Gateway}}")
    ).strip()
    token = f"7000000001:{secrets.token_urlsafe(24)}"
    async with (
        open_model_endpoint(host=gateway) as model,
        open_telegram_server(token=token, host=gateway) as telegram,
    ):
        (tmp_path / "telegram.token").write_text(token)
        tables = (
            'platform = "telegram"\ninstructions = "Costs $5,\\nnot ${MORE}."\n'
            f'model = {{name = "openai:fake", base_url = "{model.url}"}}\n'
            f'adapter = {{token_file = "telegram.token", api_url = "{telegram.url}"}}\n'
        )
        # Images that this machine has, in the place of those of a registry.
        images = {
            name: {"image": os.environ[variable]}
            for name, variable in (
                ("nats", "CHATLANE_NATS_IMAGE"),
                ("postgres", "CHATLANE_POSTGRES_IMAGE"),
            )
            if variable in os.environ
        }
        base = await python_image(tmp_path)
        build = {"build": {"args": {"PYTHON_IMAGE": base}}}
        document = printed(tmp_path, {"services": {**images, "prepare": build}}, tables)
        assert token not in json.dumps(document)
        variables = {
            "POSTGRES_PASSWORD": secrets.token_hex(8),
            "CHATLANE_ADAPTER_TOKEN": token,
            "OPENAI_API_KEY": "none",
        }
        chat = telegram.people.private_chat("Ann")

        async def until_said(words: str) -> None:
            await eventually(lambda: sum(words in (it or "") for it in chat.texts) > 0, PATIENCE)

        async with running(tmp_path, variables) as compose:
            telegram.people.write(chat.id, "Hello bot")
            await until_said("You said: Hello bot (after 0 messages)")
            instructions = model.requests[0]["messages"][0]["content"]
            assert instructions.startswith("Costs $5,\nnot ${MORE}.")
            await asyncio.gather(
                *(
                    ran(*compose, "kill", service, environment=variables)
                    for service in ("router-1", "worker", "adapter", "nats", "postgres")
                )
            )
            telegram.people.write(chat.id, "Still there?")
            # Compose starts again what a person killed only if it is asked.
            await ran(*compose, "up", "--detach", "--no-build", environment=variables)
            await until_said("You said: Still there?")
            assert 1 <= sum("Still there?" in (it or "") for it in chat.texts) <= 2
