"""Assign messages to owners, and compute how much each owner frees when a stream fills up."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from chatlane.domain.log import LogName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from chatlane.domain.catalog import Catalog

SharedStream = LogName | Literal["outbound", "routed", "turns"]
"""A stream in which each account or agent has a share: a log, OUTBOUND, ROUTED or TURNS."""


UNDECLARED: Final = "undeclared"
"""Label of all undeclared owners: however many publish, they add one label value."""

# Position of the first name, and number of names, in `chat.v1.log.<partition>.<platform>.<account>.<chat>`,
# in that of a result, `chat.v1.rlog.<partition>.<agent>.<session>`, in
# `chat.v1.outbound.<platform>.<account>.<chat>`, and in `chat.v1.routed.<agent>.<slot>.<session>`,
# of which the slot is cut off.
_NAMES: Final[Mapping[SharedStream, tuple[int, int]]] = {
    "inbound": (4, 2),
    "results": (4, 1),
    "outbound": (3, 2),
    "routed": (3, 1),
}


def declared_owners(catalog: Catalog) -> Mapping[LogName, frozenset[str]]:
    """Return the declared owners: accounts in INBOUND, agents in RESULTS."""
    accounts = frozenset(
        f"{platform.name}/{account}"
        for platform in catalog.platforms.values()
        for account in platform.accounts
    )
    return {"inbound": accounts, "results": frozenset(catalog.agents)}


def declared_owners_of_streams(catalog: Catalog) -> Mapping[SharedStream, frozenset[str]]:
    """Return the declared owners of each shared stream.

    These are accounts in INBOUND and OUTBOUND, and agents in RESULTS. ROUTED has the agents with
    delivery `stream`, TURNS those with delivery `turns`.
    """
    owners = declared_owners(catalog)
    accounts, agents = owners["inbound"], owners["results"]
    streaming = frozenset(
        agent.name for agent in catalog.agents.values() if agent.delivery == "stream"
    )
    return {
        "inbound": accounts,
        "results": agents,
        "outbound": accounts,
        "routed": streaming,
        "turns": agents - streaming,
    }


def label_of(owner: str, declared: Collection[str]) -> str:
    """Return an owner as a metric label out of a closed set."""
    return owner if owner in declared else UNDECLARED


def owner_of(log: SharedStream, subject: str) -> str:
    """Return the owner of a message: the agent in RESULTS, ROUTED and TURNS, elsewhere `platform/account`.

    A subject of another form has an owner that cannot be declared.
    """
    place, _, last = subject.rpartition(".")
    if log == "turns":
        return last
    return _owner_at(log, place.rpartition(".")[0] if log == "routed" else place)


# Runs for every message. Only the last token of a subject has many values, so it is not in the key.
@lru_cache(maxsize=4096)
def _owner_at(log: SharedStream, place: str) -> str:
    first, count = _NAMES[log]
    names = place.split(".")[first:]
    return "/".join(names) if len(names) == count else ""


def bytes_to_trim(held: Mapping[str, int], excess: int) -> dict[str, int]:
    """Return how many bytes each owner frees, so that all of them together free `excess`.

    Only the largest owners free space: each is cut to the same size, and an owner that holds less
    than that keeps everything.
    """
    if excess <= 0:
        return {}
    largest_first = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    total = 0
    for count, (_, size) in enumerate(largest_first, 1):
        total += size
        below = largest_first[count][1] if count < len(largest_first) else 0
        if total - count * below >= excess or count == len(largest_first):
            level = max(0, (total - excess) // count)
            return {name: had - level for name, had in largest_first[:count] if had > level}
    return {}
