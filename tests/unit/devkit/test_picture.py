"""The picture of the demo in the README: kills in red, dialogues, the verdict, and nothing else."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from chatlane_devkit.demo.picture import write_picture

ROOT = Path(__file__).parents[3]
OUTPUT = """
Two routers, two workers, one subscriber, real servers ─────
   0.8 s  nats-server listens on nats://127.0.0.1:17985

A day of chat: 2736 events ─────────────────────────────────
  10.1 s  killed router 1 with SIGKILL
  10.7 s  277 of 2736 events published, 222 of 2650 messages answered
  13.1 s  router 2 owns 32 of 32 partitions, 3.0 s after the kill

Dialogues beside it, under the same kills ──────────────────
  questions to people   one answer, or the default   90   0

One conversation ───────────────────────────────────────────
│ Nina  ticket is APP-640 │

Verdict ────────────────────────────────────────────────────
 ✓ every answer reached its chat once, in order (1367)
"""


def lines_of(svg: Path) -> dict[str, str]:
    """Return the text of each drawn line with the style of its longest piece."""
    tree = ET.fromstring(svg.read_text("utf-8"))  # noqa: S314 - we have written it
    styles = dict(re.findall(r"\.(terminal-\w+-r\d+) \{ (.*?) \}", ET.tostring(tree, "unicode")))
    rows: dict[str, list[ET.Element]] = {}
    for element in tree.iter("{http://www.w3.org/2000/svg}text"):
        if "clip-path" in element.attrib:
            rows.setdefault(element.attrib["y"], []).append(element)
    return {
        "".join(piece.text or "" for piece in row).replace("\xa0", " ").strip(): styles[
            max(row, key=lambda piece: len((piece.text or "").strip())).attrib["class"]
        ]
        for row in rows.values()
    }


def test_kills_are_red_and_dialogues_and_verdict_follow(tmp_path: Path) -> None:
    write_picture(OUTPUT, tmp_path / "demo.svg")
    lines = lines_of(tmp_path / "demo.svg")
    assert [line for line in lines if line] == [
        "A day of chat: 2736 events",
        "10.1 s  killed router 1 with SIGKILL",
        "13.1 s  router 2 owns 32 of 32 partitions, 3.0 s after the kill",
        "Dialogues beside it, under the same kills",
        "questions to people   one answer, or the default   90   0",
        "Verdict",
        "✓ every answer reached its chat once, in order (1367)",
    ]
    assert "fill: #cc555a" in lines["10.1 s  killed router 1 with SIGKILL"]
    assert (
        "fill: #cc555a"
        not in lines["13.1 s  router 2 owns 32 of 32 partitions, 3.0 s after the kill"]
    )


def test_the_readme_shows_four_kills_and_a_good_verdict() -> None:
    lines = lines_of(ROOT / "docs/demo.svg")
    kills = [line for line in lines if "SIGKILL" in line]
    assert len(kills) >= 4
    assert all("fill: #cc555a" in lines[line] for line in kills)
    assert any(line.startswith("✓") for line in lines)
    assert not any(line.startswith("✗") for line in lines)
