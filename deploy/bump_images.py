"""Pins the newest content of the images that these files name: `make bump-images`.

Asks the registry of each tag through Docker and writes the digest behind the tag. Which tag it is,
a person decides: change it first, and bump after. Needs nothing but Python and a Docker engine.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
PINNING: Final = (
    _HERE / "Dockerfile",
    *sorted(_HERE.glob("*.yaml")),
    *sorted((_HERE / "kubernetes" / "overlays" / "local").glob("*.yaml")),
)
# An argument of the Dockerfile, the default of a variable in a compose file, or a server's image.
PIN: Final = re.compile(
    r"(?P<before>^ARG PYTHON_IMAGE=|\$\{CHATLANE_(?:NATS|POSTGRES)_IMAGE:-"
    r"|^ +image: (?=(?:nats|postgres):))"
    r"(?P<tag>[^\s@}]+)(?P<digest>@sha256:[0-9a-f]{64})?",
    re.MULTILINE,
)


class BumpError(Exception):
    """An image could not be found out about; no file was changed."""


@cache
def newest(tag: str) -> str:
    """Return `@sha256:...` of what a tag means in its registry now.

    Raises:
        BumpError: Docker could not tell.
    """
    _printed("docker", "pull", "--quiet", tag)
    told = _printed("docker", "image", "inspect", "--format", "{{json .RepoDigests}}", tag)
    # A colon behind the last slash is the tag's; one before it, the port of a registry.
    repository, _, _ = tag.rpartition(":")
    for reference in json.loads(told):
        name, _, digest = reference.partition("@")
        if name == repository:
            return f"@{digest}"
    raise BumpError(f"{tag}: no digest of its registry is known: {told.strip()}")


def bumped(text: str) -> str:
    """Return the text of a file with its images pinned anew.

    Raises:
        BumpError: Docker could not tell about one.
    """
    return PIN.sub(lambda found: f"{found['before']}{found['tag']}{newest(found['tag'])}", text)


def _printed(*command: str) -> str:
    try:
        # Arguments are tags out of our own files.
        process = subprocess.run(command, capture_output=True, check=False, text=True)  # noqa: S603
    except OSError as error:
        raise BumpError(f"{command[0]}: {error.strerror}") from error
    if process.returncode != 0:
        raise BumpError(f"{' '.join(command)}: {process.stderr.strip()}")
    return process.stdout


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        before = path.read_text("utf-8")
        path.write_text(text, "utf-8")
        told = "pinned anew" if text != before else "pins the newest already"
        sys.stdout.write(f"{path.name}: {told}\n")


def main(paths: Iterable[Path] = PINNING) -> int:
    """Bump all files, or none, and return the exit code."""
    try:
        texts = {path: bumped(path.read_text("utf-8")) for path in paths}
    except BumpError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _write(texts)
    return 0


if __name__ == "__main__":
    sys.exit(main(map(Path, sys.argv[1:]) if sys.argv[1:] else PINNING))
