"""Act as people on a platform and read its chats, with the same calls for each platform."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

# Values of a scene; only the scene itself looks into them.
ChatHandle: TypeAlias = Any
MessageHandle: TypeAlias = Any
ThreadHandle: TypeAlias = Any


class Ability(StrEnum):
    """The calls that checks make on a platform."""

    EDITS = "edits"
    DELETES = "deletes"
    REACTIONS = "reactions"
    THREADS = "threads"
    ALBUMS = "albums"
    BLOCKS = "blocks"
    REPEATS = "repeats"
    LOST_ANSWERS = "lost answers"
    CHAT_LIMITS = "limits of a chat"
    LONG_ANSWERS = "texts that are too long for a message"


class Scene(ABC):
    """A platform with an account that the adapter serves.

    Attributes:
        platform: Name of the platform as chatlane.toml declares it.
        lacks: Why a check is skipped, by the ability that it needs.
        is_idempotent: Whether a second attempt to send a message never shows it twice.
        settings: Lines of chatlane.toml for the account, such as its own ids.
        long_words: How many words of nine characters an answer has that needs several messages.
    """

    platform: ClassVar[str]
    lacks: ClassVar[Mapping[Ability, str]] = {}
    is_idempotent: ClassVar[bool] = False
    settings: str = ""
    long_words: ClassVar[int] = 1900

    @abstractmethod
    def variables(self, nats_url: str, account: str) -> dict[str, str]:
        """Return the environment of the adapter."""

    def variables_of_second(self) -> dict[str, str]:
        """Return the variables that differ for a second process of the adapter."""
        return {}

    @property
    def has_adapter(self) -> bool:
        """Return whether the platform keeps for the adapter what is written from now on.

        Some platforms keep it only once an adapter has come.
        """
        return True

    @abstractmethod
    async def new_chat(self) -> ChatHandle:
        """Return a chat of a person with the bot."""

    @abstractmethod
    async def write(
        self, chat: ChatHandle, text: str, thread: ThreadHandle = None
    ) -> MessageHandle:
        """Let the person write to the bot, and return the message."""

    @abstractmethod
    def shown(self, chat: ChatHandle, thread: ThreadHandle = None) -> list[str]:
        """Return the texts of the bot that the chat shows, in order."""

    @abstractmethod
    def calls(self, chat: ChatHandle) -> int:
        """Return how often the adapter tried to send to the chat, refused tries included."""

    @abstractmethod
    def limit(self, chat: ChatHandle, seconds: float) -> None:
        """Refuse calls for the chat for so long, as a platform does that is called too often.

        Without `Ability.CHAT_LIMITS`, an adapter may let the whole account wait.

        Args:
            chat: The chat.
            seconds: What the platform says; 0 ends it.
        """

    async def new_threads(self) -> tuple[ChatHandle, ThreadHandle, ThreadHandle]:
        """Return a chat and two of its threads."""
        raise NotImplementedError

    def block(self, chat: ChatHandle, *, is_blocked: bool) -> None:
        """Let the person block the bot, or allow it again."""
        raise NotImplementedError

    async def rewrite(self, chat: ChatHandle, message: MessageHandle, text: str) -> None:
        """Let the person edit a message."""
        raise NotImplementedError

    async def remove(self, chat: ChatHandle, message: MessageHandle) -> None:
        """Let the person delete a message."""
        raise NotImplementedError

    async def react(self, chat: ChatHandle, message: MessageHandle) -> None:
        """Let the person react to a message."""
        raise NotImplementedError

    async def send_album(self, chat: ChatHandle, text: str) -> int:
        """Let the person send an album, and return how many files it has."""
        raise NotImplementedError

    async def write_twice(self, chat: ChatHandle, text: str) -> None:
        """Let the person write to the bot, and tell it as if it were not confirmed."""
        raise NotImplementedError

    def lose_answers(self, chat: ChatHandle) -> None:
        """Do what the adapter asks for the chat, and do not answer."""
        raise NotImplementedError

    def restore_answers(self, chat: ChatHandle) -> None:
        """Answer again."""
        raise NotImplementedError
