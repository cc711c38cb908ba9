"""The calls that every adapter makes on its platform."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final, Self

from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.markdown.renderer import Renderer
from chatlane_client import AdapterClient, Piece, RateBudget
from chatlane_client.media.store import MediaStore
from chatlane_schemas import Attachment, InboundEvent, Source

_log: Final = logging.getLogger(__name__)


class Platform(ABC):
    """One account of a chat platform; an asynchronous context manager that connects to it.

    A call that the platform refuses raises `RetryAfter`, `ChatGone` or `Undeliverable`. Any other
    error is tried again. No call may wait out a limit of the platform. A platform overrides the calls
    that its capabilities promise; the runner makes no other.
    """

    capabilities: ClassVar[Capabilities]
    renderer: ClassVar[Renderer[Any] | None] = None
    """Renders texts: `piece.rendered` is a part, and `renderer.first(text)` what a draft shows.

    Without, texts are split as they are written, and `piece.text` is a part.
    """

    media: MediaStore | None = None
    """The store of files, from before the platform connects; None if the settings name none."""

    refused: frozenset[str] = frozenset()
    """Credentials of the account that the platform refuses now."""

    @property
    def is_connected(self) -> bool:
        """Return whether the platform can be reached, as far as it is known."""
        return True

    def note_account(self, *, is_refused: bool, credential: str = "token") -> None:
        """Note whether the platform refuses a credential of the account, such as a revoked token.

        The messages of the account wait meanwhile. A change is logged, and a metric shows it.

        Args:
            is_refused: Whether it is refused now.
            credential: Which one, where an account has several; no part of a secret.
        """
        if is_refused == (credential in self.refused):
            return
        if is_refused:
            self.refused |= {credential}
            _log.error("account_refused", extra={"credential": credential})
        else:
            self.refused -= {credential}
            _log.info("account_accepted", extra={"credential": credential})

    @property
    def receives_in_every_process(self) -> bool:
        """Return whether each process of the account receives, as requests of a platform do."""
        return False

    def budget(self) -> RateBudget:
        """Return the rates of the account, of which nothing is used."""
        return self.capabilities.budget()

    async def __aenter__(self) -> Self:
        """Connect to the platform."""
        return self

    async def __aexit__(self, *_: object) -> None:  # noqa: B027 - not every platform has any
        """Close the connections."""

    @abstractmethod
    async def receive(self, adapter: AdapterClient) -> None:
        """Publish what happens on the platform, until cancelled.

        An event is confirmed to the platform, or the cursor behind it is kept, only after
        `adapter.publish` has returned. One process of the account runs this at a time, unless
        `receives_in_every_process`.
        """

    @abstractmethod
    async def deliver(self, piece: Piece) -> str | None:
        """Send a piece, or edit the message `piece.edits`, and return the platform's id."""

    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        """Send the draft of an answer and return the platform's id; see `DraftPlatform.send`."""
        raise NotImplementedError

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Replace the text of a message, and take its buttons away."""
        raise NotImplementedError

    async def delete(self, target: Source, message_id: str) -> None:
        """Delete a message."""
        raise NotImplementedError

    def content(self, event: InboundEvent, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes of a file of a message that the platform has decoded."""
        raise NotImplementedError

    async def show_typing(self, target: Source) -> None:
        """Show for some seconds that an answer is being written."""
        raise NotImplementedError
