"""Read the scripts of the invented people from `data/phrases.toml`."""

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Literal, TypeVar

Kind = Literal["chat", "group", "work", "note"]
Item = TypeVar("Item")

_SLOT: Final = re.compile(r"\{([a-z]+)\}")


class Chance:
    """Random choices that are the same for one seed in every version of Python.

    Built on `random.Random.random` alone: the library guarantees only that sequence.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 # repeatable, not secret

    def below(self, count: int) -> int:
        """Return a number from 0 to `count` - 1."""
        return int(self._random.random() * count)

    def between(self, low: float, high: float) -> float:
        """Return a number from `low` up to, not including, `high`."""
        return low + (high - low) * self._random.random()

    def happens(self, share: float) -> bool:
        """Return true in a `share` of all cases."""
        return self._random.random() < share

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of `items`."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Return the items in another order."""
        keyed = [(self._random.random(), item) for item in items]
        return [item for _, item in sorted(keyed, key=lambda pair: pair[0])]

    def digits(self, count: int) -> str:
        """Return a number of `count` digits that does not start with 0."""
        low = 10 ** (count - 1)
        return str(low + self.below(9 * low))

    def hexadecimal(self, count: int) -> str:
        """Return `count` hexadecimal digits."""
        return "".join(self.pick("0123456789abcdef") for _ in range(count))


@dataclass(frozen=True, slots=True)
class Script:
    """Messages on one subject, in the order in which they are written."""

    language: str
    kind: Kind
    sentences: tuple[str, ...]


class Phrases:
    """All scripts and what fills their slots."""

    def __init__(
        self,
        scripts: Sequence[Script],
        small_talk: Mapping[str, Sequence[str]],
        slots: Mapping[str, Sequence[str]],
    ) -> None:
        self._scripts = scripts
        self._small_talk = small_talk
        self._slots = slots

    def script(self, chance: Chance, language: str, kind: Kind, told: set[Script]) -> list[str]:
        """Return the messages of one script with its slots filled.

        Args:
            chance: Makes the choices.
            language: Language of the script; English when no unused script is left in it.
            kind: Kind of the subject.
            told: Scripts that were used in the same place; the chosen one is added.
        """
        fresh = [script for script in self._of(language, kind) if script not in told]
        fresh = fresh or [script for script in self._of("en", kind) if script not in told]
        chosen = chance.pick(fresh or self._of("en", kind))
        told.add(chosen)
        return [self._filled(chance, line) for line in chosen.sentences]

    def aside(self, chance: Chance, language: str) -> str:
        """Return a short answer such as `thanks!`."""
        return chance.pick(self._small_talk[language])

    def _of(self, language: str, kind: Kind) -> list[Script]:
        return [
            script for script in self._scripts if (script.language, script.kind) == (language, kind)
        ]

    def _filled(self, chance: Chance, line: str) -> str:
        return _SLOT.sub(lambda slot: chance.pick(self._slots[slot[1]]), line)


def read_phrases() -> Phrases:
    """Read the file that comes with the package."""
    text = (
        resources.files("chatlane_devkit.scenario").joinpath("data/phrases.toml").read_text("utf-8")
    )
    content: dict[str, Any] = tomllib.loads(text)
    scripts = [
        Script(script["language"], script["kind"], tuple(script["lines"]))
        for script in content["scripts"]
    ]
    return Phrases(scripts, content["small_talk"], content["slots"])
