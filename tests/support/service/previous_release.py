"""The release before this one, unpacked from the history of the repository, to run beside ours.

What is run is its code with the libraries of this environment: what two releases share is the
database and the bus, not a Python.
"""

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

# The first one that carried messages all the way. Move it on with every release.
COMMIT: Final = "679e2ea7d7fc2fdcae06bd0f23a96a92fedfbf41"
_ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final = ("schemas", "client", "service")
_PARTS: Final = (*_PACKAGES, "examples", "tests/contract/messages")


class HistoryMissingError(Exception):
    """This is no clone, or one without its history: `git fetch --unshallow` gets it."""

    def __init__(self) -> None:
        super().__init__(f"no commit {COMMIT[:12]} here: {self.__doc__}")


@dataclass(frozen=True, slots=True)
class PreviousRelease:
    """Its files.

    Attributes:
        directory: As the root of the repository was.
    """

    directory: Path

    @property
    def variables(self) -> dict[str, str]:
        """What makes a Python import this release instead of ours."""
        packages = [str(self.directory / package) for package in _PACKAGES]
        return {"PYTHONPATH": os.pathsep.join(packages)}

    @property
    def subscriber(self) -> Path:
        """Its examples/subscriber.py."""
        return self.directory / "examples" / "subscriber.py"

    @property
    def messages(self) -> list[Path]:
        """One full and one minimal message of each type, as it wrote them."""
        return sorted((self.directory / "tests" / "contract" / "messages").glob("*.json"))

    def schema(self, model: str) -> dict[str, Any]:
        """Return its JSON Schema of a message."""
        path = self.directory / "schemas" / "json" / f"{model}.schema.json"
        read: dict[str, Any] = json.loads(path.read_bytes())
        return read

    async def run(self, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
        """Run a Python with this release to the end and return what it says.

        Args:
            variables: More of its environment.

        Raises:
            AssertionError: It failed; with its last words.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *arguments),
            cwd=self.directory,
            env={**os.environ, **self.variables, **(variables or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        text = output.decode(errors="replace")
        assert process.returncode == 0, text[-4000:]
        return text


def unpack(directory: Path) -> PreviousRelease:
    """Write its files.

    Args:
        directory: Empty, or not there yet.

    Raises:
        HistoryMissingError: They are not in this repository.
    """
    command = ["git", "-C", str(_ROOT), "archive", COMMIT, *_PARTS]
    try:
        packed = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 # all ours
    except (OSError, subprocess.CalledProcessError) as error:
        raise HistoryMissingError from error
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return PreviousRelease(directory)
