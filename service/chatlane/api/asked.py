"""A request with who asks: the principal of its subject, which NATS permissions pin."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and who made it: the token that NATS permissions pin in its subject."""

    principal: str
    body: bytes
