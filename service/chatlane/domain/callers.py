"""Who asks for something over the API, as far as it matters what of it is kept."""

from __future__ import annotations

from typing import Self

from typing_extensions import override


class Operator(str):
    """The principal of a request that is bound to no agent and to no account: it is audited.

    Attributes:
        method: What is asked for, such as `session.title`.
    """

    __slots__ = ("method",)

    method: str

    @override
    def __new__(cls, principal: str, method: str) -> Self:
        made = super().__new__(cls, principal)
        made.method = method
        return made
