"""Identify callers of the API for the audit log."""

from __future__ import annotations

from typing import Self

from typing_extensions import override


class Operator(str):
    """The audited principal of a request that is bound to no agent and no account.

    Attributes:
        method: The requested method, such as `session.title`.
    """

    __slots__ = ("method",)

    method: str

    @override
    def __new__(cls, principal: str, method: str) -> Self:
        made = super().__new__(cls, principal)
        made.method = method
        return made
