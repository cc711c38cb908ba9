"""The settings of the adapter for Telegram."""

import subprocess
import sys

import pytest
from aiogram.utils.token import TokenValidationError, validate_token
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from chatlane_adapters.telegram.settings import TelegramSettings

PARTS = st.sampled_from(["1", "42", ":", " ", "\n", "a", "-", ""])


def is_accepted(token: str) -> bool:
    try:
        TelegramSettings(account="bot", token=token)  # type: ignore[arg-type]
    except ValidationError:
        return False
    return True


def is_accepted_by_the_library(token: str) -> bool:
    try:
        return validate_token(token)
    except TokenValidationError:
        return False


@given(st.lists(PARTS, max_size=5).map("".join))
@example("123456:ABC-DEF")
@example("1:a\n")
def test_a_token_is_accepted_if_the_library_accepts_it(token: str) -> None:
    assert is_accepted(token) == is_accepted_by_the_library(token)


def test_settings_are_read_without_the_library() -> None:
    """It takes seconds, and `chatlane bot` reads them to find its secrets."""
    program = "import sys, chatlane_adapters.telegram.settings; print('aiogram' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)  # noqa: S603

    assert ended.stdout.decode().strip() == "False"


@pytest.mark.parametrize("token", ["", "1", "1:", ":a", "a:1", "1: a", "1:a\n"])
def test_what_is_no_token_is_refused(token: str) -> None:
    assert not is_accepted(token)
