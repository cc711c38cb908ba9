"""The tree of errors says whether it is worth trying again."""

import inspect

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
