"""Makes the environment that the old gateway runs in, once; `make clean` removes it."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
CACHE: Final = ROOT / ".cache"
# Of its sixty dependencies those that its session store imports.
PACKAGES: Final = (
    "hermes-agent==0.19.0",
    "certifi==2026.5.20",
    "charset-normalizer==3.5.3",
    "idna==3.20",
    "pyyaml==6.0.3",
    "requests==2.33.0",
    "urllib3==2.8.0",
)
DIRECTORY: Final = CACHE / "hermes-agent-0.19.0"


def old_gateway_python() -> Path:
    """Return the interpreter of the environment, which is made on first use."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "hermes-agent.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (DIRECTORY / ".ready").exists():
            shutil.rmtree(DIRECTORY, ignore_errors=True)
            _make()
    return DIRECTORY / "bin" / "python"


def _make() -> None:
    uv = ROOT / ".venv-tools" / "bin" / "uv"
    python = DIRECTORY / "bin" / "python"
    if uv.exists():
        _run(uv, "venv", "--quiet", "--python", sys.executable, DIRECTORY)
        _run(uv, "pip", "install", "--quiet", "--no-deps", "--python", python, *PACKAGES)
    else:
        _run(sys.executable, "-m", "venv", DIRECTORY)
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*pip, "--no-deps", *PACKAGES)
    (DIRECTORY / ".ready").touch()


def run_old_gateway(script: str, home: Path, given: object = None) -> Any:  # noqa: ANN401 - JSON
    """Run one of the scripts beside this file with the old gateway; returns what it says."""
    python = old_gateway_python()
    # Written to files: what it imports may print.
    with tempfile.TemporaryDirectory() as scratch:
        asked, said = Path(scratch, "asked"), Path(scratch, "said")
        asked.write_text(json.dumps(given))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HERMES_HOME": str(home),
            "TZ": "UTC",
        }
        _run(python, Path(__file__).with_name(script), asked, said, env=environment)
        return json.loads(said.read_text())


def _run(*command: object, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(  # noqa: S603 - a command of ours
        [str(part) for part in command], env=env, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace"))
