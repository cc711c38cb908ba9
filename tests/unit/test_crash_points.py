"""Crash points: what the variable may say, and that nothing happens where it says nothing."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chatlane.crash_points import (
    CRASH_VARIABLE,
    FREEZE_VARIABLE,
    POINTS,
    RouterPoint,
    WorkerPoint,
    reach,
)
from chatlane.settings import SettingsError, fuse

_SOURCES = [
    *Path(__file__).parents[2].glob("service/chatlane/routing/*.py"),
    *Path(__file__).parents[2].glob("client/chatlane_client/*.py"),
]


def test_a_point_and_a_pass_are_told() -> None:
    end = (RouterPoint.BATCH_WRITTEN, 3, signal.SIGKILL)
    assert fuse({CRASH_VARIABLE: "batch.written:3"}) == end
    stop = (WorkerPoint.CLAIMED, 12, signal.SIGSTOP)
    assert fuse({CRASH_VARIABLE: "", FREEZE_VARIABLE: "worker.claimed:12"}) == stop


def test_one_process_is_told_one_thing() -> None:
    with pytest.raises(SettingsError, match="one of"):
        fuse({CRASH_VARIABLE: "batch.written:3", FREEZE_VARIABLE: "batch.written:4"})


@pytest.mark.parametrize("environ", [{}, {CRASH_VARIABLE: ""}])
def test_nothing_told_is_nothing_armed(environ: dict[str, str]) -> None:
    assert fuse(environ) is None


@pytest.mark.parametrize("variable", [CRASH_VARIABLE, FREEZE_VARIABLE])
@pytest.mark.parametrize("told", ["batch.writen:1", "batch", ":1", "batch.written:1:1x"])
def test_a_point_that_does_not_exist_is_a_settings_error(told: str, variable: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        fuse({variable: told})


def test_a_typo_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(SettingsError) as caught:
        fuse({CRASH_VARIABLE: "batch.comitted:1"})
    assert all(point in str(caught.value) for point in POINTS)


@pytest.mark.parametrize(
    "told", [f"batch.written{nth}" for nth in ("", ":", ":0", ":-1", ":1.5", ":x")]
)
def test_a_pass_is_a_number_from_one(told: str) -> None:
    with pytest.raises(SettingsError, match="counted from 1"):
        fuse({CRASH_VARIABLE: told})


def test_a_point_of_an_unarmed_process_is_passed() -> None:
    for point in POINTS:
        reach(point)


@pytest.mark.parametrize("nth", [1, 3])
def test_the_nth_pass_ends_the_process_and_no_other_point_does(nth: int) -> None:
    program = (
        "from chatlane.crash_points import RouterPoint, arm, reach\n"
        f"arm('relay.deleted', {nth})\n"
        "for count in range(1, 9):\n"
        "    reach(RouterPoint.ADOPTED)\n"
        "    print(count, flush=True)\n"
        "    reach(RouterPoint.DELETED)\n"
    )
    ended = subprocess.run(  # noqa: S603 - our own interpreter and program
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == [str(count) for count in range(1, nth + 1)]


def test_a_process_that_froze_at_a_point_goes_on_from_there() -> None:
    program = (
        "import os, signal\n"
        "from chatlane.crash_points import RouterPoint, arm, reach\n"
        "arm('relay.deleted', 2, signal.SIGSTOP)\n"
        "for count in range(1, 4):\n"
        "    reach(RouterPoint.DELETED)\n"
        "    print(count, flush=True)\n"
    )
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        frozen_with = process.stdout.readline()
        process.send_signal(signal.SIGCONT)
        rest, _ = process.communicate()
    assert os.WIFSTOPPED(status)
    assert (frozen_with, rest.split(), process.returncode) == ("1\n", ["2", "3"], 0)


def test_every_point_is_in_the_code_once() -> None:
    code = "\n".join(path.read_text("utf-8") for path in _SOURCES)
    reached = sorted(re.findall(r"reach\((\w+Point\.\w+)\)", code))
    declared = [f"{type(point).__name__}.{point.name}" for point in (*RouterPoint, *WorkerPoint)]
    assert reached == sorted(declared)
