"""Random events of few people in few places, with collisions on purpose."""

from random import Random

from chatlane_schemas.inbound import InboundEvent
from tests.support.worlds.kernel import Fields, event

PEOPLE: list[list[Fields]] = [
    [{"user": f"1555000{n}@s.whatsapp.net"}, {"user": f"999000{n}@lid"}] for n in range(3)
]
LINKS = [{"user": f"1555000{n}@s.whatsapp.net", "aliases": [f"999000{n}@lid"]} for n in range(3)]
GROUPS = ["-1", "-2", "-3", "-4", "-5"]


def random_event(chance: Random, number: int) -> InboundEvent:
    """Return one of everything that a router has to place, with collisions on purpose."""
    fields: Fields = {"mid": str(chance.randrange(60)), "text": f"m{number}"}
    match chance.randrange(12):
        case 0 | 1 | 2:
            person = chance.choice(chance.choice([*PEOPLE, LINKS]))
            fields |= {"platform": "whatsapp", "chat": person["user"], **person}
        case 3:
            person = chance.choice(chance.choice([*PEOPLE, LINKS]))
            fields |= {"platform": "whatsapp", "chat": "7@g.us", "kind_of_chat": "group", **person}
        case 4:
            fields |= {
                "kind": "migration",
                "kind_of_chat": "group",
                "chat": chance.choice(GROUPS),
                "migrate_to": chance.choice(GROUPS),
            }
        case 5:
            fields |= {"kind": chance.choice(["edit", "reaction", "service"]), "chat": "1"}
        case 6:
            fields |= {"kind": "system", "chat": "1", "mid": None}
        case 7:
            fields |= {"kind_of_chat": "dm", "text": "nobody"}
        case _:
            fields |= {
                "kind_of_chat": "group",
                "chat": chance.choice(GROUPS),
                "user": chance.choice(["7", "8"]),
            }
    return event(**fields)
