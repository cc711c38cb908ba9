"""The look-ups of the catalog: who may address whom, and which policy is in force."""

import pytest

from chatlane.domain.catalog import Account, Agent, Catalog, Platform, Profile
from chatlane.domain.policy import KeyRules, ResetPolicy
from chatlane_schemas.dead import DeadReason

MAIN = Agent("main")
SALES = Agent("sales", delivery="stream")
DEFAULT, CLASS, PLATFORM, PLATFORM_CLASS = (ResetPolicy(at_hour=hour) for hour in (1, 2, 3, 4))


@pytest.fixture
def catalog() -> Catalog:
    account = Account("bot", profiles=frozenset({"main", "sales"}))
    return Catalog(
        platforms={
            "telegram": Platform(
                "telegram",
                KeyRules(),
                reset=PLATFORM,
                class_reset={"dm": PLATFORM_CLASS},
                accounts={"bot": account, "plain": Account("plain")},
            ),
            "slack": Platform("slack", KeyRules()),
        },
        profiles={"main": "main", "sales": "sales", "vip": "main"},
        agents={"main": MAIN, "sales": SALES},
        default_reset=DEFAULT,
        class_reset={"group": CLASS},
    )


@pytest.mark.parametrize("profile", [None, "", "default", "main"])
def test_default_profile_has_one_name(catalog: Catalog, profile: str | None) -> None:
    assert catalog.resolve_profile("telegram", "bot", profile) == Profile("main", MAIN)


def test_declared_profile_leads_to_its_agent(catalog: Catalog) -> None:
    assert catalog.resolve_profile("telegram", "bot", "sales") == Profile("sales", SALES)
    assert catalog.agent_for("vip") is MAIN
    assert catalog.agent_for("default") is MAIN


@pytest.mark.parametrize(
    ("platform", "account", "profile", "reason"),
    [
        ("telegram", "bot", "pirate", DeadReason.UNKNOWN_PROFILE),
        ("telegram", "bot", "Sales", DeadReason.UNKNOWN_PROFILE),
        ("telegram", "bot", "vip", DeadReason.PROFILE_FORBIDDEN),
        ("telegram", "plain", "sales", DeadReason.PROFILE_FORBIDDEN),
        ("telegram", "ghost", None, DeadReason.UNKNOWN_ACCOUNT),
        ("slack", "bot", None, DeadReason.UNKNOWN_ACCOUNT),
        ("irc", "bot", None, DeadReason.UNKNOWN_ACCOUNT),
    ],
)
def test_refusal_never_falls_to_the_default_profile(
    catalog: Catalog, platform: str, account: str, profile: str | None, reason: DeadReason
) -> None:
    assert catalog.resolve_profile(platform, account, profile) is reason


def test_most_specific_policy_wins(catalog: Catalog) -> None:
    assert catalog.reset_policy_for("telegram", "dm") is PLATFORM_CLASS
    assert catalog.reset_policy_for("telegram", "group") is PLATFORM
    assert catalog.reset_policy_for("slack", "group") is CLASS
    assert catalog.reset_policy_for("slack", "dm") is DEFAULT
