"""Failpoints: values of the variables, the option that allows them, and their effect."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chatlane.config.settings import SettingsError, read_failpoint
from chatlane.failpoints import (
    CRASH_VARIABLE,
    FREEZE_VARIABLE,
    POINTS,
    RouterPoint,
    WorkerPoint,
    hit,
)

_SOURCES = [
    *Path(__file__).parents[2].glob("service/chatlane/**/*.py"),
    *Path(__file__).parents[2].glob("client/chatlane_client/*.py"),
]


def test_a_variable_names_a_point_and_a_pass() -> None:
    end = (RouterPoint.BATCH_WRITTEN, 3, signal.SIGKILL)
    assert read_failpoint({CRASH_VARIABLE: "batch.written:3"}, is_allowed=True) == end
    stop = (WorkerPoint.CLAIMED, 12, signal.SIGSTOP)
    assert (
        read_failpoint({CRASH_VARIABLE: "", FREEZE_VARIABLE: "worker.claimed:12"}, is_allowed=True)
        == stop
    )


def test_one_process_takes_one_failpoint() -> None:
    with pytest.raises(SettingsError, match="one of"):
        read_failpoint(
            {CRASH_VARIABLE: "batch.written:3", FREEZE_VARIABLE: "batch.written:4"}, is_allowed=True
        )


@pytest.mark.parametrize("variable", [CRASH_VARIABLE, FREEZE_VARIABLE])
def test_a_failpoint_without_the_option_is_a_settings_error(variable: str) -> None:
    with pytest.raises(SettingsError, match=f"{variable} is for tests only"):
        read_failpoint({variable: "batch.written:1"}, is_allowed=False)


@pytest.mark.parametrize("command", ["router", "echo-worker"])
def test_a_process_refuses_to_start_with_a_failpoint_and_without_the_option(command: str) -> None:
    ended = subprocess.run(  # noqa: S603 - our own interpreter and program
        [sys.executable, "-m", "chatlane", command],
        env={**os.environ, CRASH_VARIABLE: "batch.written:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "is for tests only" in ended.stderr


@pytest.mark.parametrize("environ", [{}, {CRASH_VARIABLE: ""}])
def test_without_a_variable_no_failpoint_is_enabled(environ: dict[str, str]) -> None:
    assert read_failpoint(environ, is_allowed=True) is None


@pytest.mark.parametrize("variable", [CRASH_VARIABLE, FREEZE_VARIABLE])
@pytest.mark.parametrize("told", ["batch.writen:1", "batch", ":1", "batch.written:1:1x"])
def test_a_point_that_does_not_exist_is_a_settings_error(told: str, variable: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        read_failpoint({variable: told}, is_allowed=True)


def test_a_typo_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(SettingsError) as caught:
        read_failpoint({CRASH_VARIABLE: "batch.comitted:1"}, is_allowed=True)
    assert all(point in str(caught.value) for point in POINTS)


@pytest.mark.parametrize(
    "told", [f"batch.written{nth}" for nth in ("", ":", ":0", ":-1", ":1.5", ":x")]
)
def test_a_pass_is_a_number_from_one(told: str) -> None:
    with pytest.raises(SettingsError, match="counted from 1"):
        read_failpoint({CRASH_VARIABLE: told}, is_allowed=True)


def test_a_point_without_an_enabled_failpoint_does_nothing() -> None:
    for point in POINTS:
        hit(point)


@pytest.mark.parametrize("nth", [1, 3])
def test_the_nth_pass_ends_the_process_and_no_other_point_does(nth: int) -> None:
    program = (
        "from chatlane.failpoints import RouterPoint, enable, hit\n"
        f"enable('relay.deleted', {nth})\n"
        "for count in range(1, 9):\n"
        "    hit(RouterPoint.ADOPTED)\n"
        "    print(count, flush=True)\n"
        "    hit(RouterPoint.DELETED)\n"
    )
    ended = subprocess.run(  # noqa: S603 - our own interpreter and program
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == [str(count) for count in range(1, nth + 1)]


def test_a_process_that_froze_at_a_point_goes_on_from_there() -> None:
    program = (
        "import os, signal\n"
        "from chatlane.failpoints import RouterPoint, enable, hit\n"
        "enable('relay.deleted', 2, signal.SIGSTOP)\n"
        "for count in range(1, 4):\n"
        "    hit(RouterPoint.DELETED)\n"
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
    hits = sorted(re.findall(r"hit\((\w+Point\.\w+)\)", code))
    declared = [f"{type(point).__name__}.{point.name}" for point in (*RouterPoint, *WorkerPoint)]
    assert hits == sorted(declared)
