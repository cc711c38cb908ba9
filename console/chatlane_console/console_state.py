"""The state of a running console: its connections, cookies and feeds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from nats.aio.client import Client

from chatlane_client import open_connection
from chatlane_client.media.store import open_media
from chatlane_console.conversations import Conversations
from chatlane_console.files import PersonFiles
from chatlane_console.http.problems import ProblemError
from chatlane_console.live.feeds import Feeds
from chatlane_console.settings import ConsoleSettings
from chatlane_console.sign_in.cookies import Cookies
from chatlane_console.sign_in.oidc import OidcProvider
from chatlane_console.sign_in.visitors import Admission, Visitor
from chatlane_schemas.session_api.people import Person

# A start that waits longer would not notice that it is to be stopped.
_CONNECTED_WITHIN: Final = timedelta(seconds=5)


class ConsoleState:
    """The parts of the process that routes use: settings, cookies, connections and feeds.

    Attributes:
        link_token: Token of the local link.
        files: Files of people; None without a store.
    """

    def __init__(self, settings: ConsoleSettings) -> None:
        """Create it; `open` connects it."""
        self.settings = settings
        secret = settings.secret
        self._secret = token_urlsafe(32) if secret is None else secret.get_secret_value()
        self.cookies = Cookies(self._secret, is_encrypted=settings.is_encrypted)
        token = settings.link_token
        self.link_token = token_urlsafe(24) if token is None else token.get_secret_value()
        self.admission = Admission(settings)
        self.provider = OidcProvider(settings)
        self.feeds = Feeds(most_of_a_person=settings.max_streams)
        self.files: PersonFiles | None = None
        self._is_open = asyncio.Event()
        self._client: Client | None = None
        self._operator_client: Client | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Stay connected for the length of the block.

        While NATS is away the block runs all the same: routes answer 503, and the process can be
        stopped.

        Raises:
            ValueError: The settings name no server of NATS.
            MediaStoreError: The settings name no store that can hold files.
        """
        async with open_media(self.settings.media) as store:
            self.files = None if store is None else PersonFiles(store, self._secret)
            async with self._connected():
                yield

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        connecting = asyncio.create_task(self._stay_connected())
        connected = asyncio.create_task(self._is_open.wait())
        try:
            await asyncio.wait(
                {connecting, connected},
                timeout=_CONNECTED_WITHIN.total_seconds(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if connecting.done():
                connecting.result()
            yield
        finally:
            connecting.cancel()
            connected.cancel()
            await asyncio.gather(connecting, connected, return_exceptions=True)

    async def _stay_connected(self) -> None:
        settings = self.settings
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                open_connection(
                    settings.nats_url.split(","),
                    name="console",
                    principal=settings.principal,
                    nkey_seed_file=_path(settings.nkey_seed_file),
                    credentials_file=_path(settings.credentials_file),
                    tls_ca_file=_path(settings.tls_ca_file),
                )
            )
            if settings.operator_principal is not None:
                self._operator_client = await stack.enter_async_context(
                    open_connection(
                        settings.nats_url.split(","),
                        name="console for operators",
                        principal=settings.operator_principal,
                        nkey_seed_file=_path(settings.operator_nkey_seed_file),
                        credentials_file=_path(settings.operator_credentials_file),
                        tls_ca_file=_path(settings.tls_ca_file),
                    )
                )
            await stack.enter_async_context(self.feeds.open(client, self._operator_client))
            self._client = client
            self._is_open.set()
            await asyncio.Event().wait()

    @property
    def is_ready(self) -> bool:
        """Return whether the console is connected to NATS."""
        clients = (self._client, self._operator_client)
        return self._client is not None and all(
            client is None or client.is_connected for client in clients
        )

    def conversations_of(self, visitor: Visitor) -> Conversations:
        """Return the requests that reach the sessions of a person.

        Raises:
            ProblemError: NATS was not reached yet.
        """
        if self._client is None:
            raise _unavailable()
        return Conversations(self._client, principal=self.settings.principal, person=visitor.person)

    def all_conversations(self) -> Conversations:
        """Return the requests that reach all sessions, for operators.

        Raises:
            ProblemError: NATS was not reached yet.
        """
        return Conversations(self.operator_client, principal=self.operator_principal, person=None)

    def conversations_for(self, person: Person) -> Conversations:
        """Return the requests that an operator makes for a person.

        Raises:
            ProblemError: NATS was not reached yet.
        """
        return Conversations(
            self.operator_client,
            principal=self.operator_principal,
            person=person,
            is_operator=True,
        )

    @property
    def operator_principal(self) -> str:
        """Return the user of NATS for operators."""
        principal = self.settings.operator_principal
        assert principal is not None  # noqa: S101 - only then there are operators
        return principal

    @property
    def operator_client(self) -> Client:
        """Return the connection for operators.

        Raises:
            ProblemError: NATS was not reached yet.
        """
        if self._operator_client is None:
            raise _unavailable()
        return self._operator_client


def _unavailable() -> ProblemError:
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "unavailable",
        "the console is not connected to NATS",
        headers={"Retry-After": "5"},
    )


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)
