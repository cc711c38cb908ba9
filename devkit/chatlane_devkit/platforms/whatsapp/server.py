"""A WhatsApp Cloud for tests: what people do, and the Graph API that the business calls."""

import asyncio
import hashlib
import hmac
import itertools
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Final

import aiohttp
from aiohttp import web

NUMBER: Final = "106540352242922"
TOKEN: Final = "EAAtest"  # noqa: S105 - of this server
APP_SECRET: Final = "3f2a"  # noqa: S105 - of this server
VERIFY_TOKEN: Final = "word"  # noqa: S105 - of this server
# Name and language of the only template, whose body has one placeholder.
TEMPLATE: Final = ("news", "en")
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.1
_MAX_TEXT: Final = 4096
_MAX_BODY: Final = 1024


@dataclass(slots=True)
class Person:
    """A person with a phone.

    Attributes:
        shown: What the business has sent, in order.
        refusals: Codes that the next calls for this person get, in order.
        late_refusals: Codes that they get only while calls are answered, in order.
        calls: How often the business tried to send something.
        states: States of messages that the business set, such as `typing`.
        answers: Set while calls for this person are answered; they take effect before.
    """

    number: str
    shown: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    late_refusals: list[int] = field(default_factory=list)
    calls: int = 0
    states: list[str] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    _refusal: int = 0
    _refused_until: float = 0.0

    def __post_init__(self) -> None:
        self.answers.set()

    def refuse(self, code: int, seconds: float) -> None:
        """Refuse the calls for this person for so long."""
        self._refusal, self._refused_until = code, monotonic() + seconds

    async def refusal(self) -> int | None:
        """Return the code that a call for this person gets; None if it is accepted."""
        if self.late_refusals:
            code = self.late_refusals.pop(0)
            await self.answers.wait()
            return code
        if self.refusals:
            return self.refusals.pop(0)
        return self._refusal if monotonic() < self._refused_until else None

    @property
    def texts(self) -> list[str]:
        """Return the texts that the person reads, in order."""
        return [text for message in self.shown for text in _texts_of(message)]


def _texts_of(message: dict[str, Any]) -> list[str]:
    kind = message["type"]
    if kind == "text":
        return [message["text"]["body"]]
    if kind == "interactive":
        return [message["interactive"]["body"]["text"]]
    if kind == "template":
        return [_placeholders(message)[0]["text"]]
    return [message[kind].get("caption", "")]


def _placeholders(message: dict[str, Any]) -> list[dict[str, str]]:
    (body,) = message["template"]["components"]
    placeholders: list[dict[str, str]] = body["parameters"]
    return placeholders


def _template_refusal(message: dict[str, Any]) -> int | None:
    """Return the code with which a template is refused; None if it is accepted."""
    template = message["template"]
    if (template["name"], template["language"]["code"]) != TEMPLATE:
        return 132001
    if [it["type"] for it in _placeholders(message)] != ["text"]:
        return 132000
    text = _placeholders(message)[0]["text"]
    is_one_line = not re.search(r"[\n\t]| {5}", text)
    return None if is_one_line and len(text) <= _MAX_BODY else 132018


