"""The tree of errors says whether it is worth trying again."""

import inspect
from datetime import timedelta

import pytest

from chatlane_client import errors


@pytest.mark.parametrize(
    "error",
    [
        its
        for _, its in inspect.getmembers(errors, inspect.isclass)
        if issubclass(its, errors.ChatlaneClientError)
    ],
)
def test_every_error_is_either_transient_or_permanent(
    error: type[errors.ChatlaneClientError],
) -> None:
    roots = (errors.TransientError, errors.PermanentError)
    assert error is errors.ChatlaneClientError or sum(issubclass(error, it) for it in roots) == 1
    assert error.__name__ in (errors.__doc__ or "")


def test_messages_are_built_from_data() -> None:
    error = errors.OversizedMessageError("chat.v1.inbound.test.bot.none", 300, 200)
    assert str(error) == ("message on chat.v1.inbound.test.bot.none has 300 bytes, allowed are 200")
    assert (error.size_bytes, error.limit_bytes) == (300, 200)


@pytest.mark.parametrize(
    ("seconds", "waits"),
    [
        (-5, 0),
        (0, 0),
        (2.5, 2.5),
        (86_400, 86_400),
        (1_767_225_600, 86_400),
        (1_767_225_600_000, 86_400),
        (float("inf"), 86_400),
        (float("nan"), 0),
    ],
)
def test_c73_any_wait_that_a_platform_names_is_one(seconds: float, waits: float) -> None:
    assert errors.RetryAfter(seconds).after == timedelta(seconds=waits)


@pytest.mark.parametrize(
    ("again_in", "waits"),
    [
        (None, None),
        (timedelta(seconds=-3), timedelta(0)),
        (timedelta(0), timedelta(0)),
        (timedelta(minutes=5), timedelta(minutes=5)),
        (timedelta(days=31), timedelta(days=1)),
        (timedelta.max, timedelta(days=1)),
    ],
)
def test_c92_any_pause_of_an_agent_fits_into_its_result(
    again_in: timedelta | None, waits: timedelta | None
) -> None:
    assert errors.AgentUnavailableError(again_in=again_in).again_in == waits
