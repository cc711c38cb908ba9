"""Define the invented people of the scenario, their ids and their chats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from chatlane_devkit.scenario.phrases import Chance

# The date of the scenario; nothing depends on the date of the run.
MIDNIGHT: Final = datetime(2026, 3, 12, tzinfo=UTC)

# Generic first names and the languages of these people.
_PEOPLE: Final = (
    "Ann:en Ben:en Carla:es Dora:de Emre:tr Fatima:ar Grace:en Hiro:ja Ines:pt Jonas:de Kim:en "
    "Jun:ko Marek:pl Nina:de Oksana:uk Priya:hi Quentin:fr Rosa:it Sofia:es Tom:en Selma:sv "
    "Victor:fr Wei:zh Yara:pt Zoe:en Elif:tr Bea:it Chidi:en Akira:ja Daria:uk Finn:nl Greta:sv "
    "Hanna:de Iris:nl Leila:ar Kofi:en Lena:de Milan:en Noor:nl Omar:ar Paolo:it Quinn:en "
    "Ravi:en Uma:hi Taro:ja Ula:pl Vera:uk Willa:en Xenia:de Yusuf:tr Zora:en Amara:en "
    "Bruno:pt Celia:es Dylan:en Ewa:pl Felix:de Gita:en Hugo:fr Inga:sv Jade:fr Kaito:ja"
)


@dataclass(frozen=True, slots=True)
class Person:
    """An invented person.

    Attributes:
        ids: Their sender id by platform: numbers on Telegram, text elsewhere.
    """

    name: str
    language: str
    ids: Mapping[str, str | int]

    def sender(self, platform: str) -> dict[str, object]:
        """Return the sender of an event."""
        return {"id": self.ids[platform], "name": self.name}


@dataclass(slots=True)
class Chat:
    """A chat, or a thread of one, in which conversations take place.

    Attributes:
        label: Prefix of the names of its conversations.
        is_shared: All participants share one conversation; otherwise each has a separate one.
        agent: The agent that answers.
    """

    label: str
    platform: str
    account: str
    chat: Mapping[str, object]
    is_shared: bool
    thread_id: str | int | None = None
    scope: str | None = None
    profile: str | None = None
    agent: str = "main"
    last_number: int = field(default=0)

    def talk(self, person: Person | None) -> str:
        """Return the name of the conversation that a message of `person` belongs to."""
        if self.is_shared or person is None:
            return self.label
        return f"{self.label}/{person.name.lower()}"

    def message_id(self, chance: Chance, at: float) -> str | int:
        """Return the id that the platform gives to the next message.

        Args:
            chance: Chooses the first number of a sequence.
            at: Seconds since midnight.
        """
        self.last_number = (self.last_number or chance.below(9_000)) + 1
        match self.platform:
            case "telegram":
                return self.last_number
            case "discord":
                return snowflake(at, self.last_number)
            case "slack":
                return f"{MIDNIGHT.timestamp() + at:.3f}{self.last_number % 1000:03}"
            case _:
                return f"3EB0{chance.hexadecimal(16).upper()}"


def snowflake(at: float, number: int) -> str:
    """Return a Discord id: milliseconds since 2015, then a count of 22 bits."""
    milliseconds = int((MIDNIGHT.timestamp() - 1_420_070_400 + at) * 1000)
    return str((milliseconds << 22) + number % (1 << 22))


def timestamp(at: float) -> str:
    """Return the time `at` seconds after midnight in the format of events."""
    moment = MIDNIGHT + timedelta(milliseconds=round(at * 1000))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def create_people(chance: Chance) -> list[Person]:
    """Return all people, with ids on all platforms."""
    return [_person(chance, *entry.split(":")) for entry in _PEOPLE.split()]


def _person(chance: Chance, name: str, language: str) -> Person:
    ids: dict[str, str | int] = {
        "telegram": int(chance.digits(9)),
        "discord": chance.digits(18),
        "slack": "U0" + chance.hexadecimal(9).upper(),
        # 1-555-01xx numbers are reserved for stories.
        "whatsapp": f"155501{chance.digits(5)}@s.whatsapp.net",
    }
    return Person(name, language, ids)
