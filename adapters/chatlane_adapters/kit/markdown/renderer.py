"""Render the texts of agents for a platform, in parts that it accepts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from chatlane_adapters.kit.markdown.document import Document
from chatlane_adapters.kit.markdown.parser import literal, parse
from chatlane_adapters.kit.markdown.parts import split
from chatlane_schemas.content.buttons import TextFormat

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Renderer(Generic[R]):
    """How a platform shows texts; pass it to `AdapterClient.deliver_pieces` as `render`.

    Attributes:
        render: Returns a part in the form of the platform.
        measure: Returns how long a rendered part is, in the unit of the platform.
        size: The longest part that the platform accepts, in the same unit.
    """

    render: Callable[[Document], R]
    measure: Callable[[R], int]
    size: int

    def __call__(self, text: str, text_format: TextFormat | None) -> tuple[R, ...]:
        """Return a text in rendered parts that each fit; the same text gives the same parts."""
        return tuple(self.parts(text, text_format))

    def first(self, text: str, text_format: TextFormat | None = TextFormat.MARKDOWN) -> R | None:
        """Return the first part of a text, as a draft shows it; None if nothing is to see."""
        return next(self.parts(text, text_format), None)

    def parts(self, text: str, text_format: TextFormat | None) -> Iterator[R]:
        """Yield a text in rendered parts."""
        document = parse(text) if text_format is TextFormat.MARKDOWN else literal(text)
        for part in split(document, lambda it: self.measure(self.render(it)), self.size):
            yield self.render(part)
