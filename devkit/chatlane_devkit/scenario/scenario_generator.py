"""Write the demo's feed, `data/scenario.jsonl`: the same bytes from the same seed.

`python -m chatlane_devkit.scenario.scenario_generator write` writes the file, `... check` fails
when it differs.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chatlane_devkit.scenario.chats import Person, create_people
from chatlane_devkit.scenario.event_builder import Entry, EventBuilder, Line
from chatlane_devkit.scenario.fault_events import (
    add_copies,
    add_edits,
    add_invalid_events,
    add_other_senders,
    add_replay,
    add_unusual_events,
)
from chatlane_devkit.scenario.phrases import Chance, read_phrases
from chatlane_devkit.scenario.scenes import (
    DISCORD_BLOCKS,
    HOUR,
    MOVE_AT,
    SETTLES,
    discord,
    slack,
    telegram_channel,
    telegram_chats,
    telegram_commands,
    telegram_forum,
    telegram_groups,
    telegram_move,
    telegram_photos,
    whatsapp,
)

SEED: Final = "a day in the life"
SCENARIO_FILE: Final = Path(__file__).parent / "data" / "scenario.jsonl"

# Longer than the demo's idle time; no message is sent during it.
_PAUSE_SECONDS: Final = 3.0

# Faults and their times: never inside a block of DISCORD_BLOCKS, where seconds count.
_CUES: Final = (("router", 8.4), ("worker", 13.0), ("nats", 14.8), ("postgres", 17.0))


def generate_scenario(seed: str = SEED) -> str:
    """Return the whole feed as JSON Lines."""
    diary = EventBuilder(Chance(seed), read_phrases())
    people = _scenes(diary)
    _mishaps(diary)
    # Added last, so that the other entries do not change.
    telegram_commands(diary, people[28])
    telegram_photos(diary, people[29])
    _stage_directions(diary)
    ordered = sorted(diary.entries, key=lambda entry: entry.at)
    return "".join(_text(_with_hears(entry)) for entry in ordered)


def _scenes(diary: EventBuilder) -> list[Person]:
    people = create_people(diary.chance)
    telegram_chats(diary, people[:26])
    telegram_groups(diary, people[36:51])
    telegram_forum(diary, people[51:57])
    telegram_move(diary, people[30:34])
    telegram_channel(diary)
    discord(diary, people[:12])
    slack(diary, people[12:22])
    whatsapp(diary, [person for person in people if person.language != "en"][:14])
    return people


def _mishaps(diary: EventBuilder) -> None:
    add_edits(diary)
    add_other_senders(diary, next(entry.person for entry in diary.entries if entry.person))
    add_copies(diary)
    add_replay(diary, "telegram/ann", 16.4 * HOUR)
    add_unusual_events(diary)
    add_invalid_events(diary)


def _stage_directions(diary: EventBuilder) -> None:
    """Return the lines at which the player waits for answers, pauses, or triggers a fault."""
    # A chat that moved is known under its new id only after the router has read the move.
    diary.add(Entry(MOVE_AT + 0.01, {"settle": True, "why": "a group moves to a new id"}))
    for start, pause, end in DISCORD_BLOCKS:
        for hour in (start, end):
            diary.add(Entry(hour * HOUR, {"settle": True, "why": "silence is measured here"}))
        diary.add(Entry(pause * HOUR, {"settle": True, "why": "everybody has an answer"}))
        diary.add(Entry(pause * HOUR + 1, {"pause": _PAUSE_SECONDS, "why": "Discord falls silent"}))
    diary.add(Entry(SETTLES[-1], {"settle": True, "why": "second thoughts come last"}))
    for name, hour in _CUES:
        diary.add(Entry(hour * HOUR, {"cue": name}))


def _text(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


def _with_hears(entry: Entry) -> Line:
    """Return the line with the text that the agent reports, if it differs from the text itself."""
    line = dict(entry.line)
    event = line.get("event")
    if line.get("expect") == "accepted" and isinstance(event, dict) and "attachments" in event:
        files = [f"[{attachment['name']}]" for attachment in event["attachments"]]
        line["hears"] = " ".join([*([event["text"]] if "text" in event else []), *files])
    return line


def differences(path: Path = SCENARIO_FILE) -> Iterator[str]:
    """Yield the differences between the file and a newly generated one."""
    present = path.read_text("utf-8") if path.exists() else ""
    if present != generate_scenario():
        yield f"{path} differs from its generator: run python -m chatlane_devkit.scenario.scenario_generator write"


def main(arguments: list[str]) -> int:
    """Write or check the feed and return the exit code."""
    if arguments == ["write"]:
        SCENARIO_FILE.write_text(generate_scenario(), "utf-8")
        return 0
    if arguments == ["check"]:
        problems = list(differences())
        sys.stderr.writelines(f"{problem}\n" for problem in problems)
        return 1 if problems else 0
    sys.stderr.write("usage: python -m chatlane_devkit.scenario.scenario_generator write|check\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
