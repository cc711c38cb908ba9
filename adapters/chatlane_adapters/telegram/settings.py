"""Settings of the adapter for Telegram, from environment variables `CHATLANE_ADAPTER_*`."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, model_validator

from chatlane_adapters.kit.settings import AdapterSettings

# What aiogram accepts. To import it takes seconds, also for who only reads the settings.
_TOKEN: Final = re.compile(r"[0-9]+:\S+")
_COMMANDS: Final = {
    "new": "Start a new conversation",
    "stop": "Stop the answer",
    "undo": "Take back the last question and its answer",
    "retry": "Answer the last question again",
    "status": "Show the conversation",
    "help": "Show all commands",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The public address of the webhook, and the address that this process listens on.

    Attributes:
        url: Public address.
        secret: What Telegram sends along.
        host: Address to listen on.
        port: Its port; 0 takes a free port.
    """

    url: str
    secret: str = field(repr=False)
    host: str
    port: int


class TelegramSettings(AdapterSettings):
    """The bot, how it receives, and how fast it sends."""

    token: Annotated[SecretStr | None, Field(description="Token of the bot.")] = None
    token_file: Annotated[
        Path | None, Field(description="File with the token, instead of `token`.")
    ] = None
    api_url: Annotated[str, Field(description="Address of the Bot API.")] = (
        "https://api.telegram.org"
    )
    groups: Annotated[
        Literal["mentions", "all"],
        Field(
            description="Which messages of groups and channels are answered: those that mention the "
            "bot, reply to it or are commands, or all. The others are context."
        ),
    ] = "mentions"
    commands: Annotated[
        dict[str, str],
        Field(description="Menu of commands with their texts; empty leaves the menu as it is."),
    ] = _COMMANDS
    drafts: Annotated[
        Literal["native", "messages"],
        Field(
            description="How an answer is shown while it is written: `native` as a draft where "
            "Telegram has them, `messages` as a message that is edited."
        ),
    ] = "native"
    webhook_url: Annotated[
        str | None,
        Field(description="Public HTTPS address of the webhook; without, the bot polls."),
    ] = None
    webhook_secret: Annotated[
        SecretStr | None,
        Field(description="Secret that Telegram sends along, 1 to 256 of `A-Z a-z 0-9 _ -`."),
    ] = None
    webhook_host: Annotated[str, Field(description="Address on which the webhook listens.")] = (
        "127.0.0.1"
    )
    webhook_port: Annotated[int, Field(ge=0, le=65535, description="Its port.")] = 8443
    per_second: Annotated[
        float, Field(gt=0, description="Messages of the bot in a second that Telegram accepts.")
    ] = 30.0
    per_chat_per_second: Annotated[
        float, Field(gt=0, description="Messages to a chat in a second.")
    ] = 1.0
    per_group_in_minute: Annotated[
        int, Field(gt=0, description="Messages to a group within any minute.")
    ] = 20

    @model_validator(mode="after")
    def _require_secrets(self) -> Self:
        if (self.token is None) == (self.token_file is None):
            raise ValueError("set either `token` or `token_file`")
        if self.webhook_url is not None and self.webhook_secret is None:
            raise ValueError("`webhook_url` needs `webhook_secret`")
        try:
            is_token = _TOKEN.fullmatch(self.read_token()) is not None
        except (OSError, UnicodeDecodeError):
            is_token = False
        if not is_token:
            raise ValueError(
                "the token is none of a bot: @BotFather gives one such as 123456:ABC-DEF"
            )
        return self

    def read_token(self) -> str:
        """Return the token of the bot."""
        if self.token_file is not None:
            return self.token_file.read_text("ascii").strip()
        return "" if self.token is None else self.token.get_secret_value()

    @property
    def webhook(self) -> Webhook | None:
        """The webhook of the bot; None if the bot polls."""
        if self.webhook_url is None or self.webhook_secret is None:
            return None
        return Webhook(
            url=self.webhook_url,
            secret=self.webhook_secret.get_secret_value(),
            host=self.webhook_host,
            port=self.webhook_port,
        )
