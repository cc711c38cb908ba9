"""A worker that shows how it begins, and then waits for a permission or for a file.

Usage: `python waiting_worker.py NATS_URL AGENT GO_FILE`. It answers `ask ...` after a permission, `write
PATH` after it has written that file in the editor,
`look ...` after a thought and a tool call, `paint ...` after three calls of a tool of the front end, `count
...` after it has counted in the state of the front end, before and after the file is there, and everything
else when the file is there.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from chatlane_client import EditorTools, FrontEndTools, Turn, TurnWorker, open_connection
from chatlane_schemas import Button, QuestionKind
from chatlane_schemas.live_turns import LivePiece, PieceKind
from tests.support.eventually import eventually

COLOURS = ("blue", "red", "blue")
OPTIONS = (Button(label="Allow", value="allow"), Button(label="Deny", value="deny"))


async def main(nats_url: str, agent: str, go: Path) -> None:
    """Serve the turns of an agent until it is killed."""

    async def answer(turn: Turn) -> str:
        if turn.text.startswith("look"):
            await turn.show(LivePiece(kind=PieceKind.THOUGHT, text="Where "))
            await turn.show(LivePiece(kind=PieceKind.THOUGHT, text="is it?"))
            await turn.show(LivePiece(kind=PieceKind.TOOL_CALL, tool_id="1", tool_name="search"))
            await turn.show(LivePiece(kind=PieceKind.TOOL_RESULT, tool_id="1", text="Here."))
            return "I found it."
        await turn.delta(f"I begin {turn.text}, ")
        if turn.text.startswith("ask"):
            chosen = await turn.ask(
                "May I?", OPTIONS, within=timedelta(minutes=5), kind=QuestionKind.PERMISSION
            )
            return f"I begin {turn.text}, you chose {chosen.value}."
        if turn.text.startswith("write"):
            tools, path = EditorTools(turn), turn.text.removeprefix("write ")
            await tools.write_text_file(path, "written\n")
            shown = await tools.run_command("cat", [path])
            return f"I begin {turn.text}, {await tools.read_text_file(path)}{shown.output}"
        if turn.text.startswith("paint"):
            front_end, given = FrontEndTools(turn), turn.front_end
            results = [await front_end.call("set_colour", {"colour": it}) for it in COLOURS]
            values = [entry.value for entry in (given.context if given else ())]
            return f"I begin {turn.text}, {' '.join((*results, *values))}"
        if turn.text.startswith("count"):
            front_end = FrontEndTools(turn)
            begun = front_end.state["count"]
            await front_end.set_state({"count": begun + 1})
            await eventually(go.exists, timedelta(minutes=5))
            await front_end.set_state({"count": begun + 2})
            return f"I begin {turn.text}, from {begun} to {front_end.state['count']}"
        await eventually(go.exists, timedelta(minutes=5))
        return f"I begin {turn.text}, and I am done."

    async with open_connection(nats_url, name="waiting worker") as client:
        await TurnWorker(client, agent, answer, slots=1, principal="worker").run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
