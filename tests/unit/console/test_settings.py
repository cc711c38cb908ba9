"""The settings of the console, as environment variables have them."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pytest
from pydantic import JsonValue, ValidationError

from chatlane_console.settings import ConsoleSettings, FurtherAccount
from chatlane_console.sign_in.visitors import Admission

SetAccounts: TypeAlias = Callable[[str], None]


@pytest.fixture
def further_accounts(monkeypatch: pytest.MonkeyPatch) -> SetAccounts:
    return partial(monkeypatch.setenv, "CHATLANE_CONSOLE_FURTHER_ACCOUNTS")


def test_further_accounts_are_read_from_one_text(further_accounts: SetAccounts) -> None:
    further_accounts("telegram/bot=telegram_id, slack/team/T0123=slack.id,")
    assert ConsoleSettings().further_accounts == (
        FurtherAccount("telegram", "bot", None, "telegram_id"),
        FurtherAccount("slack", "team", "T0123", "slack.id"),
    )


@pytest.mark.parametrize(
    "text", ["telegram=id", "telegram/bot", "telegram/bot=", "a/b=c d", ",".join(["a/b=c"] * 9)]
)
def test_what_names_no_account_is_refused(further_accounts: SetAccounts, text: str) -> None:
    further_accounts(text)
    with pytest.raises(ValidationError):
        ConsoleSettings()


@pytest.mark.parametrize("claim", [None, "", True, ["7"], {"id": "7"}, "x" * 10_000])
def test_a_claim_that_is_no_id_adds_no_account(
    further_accounts: SetAccounts, claim: JsonValue
) -> None:
    further_accounts("telegram/bot=telegram_id")
    admission = Admission(ConsoleSettings())
    visitor = admission.visitor_of_claims({"sub": "ann", "telegram_id": claim})
    assert visitor.person.also is None
    found = admission.visitor_of_claims({"sub": "ann", "telegram_id": 7}).person.also
    assert [(its.platform, its.account, its.id) for its in found or ()] == [
        ("telegram", "bot", "7")
    ]
