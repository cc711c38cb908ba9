"""People whose ids change hands: who has which, what the platform tells of it, who said what.

A platform tells that a number changed hands only by the account's own id beside it, or not at all.
The steps are made so that each change is told before anybody asks: a number whose owner was never
told with it changes hands only where an operator says so.
"""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Place = Literal["dm", "own", "room"]


@dataclass(slots=True)
class Somebody:
    """One person.

    Attributes:
        name: Part of every word of theirs.
        lasting: The platform's id for their account.
        number: The one they have now.
        told_to: The accounts that the platform has told the number beside the lasting id.
        was_told: Whether it ever told a number beside that.
        has_lasting: Whether anything ever came with the lasting id.
        is_known: By number: whether what they write under it alone is known to be theirs.
        is_continuous: Whether nothing ever made us take them for another person.
        said: By account, words in conversations of theirs alone.
        in_rooms: By account, words where others read them, too.
        deleted: Words in messages that they deleted.
    """

    name: str
    lasting: str
    number: str | None
    told_to: set[str] = field(default_factory=set)
    was_told: bool = False
    has_lasting: bool = False
    is_known: bool = False
    is_continuous: bool = True
    said: dict[str, list[str]] = field(default_factory=dict)
    in_rooms: dict[str, list[str]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    @property
    def is_told(self) -> bool:
        """Whether the platform has told the number beside the lasting id at all."""
        return bool(self.told_to)

    def forget_number(self, number: str | None) -> None:
        """Take note that they have another number, or none, which nothing told yet."""
        self.number = number
        self.told_to.clear()
        self.is_known = False

    def said_to(self, account: str) -> set[str]:
        """Return their words in conversations of theirs alone on an account."""
        return {*self.said.get(account, ())}

    def said_in_rooms(self, account: str) -> set[str]:
        """Return their words in rooms of an account."""
        return {*self.in_rooms.get(account, ())}


class Say(NamedTuple):
    """Somebody writes, and the platform names them by these ids."""

    person: Somebody
    account: str
    number: str | None
    lasting: str | None
    place: Place
    word: str
    message_id: str = "1"
    is_late: bool = False

    @property
    def chat(self) -> str:
        """Id of the chat: that of the person in a DM."""
        return (self.number or self.lasting or "") if self.place == "dm" else "group-1"


class Arrive(NamedTuple):
    """A message is decided that was stored before others which were decided already."""

    message: Say


class Change(NamedTuple):
    """Somebody edits or deletes a message of theirs; `word` is new, None for a deletion."""

    message: Say
    word: str | None


class HandOver(NamedTuple):
    """An operator says that a number is another person's from now on."""

    number: str


class Split(NamedTuple):
    """An operator says that an id is of a person of its own."""

    lasting: str


class Ask(NamedTuple):
    """Somebody does something with conversations of theirs."""

    person: Somebody
    account: str
    raw: str
    what: Literal["new", "resume", "branch", "open"]


Step = Say | Arrive | Change | HandOver | Split | Ask


class World:
    """Makes steps that can happen.

    Args:
        platform: `signal` or `whatsapp`.
        accounts: The accounts of ours that people write to.
    """

    def __init__(
        self, seed: int, platform: str, accounts: "Sequence[str]" = ("bot", "bot2")
    ) -> None:
        self.accounts = accounts
        self.chance = Random(seed)  # noqa: S311 - the same steps again
        self.platform = platform
        self._made = 0
        self._message_ids: dict[tuple[str, str], int] = {}
        #: What was stored and is not decided.
        self.on_the_way: list[Say] = []
        #: What was decided last of each person, as they may still change it.
        self._changeable: dict[str, Say] = {}
        self.free: list[str] = [self._number() for _ in range(2)]
        self.people = [self._somebody(name) for name in ("kim", "lee", "ada", "bo")]

    def _number(self) -> str:
        self._made += 1
        return f"+155509{self._made}" if self.platform == "signal" else f"155509{self._made}"

    def _somebody(self, name: str) -> Somebody:
        number = self.chance.getrandbits(64)
        lasting = str(UUID(int=number)) if self.platform == "signal" else f"{number}@lid"
        return Somebody(name, lasting, self._number())

    def step(self) -> list[Step]:
        """Return what happens next; several things that have to happen at once."""
        kind = self.chance.choices(
            [
                *("say", "swap", "drop", "take", "grab", "circle", "silent", "split", "ask"),
                *("late", "arrive", "change"),
            ],
            [38, 6, 4, 8, 6, 2, 6, 2, 14, 6, 4, 8],
        )[0]
        someone = self.chance.choice(self.people)
        steps: dict[str, Callable[[], list[Step]]] = {
            "say": lambda: [self.say(someone)],
            "swap": lambda: self._circle(self.chance.sample(self.people, 2)),
            "circle": lambda: self._circle(self.chance.sample(self.people, 3)),
            "drop": lambda: self._drop(someone),
            "take": lambda: self._take(someone),
            "grab": self._grab,
            "silent": self._silent,
            "split": lambda: self._split(someone),
            "ask": lambda: self._ask(someone),
            "late": lambda: self._say_late(someone),
            "arrive": self._arrive,
            "change": lambda: self._change(someone),
        }
        return steps[kind]()

    def say(self, person: Somebody, *, tell: bool = False) -> Say:
        """Let somebody write."""
        names = ["both"] if tell else ["both", "lasting"]
        if (person.number is not None and person.is_known and not tell) or (
            person.number is not None and not person.has_lasting and not tell
        ):
            names.append("number")
        how = self.chance.choice(names) if person.number is not None else "lasting"
        account = self.chance.choice(self.accounts)
        if how == "both":
            person.told_to.add(account)
            person.was_told = True
        if how != "number":
            person.has_lasting = True
        if how != "lasting":
            person.is_known = True
        said = self._message(person, account, how)
        self._changeable[person.name] = said
        return said

    def _message(self, person: Somebody, account: str, how: str) -> Say:
        place: Place = self.chance.choice(["dm", "dm", "own", "room"])
        word = self._word(person, account, place)
        # A platform counts the messages of each chat. Whoever has a number begins with 1.
        counted = (account, person.name if place == "dm" else "group-1")
        self._message_ids[counted] = self._message_ids.get(counted, 0) + 1
        number = person.number if how != "lasting" else None
        lasting = person.lasting if how != "number" else None
        message_id = str(self._message_ids[counted])
        return Say(person, account, number, lasting, place, word, message_id)

    def _word(self, person: Somebody, account: str, place: Place) -> str:
        self._made += 1
        word = f"word{self._made}of{person.name}"
        words = person.in_rooms if place == "room" else person.said
        words.setdefault(account, []).append(word)
        return word

    def _say_late(self, person: Somebody) -> list[Step]:
        """Somebody writes, and it is decided later; nothing new is told of their ids."""
        account = self.chance.choice(self.accounts)
        names = ["lasting"] if person.has_lasting else []
        if person.number is not None:
            names += ["number"] if person.is_known else []
            names += ["both"] if account in person.told_to else []
        if not names:
            return [self.say(person)]
        said = self._message(person, account, self.chance.choice(names))._replace(is_late=True)
        self.on_the_way.append(said)
        return [said]

    def _arrive(self) -> list[Step]:
        arriving, self.on_the_way = self.on_the_way, []
        return [Arrive(said) for said in arriving]

    def _change(self, person: Somebody) -> list[Step]:
        """Somebody edits or deletes what they wrote last, under an id that is still theirs."""
        said = self._changeable.pop(person.name, None)
        if said is None or said.number not in {None, person.number}:
            return [self.say(person)]
        if said.lasting is None and not person.is_known:
            return [self.say(person)]
        if self.chance.random() < 1 / 3:
            words = person.in_rooms if said.place == "room" else person.said
            words[said.account].remove(said.word)
            person.deleted.add(said.word)
            return [Change(said, None)]
        return [Change(said, self._word(person, said.account, said.place))]

    def _is_fixed(self, person: Somebody) -> bool:
        """Whether a change of their number would be told: their account stands beside it."""
        return person.number is None or person.is_told

    def _circle(self, people: list[Somebody]) -> list[Step]:
        """Numbers change hands in a circle, and each of the new owners writes."""
        if not all(self._is_fixed(one) for one in people):
            return [self.say(one, tell=True) for one in people]
        numbers = [one.number for one in people]
        for one, number in zip(people, [*numbers[1:], numbers[0]], strict=True):
            one.forget_number(number)
            one.is_continuous = False
        self.chance.shuffle(people)
        return [self.say(one, tell=True) for one in people]

    def _drop(self, person: Somebody) -> list[Step]:
        if person.number is None or not self._is_fixed(person):
            return [self.say(person, tell=True)]
        self.free.append(person.number)
        person.forget_number(None)
        return [self.say(person)]

    def _take(self, person: Somebody) -> list[Step]:
        if not self.free or not self._is_fixed(person):
            return [self.say(person, tell=True)]
        if person.number is not None:
            self.free.append(person.number)
        person.forget_number(self.free.pop(self.chance.randrange(len(self.free) - 1 or 1)))
        person.is_continuous = False
        return [self.say(person, tell=True)]

    def _grab(self) -> list[Step]:
        """Somebody known with another number takes one that was never told with an account."""
        giver, taker = self.chance.sample(self.people, 2)
        if giver.number is None or giver.is_told or not taker.was_told:
            return [self.say(giver)]
        if not self._is_fixed(taker):
            return [self.say(taker, tell=True)]
        if taker.number is not None:
            self.free.append(taker.number)
        taker.forget_number(giver.number)
        giver.forget_number(None)
        taker.is_continuous = giver.is_continuous = False
        return [self.say(taker, tell=True)]

    def _silent(self) -> list[Step]:
        """A number changes hands, and only an operator knows."""
        giver, taker = self.chance.sample(self.people, 2)
        if giver.number is None or not self._is_fixed(taker):
            return [self.say(giver)]
        if taker.number is not None:
            self.free.append(taker.number)
        number = giver.number
        taker.forget_number(number)
        giver.forget_number(None)
        taker.is_continuous = giver.is_continuous = False
        # From now on what comes with the number alone is the new owner's.
        taker.is_known = True
        return [HandOver(number), self.say(taker)]

    def _split(self, person: Somebody) -> list[Step]:
        if not person.is_told or not person.has_lasting:
            return [self.say(person)]
        person.is_continuous = False
        # Whom the number alone means is not known until they write with it.
        person.is_known = False
        return [Split(person.lasting), self.say(person, tell=True)]

    def _ask(self, person: Somebody) -> list[Step]:
        if (raw := self.id_of(person)) is None:
            return [self.say(person)]
        account = self.chance.choice(self.accounts)
        return [Ask(person, account, raw, self.chance.choice(["new", "resume", "branch", "open"]))]

    def id_of(self, person: Somebody) -> str | None:
        """Return an id that is known to be theirs now; None while none is."""
        known = [person.lasting] if person.has_lasting else []
        if person.number is not None and person.is_known:
            known.append(person.number)
        return self.chance.choice(known) if known else None

    def others(self, person: Somebody) -> set[str]:
        """Return every word that they must never see outside of a room."""
        others = [one for one in self.people if one is not person]
        said = {word for one in others for words in one.said.values() for word in words}
        return said.union(*(one.deleted for one in others))

    def is_settled(self, person: Somebody) -> bool:
        """Return whether everything that they wrote is decided."""
        return all(said.person is not person for said in self.on_the_way)