class WhatsAppServer:
    """The platform with one business number.

    Attributes:
        url: Address of the Graph API, with its version.
        webhooks: Where requests go: to the first of them that takes it.
        is_revoked: Whether the token is refused.
    """

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self.url = ""
        self.webhooks: list[str] = []
        self.is_revoked = False
        self._client = client
        self._files: dict[str, bytes] = {}
        self._people: dict[str, Person] = {}
        self._ids = itertools.count(1)
        self._queues: dict[str, asyncio.Queue[dict[str, Any]]] = defaultdict(asyncio.Queue)
        self._senders: list[asyncio.Task[None]] = []

    def person(self, number: str) -> Person:
        """Return a person; their number exists from now on."""
        return self._people.setdefault(number, Person(number))

    def write(self, person: Person, *, times: int = 1, **message: Any) -> str:  # noqa: ANN401 - any content
        """Let a person send a message, such as `type="text", text={"body": "hi"}`; return its id."""
        wamid = f"wamid.{next(self._ids)}"
        sent = {"from": person.number, "id": wamid, "timestamp": str(round(time())), **message}
        contact = {"profile": {"name": f"Person {person.number}"}, "wa_id": person.number}
        for _ in range(times):
            self._tell(person, {"contacts": [contact], "messages": [sent]})
        return wamid

    def upload(self, content: bytes) -> str:
        """Keep a file that a person sends, and return its id."""
        file_id = str(next(self._ids))
        self._files[file_id] = content
        return file_id

    def say(self, person: Person, text: str, *, times: int = 1) -> str:
        """Let a person send a text, and tell it so many times."""
        return self.write(person, times=times, type="text", text={"body": text})

    def report(self, person: Person, wamid: str, state: str, code: int | None = None) -> None:
        """Send a status of a message of the business."""
        errors = [] if code is None else [{"code": code, "title": "refused"}]
        self.report_errors(person, wamid, errors, state)

    def report_errors(
        self, person: Person, wamid: str, errors: list[Any], state: str = "failed"
    ) -> None:
        """Send a status with any errors, in the shape of WhatsApp or not."""
        status: dict[str, Any] = {
            "id": wamid,
            "status": state,
            "timestamp": str(round(time())),
            "recipient_id": person.number,
        }
        if errors:
            status["errors"] = errors
        self._tell(person, {"statuses": [status]})

    def _tell(self, person: Person, value: dict[str, Any]) -> None:
        """Send a request after the earlier ones about a person, until it is confirmed."""
        metadata = {"display_phone_number": "15550100", "phone_number_id": NUMBER}
        change = {
            "field": "messages",
            "value": {"messaging_product": "whatsapp", "metadata": metadata, **value},
        }
        if person.number not in self._queues:
            self._senders.append(asyncio.create_task(self._send(person.number)))
        entry = {"id": "WABA", "changes": [change]}
        self._queues[person.number].put_nowait(
            {"object": "whatsapp_business_account", "entry": [entry]}
        )

    async def _send(self, number: str) -> None:
        while True:
            request = json.dumps(await self._queues[number].get())
            digest = hmac.new(APP_SECRET.encode(), request.encode(), hashlib.sha256).hexdigest()
            headers = {"X-Hub-Signature-256": f"sha256={digest}"}
            while True:
                if await self._is_taken(request, headers):
                    break
                await asyncio.sleep(_PAUSE)

    async def _is_taken(self, request: str, headers: dict[str, str]) -> bool:
        for webhook in self.webhooks:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with (
                    asyncio.timeout(_PATIENCE),
                    self._client.post(webhook, data=request, headers=headers) as response,
                ):
                    return response.ok
        return False

    async def _serve_file(self, request: web.Request) -> web.Response:
        """Answer where a file is, or with its bytes, to who has the token."""
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _refused(401, 190)
        content = self._files.get(request.match_info["file"])
        if content is None:
            return _refused(400, 100)
        if request.path.startswith("/bytes/"):
            return web.Response(body=content)
        place = self.url.removesuffix("/v23.0") + f"/bytes/{request.match_info['file']}"
        return web.json_response({"url": place, "messaging_product": "whatsapp"})

    async def _serve(self, request: web.Request) -> web.Response:
        given = await request.json()
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.is_revoked or token != TOKEN:
            return _refused(401, 190)
        if given.get("status") == "read":
            for person in self._people.values():
                person.states.append("typing" if "typing_indicator" in given else "read")
            return web.json_response({"success": True})
        person = self.person(given["to"])
        person.calls += 1
        if (code := await person.refusal()) is not None:
            return _refused(400, code)
        kind = given["type"]
        if kind == "template" and (code := _template_refusal(given)) is not None:
            return _refused(400, code)
        body = given[kind].get("body") if kind in {"text", "interactive"} else ""
        limit = _MAX_TEXT if kind == "text" else _MAX_BODY
        text = body if isinstance(body, str) else body["text"]
        if len(text) > limit:
            return _refused(400, 100)
        wamid = f"wamid.{next(self._ids)}"
        person.shown.append({**given, "id": wamid})
        await person.answers.wait()
        return web.json_response({"messaging_product": "whatsapp", "messages": [{"id": wamid}]})

    async def close(self) -> None:
        """Send nothing more."""
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

    def application(self) -> web.Application:
        """Return the server."""
        application = web.Application()
        application.router.add_post(f"/v23.0/{NUMBER}/messages", self._serve)
        application.router.add_get("/v23.0/{file}", self._serve_file)
        application.router.add_get("/bytes/{file}", self._serve_file)
        return application


def _refused(status: int, code: int) -> web.Response:
    error = {"message": f"(#{code})", "type": "OAuthException", "code": code, "fbtrace_id": "A"}
    return web.json_response({"error": error}, status=status)


@asynccontextmanager
async def open_whatsapp_server() -> AsyncIterator[WhatsAppServer]:
    """Run the platform for the length of the block."""
    async with aiohttp.ClientSession() as client:
        server = WhatsAppServer(client)
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v23.0"
        try:
            yield server
        finally:
            await server.close()
            await runner.cleanup()
