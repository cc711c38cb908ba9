"""Ask a person whether a tool may run."""

from typing import Final

from chatlane_client.frameworks.shared.options import TurnOptions
from chatlane_client.turn import Turn
from chatlane_schemas import Button
from chatlane_schemas.content.questions import QuestionKind

_MAX_SHOWN_CHARACTERS: Final = 2_000
_ALLOW: Final = "allow"
_DENY: Final = "deny"


async def denial_of(turn: Turn, name: str, arguments: str, options: TurnOptions) -> str | None:
    """Ask whether a tool may run; return why it may not, or None if it may.

    Args:
        turn: The turn that asks.
        name: The tool.
        arguments: Its arguments, as people can read them.
        options: How long the person may take. Without an answer in time it is denied.
    """
    if len(arguments) > _MAX_SHOWN_CHARACTERS:
        arguments = f"{arguments[:_MAX_SHOWN_CHARACTERS]}…"
    answer = await turn.ask(
        f"Allow {name} {arguments}?",
        [Button(label="Allow", value=_ALLOW), Button(label="Deny", value=_DENY)],
        within=options.approve_within,
        default=_DENY,
        kind=QuestionKind.PERMISSION,
    )
    if answer.value == _ALLOW:
        return None
    if answer.is_default:
        return "Nobody allowed it in time."
    return "The person did not allow it."
