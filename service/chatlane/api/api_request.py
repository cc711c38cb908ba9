"""A request and its caller: the tokens of its subject, which NATS permissions pin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request and the tokens of its subject, the only trusted facts about its caller.

    Attributes:
        agent: If given, the caller sees only sessions of this agent.
        account: Platform and account; if given, the caller acts for a user who talks to it.
    """

    principal: str
    body: bytes
    agent: str | None = None
    account: tuple[str, str] | None = None

    @property
    def is_bound(self) -> bool:
        """The caller is a worker or a front end; a caller bound to neither is an operator."""
        return self.agent is not None or self.account is not None


Handle: TypeAlias = Callable[[ApiRequest], Awaitable[bytes]]
"""Answers a request; never raises."""
