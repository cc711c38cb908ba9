"""An app of Slack as a platform of chatlane."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import ClassVar, Final, Self

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient
from typing_extensions import override

from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.slack.calls import ACCOUNT_PAUSE, RefusedTokenError, UncertainCallError, done
from chatlane_adapters.slack.decode import Bot
from chatlane_adapters.slack.files import content_of_file
from chatlane_adapters.slack.intake import Intake, Patience
from chatlane_adapters.slack.render import LIMIT, content_of
from chatlane_adapters.slack.request_server import RequestServer
from chatlane_adapters.slack.settings import SlackSettings
from chatlane_adapters.slack.socket_reader import SocketReader
from chatlane_adapters.slack.workspace import Place, Workspace
from chatlane_client import AdapterClient, ChatGone, Piece, RetryAfter, Undeliverable
from chatlane_schemas import Attachment, InboundEvent, Source

_log: Final = logging.getLogger(__name__)

CAPABILITIES: Final = Capabilities(
    platform="slack",
    text_limit=LIMIT,
    has_readable_files=True,
    per_chat_per_second=1,
)
_OPEN_WITHIN: Final = 10.0
_OPEN_AGAIN: Final = 30.0
_CALL_TIME: Final = aiohttp.ClientTimeout(total=30, sock_connect=10)
# A request has to be answered within three seconds; what was not stored in time comes again.
_OF_REQUESTS: Final = Patience(timedelta(seconds=2), waits_for_room=False)
_OF_SOCKETS: Final = Patience(None, waits_for_room=True)


class SlackPlatform(Platform):
    """One app in one workspace or several.

    Events come through a socket in the process that holds the lease, or as requests in each process.
    """

    capabilities: ClassVar[Capabilities] = CAPABILITIES

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._workspaces: dict[str, Workspace] = {}
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession
        self._socket: SocketReader | None = None

    @property
    @override
    def is_connected(self) -> bool:
        return self._socket is None or self._socket.is_open

    @property
    @override
    def receives_in_every_process(self) -> bool:
        return self._settings.signing_secret is not None

    @override
    async def __aenter__(self) -> Self:
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(timeout=_CALL_TIME)
        )
        tokens = self._settings.bot_token.get_secret_value().split(",")
        opening = [
            asyncio.create_task(self._open(token.strip(), f"bot_token_{number}"))
            for number, token in enumerate(tokens, 1)
        ]
        self._stack.push_async_callback(_cancelled, opening)
        # Workspaces whose tokens Slack refuses now are opened later.
        await asyncio.wait(opening, timeout=_OPEN_WITHIN)
        return self

    @override
    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _web(self, token: str | None = None) -> AsyncWebClient:
        # The library logs what it sends at level debug; a repeated call could send twice.
        return AsyncWebClient(
            token=token,
            base_url=self._settings.api_url,
            session=self._session,
            logger=_quiet(),
            retry_handlers=[],
        )

    @contextmanager
    def _watched(self, credential: str) -> Iterator[None]:
        """Note whether Slack refuses a token in the block."""
        try:
            yield
        except RefusedTokenError:
            self.note_account(is_refused=True, credential=credential)
            raise
        self.note_account(is_refused=False, credential=credential)

    async def _open(self, token: str, name: str) -> None:
        """Find out which workspace a token is of, and serve it; try until it is known."""
        web = self._web(token)
        while True:
            try:
                with self._watched(name):
                    found = await done(web.auth_test())
            except (RetryAfter, Undeliverable, UncertainCallError) as error:
                _log.warning("workspace_not_opened", extra={"error": type(error).__name__})
            else:
                bot = Bot(found["team_id"], found["user_id"], found.get("bot_id") or "")
                opened = Workspace(web, bot, is_agent=self._settings.is_agent)
                self._workspaces[bot.team] = opened
                self.note_account(is_refused=False, credential=name)
                _log.info("workspace_opened", extra={"scope": bot.team, "own_id": bot.user})
                return
            await asyncio.sleep(_OPEN_AGAIN)

    @override
    async def receive(self, adapter: AdapterClient) -> None:
        patience = _OF_SOCKETS if self._settings.signing_secret is None else _OF_REQUESTS
        intake = Intake(adapter, self._workspaces.get, self._settings, patience)
        if self._settings.signing_secret is not None:
            secret = self._settings.signing_secret.get_secret_value()
            server = RequestServer(secret, intake.take)
            await server.run(self._settings.listen_host, self._settings.listen_port)
        elif self._settings.app_token is not None:
            token = self._settings.app_token.get_secret_value()
            watched = partial(self._watched, "app token")
            self._socket = SocketReader(self._session, self._web(token), intake.take, watched)
            try:
                await self._socket.run()
            finally:
                self._socket = None

    @override
    def content(self, event: InboundEvent, file: Attachment) -> AsyncIterator[bytes]:
        token = self._workspaces[event.scope or ""].token
        return content_of_file(self._session, file, token, self._settings.api_url)

    @override
    async def deliver(self, piece: Piece) -> str | None:
        target = piece.message.target
        with self._served(target) as workspace:
            return await self._deliver(workspace, Place.of(target), piece)

    async def _deliver(self, workspace: Workspace, place: Place, piece: Piece) -> str | None:
        target = piece.message.target
        if piece.edits is not None:
            await workspace.replace(place, piece)
            message_id: str | None = piece.edits
        else:
            try:
                message_id = await workspace.post(place, piece)
            except ChatGone:
                # A slash command may come from a conversation that the app is not in.
                if target.return_address is None:
                    raise
                await self._reply(target.return_address.value, piece)
                message_id = None
        if piece.number == piece.count - 1 and not piece.message.is_interim:
            with suppress(RetryAfter, Undeliverable, UncertainCallError):
                await workspace.show_status(place, "active")
        return message_id

    async def _reply(self, url: str, piece: Piece) -> None:
        """Answer a slash command at its response address; only the person sees it."""
        body = {"response_type": "ephemeral", **content_of(piece)}
        async with self._session.post(url, json=body) as response:
            if not response.ok:
                reason = f"Slack refuses the response address: HTTP {response.status}"
                raise Undeliverable(reason)

    @override
    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        with self._served(target) as workspace:
            return await workspace.begin_draft(
                Place.of(target), text, key=key, may_be_sent=may_be_sent
            )

    @override
    async def edit(self, target: Source, message_id: str, text: str) -> None:
        with self._served(target) as workspace:
            await workspace.change(Place.of(target), message_id, text)

    @override
    async def delete(self, target: Source, message_id: str) -> None:
        with self._served(target) as workspace:
            await workspace.delete(Place.of(target), message_id)

    @override
    async def show_typing(self, target: Source) -> None:
        with self._served(target) as workspace:
            await workspace.show_status(Place.of(target), "processing")

    @contextmanager
    def _served(self, target: Source) -> Iterator[Workspace]:
        """Return the workspace of a target, for the length of the block.

        Raises:
            RetryAfter: No token is of it, or Slack has refused its token from the beginning.
        """
        found = self._workspaces.get(target.scope or "")
        if found is None:
            _log.error("workspace_not_served", extra={"scope": target.scope})
            raise RetryAfter(ACCOUNT_PAUSE)
        with self._watched(found.bot.team):
            yield found


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _quiet() -> logging.Logger:
    logger = logging.getLogger("slack_sdk.web")
    logger.setLevel(logging.WARNING)
    return logger
