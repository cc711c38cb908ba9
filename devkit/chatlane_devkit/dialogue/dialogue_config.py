"""The account and the agent of dialogues, beside those that only ask and answer."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

# One platform with the accounts of other agents, of which an adapter must not learn.
PLATFORM: Final = "test"
ACCOUNT: Final = "talk"
AGENT: Final = "helper"
ADAPTER_USER: Final = "talker"
WORKER_USER: Final = "helper"
# Users of NATS, as `USERS`.
USERS: Final[Mapping[str, Mapping[str, object]]] = {
    WORKER_USER: {"role": "worker", "agent": AGENT},
    ADAPTER_USER: {"role": "adapter", "account": f"{PLATFORM}/{ACCOUNT}"},
}


# Longer than a machine that is too slow needs to renew it.
_LEASE: Final = timedelta(seconds=3)


def config(max_attempts: int) -> str:
    """Return the part of a `chatlane.toml` that declares agent and account of dialogues."""
    return f"""
[agents.{AGENT}]
lease = "{_LEASE.total_seconds():g}s"
max_attempts = {max_attempts}

[profiles.{AGENT}]

[platforms.{PLATFORM}.accounts.{ACCOUNT}]
profiles = ["{AGENT}"]
"""
