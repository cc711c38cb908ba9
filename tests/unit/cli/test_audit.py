"""Who is written down as having run a command."""

import getpass
import os
import pwd

import pytest

from chatlane.cli.shared.audit import actor


def test_it_is_the_user_of_the_operating_system() -> None:
    assert actor() == f"os:{getpass.getuser()}"


def test_a_user_without_a_name_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    taken = {its.pw_uid for its in pwd.getpwall()}
    nameless = next(number for number in range(65532, 60000, -1) if number not in taken)
    monkeypatch.setattr(os, "getuid", lambda: nameless)
    assert actor() == f"os:{nameless}"
