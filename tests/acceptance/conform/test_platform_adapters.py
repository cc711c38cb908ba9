"""The conformance suite judges our own adapters on their emulated platforms."""

import shlex
import sys
from pathlib import Path

import pytest

from chatlane_devkit.conform.command_run import SCENES
from chatlane_devkit.conform.judge_run import judge_adapter, open_installation
from chatlane_devkit.conform.report import Outcome
from chatlane_servers.binaries import server_directory

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(420),
]


@pytest.mark.parametrize("platform", sorted(SCENES.keys() - {"scripted"}))
async def test_our_adapter_passes_every_check(platform: str, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "chatlane", "adapter", platform])
    with server_directory() as directory:
        async with (
            SCENES[platform]() as scene,
            open_installation(directory, scene) as installation,
        ):
            findings = await judge_adapter(command, installation, scene, tmp_path, patience=40)
    failed = {it.check: it.reason for it in findings if it.outcome is Outcome.FAILED}
    skipped = {it.check: it.reason for it in findings if it.outcome is Outcome.SKIPPED}
    assert not failed
    assert set(skipped.values()) == set(scene.lacks.values())
    assert any(it.outcome is Outcome.PASSED for it in findings)
