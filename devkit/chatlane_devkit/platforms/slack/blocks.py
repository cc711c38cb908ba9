"""Check the content of a message as Slack does."""

from typing import Any, Final

from chatlane_devkit.platforms.slack.workspaces import Json

MAX_TEXT: Final = 40_000
MAX_EDITED_TEXT: Final = 4_000
MAX_MARKDOWN: Final = 12_000
MAX_SECTION: Final = 3_000
_MAX_SECTION: Final = 3_000
_MAX_BLOCKS: Final = 50
_MAX_ELEMENTS: Final = 25
_MAX_LABEL: Final = 75
_MAX_VALUE: Final = 2_000
_MAX_ACTION_ID: Final = 255


class RefusalError(Exception):
    """Slack refuses a call."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


def checked_blocks(given: Any) -> list[Json]:  # noqa: ANN401 - what a client sent
    """Return the blocks of a call.

    Raises:
        RefusalError: Slack would not show them.
    """
    if not isinstance(given, list) or len(given) > _MAX_BLOCKS:
        raise RefusalError("invalid_blocks")
    markdown = sum(len(it["text"]) for it in given if it.get("type") == "markdown")
    if markdown > MAX_MARKDOWN:
        raise RefusalError("msg_blocks_too_long")
    action_ids: list[str] = []
    for block in given:
        _check(block, action_ids)
    if len(set(action_ids)) < len(action_ids):
        raise RefusalError("invalid_blocks")
    return given


def _check(block: Json, action_ids: list[str]) -> None:
    match block.get("type"):
        case "markdown":
            is_good = bool(block["text"].strip())
        case "section":
            is_good = 0 < len(block["text"]["text"]) <= _MAX_SECTION
        case "rich_text":
            is_good = all(part["elements"] for part in block["elements"])
        case "image":
            is_good = block["image_url"].startswith("http") and len(block["alt_text"]) > 0
        case "actions":
            is_good = 0 < len(block["elements"]) <= _MAX_ELEMENTS
            is_good = is_good and all(map(_is_button, block["elements"]))
            action_ids += [button["action_id"] for button in block["elements"]]
        case _:
            is_good = False
    if not is_good:
        raise RefusalError("invalid_blocks")


def _is_button(button: Json) -> bool:
    text, value = button.get("text", {}), button.get("value", "x")
    return (
        button.get("type") == "button"
        and text.get("type") == "plain_text"
        and 0 < len(text["text"]) <= _MAX_LABEL
        and 0 < len(value) <= _MAX_VALUE
        and 0 < len(button["action_id"]) <= _MAX_ACTION_ID
    )
