"""A request with who asks: what its subject says, which NATS permissions pin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and the tokens of its subject: all that is believed of who made it.

    Attributes:
        agent: Where given, only sessions of this agent exist for the caller.
        account: Platform and account; where given, the caller acts for a person who talks to it.
    """

    principal: str
    body: bytes
    agent: str | None = None
    account: tuple[str, str] | None = None

    @property
    def is_bound(self) -> bool:
        """Whether it is a worker's or a front end's; what is bound to nothing is an operator's."""
        return self.agent is not None or self.account is not None


Handle: TypeAlias = Callable[[Asked], Awaitable[bytes]]
"""Answers a request; never raises."""
