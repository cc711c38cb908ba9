"""The conformance suite judges our own adapters on their emulated platforms."""

import shlex
import sys
from pathlib import Path
from typing import Final

import pytest

from chatlane_devkit.conform.command_run import SCENES
from chatlane_devkit.conform.judge_run import CHECKS, judge_adapter, open_installation
from chatlane_devkit.conform.report import Outcome
from chatlane_devkit.conform.scenes.scene import Ability
from chatlane_servers.binaries import server_directory

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(420),
]


# `chatlane conform adapter` makes the others too; their pauses take minutes.
_SHORT: Final = {"answers", "repeats", "edits", "deletes", "reactions", "threads", "refusals"}
_CHECKS: Final = {
    platform: tuple(it for it in CHECKS if it.name in _SHORT) for platform in ("mail", "whatsapp")
}


@pytest.mark.parametrize("platform", sorted(SCENES.keys() - {"scripted"}))
async def test_our_adapter_passes_every_check(platform: str, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "chatlane", "adapter", platform])
    with server_directory() as directory:
        async with (
            SCENES[platform]() as scene,
            open_installation(directory, scene) as installation,
        ):
            checks = _CHECKS.get(platform, CHECKS)
            findings = await judge_adapter(
                command, installation, scene, tmp_path, checks=checks, patience=40
            )
    failed = {it.check: it.reason for it in findings if it.outcome is Outcome.FAILED}
    skipped = {it.check: it.reason for it in findings if it.outcome is Outcome.SKIPPED}
    assert not failed
    lacks = {
        scene.lacks[Ability(need)] for it in checks for need in it.needs if need in scene.lacks
    }
    assert set(skipped.values()) == lacks
    assert any(it.outcome is Outcome.PASSED for it in findings)
