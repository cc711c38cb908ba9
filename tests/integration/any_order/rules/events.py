"""What may happen, as data: each event is a method of the machine and what it is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from typing_extensions import override

from tests.integration.any_order.people import PLACES

number = st.integers(0, 9)
a_few = st.integers(1, 6)
place = st.sampled_from(PLACES)

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens: the name of a method of the machine, and what it is given."""

    name: str
    arguments: dict[str, Any]

    @override
    def __repr__(self) -> str:
        return (
            f"{self.name}({', '.join(f'{name}={its!r}' for name, its in self.arguments.items())})"
        )


EVENTS: Final[list[st.SearchStrategy[Event]]] = []


def happens(often: int = 1, **drawn: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Make a method one of the things that may happen, so many times as often as others.

    All of them are one rule: of several ones Hypothesis leaves some out of each example, and
    without any one of the usual things nothing comes of the others.
    """

    def note(method: F) -> F:
        for _ in range(often):
            arguments = st.fixed_dictionaries(drawn)
            EVENTS.append(st.builds(Event, st.just(method.__name__), arguments))
        return method

    return note
