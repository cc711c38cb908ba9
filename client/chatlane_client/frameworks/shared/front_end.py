"""Call tools of the front end for a model."""

from collections.abc import Mapping
from typing import Any

from chatlane_client.api.front_end_tools import FrontEndTools
from chatlane_client.errors import FrontEndCallError


async def result_for_model(tools: FrontEndTools, name: str, arguments: Mapping[str, Any]) -> str:
    """Return the result of a call, or in words why there is none."""
    try:
        return await tools.call(name, arguments)
    except FrontEndCallError as exc:
        return f"There is no result: {exc}."
