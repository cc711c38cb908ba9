"""The control side over HTTP, for programs in other processes and for terminals."""

from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from typing import Final

from aiohttp import web

from chatlane_devkit.platforms.telegram.chats import Chat, World
from chatlane_devkit.platforms.telegram.faults import Faults
from chatlane_devkit.platforms.telegram.people import People, plain
from chatlane_devkit.platforms.telegram.wire import RefusalError

_LONGEST_WAIT: Final = 30.0


def control_routes(world: World, people: People, faults: Faults) -> Iterable[web.AbstractRouteDef]:
    """Return the routes under `/_control`.

    `POST /_control/people/VERB` and `/_control/faults/VERB` call a method of `People` or `Faults`
    with the JSON of the body as arguments. `GET /_control/chats/ID` shows a chat,
    `GET /_control/changes?after=NUMBER` waits for what people see.
    """

    async def act(request: web.Request) -> web.Response:
        target = people if request.match_info["side"] == "people" else faults
        verb = request.match_info["verb"]
        method = getattr(target, verb, None)
        if verb.startswith("_") or not callable(method):
            return web.json_response({"error": "there is no such act"}, status=404)
        try:
            result = method(**await request.json())
        except (TypeError, LookupError, RefusalError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        return web.json_response(_shown(result))

    async def show_chat(request: web.Request) -> web.Response:
        chat = world.chats.get(int(request.match_info["chat_id"]))
        if chat is None:
            return web.json_response({"error": "there is no such chat"}, status=404)
        return web.json_response(_shown(chat))

    async def changes(request: web.Request) -> web.Response:
        after = int(request.query.get("after", "0"))
        return web.json_response(await world.changes_after(after, _LONGEST_WAIT))

    async def show_counts(_: web.Request) -> web.Response:
        shown = {"newest": world.updates.newest, "confirmed": world.updates.confirmed}
        sent = sum(len(chat.texts) for chat in world.chats.values())
        return web.json_response({**shown, "sent": sent})

    return [
        web.post("/_control/{side:people|faults}/{verb}", act),
        web.get(r"/_control/chats/{chat_id:-?\d+}", show_chat),
        web.get("/_control/changes", changes),
        web.get("/_control/counts", show_counts),
    ]


def _shown(result: object) -> object:
    if isinstance(result, Chat):
        return {
            **result.shown,
            "messages": [plain(it) for it in result.messages.values()],
            "said": result.said,
            "texts": result.texts,
        }
    if is_dataclass(result) and not isinstance(result, type):
        return asdict(result)
    if isinstance(result, dict):
        return plain(result)
    if isinstance(result, list):
        return [plain(it) for it in result]
    return result
